"""Forty mistakes that users make, each with its sentence; docs/mistakes.md is the table, written from here."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

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
        Mistake("query x", "did you mean 'biorag search'?"),
        Mistake("answer x", "did you mean 'biorag ask'?"),
        Mistake("idnex demo", "did you mean 'biorag index'?"),
        Mistake("evaluate", "did you mean 'biorag bench'?"),
        Mistake("modles", "did you mean 'biorag models'?"),
        Mistake("bench latensy", "did you mean 'biorag bench latency'?"),
        Mistake("train retreiver x", "did you mean 'biorag train retriever'?"),
        Mistake("snapshot sav x", "did you mean 'biorag snapshot save'?"),
        Mistake("graph status", "use one of build, info, fill"),
    ],
    "Options": [
        Mistake("search x --zzz", "'biorag search --help-all' lists them"),
        Mistake("search x --modus bm25", "did you mean --mode?"),
        Mistake("search x --top-k 5", "did you mean --k?"),
        Mistake("search x --index pubmed", "did you mean --name?"),
        Mistake("search x --k_init 50", "did you mean --k-init?"),
        Mistake("search x --Json", "did you mean --json?"),
        Mistake("search x --fliter year>2015", "did you mean --filter?"),
        Mistake("search x --norerank", "did you mean --no-rerank?"),
        Mistake("ask x --model starter", "did you mean --llm?"),
        Mistake("ask x --opt A=b", "did you mean --option?"),
        Mistake("--ofline ask x", "did you mean --offline?"),
        Mistake("train retriever x --output m", "did you mean --out?"),
        Mistake("train retriever x --out m --epoch 2", "did you mean --epochs?"),
        Mistake("train retriever x --out m --lr 0.1", "did you mean --learning-rate?"),
        Mistake("train retriever x", "needs --out"),
        Mistake("search", "needs QUERY"),
        Mistake("search x --mode", "--mode needs a value: bm25, dense, hybrid"),
        Mistake("search x --json=yes", "--json takes no value"),
    ],
    "Values": [
        Mistake("search x --mode hybird", "--mode 'hybird': use bm25, dense or hybrid (did you mean hybrid?)"),
        Mistake("search x --mode sparse", "(did you mean bm25?)"),
        Mistake("search x --fusion linaer", "--fusion 'linaer': use linear, rrf or exact (did you mean linear?)"),
        Mistake("search x --format bibtx", "(did you mean bibtex?)"),
        Mistake("search x --k five", "--k 'five': Input should be a valid integer: see"),
        Mistake("search x --k 0", "--k 0: Input should be greater than or equal to 1"),
        Mistake("index demo --similarity cosin", "--similarity 'cosin': use cosine or dot (did you mean cosine?)"),
        Mistake("index demo --on-bad-line skipp", "(did you mean skip?)"),
        Mistake("ask x --llm startr", "(did you mean starter?)", 4),
    ],
    "Indexes": [
        Mistake("search x --name pubmde", "index 'pubmde' is not there (there are pubmed) (did you mean pubmed?)", 4),
        Mistake("info PubMed", "(did you mean pubmed?)", 4),
    ],
    "Settings in the configuration file": [
        Mistake("search x", "(did you mean k_init?)", settings="k_inti = 50"),
        Mistake("search x", "(did you mean k?)", settings="top_k = 5"),
        Mistake("search x", "(did you mean hybrid?)", settings='mode = "hybird"'),
    ],
}
ALL = [mistake for mistakes in MISTAKES.values() for mistake in mistakes]


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


def test_there_are_forty_mistakes_at_least():
    assert len(ALL) >= 40


@pytest.mark.parametrize("mistake", ALL, ids=lambda mistake: f"{mistake.line} {mistake.settings}".strip())
def test_a_mistake_is_told_with_the_nearest_right_thing(mistake, home):
    message_of(mistake, home)


def page(home: Path) -> str:
    """Return the table of all mistakes."""
    lines = [
        "# Mistakes and their messages",
        "",
        "A command line that cannot be read ends with exit code 2, an index or model that is not there with 4. The",
        "message is one sentence on stderr, which names the option, setting, command or index and, where one is alike,",
        "the nearest right one. `tests/test_mistakes.py` holds every row.",
    ]
    for title, mistakes in MISTAKES.items():
        lines += ["", f"## {title}", "", "| you type | biorag says |", "|---|---|"]
        for mistake in mistakes:
            said = message_of(mistake, home).removeprefix("error: ")
            typed = f"`biorag {mistake.line}`" + (f" with `{mistake.settings}`" if mistake.settings else "")
            lines.append(f"| {typed} | {said} |".replace("bm25|dense", r"bm25\|dense"))
    return "\n".join(lines) + "\n"


def test_the_page_shows_every_mistake_and_its_message(home):
    """Written by this test where WRITE_PAGES is set."""
    if os.environ.get("WRITE_PAGES"):
        PAGE.write_text(page(home), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(home)


def test_words_that_are_alike_are_found_and_others_are_not():
    from biorag.errors import nearest

    assert nearest("--Top-K", ["--k", "--mode"]) == "--k"
    assert nearest("evals", ["--eval-steps", "--evaluations"]) is not None
    assert nearest("xyzzy", ["ask", "search"]) is None
    assert nearest("--", ["ask"]) is None
