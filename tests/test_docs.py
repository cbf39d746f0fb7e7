"""Every command and option is explained; every command line, link and path in the documentation exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from biorag.cli import app
from tests.cli import done, invoke

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
DOCUMENTS = [ROOT / "README.md", *PAGES]
PROSE = [*DOCUMENTS, ROOT / "CONTRIBUTING.md", ROOT / "LOG.md"]
PROGRAM = typer.main.get_command(app)


def is_group(command) -> bool:
    return hasattr(command, "commands")


def walk(command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield every command with its path: (), ("index",), ("bench",), ("bench", "mirage"), ..."""
    yield path, command
    for name, inner in (command.commands if is_group(command) else {}).items():
        yield from walk(inner, (*path, name))


COMMANDS = dict(walk(PROGRAM))
LEAVES = {path: command for path, command in COMMANDS.items() if not is_group(command)}


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_shows_every_option_and_what_it_is_for(path):
    command, result = COMMANDS[path], CliRunner().invoke(app, [*path, "--help-all"])
    assert result.exit_code == 0
    assert (command.help or "").strip()
    for parameter in command.params:
        assert (getattr(parameter, "help", "") or "").strip(), parameter.name
        if parameter.param_type_name == "option" and not parameter.hidden:
            assert max(parameter.opts, key=len) in result.stdout


NEW_NAMES = {("snapshot", "save"): ("indexes", "export"), ("snapshot", "load"): ("indexes", "import")}


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_help_of_a_command_ends_in_examples_that_exist(path):
    _, _, examples = LEAVES[path].help.partition("Examples")
    lines = [line.strip() for line in examples.splitlines() if re.search(r"(^|\| )biorag ", line.strip())]
    assert lines
    assert all(f"biorag {' '.join(NEW_NAMES.get(path, path))}" in line for line in lines)
    assert [fault_of(words) for line in lines for words in commands_of(line)] == [None] * len(lines)
    printed = CliRunner().invoke(app, [*path, "--help-all"], env={"COLUMNS": "200"}).stdout
    assert all(line in printed for line in lines), "every example stands on a line of its own"


# --- reading documents --------------------------------------------------------------------------------------


def code_blocks(text: str) -> Iterator[list[str]]:
    """Yield the lines of each fenced or indented code block; lines that end in a backslash are joined."""
    fence, block, blank = "", [], True
    for line in [*text.splitlines(), ""]:
        mark = re.match(r"\s*(```+|~~~+)", line)
        indented = line.startswith("    ") and (blank or bool(block))
        if mark and (not fence or line.strip() == fence):
            fence = "" if fence else mark[1]
        elif fence or indented:
            block.append(line.strip())
            continue
        if block:
            yield "\n".join(block).replace("\\\n", " ").splitlines()
        block, blank = [], not line.strip()


def commands_of(line: str) -> Iterator[list[str]]:
    """Yield the words after `biorag` of each command of a shell line that runs it."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if not set(word) <= set("();<>|&"):
            words.append(word)
            continue
        while words and (words[0] in ("$", "time") or re.match(r"[A-Z_][A-Z_0-9]*=", words[0])):
            words.pop(0)
        if words and Path(words[0]).name == "biorag":
            yield words[1:]
        elif len(words) > 2 and Path(words[0]).name.startswith("python") and words[1:3] == ["-m", "biorag"]:
            yield words[3:]
        words = []


def command_lines(text: str) -> Iterator[list[str]]:
    """Yield the words of every biorag command in a document's code blocks; output below a prompt is none."""
    for block in code_blocks(text):
        prompted = [line for line in block if line.startswith("$ ")]
        for line in prompted or block:
            if re.search(r"\bbiorag\s", line):
                yield from commands_of(line)


def fault_of(words: list[str]) -> str | None:
    """Return what is wrong with a command: an unknown command or option; None if nothing is.

    Brackets around what may be left out and dots are passed over.
    """
    command, path, rest = PROGRAM, ["biorag"], [word.strip("[]") for word in words]
    if not rest:
        return "biorag names no command"
    while rest:
        word = rest.pop(0)
        if word.startswith("-") and word != "-":
            name, equals, _ = word.partition("=")
            found = option_of(command, name)
            if found is None:
                return f"{' '.join(path)} has no option {name}"
            if found and not equals and not rest:
                return f"option {name} lacks its value"
            if found and not equals:
                rest.pop(0)
        elif is_group(command):
            if rest and f"{word} {rest[0]}" in command.commands:
                word = f"{word} {rest.pop(0)}"
            if word not in command.commands:
                return f"{' '.join(path)} has no command {word}"
            command = command.commands[word]
            path.append(word)
    return None


