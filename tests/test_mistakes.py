"""Mistakes that users make, each with its sentence; docs/mistakes.md is the table, written from here."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from biorag.errors import nearest
from tests.cli import failed, invoke

PAGE = Path(__file__).parents[1] / "docs" / "mistakes.md"


class Mistake(NamedTuple):
    """A command line, what its message ends in, and its exit code; `settings` is the biorag.toml in the home."""

    line: str
    hint: str
    code: int = 2
    settings: str = ""


MISTAKES = {
    "Commands": [
        Mistake("serch x", "did you mean 'biorag search'?"),
        Mistake("answer x", "did you mean 'biorag ask'?"),
        Mistake("evaluate", "did you mean 'biorag bench'?"),
        Mistake("train retreiver x", "did you mean 'biorag train retriever'?"),
        Mistake("indexes remove x", "did you mean 'biorag indexes delete'?"),
        Mistake("delete notes.md", "(notes.md) beside its options --name, --qdrant, --id"),
        Mistake("graph status", "use one of build, info, fill"),
    ],
    "Options": [
        Mistake("search x --zzz", "'biorag search --help-all' lists them"),
        Mistake("search x --top-k 5", "did you mean --k?"),
        Mistake("search x --index pubmed", "did you mean --name?"),
        Mistake("search x --Json", "did you mean --json?"),
        Mistake("ask x --model starter", "did you mean --llm?"),
        Mistake("--ofline ask x", "did you mean --offline?"),
        Mistake("train retriever x --out m --lr 0.1", "did you mean --learning-rate?"),
        Mistake("train retriever x", "missing option '--out'"),
        Mistake("search", "missing argument 'query'"),
        Mistake("search x --mode", "option '--mode' requires an argument"),
        Mistake("search x --name a --name b", "biorag search takes --name once: ask one index at a time"),
        Mistake("search x --json=yes", "option '--json' does not take a value"),
    ],
    "Values": [
        Mistake("search x --mode sparse", "(did you mean bm25?)"),
        Mistake("search x --fusion linaer", "--fusion 'linaer': use linear, rrf or exact (did you mean linear?)"),
        Mistake("search x --format bibtx", "(did you mean bibtex?)"),
        Mistake("search x --k five", "invalid value for '--k'"),
        Mistake("search x --k 0", "--k 0: give at least 1"),
        Mistake("search x --name a,b", "--name 'a,b': give one name of letters, digits, '.', '_' and '-'"),
        Mistake("ask x --llm startr", "(did you mean starter?)", 4),
        Mistake("search x --name pubmde", "index 'pubmde' is not there (there are pubmed) (did you mean pubmed?)", 4),
    ],
    "Settings in the configuration file": [
        Mistake("search x", "(did you mean k?)", settings="top_k = 5"),
        Mistake("search x", "(did you mean hybrid?)", settings='mode = "hybird"'),
    ],
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder to work in, and a home with an index that is known by its name alone."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "home" / "indexes" / "pubmed"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    return tmp_path / "home"


def message_of(mistake: Mistake, home: Path) -> str:
    (home / "biorag.toml").write_text(mistake.settings + "\n")
    message = failed(invoke(*shlex.split(mistake.line), home=home), mistake.code, mistake.hint)
    return message.replace(str(home), "…")


def page(home: Path) -> str:
    """Return the table of all mistakes."""
    lines = [
        "# Mistakes and their messages",
        "",
        "A command line that biorag cannot read ends with exit code 2, a missing index or model with 4. The message is",
        "one sentence on stderr. It names the option, setting, command or index at fault, and the nearest right one.",
    ]
    for title, mistakes in MISTAKES.items():
        lines += ["", f"## {title}", "", "| you type | biorag says |", "|---|---|"]
        for mistake in mistakes:
            said = message_of(mistake, home).removeprefix("error: ")
            typed = f"`biorag {mistake.line}`" + (f" with `{mistake.settings}`" if mistake.settings else "")
            lines.append(f"| {typed} | {said} |".replace("bm25|dense", r"bm25\|dense"))
    return "\n".join(lines) + "\n"


def test_the_page_shows_every_mistake_and_its_message(home):
    """WRITE_PAGES=1 writes the page."""
    if os.environ.get("WRITE_PAGES"):
        PAGE.write_text(page(home), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(home)


def test_the_nearest_name_is_found_by_letters_synonyms_and_beginnings():
    assert nearest("--Top-K", ["--k", "--mode"]) == "--k"
    assert nearest("evals", ["--eval-steps", "--evaluations"]) is not None
    assert nearest("xyzzy", ["ask", "search"]) is None
    assert nearest("--", ["ask"]) is None
