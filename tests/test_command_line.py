"""The command line: pages of help, options that stand anywhere, completion, panics, and what a start imports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from biorag.cli import app
from biorag.commands.application import hoisted
from biorag.utils.panics import PanicError, panics_raised
from tests.cli import environment, failed, invoke, succeeded

PAGE = 45  # lines
LIGHT = {
    *("annotated_doc", "annotated_types", "biorag", "click", "markdown_it", "mdurl", "platformdirs", "pydantic"),
    *("pydantic_core", "pygments", "rich", "shellingham", "typer", "typing_extensions", "typing_inspection"),
}
HEAVY = {"torch", "transformers", "sentence_transformers", "scipy", "sklearn", "pandas", "onnx"}
MOST = 80  # modules of biorag that a BM25 search imports
LOOK = """
import json, sys
before = set(sys.modules)
from biorag.cli import app
try:
    app(json.loads(sys.argv[1]))
except SystemExit as end:
    code = end.code
print(json.dumps({"code": code, "modules": sorted(set(sys.modules) - before)}))
"""
PanicException = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})


@pytest.mark.parametrize("words", [[], ["ask"], ["search"], ["index"], ["train", "retriever"], ["bench", "mirage"]])
def test_help_is_a_page_of_80_columns_and_help_all_has_every_option(words):
    def lines(option: str) -> list[str]:
        shown = CliRunner().invoke(app, [*words, option], env={"COLUMNS": "80", "TERM": "dumb"})
        assert shown.exit_code == 0, shown.output
        return shown.stdout.splitlines()

    page = lines("--help")
    assert len(page) <= PAGE
    assert max(len(line) for line in page if not line.startswith("  biorag ")) <= 80, "examples can be copied"
    assert "<bool>" not in "\n".join(page)
    assert "[default: (" not in "\n".join(page)
    assert len(lines("--help-all")) >= len(page)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ask", "--config", "a.toml", "why", "--debug"], ["--config", "a.toml", "--debug", "ask", "why"]),
        (["ask", "--config=a.toml", "why"], ["--config=a.toml", "ask", "why"]),
        (["ask", "--", "--offline"], ["ask", "--", "--offline"]),
        (["ask", "--config"], ["--config", "ask"]),
    ],
)
def test_options_of_the_program_stand_anywhere(words, expected):
    assert hoisted(words) == expected


@pytest.mark.parametrize(("words", "expected"), [("biorag search x --mode h", "hybrid"), ("biorag se", "search")])
def test_the_shell_completes_commands_and_values(tmp_path, words, expected):
    asked = {"_BIORAG_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    code = "import sys; sys.argv = ['biorag']; from biorag.cli import app; app(prog_name='biorag')"
    variables = {**os.environ, **environment(tmp_path, {}), **asked}
    ended = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)
    assert expected in ended.stdout.split(), (ended.stdout, ended.stderr)


@pytest.mark.parametrize("debug", [False, True])
def test_a_panic_of_the_engine_is_one_sentence(monkeypatch, tmp_path, debug):
    def panics(*_: object) -> None:
        raise PanicException("index out of bounds: the len is 3 but the index is 7")

    monkeypatch.setattr("biorag.indexes.store.Store.require_manifest", panics)
    result = invoke(*["--debug"] * debug, "search", "fever", home=tmp_path)
    if debug:
        assert (result.exit_code, "Traceback" in result.stderr) == (6, True)
    else:
        failed(result, 6, "the engine failed (index out of bounds", "biorag doctor")


def test_a_panic_is_raised_without_what_rust_prints_and_other_output_is_kept(capfd):
    with pytest.raises(PanicError, match="index out of bounds"), panics_raised():
        os.write(2, b"thread '<unnamed>' panicked at lib.rs:1:2\n")
        raise PanicException("index out of bounds")
    with pytest.raises(ValueError, match="another"), panics_raised():
        os.write(2, b"kept\n")
        raise ValueError("another")
    with panics_raised(), panics_raised():
        sys.stderr.write("and this\n")
    assert capfd.readouterr().err == "kept\nand this\n"


def looked(*arguments: str, **variables: str) -> set[str]:
    """Return the modules that a command imports in a process of its own."""
    command = [sys.executable, "-c", LOOK, json.dumps(arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **variables})
    look = json.loads(ended.stdout.splitlines()[-1])
    assert look["code"] == 0, ended.stderr
    return set(look["modules"])


@pytest.mark.parametrize("arguments", [["--help"], ["bench", "mirage", "--help"]], ids=" ".join)
def test_help_imports_nothing_heavy(arguments):
    modules = looked(*arguments)
    assert "biorag.commands.ask" not in modules, "a command is imported when it runs"
    packages = {module.partition(".")[0] for module in modules if not module.startswith("_sysconfigdata")}
    assert packages - sys.stdlib_module_names - LIGHT == set()


@pytest.mark.models
def test_a_question_imports_no_torch_and_a_bm25_search_few_modules(corpus_file, tiny_encoder, tmp_path, own_exports):
    home = tmp_path / "home"
    succeeded(invoke("index", corpus_file, "--encoder", tiny_encoder, home=home))
    for words in (["search", "aspirin and fever"], ["ask", "Which drug lowers fever?"]):
        packages = {module.partition(".")[0] for module in looked(*words, "--json", BIORAG_HOME=str(home))}
        assert "onnxruntime" in packages
        assert packages & HEAVY == set()
    modules = looked("search", "aspirin", "--mode", "bm25", "--no-rerank", BIORAG_HOME=str(home))
    assert len({module for module in modules if module.partition(".")[0] == "biorag"}) <= MOST


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", [["--help"], ["info", "--settings"]])
def test_a_full_disk_is_one_sentence_for_help_too(words):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "biorag", *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 6
    assert done.stderr.startswith("error: standard output: No space left on device")
    assert "Traceback" not in done.stderr and "ignored" not in done.stderr


AGAIN = "interrupted; run the same command again"
LOADED = """
import builtins, os
from biorag.__main__ import main
plain = builtins.__import__
def load(name, *rest):
    if name == "biorag.cli":
        os.kill(os.getpid(), NUMBER)
    return plain(name, *rest)
