"""Kinds of answers that questions ask for."""

from __future__ import annotations

import pytest

from biorag.answering.kinds import kind_of, lacks_number


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("Is metformin safe in pregnancy?", "yesno"),
        ("In children with asthma, does vitamin D reduce exacerbations?", "yesno"),
        ("Glucoraphanin can help reduce obesity, yes or no?", "yesno"),
        ("Which drugs are approved for multiple sclerosis?", "list"),
        ("List the symptoms of pellagra.", "list"),
        ("What are the hallmarks of cancer?", "list"),
        ("Which gene is mutated in cystic fibrosis?", "factoid"),
        ("Name one inhibitor of BRAF.", "factoid"),
        ("How many chromosomes do humans have?", "factoid"),
        ("When was aspirin first made?", "factoid"),
        ("Was zoster more frequent with aspirin or with heparin?", "factoid"),
        ("What is the mechanism of action of teclistamab?", "summary"),
        ("How does warfarin work?", "summary"),
        ("What is gingipain?", "summary"),
    ],
)
def test_a_question_asks_for_one_kind_of_answer(question, kind):
    assert kind_of(question) == kind


@pytest.mark.parametrize(
    ("question", "held", "lacking"),
    [
        ("What dose of colchicine is given?", "It was given at 0.5 mg twice.", "It was given to 12 adults."),
        ("caplacizumab: % with epistaxis", "Epistaxis occurred in 29 of 71.", "Epistaxis occurred in the 1990s."),
        ("How common is it?", "It occurs in one per 100,000.", "It is rarer than in 2010."),
        ("In what year was it found?", "It was found in 1969.", "It was found 40 years ago."),
        ("How long do patients live?", "They live for two years.", "Of 30 patients 12 lived."),
        ("How many patients took part?", "Twelve took part.", "Patients took part."),
        ("At what age does it begin?", "It begins at 40.", "It begins late."),
    ],
)
def test_a_text_lacks_the_number_that_is_asked_for(question, held, lacking):
    assert not lacks_number(question, held) and lacks_number(question, lacking)
    assert not lacks_number("How does colchicine work?", lacking)
