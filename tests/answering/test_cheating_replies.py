"""Replies that say what no snippet says; `python -m scripts.cheating_replies` sends them through the whole command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from biorag.answering.verification.checker import Checker, marked_sentences
from biorag.corpus.sources import demo_file
from biorag.types import Snippet, Verdict

NOT_SEEN = {"e18", "e29", "e40"}  # two sentences glued, a hedge after what it governs
SCRIPTS = Path(__file__).parents[2] / "scripts"
CASES = [
    json.loads(line)
    for path in sorted(SCRIPTS.glob("cheating_replies*.jsonl"))
    for line in path.read_text().splitlines()
]


@pytest.fixture(scope="module")
def snippets() -> dict[str, Snippet]:
    rows = map(json.loads, demo_file("snippets.jsonl").read_text().splitlines())
    return {row["id"]: Snippet(row["id"], row["title"], row["content"]) for row in rows}


def marked(case: dict) -> object:
    unseen = [pytest.mark.xfail(strict=True, reason="docs/answers.md says so")] if case["id"] in NOT_SEEN else []
    return pytest.param(case, id=case["id"], marks=unseen)


@pytest.mark.parametrize(
    "case", [marked(case) for case in CASES if case["kind"] not in ("wrong number", "wrong document")]
)
def test_what_no_snippet_says_is_not_supported(case, snippets):
    for false in case["false"]:
        for sentence, _ in marked_sentences(false):
            checked = Checker().check_claim(sentence, [snippets[case["snippet"]]], case["question"])
            assert checked.verdict is not Verdict.SUPPORTED, checked.evidence
