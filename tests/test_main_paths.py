"""The program as users run it: from an index to benchmarks, with the starter models, signals, bugs and exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from biorag.cli import main
from biorag.corpus.sources import demo_file
from biorag.errors import MissingError
from tests.cli import done, invoke, run, start, wait_until, with_exports


def run_in_terminal(home: Path, *arguments) -> tuple[int, str, str]:
    """Run with a terminal as stderr, as a user does who keeps stdout; return code, stdout and stderr."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "biorag", *arguments]
    environment = {**os.environ, "BIORAG_HOME": str(with_exports(home)), "COLUMNS": "120"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True, env=environment) as process:
        os.close(theirs)
        said = b""
        while True:
            try:
                piece = os.read(ours, 65_536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            said += piece
        stdout = process.stdout.read()
        code = process.wait()
    os.close(ours)
    return code, stdout, said.decode("utf-8", "replace")


@pytest.fixture(scope="module")
def indexed(tmp_path_factory):
    """A home that a real `biorag index demo` filled, and what the command gave."""
    home = tmp_path_factory.mktemp("main-paths")
    return home, *run_in_terminal(home, "index", "demo", "--json")


@pytest.fixture(scope="module")
def home(indexed):
    return indexed[0]


def result_files(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*_demo-*.json"))}


# --- index, search, ask -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_index_prints_json_on_stdout_and_progress_on_stderr(indexed):
    _, code, stdout, stderr = indexed
    assert code == 0
    found = json.loads(stdout)
    assert found.pop("seconds") > 0
    assert found == {
        "name": "demo",
        "added": 263,
        "updated": 0,
        "unchanged": 0,
        "deleted": 0,
        "rejected": 0,
        "duplicates": 0,
        "complete": True,
        "torn": [],
        "snippets": 263,
        "files": {"taken": {"MedRAG or BEIR JSONL": 1}, "left": {}},
        "renamed": 0,
        "lacking": [],
        "unreadable": [],
    }
    assert "Indexing" in stderr
    assert "263/263" in stderr
    assert "Traceback" not in stderr


@pytest.mark.slow
def test_ask(home):
    ended = run("ask", "How does metformin lower blood glucose?", "--json", home=home)
    found = json.loads(ended.stdout)
    assert ended.stderr == "Index 'demo' (the only one)\n"
    assert found["question"] == "How does metformin lower blood glucose?"
    assert found["answer"]
    texts = {hit["id"]: hit["content"] for hit in found["hits"]}
    assert "metformin" in texts[found["hits"][0]["id"]].lower()
    assert found["citations"], "the demonstration's answer cites its evidence"
    for citation in found["citations"]:
        assert citation["id"] == found["hits"][citation["n"] - 1]["id"]
        assert citation["quote"] in texts[citation["id"]]


# --- benchmarks ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("way", ["generate", pytest.param("score", marks=pytest.mark.long)])
def test_bench_mirage(home, tmp_path, way):
    tasks = ["medmcqa", "bioasq"]
    arguments = ["--benchmark", "demo", "--limit", "1", "--answer", way, "--max-tokens", "24", "-k", "1"]
    asked = [part for task in tasks for part in ("--task", task)]
    ended = run("bench", "mirage", *arguments, *asked, "--out", tmp_path, "--json", home=home)
    found = json.loads(ended.stdout)
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8")) == found
    assert list(found["tasks"]) == tasks
    assert all((score["n"], score["parsed"], score["forced_A"]) == (1, 1.0, 0) for score in found["tasks"].values())
    files = {path.parts[0]: path for path in map(Path, result_files(tmp_path))}
    assert set(files) == set(found["tasks"])
    questions = json.loads(demo_file("benchmark.json").read_bytes())
    for task, path in files.items():
        llm, corpus, retriever = "SmolLM2-135M-Instruct.Q4_1", "demo", "hybrid+encoder"
        assert path.parent == Path(task, "rag_1", llm, corpus, retriever)
        split, _, id = path.stem.partition("_")
        assert split == ("dev" if task == "medmcqa" else "test")
        first = json.loads((tmp_path / path).read_text(encoding="utf-8"))[0]
        # MIRAGE's rule that fits a reply in JSON.
        (letter,) = re.findall(r'^\s*(A|B|C|D)"', first.split('"answer_choice": "')[-1].strip())
        assert letter in questions[task][id]["options"]
        assert found["tasks"][task]["accuracy"] == (letter == questions[task][id]["answer"])
    assert found["average"] == sum(score["accuracy"] for score in found["tasks"].values()) / len(tasks)


# --- signals ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long),
        pytest.param(signal.SIGKILL, -signal.SIGKILL, marks=pytest.mark.long),
    ],
)
def test_an_index_run_that_is_stopped_goes_on(tmp_path, sent, code):
    arguments = ["index", "demo", "--batch-size", "8", "--store-tokens", "none", "--json"]
    folder = tmp_path / "indexes" / "demo"

    flushed: set[int] = set()

    def first_batch_is_durable():
        # The mappings are written before the rest of a batch: once those of a second one come, the first is whole.
        tracked = folder.glob("shard/segments/*/mutable_id_tracker.mappings")
        flushed.add(sum(path.stat().st_size for path in tracked))
        return len(flushed - {0}) > 1

    with start(*arguments, home=tmp_path) as process:
        wait_until(process, first_batch_is_durable)
        time.sleep(0.1)
        process.send_signal(sent)
        ended, stdout, stderr = process.communicate()
    assert (ended, stdout) == (code, ""), stderr
    assert "Traceback" not in stderr
    if sent != signal.SIGKILL:
        sentence = "error: interrupted; finished work is kept, and the same command resumes"
        assert stderr.splitlines()[-1] == sentence
    assert json.loads((folder / "manifest.json").read_text())["complete"] is False

    found = json.loads(run(*arguments, home=tmp_path).stdout)
    assert (found["added"] + found["unchanged"], found["updated"], found["snippets"]) == (263, 0, 263)
    assert found["unchanged"] >= 8, "what was done before the signal is kept"
    assert found["added"] > 0, "the first run was stopped before its end"
    assert json.loads((folder / "manifest.json").read_text())["complete"] is True


