"""Text as it is compared: one form for every spelling, and figures that stay apart."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.utils.text import comparable, plain_form


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Sj\u00f6gren", "Sjo\u0308gren"),
        ("\u00b5g", "\u03bcg"),
        ("e\ufb00ect", "effect"),
        ("\uff23\uff32\uff30", "CRP"),
        ("hyper\u00adtension", "hypertension"),
        ("IL\u20116", "IL-6"),
        ("Stra\u00dfe", "STRASSE"),
        ("a\u00a0b", "a b"),
        ("\u2126", "\u03c9"),
        ("no\u200bthing", "nothing"),
    ],
)
def test_spellings_of_the_same_are_the_same(one, other):
    assert comparable(one) == comparable(other)


@pytest.mark.parametrize(
    ("one", "other"), [("10\u2079", "109"), ("x\u00b2", "x2"), ("5\u00bd", "51/2"), ("a\u2460", "a1"), ("e", "\u00e9")]
)
def test_what_differs_stays_apart(one, other):
    assert comparable(one) != comparable(other)


@given(st.text())
def test_the_form_is_one(text):
    assert plain_form(plain_form(text)) == plain_form(text)
    for form in ("NFC", "NFD"):
        assert comparable(unicodedata.normalize(form, text)) == comparable(text)
    if text.isascii():
        assert (plain_form(text), comparable(text)) == (text, text.lower())
