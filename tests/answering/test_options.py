"""Multiple choice by the evidence alone."""

from __future__ import annotations

import pytest

from biorag.answering.extract import Extractor
from biorag.answering.guards.checker import Checker
from biorag.answering.options import UNCONFIRMED, by_evidence, held
from biorag.types import Answer, CheckedSentence, Hit, Question, Snippet, Verdict
from tests.fakes import ScriptedReader


def hits_of(*texts: str) -> tuple[Hit, ...]:
    return tuple(Hit(n, Snippet(f"s{n}", "", text), 1.0) for n, text in enumerate(texts, 1))


def choose(question, options, *texts, reader=None, chooser=None):
    answer = Answer(Question("q", question, options), hits=hits_of(*texts))
    return by_evidence(answer, Extractor(None, lambda: chooser), Checker(reader))


def test_the_option_that_a_sentence_supports_is_chosen_and_its_sentence_cited():
    texts = "Thiamine prevents beriberi.", "Pyridoxine prevents isoniazid neuropathy. Folate helps otherwise."
    options = {"A": "Thiamine", "B": "Pyridoxine", "C": "Folate"}
    answer = choose("Which vitamin prevents isoniazid neuropathy?", options, *texts)
    assert (answer.choice, answer.text, answer.answerer, answer.parsed) == ("B", "Pyridoxine", "extract", True)
    assert [(each.n, each.quote) for each in answer.citations] == [(2, "Pyridoxine prevents isoniazid neuropathy.")]
    (sentence,) = answer.sentences
    assert (sentence.text, sentence.verdict, sentence.basis, sentence.citations) == (
        "Pyridoxine",
        "supported",
        "quote",
        (2,),
    )
    assert answer.notes == ()
    assert answer.reply == '{"answer_choice": "B"}', "as a result file of MIRAGE keeps it"


def test_an_option_that_a_reader_is_not_sure_of_is_better_than_one_without_support():
    class Leaning(Checker):
        def check_claim(self, claim, snippets):
            verdict = Verdict.UNSURE if claim == "Zinc prevents neuropathy." else Verdict.UNSUPPORTED
            return CheckedSentence(claim, verdict)

    option = held("Which vitamin prevents neuropathy?", "Zinc", hits_of("Zinc?"), Leaning())
    assert (option.text, option.verdict, option.citations) == ("Zinc", "unsure", ())
    asked = Answer(
        Question("q", "Which vitamin prevents neuropathy?", {"A": "Zinc", "B": "Iron"}), hits=hits_of("Zinc.")
    )
    unsure = by_evidence(asked, Extractor(), Leaning())
    assert (unsure.sentences[0].verdict, unsure.notes) == ("unsure", (UNCONFIRMED,))


YES_NO = {"A": "yes", "B": "no", "C": "Maybe."}
FEVER = "Does aspirin lower fever in adults?"
LOWERS, DOES_NOT = "The drug cools adults down.", "The drug leaves a temperature as it is."


def says(query: str, window: str) -> tuple[float, float, float]:
    return (0.9, 0.05, 0.9) if LOWERS in window else (0.05, 0.9, 0.9) if DOES_NOT in window else (0.02, 0.02, 0.1)


@pytest.mark.parametrize(
    ("texts", "choice", "verdict"),
    [
        ((LOWERS,), "A", "supported"),
        ((DOES_NOT, "Aspirin is sold."), "B", "supported"),
        (("Bees hum.",), "C", "unsupported"),
    ],
)
def test_yes_no_or_maybe_is_what_a_reader_says(texts, choice, verdict):
    reader = ScriptedReader(says, tells_answers=True, reads_questions=True)
    answer = choose(FEVER, YES_NO, *texts, reader=reader, chooser=reader)
    assert (answer.choice, answer.citations[0].quote) == (choice, texts[0])
    (sentence,) = answer.sentences
    assert (sentence.verdict, sentence.citations) == (verdict, (1,) if verdict == "supported" else ())
    assert answer.notes == (() if verdict == "supported" else (UNCONFIRMED,))


def test_without_a_reader_yes_or_no_is_a_guess_and_says_so():
    answer = choose(FEVER, YES_NO, "Aspirin is sold.", "Fever in adults is lowered by aspirin.")
    assert (answer.choice, answer.citations[0].n, answer.notes) == ("A", 2, (UNCONFIRMED,))
    assert answer.sentences[0].verdict == "unsupported"


def test_without_a_hit_no_option_is_chosen():
    answer = choose("Does aspirin lower fever?", YES_NO)
    assert (answer.choice, answer.citations) == (None, ())
    assert "no evidence" in answer.notes[0]


def test_of_options_that_score_alike_the_first_letter_is_chosen():
    assert choose("Which vitamin prevents scurvy?", {"A": "Zinc", "B": "Zinc"}, "Lemons prevent scurvy.").choice == "A"