# --- what an index and a machine have -----------------------------------------------------------------------


@pytest.mark.slow
def test_doctor_finds_everything_well():
    found = done(invoke("doctor", "--json", BIORAG_THREADS="1"))
    assert found["ok"] is True
    assert {check["name"] for check in found["checks"]} >= {"home", "starter encoder", "a question, end to end"}
    assert all(check["ok"] for check in found["checks"])
    assert "Isoniazid neuropathy and pyridoxine" in found["checks"][-1]["detail"]


def test_doctor_names_what_fails_and_goes_on(tmp_path, monkeypatch):
    def broken(settings):
        raise MissingError("no question today")

    monkeypatch.setattr("biorag.commands.doctor._question", broken)
    broken_index = tmp_path / "indexes" / "broken"
    broken_index.mkdir(parents=True)
    (broken_index / "manifest.json").write_text("{")
    result = invoke("doctor", "--json", home=tmp_path)
    assert result.exit_code == 4
    found = json.loads(result.stdout)
    assert found["ok"] is False
    wrong = {check["name"]: check["detail"] for check in found["checks"] if not check["ok"]}
    assert set(wrong) == {"indexes", "a question, end to end"}
    assert "manifest.json is damaged" in wrong["indexes"]
    table = invoke("doctor", home=tmp_path)
    assert (table.exit_code, "FAILS" in table.stdout) == (4, True)


# --- mistakes, interrupts and bugs --------------------------------------------------------------------------


def raising(error):
    def step(*_, **__):
        raise error

    return step


def call_main(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["biorag", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


@pytest.mark.slow
def test_a_bug_is_one_sentence_and_exit_code_1(monkeypatch, home, capsys):
    monkeypatch.setenv("BIORAG_HOME", str(home))
    monkeypatch.setattr("biorag.api.session.Session.search", raising(RuntimeError("boom")))
    assert call_main(monkeypatch, "search", "x", "--mode", "bm25", "--no-rerank", "--json") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    index, error = captured.err.splitlines()
    assert index == "Index 'demo' (the only one)"
    assert error.startswith("error: internal error (RuntimeError: boom): run again as 'biorag --debug")
