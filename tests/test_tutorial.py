"""Every command of docs/tutorial.md is run in order, and prints what the page shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import invoke, succeeded
from tests.entrez import Entrez
from tests.tutorial import RECORDS, pubmed, write_papers

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "tutorial.md").read_text(encoding="utf-8")


def transcript() -> Iterator[tuple[list[str], list[str]]]:
    """Yield the words of each command, and the passages of output shown below it; `...` stands between passages."""
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        for turn in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = turn.partition("\n")
            passages = re.split(r"^\.\.\.$", output, flags=re.MULTILINE)
            yield shlex.split(command), [on_one_line(passage) for passage in passages if passage.strip()]


def on_one_line(text: str) -> str:
    """Return text without what the terminal decides: ends of lines, padding, and the lines between columns."""
    return " ".join(text.replace("│", " ").split())


def test_every_command_of_the_tutorial_prints_what_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_papers(Path("papers"))
    entrez = Entrez()
    entrez.found, entrez.records = list(RECORDS), pubmed
    turns = list(transcript())
    assert len(turns) > 7
    for (program, *words), passages in turns:
        assert program == "biorag"
        printed = on_one_line(succeeded(invoke(*words, BIORAG_EUTILS=entrez.url)).output)
        for passage in passages:
            before, shown, printed = printed.partition(passage)
            assert shown, (words, passage, before)
    entrez.close()


def test_the_demonstration_ends_with_an_answer_that_is_right():
    makefile = (Path(__file__).resolve().parents[1] / "Makefile").read_text(encoding="utf-8")
    commands = re.findall(r"^\t\$\(BIN\)/biorag (.*)$", makefile, re.MULTILINE)
    replies = [on_one_line(succeeded(invoke(*shlex.split(command))).stdout) for command in commands]
    assert [command.partition(" ")[0] for command in commands] == ["index", "ask", "ask", "ask"]
    assert "Answer: B. pyridoxine" in replies[2]
    assert "peripheral neuropathy" in replies[3] and "[1] Pyridoxine supplements prevent it" in replies[3]
