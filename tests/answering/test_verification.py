"""Sentences, quotes and the verification of citations."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.answering.verification import find_quote, support, verify_citations
from biorag.corpus.sentences import STOP_WORDS, best_sentence, matches, sentence_starts, sentences, terms
from biorag.prompts.parse import CitedNumber
from biorag.types import Hit, Snippet

WORDS = ["aspirin", "Fever", "the", "dose", "doses", "IL-6", "p<0.05", "e.g.", "fell", "(2019)", "β-blocker", "5.2"]
PROSE = st.lists(
    st.tuples(st.sampled_from(WORDS), st.sampled_from([" ", "  ", ". ", '." ', "? ", ".\n", ", ", "! ("])), max_size=25
).map(lambda parts: "".join(word + gap for word, gap in parts))
# Without the two letters whose case folding changes their number.
ANY_TEXT = st.one_of(PROSE, st.text(st.characters(codec="utf-8", exclude_characters="İı"), max_size=80))

ASPIRIN = "Aspirin lowers fever. It blocks cyclooxygenase in platelets. Bleeding is its main risk."
WARFARIN = "Warfarin blocks vitamin K recycling and thins the blood."


def hit(rank: int, content: str, title: str = "", pmid: int | None = None) -> Hit:
    return Hit(rank, Snippet(f"s{rank}", title, content, pmid), 1.0 / rank)


@pytest.fixture
def hits() -> list[Hit]:
    return [hit(1, ASPIRIN, "Aspirin", 11), hit(2, WARFARIN, "Anticoagulants", 12)]


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


def test_best_sentence_by_hand():
    assert best_sentence(ASPIRIN, terms("how are platelets blocked")) == "It blocks cyclooxygenase in platelets."
    assert best_sentence(ASPIRIN, terms("zebra")) == "Aspirin lowers fever."


def test_matches_are_the_spans_of_the_shared_words():
    text = "Blocking fever: the IL-6 blocker blocked (fever)."
    spans = matches(text, terms("block the fever by IL-6"))
    assert [text[start:end] for start, end in spans] == ["Blocking", "fever", "IL-6", "blocked", "fever"]
    assert spans[0] == (0, 8)


@given(ANY_TEXT, ANY_TEXT)
def test_matches_are_words_with_terms_of_the_target(text, target):
    wanted = terms(target)
    spans = matches(text, wanted)
    assert spans == sorted(spans)
    for start, end in spans:
        assert terms(text[start:end]) & wanted
    for earlier, later in itertools.pairwise(spans):
        assert earlier[1] <= later[0]


@pytest.mark.parametrize(
    ("quote", "found"),
    [
        ("It blocks cyclooxygenase", "It blocks cyclooxygenase"),
        ("it BLOCKS cyclooxygenase", "It blocks cyclooxygenase"),
        ("  it blocks\n cyclooxygenase ", "It blocks cyclooxygenase"),
        ("It blocks cyclo-oxygenase", None),
        ("Aspirin lowers fever. It", "Aspirin lowers fever. It"),
        ("fever. Aspirin", None),
        ("(.*)", None),
        ("", None),
        (" \n", None),
    ],
)
def test_find_quote_by_hand(quote, found):
    assert find_quote(quote, ASPIRIN) == found


def test_find_quote_returns_the_texts_own_white_space():
    assert find_quote("lowers fever", "Aspirin lowers\n  fever.") == "lowers\n  fever"


@given(ANY_TEXT, st.data())
def test_any_part_of_a_text_is_found_as_a_quote(text, data):
    start = data.draw(st.integers(0, len(text)))
    part = text[start : data.draw(st.integers(start, len(text)))]
    found = find_quote(re.sub(r"\s+", "  ", part), text)
    if part.strip():
        assert found is not None
        assert found in text
        assert found.casefold().split() == part.casefold().split()
    else:
        assert found is None


def test_support_is_the_share_of_the_claims_words():
    assert support("Aspirin blocks cyclooxygenase", ASPIRIN) == 1.0
    assert support("Aspirin blocks thrombin and insulin", ASPIRIN) == 0.5
    assert support("", ASPIRIN) == 0.0
    # "aspirin" and "fever" were asked about: repeating them is no evidence.
    assert support("Aspirin cures fever by witchcraft", ASPIRIN, "Does aspirin help fever?") == 0.0
    assert support("Aspirin fever", ASPIRIN, "Does aspirin help fever?") == 1.0, "nothing else is left"


def test_numbers_out_of_range_are_dropped_and_said(hits):
    cited = [CitedNumber(0), CitedNumber(3), CitedNumber(-1), CitedNumber(10**12)]
    kept, dropped = verify_citations(cited, hits, "", "Aspirin lowers fever.")
    assert kept == ()
    assert len(dropped) == 4
    for item, note in zip(cited, dropped, strict=True):
        assert f"[{item.n}]" in note
        assert "no document of that number" in note


def test_a_citation_the_snippet_does_not_bear_out_is_dropped_and_said(hits):
    kept, dropped = verify_citations([CitedNumber(2)], hits, "", "Aspirin lowers fever.")
    assert kept == ()
    assert len(dropped) == 1
    assert "[2]" in dropped[0]
    assert "s2" in dropped[0]
    assert "not supported" in dropped[0]


def test_a_false_quote_is_dropped_even_where_the_answer_is_supported(hits):
    kept, dropped = verify_citations([CitedNumber(1, "Aspirin cures cancer")], hits, "", "Aspirin lowers fever.")
    assert kept == ()
    assert len(dropped) == 1
    assert "[1]" in dropped[0]
    assert "quote" in dropped[0]


def test_a_real_quote_of_another_snippet_is_dropped(hits):
    kept, dropped = verify_citations([CitedNumber(2, "Aspirin lowers fever.")], hits, "", "Aspirin lowers fever.")
    assert (kept, len(dropped)) == ((), 1)


def test_a_real_quote_is_kept_as_the_snippet_has_it(hits):
    kept, dropped = verify_citations([CitedNumber(1, "it BLOCKS  cyclooxygenase")], hits, "", "Whatever.")
    assert dropped == ()
    assert len(kept) == 1
    citation = kept[0]
    assert citation.quote == "It blocks cyclooxygenase"
    assert (citation.n, citation.id, citation.pmid, citation.title, citation.score) == (1, "s1", 11, "Aspirin", 1.0)


def test_a_quote_may_stand_in_the_title(hits):
    kept, _ = verify_citations([CitedNumber(2, "Anticoagulants. Warfarin blocks")], hits, "", "Whatever.")
    assert [citation.quote for citation in kept] == ["Anticoagulants. Warfarin blocks"]


def test_a_citation_without_quote_gets_the_sentence_nearest_to_the_answer(hits):
    answer = "It works because cyclooxygenase is blocked."
    kept, dropped = verify_citations([CitedNumber(1)], hits, "How does aspirin work?", answer)
    assert dropped == ()
    assert [citation.quote for citation in kept] == ["It blocks cyclooxygenase in platelets."]


def test_words_of_the_question_break_ties_between_sentences():
    text = "Doses were small. Fever fell in adults. Fever fell in children."
    kept, _ = verify_citations([CitedNumber(1)], [hit(1, text)], "What happened in children?", "Fever fell.")
    assert [citation.quote for citation in kept] == ["Fever fell in children."]


def test_good_and_bad_citations_are_told_apart_in_order(hits):
    cited = [CitedNumber(2), CitedNumber(9), CitedNumber(1)]
    kept, dropped = verify_citations(cited, hits, "", "Warfarin blocks vitamin K. Aspirin lowers fever.")
    assert [citation.n for citation in kept] == [2, 1]
    assert len(dropped) == 1


CITED = st.lists(st.builds(CitedNumber, st.integers(-2, 5), st.one_of(st.just(""), ANY_TEXT)), max_size=5)


@given(st.lists(st.tuples(ANY_TEXT, ANY_TEXT), max_size=3), CITED, ANY_TEXT, ANY_TEXT)
def test_every_kept_quote_stands_in_its_snippet_and_the_rest_is_said(texts, cited, question, answer):
    hits = [hit(rank, content, title) for rank, (title, content) in enumerate(texts, 1)]
    kept, dropped = verify_citations(cited, hits, question, answer)
    assert len(kept) + len(dropped) == len(cited)
    for citation in kept:
        assert citation.quote.strip()
        assert citation.quote in hits[citation.n - 1].snippet.contents
        assert citation.id == hits[citation.n - 1].snippet.id


@given(ANY_TEXT, ANY_TEXT, st.data())
def test_a_quote_taken_from_the_snippet_is_always_kept(title, content, data):
    text = Snippet("s1", title, content).contents
    start = data.draw(st.integers(0, len(text)))
    quote = text[start : data.draw(st.integers(start, len(text)))]
    kept, _ = verify_citations([CitedNumber(1, quote)], [hit(1, content, title)], "", "")
    if len(quote.split()) >= 3:
        assert len(kept) == 1
        assert kept[0].quote in text
        assert kept[0].quote.casefold().split() == quote.casefold().split()
