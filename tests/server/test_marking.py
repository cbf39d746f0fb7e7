"""Marked quotes, forms, and what the page keeps."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.errors import MissingError, UsageError
from biorag.server.answer_view import TextPiece, answer_view, pieces, quoted_spans
from biorag.server.bodies import ask_body
from biorag.server.pages import LastKept, rendered
from biorag.types import Answer, CheckedSentence, Question, Verdict


def test_a_quote_is_marked_where_it_stands():
    text = "One. Two words. Three."
    assert pieces(text, quoted_spans(text, ["Two words."])) == [
        TextPiece("One. ", None),
        TextPiece("Two words.", 0),
        TextPiece(" Three.", None),
    ]


def test_a_sentence_has_its_verdict_and_its_mark_on_the_page():
    probability = {"supports": 0.55, "contradicts": 0.05, "neither": 0.4}
    sentences = (
        CheckedSentence("It may.", Verdict.UNSURE, probability=probability),
        CheckedSentence("It is.", Verdict.SUPPORTED, (1,)),
    )
    answer = Answer(Question("q", "Is it?"), text="It may. It is.", sentences=sentences)
    page = rendered("answer.html", view=answer_view("Is it?", answer, "id"))
    assert '<span class="unsure">It may.</span><strong class="mark-unsure"> [not sure: 55 % supported]</strong>' in page
    assert '<span class="supported">It is.</span>\n' in page
    assert "1 of 2 sentences supported by [1], 1 not sure" in page


@given(st.text(alphabet="ab ", max_size=30), st.lists(st.text(alphabet="ab ", max_size=6), max_size=6))
def test_pieces_are_the_whole_text_and_marks_are_the_quotes(text, quotes):
    spans = quoted_spans(text, quotes)
    assert "".join(piece.text for piece in pieces(text, spans)) == text
    assert all(before[1] < after[0] for before, after in pairwise(spans))
    for quote in quotes:
        start = text.find(quote)
        if quote and start >= 0:
            assert any(first <= start and start + len(quote) <= last for first, last in spans)


def test_only_the_last_are_kept():
    kept = LastKept[int](2)
    names = [kept.keep(number) for number in range(3)]
    assert [kept.get(name) for name in names[1:]] == [1, 2]
    assert kept.get(names[2], take=True) == 2
    for name in (names[0], names[2], "x"):
        with pytest.raises(MissingError, match="no longer kept"):
            kept.get(name)


def test_a_form_is_the_body_of_the_api():
    fields = {"question": "Why?", "options": "A=x\n\nB = y=z ", "k": "7", "filter": "retracted", "answer_anyway": "1"}
    body = ask_body(fields)
    assert (body.options, body.k, body.filter, body.answer_anyway) == ({"A": "x", "B": "y=z"}, 7, ["retracted"], True)
    narrowed = ask_body({"question": "Why?", "since": "2015", "until": "2020", "type": "Review"})
    assert narrowed.filter == ["year>=2015", "year<=2020", 'type="Review"']
    for wrong, part in (
        ({"k": "x"}, "k: "),
        ({"options": "A"}, "'A'"),
        ({"options": "A=x\nA=y"}, "given twice"),
        ({}, "question"),
    ):
        with pytest.raises(UsageError, match=part):
            ask_body({**({"question": "Why?"} if wrong else {}), **wrong})