def option_of(command, name: str) -> bool | None:
    """Return whether an option takes a value; None if there is none of that name."""
    if name in ("-h", "--help", "--help-all", "--offline", "--debug"):
        return False
    for parameter in command.params:
        if name in parameter.secondary_opts:
            return False
        if name in parameter.opts and name.startswith("-"):
            return not parameter.is_flag
    return None


def faults(text: str) -> list[str]:
    found = ((words, fault_of(words)) for words in command_lines(text))
    return [f"{' '.join(words)}: {fault}" for words, fault in found if fault]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("biorag serch x", "biorag has no command serch"),
        ("biorag bench latensy", "biorag bench has no command latensy"),
        ("biorag search x --modus bm25", "biorag search has no option --modus"),
        ("biorag index demo --k 5", "biorag index has no option --k"),
        ("biorag --k 5 search x", "biorag has no option --k"),
        ("biorag search x --mode", "option --mode lacks its value"),
        ("biorag", "biorag names no command"),
    ],
)
def test_the_check_finds_what_does_not_exist(line, fault):
    assert [fault_of(words) for words in commands_of(line)] == [fault]


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_command_line_of_the_documentation_exists(document):
    assert faults(document.read_text(encoding="utf-8")) == []


def test_models_recommend_gives_each_with_its_source_and_a_command_that_exists():
    found = done(invoke("models", "recommend", "--json"))
    assert [fault_of(model["command"].split()[1:]) for model in found] == [None] * len(found)
    assert all(model["source"].startswith("https://") for model in found)
    text = invoke("models", "recommend").stdout
    assert all(model["name"] in text and model["command"] in text for model in found)


# --- links and paths ----------------------------------------------------------------------------------------


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = (line.lstrip("#").strip() for line in text.splitlines() if re.match(r"#+ ", line))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(document: Path) -> list[str]:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        if re.match(r"https?://", target):
            continue
        name, _, anchor = target.partition("#")
        path = document.parent / name if name else document
        if not path.exists() or (anchor and anchor not in anchors(path.read_text(encoding="utf-8"))):
            broken.append(target)
    return broken


def unknown_paths(document: Path) -> list[str]:
    """Return the files of the repository that a page names in backticks or runs, and that are not there."""
    text = document.read_text(encoding="utf-8")
    named = re.findall(r"(?<![\w/.])((?:biorag|scripts|tests)/[\w./-]*\w)", text)
    run = [name.replace(".", "/") + ".py" for name in re.findall(r"-m (scripts\.[\w.]*\w)", text)]
    return [name for name in [*named, *run] if not (ROOT / name).exists()]


def test_broken_links_and_unknown_paths_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# One: two\n[a](#one-two) [b](#three) [c](other.md) [d](https://x) `tests/nowhere.py` -m scripts.no\n"
    )
    assert broken_links(page) == ["#three", "other.md"]
    assert unknown_paths(page) == ["tests/nowhere.py", "scripts/no.py"]


@pytest.mark.parametrize("document", PROSE, ids=name_of)
def test_every_link_and_path_of_the_documentation_exists(document):
    assert broken_links(document) == []
    assert document.name == "LOG.md" or unknown_paths(document) == []  # an entry of the log runs at its own commit


def test_the_index_of_the_documentation_names_every_page():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    missing = [
        page for page in PAGES if page.name != "index.md" and f"]({page.relative_to(ROOT / 'docs')})" not in index
    ]
    assert missing == []


# --- docs/architecture.md -----------------------------------------------------------------------------------


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SOURCES = {str(path.relative_to(ROOT)): path for path in sorted((ROOT / "biorag").rglob("*.py"))}


def section(title: str) -> str:
    return ARCHITECTURE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_functions_that_the_ways_name_exist():
    named = re.findall(r"`([\w/]+\.py):([\w.]+)`", section("The way of a question") + section("The way of a document"))
    assert len(named) > 15
    lost = [
        (module, name)
        for module, name in named
        if not re.search(rf"^ *(def|class) {name.rpartition('.')[2]}\b|^{name} =", text_of(module), re.MULTILINE)
    ]
    assert lost == []


def text_of(module: str) -> str:
    return SOURCES[f"biorag/{module}"].read_text(encoding="utf-8")


# --- leftovers ------------------------------------------------------------------------------------------------
