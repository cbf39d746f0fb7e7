"""Words and sentences of a passage."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.corpus.sentences import STOP_WORDS, best_sentence, matches, sentence_starts, sentences, terms

WORDS = ["aspirin", "Fever", "the", "dose", "doses", "IL-6", "p<0.05", "e.g.", "fell", "(2019)", "β-blocker", "5.2"]
PROSE = st.lists(
    st.tuples(st.sampled_from(WORDS), st.sampled_from([" ", "  ", ". ", '." ', "? ", ".\n", ", ", "! ("])), max_size=25
).map(lambda parts: "".join(word + gap for word, gap in parts))
# Without the two letters whose case folding changes their number.
ANY_TEXT = st.one_of(PROSE, st.text(st.characters(codec="utf-8", exclude_characters="İı"), max_size=80))

ASPIRIN = "Aspirin lowers fever. It blocks cyclooxygenase in platelets. Bleeding is its main risk."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("   ", []),
        ("One sentence without an end", ["One sentence without an end"]),
        ("Aspirin works. Is it safe? Yes! Mostly.", ["Aspirin works.", "Is it safe?", "Yes!", "Mostly."]),
        ("It fell by 5.2 mg. Then it rose.", ["It fell by 5.2 mg.", "Then it rose."]),
        ("See e.g. aspirin. (It works.)", ["See e.g. aspirin.", "(It works.)"]),
        ("Two lines.\nNext one.", ["Two lines.", "Next one."]),
        ("Colds fell.[1,2] Zinc helped.", ["Colds fell.", "Zinc helped."]),
        ("It is a technique.Loneliness was found.", ["It is a technique.", "Loneliness was found."]),
        ("See ClinicalTrials.Gov for it.", ["See ClinicalTrials.Gov for it."]),
        ("Dr. Barnard, St. Louis. Of them 0. 5 percent.", ["Dr. Barnard, St. Louis.", "Of them 0. 5 percent."]),
        ("It was 1. 52% (0. 4-1.7). In 2010. 52 died.", ["It was 1. 52% (0. 4-1.7).", "In 2010.", "52 died."]),
        (
            "By the U.S. Food and Drug Administration. No. It is not.",
            ["By the U.S. Food and Drug Administration.", "No.", "It is not."],
        ),
        (
            "Registered: ClinicalTrials.gov; No. NCT01234. Done.",
            ["Registered: ClinicalTrials.gov; No. NCT01234.", "Done."],
        ),
        ("A dose was given. 5 mg sufficed.", ["A dose was given.", "5 mg sufficed."]),
    ],
)
def test_sentences_by_hand(text, expected):
    assert sentences(text) == expected


@given(ANY_TEXT)
def test_sentences_stand_verbatim_in_order_and_lose_no_word(text):
    end = 0
    starts = sentence_starts(text.strip())
    assert [text.strip()[start : start + 1] for start in starts] == [each[:1] for each in sentences(text)[1:]]
    for sentence in sentences(text):
        assert sentence.strip()
        start = text.find(sentence, end)
        assert start >= end, "each stands in the text, after the one before"
        assert not re.search(r"\w", text[end:start]), "nothing but white space and brackets lies between"
        end = start + len(sentence)
    assert not re.search(r"\w", text[end:])


def test_terms_are_content_words_cut_of_endings():
    # An ending goes only where four letters stay: "doses" is cut, "dosing" is not.
    assert terms("The patients with Studies of doses, dosing, IL-6 and p53?") == {
        "stud",
        "dose",
        "dosing",
        "il-6",
        "p53",
    }
    assert terms("treated treating treats treat") == {"treat"}
    assert terms(" ".join(STOP_WORDS)) == set()


@given(ANY_TEXT, ANY_TEXT)
def test_best_sentence_shares_most_words_and_is_the_first_of_equals(text, target):
    wanted = terms(target)
    best, most = "", -1
    for sentence in sentences(text):
        shared = len([word for word in terms(sentence) if word in wanted])
        if shared > most:
            best, most = sentence, shared
    assert best_sentence(text, wanted) == best


def test_matches_are_the_spans_of_the_shared_words():
    text = "Blocking fever: the IL-6 blocker blocked (fever)."
    spans = matches(text, terms("block the fever by IL-6"))
    assert [text[start:end] for start, end in spans] == ["Blocking", "fever", "IL-6", "blocked", "fever"]
    assert spans[0] == (0, 8)
