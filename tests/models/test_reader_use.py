"""A reader of claims beside the words of the evidence: who asks it, and what is said of it."""

from __future__ import annotations

import json

import pytest

from biorag import engine
from biorag.types import Trust
from tests.cli import done, failed, invoke, succeeded
from tests.conftest import write_judged
from tests.fakes import ScriptedReader

pytestmark = pytest.mark.models

QUESTION, CLAIM = "What blocks vitamin K?", "The drug keeps clotting factors that need vitamin K from being made."
BM25 = ("--mode", "bm25", "--no-rerank", "--answer-anyway")
NOTE = "note: read by some/reader, right 92% of the time where it was measured"


@pytest.fixture
def reader(monkeypatch):
    """A reader that supports everything, beside a packaged one, which chooses sentences."""
    trust = Trust(0.8, 0.8, 0.8, 0.92)
    scripted = ScriptedReader(lambda query, window: (0.83, 0.02), trust=trust, name="some/reader")
    load = engine.load_reader
    opened = lambda settings: scripted if settings.generation.reader == scripted.name else load(settings)  # noqa: E731
    monkeypatch.setattr(engine, "load_reader", opened)
    chooser = ScriptedReader(lambda query, window: (0.1, 0.1, 0.5), tells_answers=True, reads_questions=True)
    monkeypatch.setattr(engine, "packaged_reader", lambda spec, settings=None: chooser)
    monkeypatch.setenv("BIORAG_READER", "some/reader")
    return scripted


@pytest.fixture
def writer(server):
    """The options of a generator that answers with the claim."""
    server.rule = lambda body: json.dumps({"answer": CLAIM, "citations": [1], "answer_choice": "A"})
    return ("--llm", server.url, "--llm-model", "writer", "--no-cache", *BM25)


def test_what_is_shown_to_a_person_says_once_who_read(small_home, reader, writer):
    for words, line in (
        (("verify", CLAIM, *BM25[:3]), "supports 83 %, contradicts 2 %, neither 15 %"),
        (("ask", QUESTION, *writer), f"{CLAIM} [supported, 83 %] [1"),
        (("ask", QUESTION, "-o", "A=warfarin", "-o", "B=insulin", *BM25), "Chosen by the evidence alone: supported"),
        (("ask", "Does warfarin block vitamin K?", *BM25), "Yes. "),
    ):
        shown = succeeded(invoke(*words, home=small_home))
        assert line in shown.stdout, shown.stdout
        assert " ".join(shown.stderr.split()).count(NOTE) == 1, shown.stderr
        assert reader.read_windows, words
        reader.read_windows.clear()
    talk = succeeded(invoke("chat", *writer, home=small_home, input=f"{QUESTION}\n{QUESTION}"))
    assert " ".join(talk.stderr.split()).count(NOTE) == 2, "once an answer"


def test_an_extract_and_words_alone_ask_none(small_home, reader, writer):
    shown = succeeded(invoke("ask", QUESTION, *BM25, home=small_home))
    assert shown.stdout.startswith("Extract") and "read by" not in shown.stderr
    alone = succeeded(invoke("ask", QUESTION, *writer, "--reader", "none", home=small_home))
    assert "read by" not in alone.stderr and "[not stated in these words]" in alone.stdout
    assert not reader.read_windows


def test_benchmarks_of_answers_ask_it_and_name_it(small_home, reader, tmp_path):
    data = write_judged(tmp_path / "asked", {"q": QUESTION}, [("q", "s1", 1)])
    answers = {"_id": "q", "type": "yesno", "ideal_answer": ["Warfarin."], "exact_answer": "yes"}
    (data / "answers.jsonl").write_text(json.dumps(answers))
    out = tmp_path / "answers"
    bench = ("bench", "answers", data, *BM25[:3], "--out", out)
    report = done(invoke(*bench, "--json", home=small_home))
    assert report["config"]["reader"] == "some/reader"
    assert json.loads((out / "manifest.json").read_bytes())["identity"]["reader"] == reader.sha256
    failed(invoke(*bench, "--reader", "none", home=small_home), 5, "reader")
    reader.read_windows.clear()
    run = ("bench", "mirage", "--benchmark", "demo", "--limit", 1, "--answer", "evidence", "--mode", "bm25")
    report = done(invoke(*run, "--out", tmp_path / "mirage", "--json", home=small_home))
    assert reader.read_windows and report["manifest"]["reader"] == reader.sha256
    assert report["config"]["reader"] == "some/reader"
