"""Multiple choice by the evidence alone."""

from __future__ import annotations

import pytest

from biorag.answering.extract import Extractor
from biorag.answering.options import by_evidence, held, statements
from biorag.answering.guards.checker import Checker
from biorag.types import Answer, CheckedSentence, Hit, Question, Snippet, Verdict


def hits_of(*texts: str) -> tuple[Hit, ...]:
    return tuple(Hit(n, Snippet(f"s{n}", "", text), 1.0) for n, text in enumerate(texts, 1))


@pytest.mark.parametrize(
    ("question", "option", "asserted"),
    [
        ("Does aspirin lower fever?", "yes", "aspirin lower fever."),
        ("Which vitamin prevents neuropathy?", "Pyridoxine", "Pyridoxine prevents neuropathy."),
        ("He has a red toe. What is the likely diagnosis?", "Gout", "Gout is the likely diagnosis."),
        ("Which of the following drugs lowers fever?", "Aspirin", "Aspirin lowers fever."),
    ],
)
def test_what_an_option_asserts(question, option, asserted):
    assert asserted in statements(question, option)


def choose(question, options, *texts):
    answer = Answer(Question("q", question, options), hits=hits_of(*texts))
    return by_evidence(answer, Extractor(), Checker())


def test_the_option_that_a_sentence_supports_is_chosen_and_its_sentence_cited():
    texts = "Thiamine prevents beriberi.", "Pyridoxine prevents isoniazid neuropathy. Folate helps otherwise."
    options = {"A": "Thiamine", "B": "Pyridoxine", "C": "Folate"}
    answer = choose("Which vitamin prevents isoniazid neuropathy?", options, *texts)
    assert (answer.choice, answer.text, answer.answerer, answer.parsed) == ("B", "Pyridoxine", "extract", True)
    assert [(each.n, each.quote) for each in answer.citations] == [(2, "Pyridoxine prevents isoniazid neuropathy.")]
    assert answer.sentences[0].verdict == "supported"
    assert answer.reply == '{"answer_choice": "B"}', "as a result file of MIRAGE keeps it"


def test_an_option_that_a_judge_is_not_sure_of_is_better_than_one_without_support():
    class Leaning(Checker):
        def check_claim(self, claim, snippets, question=""):
            verdict = Verdict.UNSURE if claim == "Zinc prevents neuropathy." else Verdict.UNSUPPORTED
            return CheckedSentence(claim, verdict)

    option = held("Which vitamin prevents neuropathy?", "Zinc", hits_of("Zinc?"), Leaning())
    assert (option.text, option.verdict, option.citations) == ("Zinc", "unsure", ())
    asked = Answer(
        Question("q", "Which vitamin prevents neuropathy?", {"A": "Zinc", "B": "Iron"}), hits=hits_of("Zinc.")
    )
    assert by_evidence(asked, Extractor(), Leaning()).sentences[0].verdict == "unsure"


YES_NO = {"A": "yes", "B": "no"}


@pytest.mark.parametrize(
    ("text", "choice"), [("Aspirin lowers fever in adults.", "A"), ("Aspirin does not lower fever in adults.", "B")]
)
def test_yes_or_no_by_what_the_sentence_negates(text, choice):
    answer = choose("Does aspirin lower fever in adults?", YES_NO, text)
    assert answer.choice == choice
    assert answer.citations[0].quote == text


def test_without_a_hit_no_option_is_chosen():
    answer = choose("Does aspirin lower fever?", YES_NO)
    assert (answer.choice, answer.citations) == (None, ())
    assert "no evidence" in answer.notes[0]
