"""A judge of claims beside the rules: who asks it, and what is said of it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from biorag import engine
from biorag.api.session import Session
from biorag.mcp_server.tools import Tools
from biorag.settings.settings import Settings
from tests.cli import done, failed, invoke, succeeded
from tests.conftest import write_judged

pytestmark = pytest.mark.models

QUESTION, CLAIM = "What blocks vitamin K?", "The drug keeps clotting factors that need vitamin K from being made."
BM25 = ("--mode", "bm25", "--no-rerank")
NOTE = "note: judged by some/judge\n"


class Recorded:
    """A judge that supports every claim, and records them."""

    sha256 = "5" * 64

    def __init__(self):
        self.claims = []

    def judge(self, pairs):
        self.claims += [claim for _, claim in pairs]
        return np.tile(np.array([0.83, 0.02, 0.15], np.float32), (len(pairs), 1))


@pytest.fixture
def judge(monkeypatch):
    recorded = Recorded()
    monkeypatch.setattr(engine, "load_judge", lambda verifier, settings: recorded)
    monkeypatch.setenv("BIORAG_VERIFIER", "some/judge")
    return recorded


@pytest.fixture
def writer(server):
    """The options of a generator that answers with the claim."""
    server.rule = lambda body: json.dumps({"answer": CLAIM, "citations": [1], "answer_choice": "A"})
    return ("--llm", server.url, "--llm-model", "writer", "--no-cache", *BM25)


def test_what_is_shown_to_a_person_says_once_who_judged(small_home, judge, writer):
    for words, line in (
        (("verify", CLAIM, *BM25), "supports 83 %, contradicts 2 %, neither 15 %"),
        (("ask", QUESTION, *writer), f"{CLAIM} [supported, 83 %] [1"),
        (("ask", QUESTION, "-o", "A=warfarin", "-o", "B=insulin", *BM25), "Chosen by the evidence alone: supported"),
    ):
        shown = succeeded(invoke(*words, home=small_home))
        assert line in shown.stdout and " ".join(shown.stderr.split()).count(NOTE.strip()) == 1, words
        assert judge.claims, words
        judge.claims.clear()
    talk = succeeded(invoke("chat", *writer, home=small_home, input=f"{QUESTION}\n{QUESTION}"))
    assert " ".join(talk.stderr.split()).count(NOTE.strip()) == 2, "once an answer"
    settings = Settings.of(home=small_home, verifier="some/judge", mode="bm25", rerank=False)
    with Session(settings) as session:
        judge.claims.clear()
        assert Tools(session).verify_claim(CLAIM)["verdict"] == "supported"
        assert set(judge.claims) == {CLAIM}


def test_an_extract_and_the_rules_alone_ask_none(small_home, judge, writer):
    shown = succeeded(invoke("ask", QUESTION, *BM25, home=small_home))
    assert shown.stdout.startswith("Extract") and "judged by" not in shown.stderr
    rules = succeeded(invoke("ask", QUESTION, *writer, "--verifier", "none", home=small_home))
    assert "judged by" not in rules.stderr and "[unsupported]" in rules.stdout
    assert not judge.claims


def test_benchmarks_of_answers_ask_it_and_name_it(small_home, judge, tmp_path):
    data = write_judged(tmp_path / "asked", {"q": QUESTION}, [("q", "s1", 1)])
    (data / "answers.jsonl").write_text(json.dumps({"_id": "q", "type": "summary", "ideal_answer": ["Warfarin."]}))
    out = tmp_path / "answers"
    report = done(invoke("bench", "answers", data, *BM25, "--out", out, "--json", home=small_home))
    assert judge.claims and report["config"]["verifier"] == "some/judge"
    assert json.loads((out / "manifest.json").read_bytes())["identity"]["verifier"] == judge.sha256
    failed(invoke("bench", "answers", data, *BM25, "--verifier", "none", "--out", out, home=small_home), 5, "verifier")
    judge.claims.clear()
    run = ("bench", "mirage", "--benchmark", "demo", "--limit", 1, "--answer", "evidence", "--mode", "bm25")
    report = done(invoke(*run, "--out", tmp_path / "mirage", "--json", home=small_home))
    assert judge.claims and report["manifest"]["verifier"] == judge.sha256
    assert report["config"]["verifier"] == "some/judge"
