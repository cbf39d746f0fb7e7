"""The questions of a run as a file, in the terminal, and as a page."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.benchmarks.mirage.page import html_page
from biorag.benchmarks.mirage.records import QUESTIONS, arrange_rows, question_row, read_questions
from biorag.types import Answer, CheckedSentence, Hit, Question, Snippet, Verdict
from biorag.utils.files import json_line
from tests.cli import done, failed, invoke, succeeded

QUESTION = Question("q1", "Why?", {"A": "yes", "B": "no"}, "B", (7,))
HITS = [
    Hit(1, Snippet("s1", "Title", "Text", 7), 0.5),
    Hit(2, Snippet("s2", "", "Untitled text."), 0.25),
]
SCRIPT = "<script>alert(1)</script>"
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
    text = succeeded(invoke("bench", "show", run, "--wrong")).stdout
    assert "1 of 3 right; shown: 2 wrong" in text and "q1?" not in text


def test_what_cannot_be_shown_is_a_sentence(run, tmp_path):
    failed(invoke("bench", "show", tmp_path / "none", "--json"), 4, "none", "bench mirage")
    failed(invoke("bench", "show", run, "--task", "medqa"), 2, "'medqa'", "bioasq, mmlu")
    (run / QUESTIONS).write_text("{}\n")
    failed(invoke("bench", "show", run), 3, "line 1")


def test_a_page_replaces_only_a_page(run, tmp_path):
    page = tmp_path / "page.html"
    succeeded(invoke("bench", "show", run, "--html", page))
    succeeded(invoke("bench", "show", run, "--html", page, "--wrong"))
    for notes in ("my notes", "<!DOCTYPE html>\n<title>My notes</title>"):
        page.write_text(notes)
        failed(invoke("bench", "show", run, "--html", page), 2, "page.html", "--force")
    failed(invoke("bench", "show", run, "--html", run / QUESTIONS, "--force"), 2, QUESTIONS)


class Reader(HTMLParser):
    """The elements, attributes and texts of a page, as a browser reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.texts.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


def test_a_page_has_the_verdict_of_each_sentence():
    unsure = row(verdict="So it is.") | {"verdicts": [{"text": "So it is.", "verdict": Verdict.UNSURE}]}
    assert "<li>unsure: So it is.</li>" in html_page("Run", [unsure])


def test_a_script_in_a_question_or_a_title_is_shown_as_text():
    question = Question("q1", f"Why {SCRIPT}?", {"A": SCRIPT, "B": "no"}, "B")
    hits = [Hit(1, Snippet("s1", f"Title {SCRIPT}", f"Text {SCRIPT}", 7), 0.5)]
    page = html_page(f"Run {SCRIPT}", [row(question, verdict=SCRIPT, reply=SCRIPT, hits=hits)])
    reader = read(page)
    assert (reader.tags.count("script"), page.count("<script")) == (1, 1)
    assert f"Why {SCRIPT}?" in "".join(reader.texts)
    assert not any(name in ("src", "href", "onclick", "onerror") for name, _ in reader.attributes)
    assert "http:" not in page and "https:" not in page and "@import" not in page and "url(" not in page


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_text_changes_the_elements_of_a_page(text, title):
    hits = [Hit(1, Snippet("i" + text, title, title + text), 0.5)]
    plain = html_page("t", [row(Question("q", "x", {"A": "a", "B": "b"}, "A"), hits=[HITS[1]])])
    hostile = html_page(title, [row(Question("q", text, {"A": text, "B": title}, "A"), reply=REPLY + text, hits=hits)])
    assert read(hostile).tags == read(plain).tags
