"""Which questions are follow-ups, and what they take over from the last one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.chat.followups import LONGEST, MOST_CARRIED, is_follow_up, with_words_of
from biorag.corpus.sentences import terms

LAST = "Why is pyridoxine given together with isoniazid?"


@pytest.mark.parametrize(
    "question",
    [
        "and in children?",
        "What about pregnant women?",
        "how about rifampicin?",
        "But why?",
        "Or ethambutol instead?",
        "Does it cause liver damage?",
        "What are its side effects?",
        "Do they need monitoring?",
        "Which of those is cheapest?",
        "Are these effects reversible in older people?",
        "Is that true?",
        "Does that apply to adults with renal failure?",
        "Is there evidence for that?",
        "Is this dose enough for adults with kidney disease?",
        "Does rifampicin do the same?",
        "Does rifampicin interact with warfarin too?",
        "In children?",
        "in pregnant women",
        "for how long",
        "Which dose?",
        "Why?",
        "How?",
        "Is it safe?",
        "Is it safe for children?",
        "Its mechanism?",
        "Compared with placebo?",
    ],
)
def test_follow_ups(question):
    assert is_follow_up(question)


@pytest.mark.parametrize(
    "question",
    [
        LAST,
        "What does metformin do?",
        "What is asthma?",
        "What causes malaria?",
        "Who discovered penicillin?",
        "malaria treatment",
        "warfarin vitamin K interaction",
        "Is there evidence that aspirin prevents colorectal cancer?",
        "Which drugs that lower cholesterol raise liver enzymes?",
        "Is it true that metformin lowers vitamin B12 levels?",
        "Is it safe to give aspirin with warfarin?",
        "Does the risk of bleeding rise with that of stroke?",
        "In adults with type 2 diabetes, does metformin lower mortality?",
        "Define nephrotic syndrome",
        "",
        "   ",
        "word " * (LONGEST + 1) + "it",
    ],
)
def test_questions_that_stand_alone(question):
    assert not is_follow_up(question)


@pytest.mark.parametrize(
    ("last", "question", "expected"),
    [
        (LAST, "and in children?", "and in children? (pyridoxine given together isoniazid)"),
        (LAST, "Does isoniazid cause it?", "Does isoniazid cause it? (pyridoxine given together)"),
        ("What lowers LDL-cholesterol?", "and HDL?", "and HDL? (lowers LDL-cholesterol)"),
        ("Which statins are safest?", "Is that statin cheap?", "Is that statin cheap? (safest)"),
        ("Aspirin, aspirin and ASPIRIN?", "and warfarin?", "and warfarin? (Aspirin)"),
        ("Why?", " and in children? ", "and in children?"),
        (LAST, LAST, LAST),
    ],
)
def test_a_follow_up_takes_over_the_words_that_it_lacks(last, question, expected):
    assert with_words_of(last, question) == expected


def test_a_subject_stays_from_one_follow_up_to_the_next():
    second = with_words_of(LAST, "and in children?")
    third = with_words_of(second, "and in pregnancy?")
    assert terms(third) >= {"pyridoxine", "isoniazid", "pregnancy"}


def test_a_long_conversation_does_not_grow_without_end():
    searched = LAST
    for place in range(50):
        searched = with_words_of(searched, f"and with drug{place} or herb{place}?")
        assert len(terms(searched)) <= MOST_CARRIED + 2


@given(st.text(), st.text())
def test_any_text_is_searched_with_its_own_words_first(last, question):
    is_follow_up(question)
    searched = with_words_of(last, question)
    assert searched.startswith(question.strip())
    assert terms(searched) <= terms(last) | terms(question)
