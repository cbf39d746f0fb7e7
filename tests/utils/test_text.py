"""Text as it is compared: one form for every spelling, and figures that stay apart; extras that are not whole."""

import pytest

from biorag.utils import versions
from biorag.utils.text import comparable, cut


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Sj\u00f6gren", "Sjo\u0308gren"),
        ("\u00b5g", "\u03bcg"),
        ("e\ufb00ect", "effect"),
        ("hyper\u00adtension", "hypertension"),
        ("IL\u20116", "IL-6"),
        ("Stra\u00dfe", "STRASSE"),
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


def test_lacking_names_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [
        "numpy>=1",
        "pytest>=1; extra == 'train'",
        "no-such-package>=2; extra == 'train'",
        "other; extra == 'hub'",
    ]
    monkeypatch.setattr(versions, "requires", lambda name: wanted)
    assert versions.lacking("train") == ["no-such-package"]
    assert versions.lacking("bench") == []


def test_a_long_text_is_cut_where_it_is_too_long():
    assert [cut("asthma", most) for most in (5, 6)] == ["asthm…", "asthma"]
