"""The questions of a run as a file, and in the terminal."""

from __future__ import annotations

import json

import pytest

from biorag.benchmarks.mirage.records import QUESTIONS, arrange_rows, question_row, read_questions
from biorag.types import Answer, CheckedSentence, Hit, Question, Snippet, Verdict
from biorag.utils.files import json_line
from tests.cli import done, failed, invoke, succeeded

QUESTION = Question("q1", "Why?", {"A": "yes", "B": "no"}, "B", (7,))
HITS = [
    Hit(1, Snippet("s1", "Title", "Text", 7), 0.5),
    Hit(2, Snippet("s2", "", "Untitled text."), 0.25),
]
REPLY = json.dumps({"step_by_step_thinking": "so", "answer_choice": "B"})


def row(question=QUESTION, reply=REPLY, hits=HITS, task="bioasq", verdict=None):
    sentences = (CheckedSentence(verdict, Verdict.SUPPORTED),) if verdict else ()
    return question_row(task, question, reply, hits, Answer(question, sentences=sentences, timings_ms={"total": 2.5}))


def test_a_row_says_what_was_asked_found_and_answered():
    assert row(verdict="No.") == {
        "task": "bioasq",
        "id": "q1",
        "question": QUESTION.text,
        "options": {"A": "yes", "B": "no"},
        "gold": "B",
        "choice": "B",
        "right": True,
        "reply": REPLY,
        "retries": 0,
        "evidence": [
            {"rank": 1, "id": "s1", "pmid": 7, "title": "Title", "score": 0.5, "text": "Text"},
            {"rank": 2, "id": "s2", "pmid": None, "title": "", "score": 0.25, "text": "Untitled text."},
        ],
        "gold_pmids": [7],
        "gold_retrieved": True,
        "verdicts": [{"text": "No.", "verdict": "supported"}],
        "timings_ms": {"total": 2.5},
    }


@pytest.mark.parametrize(("pmids", "hits", "known"), [((8,), HITS, False), ((), HITS, None), ((7,), None, None)])
def test_whether_a_gold_record_was_retrieved(pmids, hits, known):
    assert row(Question("q", "?", {"A": "a", "B": "b"}, "A", pmids), hits=hits)["gold_retrieved"] is known


def test_a_reply_without_a_choice_is_none_and_scored_as_a():
    unread = row(reply="I do not know")
    assert (unread["choice"], unread["right"]) == (None, False)
    assert row(Question("q", "?", {"A": "a", "B": "b"}, "A"), reply="I do not know")["right"] is True


@pytest.fixture
def run(tmp_path):
    """A run of three questions in two tasks, one of them right."""
    other, third = (Question(id, f"{id}?", {"A": "a", "B": "b"}, "A") for id in ("q2", "q3"))
    rows = [row(third, task="mmlu"), row(other, hits=None), row(other), row()]
    out = tmp_path / "run"
    out.mkdir()
    (out / QUESTIONS).write_bytes(b"".join(map(json_line, rows)) + b'{"to')
    selected = arrange_rows(out, {"bioasq": [QUESTION, other]})
    assert [kept["id"] for kept in selected] == ["q1", "q2"]
    return out


def test_the_file_has_each_question_once_in_order(run):
    rows = read_questions(run)
    assert [(kept["task"], kept["id"], kept["right"]) for kept in rows] == [
        ("bioasq", "q1", True),
        ("bioasq", "q2", False),
        ("mmlu", "q3", False),
    ]
    assert rows[1]["evidence"], "the last row of a question counts; a torn one does not"


def test_a_run_is_shown(run):
    shown = done(invoke("bench", "show", run, "--json"))
    assert shown["tasks"] == {"bioasq": {"questions": 2, "right": 1}, "mmlu": {"questions": 1, "right": 0}}
    wrong = done(invoke("bench", "show", run / QUESTIONS, "--wrong", "--task", "bioasq", "--json"))
    assert [kept["id"] for kept in wrong["questions"]] == ["q2"]
    text = succeeded(invoke("bench", "show", run)).stdout
    assert "1 of 3 right" in text and "mmlu" in text and "q3?" in text


def test_what_cannot_be_shown_is_a_sentence(run, tmp_path):
    failed(invoke("bench", "show", tmp_path / "none", "--json"), 4, "none", "bench mirage")
    failed(invoke("bench", "show", run, "--task", "medqa"), 2, "'medqa'", "bioasq, mmlu")
    (run / QUESTIONS).write_text("{}\n")
    failed(invoke("bench", "show", run), 3, "line 1")