builtins.__import__ = load
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_program_loads_ends_it_in_one_sentence(number):
    code = LOADED.replace("NUMBER", str(int(number)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", f"error: {AGAIN}\n")


def test_a_signal_before_the_program_is_called_ends_it_in_one_sentence():
    """It is heeded as soon as the first module is there; before, Python itself says that it was interrupted."""
    code = "import biorag.__main__, os, signal; os.kill(os.getpid(), signal.SIGINT)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", f"error: {AGAIN}\n")


# The signal comes in a weak reference's callback, where nothing can be raised, and in a library that makes another
# error of it; in the last case once more, while its sentence is written.
LOST = {
    "ignored": 'One = type("One", (), {"__del__": lambda self: kill()}); One(); time.sleep(20)',
    "converted": "kill_as(ImportError)",
    "missing": "kill_as(MissingError)",
    "twice": "cli._print_error = lambda text: (kill(), plain(text)); kill()",
}


@pytest.mark.parametrize("case", LOST)
def test_a_signal_that_a_library_loses_ends_a_command_in_one_sentence(case):
    code = f"""
import os, signal, sys, time, biorag.cli as cli
from pathlib import Path
from biorag.errors import MissingError
plain = cli._print_error
def kill():
    os.kill(os.getpid(), signal.SIGINT)
def kill_as(kind):
    try:
        kill(); time.sleep(20)
    except KeyboardInterrupt:
        raise kind("a library") from None
def load(self):
    {LOST[case]}
cli.CommandKind.load = load
sys.argv = ["biorag", "doctor"]
cli.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "error: interrupted\n"), "it has nothing to resume"


@pytest.mark.parametrize(
    ("words", "broken", "code"),
    [
        *((words, ("stdout",), 141) for words in (["--help"], ["--version"], ["info", "--settings"])),
        (["info", "--settings"], ("stdout", "stderr"), 141),
        (["search", "x", "--name", "nowhere"], ("stdout", "stderr"), 4),
    ],
)
def test_output_that_nobody_reads_ends_a_command_silently(tmp_path, words, broken, code):
    read, write = os.pipe()
    os.close(read)
    streams = {name: write if name in broken else subprocess.PIPE for name in ("stdout", "stderr")}
    environment = {**os.environ, "BIORAG_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-m", "biorag", *words], env=environment, **streams)
    os.close(write)
    assert (done.returncode, done.stderr or b"") == (code, b"")


def in_bash(home: Path, words: str) -> subprocess.CompletedProcess[str]:
    """Run `biorag WORDS` with their redirections, over the only index of a home."""
    environment = {**os.environ, "BIORAG_HOME": str(home), "PYTHON": sys.executable}
    command = f'"$PYTHON" -m biorag {words}; exit ${{PIPESTATUS[0]}}'
    return subprocess.run(["bash", "-c", command], capture_output=True, env=environment, text=True)


@pytest.mark.parametrize("words", ["chat", "index - --name piped", "mcp"])
def test_a_closed_standard_input_is_one_sentence(small_home, words):
    ended = in_bash(small_home, f"{words} <&-")
    sentence = "error: standard input or output is closed: connect it, or name a file"
    assert (ended.returncode, ended.stdout, ended.stderr.splitlines()[-1]) == (3, "", sentence)
    assert not (small_home / "indexes" / "piped").exists()


@pytest.mark.parametrize("redirected", ["2>&- <&-", "2> >(exec true)"])
def test_without_a_standard_error_the_result_is_still_printed(small_home, redirected):
    plain, ended = (in_bash(small_home, f"search aspirin --mode bm25 --no-rerank {to}") for to in ("", redirected))
    assert plain.stdout.startswith("# Evidence\n")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, plain.stdout, "")


@pytest.mark.parametrize("command", ["ask", "weigh"])
def test_text_that_nobody_reads_ends_a_command_as_json_does(small_home, command):
    ended = in_bash(small_home, f"{command} 'Aspirin lowers fever.' 2>/dev/null | exec true")
    assert (ended.returncode, ended.stderr) == (141, "")


def test_an_unknown_id_is_repeated_in_short(small_home):
    sentence = failed(invoke("show", "a" * 100_000, home=small_home), 4, f"has no snippet '{'a' * 199}…: give the id")
    assert len(sentence) < 300


def test_help_of_weigh_shows_how_many_studies_it_reads():
    (line,) = [line for line in succeeded(invoke("weigh", "--help")).stdout.splitlines() if line.startswith("  -k")]
    assert line.endswith("[default: 50]")


@pytest.mark.parametrize("command", ["serve", "mcp"])
def test_help_of_servers_says_that_they_have_all_indexes(command):
    assert "Index to use. Default: all indexes." in succeeded(invoke(command, "--help")).stdout


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not hold programs to it")
def test_a_shell_that_limits_addresses_is_one_sentence(small_home):
    command = [sys.executable, "-m", "biorag", "search", "x", "--name", "default"]
    environment = {**os.environ, "BIORAG_HOME": str(small_home)}
    limited = ["bash", "-c", 'ulimit -v 1000000; exec "$@"', "-", *command]
    done = subprocess.run(limited, capture_output=True, env=environment, text=True)
    assert (done.returncode, done.stdout) == (6, "")
    assert done.stderr.splitlines()[-1].startswith(
        "error: biorag takes 3,072 MiB of addresses and this shell allows 976"
    )
    limited[-4:] = ["serve", "--help"]
    done = subprocess.run(limited, capture_output=True, env=environment, text=True)
    assert (done.returncode, done.stderr, done.stdout[:6]) == (0, "", "Usage:"), "which takes none"


def test_output_is_utf_8_whatever_the_locale(tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "BIORAG_HOME": str(tmp_path)}
    words = [sys.executable, "-m", "biorag", "info", "--settings", "--json"]
    ended = subprocess.run(words, capture_output=True, env=environment)
    assert (ended.returncode, json.loads(ended.stdout)["lambda"]) == (0, 0.03), ended.stderr
    table = subprocess.run(words[:-1], capture_output=True, env=environment).stdout
    assert "λ" in table.decode()
