"""Abbreviations that a text defines, against the paper's examples and an obvious, slow reference."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.utils.abbreviations import abbreviations, long_form


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Schwartz and Hearst (2003), and what their algorithm is said to miss: letters out of order, or not there.
        ("The heat shock transcription factor (HSF) binds.", [("HSF", "heat shock transcription factor")]),
        ("Gcn5-related N-acetyltransferase (GNAT)", [("GNAT", "Gcn5-related N-acetyltransferase")]),
        ("the anterior thalamus (ATN)", []),
        ("cyclophilin seven suppressor (CNS1)", []),
        # The short form first, forms with more in the brackets, Greek letters.
        ("HAE (hereditary angioedema) is rare.", [("HAE", "hereditary angioedema")]),
        ("in hereditary angioedema (HAE; n = 12)", [("HAE", "hereditary angioedema")]),
        ("tumor necrosis factor-alpha (TNF-α)", [("TNF-α", "tumor necrosis factor-alpha")]),
        ("lymph node stromal cells (LNSCs)", [("LNSCs", "lymph node stromal cells")]),
        # No definitions.
        ("We treated patients (n = 12) and controls (in mice).", []),
        ("It rose (P<.001) at once. (HAE) ()", []),
        ("", []),
    ],
)
def test_definitions(text, expected):
    assert list(abbreviations(text)) == expected


def slow_long_form(short: str, text: str) -> str | None:
    """Try all places of the letters; of those whose first letter opens a word, take the last."""
    letters = [letter for letter in short.lower() if letter.isalnum()]
    starts = [
        places[0]
        for places in itertools.combinations(range(len(text)), len(letters))
        if letters
        and [text[place].lower() for place in places] == letters
        and (places[0] == 0 or not text[places[0] - 1].isalnum())
    ]
    return text[text.rfind(" ", 0, max(starts) + 1) + 1 :] if starts else None


@given(st.text("ABc-", max_size=4), st.text("abcC -", max_size=11))
def test_the_long_form_is_that_of_the_slow_reference(short, text):
    assert long_form(short, text) == slow_long_form(short, text)


@given(st.text("AbC1( ).;,[]", max_size=60))
def test_nothing_raises_and_both_forms_stand_in_the_text(text):
    for short, long in abbreviations(text):
        assert short in text
        assert all(word in text for word in long.split())
