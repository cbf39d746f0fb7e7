"""Every command of the pages for four people and of docs/paper.md is run in order, and prints what the page shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli import invoke, succeeded
from tests.entrez import Entrez
from tests.qdrant_standin import StandIn
from tests.tutorial import RECORDS, pubmed, write_exports, write_judged, write_papers

pytestmark = pytest.mark.slow

QDRANT = "http://localhost:6333"
DOCS = Path(__file__).resolve().parents[1] / "docs"


def blocks(page: str, kind: str) -> list[str]:
    """Return the fenced blocks of a kind in a page of the documentation."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def transcript(page: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the words of each command, and the passages of output shown below it; `...` stands between passages."""
    for block in blocks(page, "console"):
        for turn in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = turn.partition("\n")
            passages = re.split(r"^\.\.\.$", output, flags=re.MULTILINE)
            yield shlex.split(command), [on_one_line(passage) for passage in passages if passage.strip()]


def on_one_line(text: str) -> str:
    """Return text without what the terminal decides: ends of lines, padding, and the lines between columns."""
    return " ".join(text.replace("│", " ").split())


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The current folder, with the files that the pages for four people have in theirs."""
    monkeypatch.chdir(tmp_path)
    write_papers(Path("papers"))
    write_exports(Path("exports"))
    write_judged(Path("own"))
    return tmp_path


def test_a_clinician_gets_cited_answers(folder):
    entrez = Entrez()
    entrez.found, entrez.records = list(RECORDS), pubmed
    assert follow("clinician.md", BIORAG_EUTILS=entrez.url) == 9
    entrez.close()


def test_a_systematic_reviewer_weighs_and_checks(folder):
    assert follow("systematic-reviewer.md") == 7


def test_a_researcher_measures_trains_and_ablates(folder):
    assert follow("ir-researcher.md") == 7


def test_an_engineer_copies_onto_qdrant_and_restores(folder):
    with closing(StandIn()) as server:
        assert follow("engineer.md", {QDRANT: server.url}) == 8


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_main_paper_in_ten_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (sweep,) = blocks("paper.md", "toml")
    Path("sweep.toml").write_text(sweep, encoding="utf-8")
    assert follow("paper.md", BIORAG_HOME=str(tmp_path / "home")) == 11, "ten, and one that makes the questions"


def follow(page: str, servers: Mapping[str, str] = {}, **environment: str) -> int:
    """Run a page's commands, hold that each prints what is shown below it, and return how many there are.

    Servers of the page are replaced by those of the test.
    """
    turns = list(transcript(page))
    for (program, *words), passages in turns:
        assert program == "biorag"
        words = [servers.get(word, word) for word in words]
        printed = on_one_line(succeeded(invoke(*words, **environment)).output)
        for passage in passages:
            before, shown, printed = printed.partition(passage)
            assert shown, (words, passage, before)
    return len(turns)


def test_the_demonstration_ends_with_an_answer_that_is_right_and_is_short():
    makefile = (DOCS.parent / "Makefile").read_text(encoding="utf-8")
    commands = re.findall(r"^\t\$\(BIN\)/biorag (.*)$", makefile, re.MULTILINE)
    outputs = [succeeded(invoke(*shlex.split(command))).output for command in commands]
    assert [command.partition(" ")[0] for command in commands] == ["index", "ask", "ask"]
    last = on_one_line(outputs[-1])
    assert "peripheral neuropathy" in last and "[1] Pyridoxine supplements prevent it" in last
    lines = [line for output in outputs for line in output.splitlines()]
    assert len(lines) + len(commands) + makefile.partition("\ndemo:")[2].partition("\n\n")[0].count("@echo") < 40
