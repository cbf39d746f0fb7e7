"""An answer, what may be one, or nothing: features by hand, thresholds, and what an answerer makes of them."""

import json
import math

import numpy as np
import pytest

from biorag.answering import answerer as module
from biorag.answering.answerer import MAY, NOTHING, Answerer
from biorag.answering.certainty import (
    FEATURES,
    KNOWN,
    CertaintyModel,
    certainty_features,
    certainty_model,
    missing_words,
)
from biorag.answering.extract import FLOOR, ScoredSentences, candidates
from biorag.answering.guards.words import rarity
from biorag.retrieval.retriever import Ranking
from biorag.settings.settings import Settings
from biorag.types import Hit, Question, Snippet
from tests.fakes import ScriptedGenerator

TEXTS = ("Warfarin thins blood. Teclistamab helps.", "Football is played.")
HITS = tuple(Hit(n, Snippet(f"s{n}", "", text), 1.0 / n) for n, text in enumerate(TEXTS, 1))
QUESTION = "Does warfarin or tinnitus prevent football?"
ROWS = candidates(HITS)


def values(scored: ScoredSentences, question: str = QUESTION) -> dict[str, float]:
    return dict(zip(FEATURES, certainty_features(question, HITS, scored), strict=True))


def test_features_are_words_and_what_a_reader_says():
    found = values(ScoredSentences(ROWS, np.array([0.1, 0.3, 0.9], np.float32)))
    weights = {word: rarity(word) for word in ("warfarin", "tinnitus", "prevent", "footbal")}
    assert found["coverage"] == pytest.approx(weights["footbal"] / sum(weights.values())), "of the second hit"
    assert (found["missing_telling"], found["words"]) == (1, pytest.approx(math.log1p(4)))
    assert [found[name] for name in FEATURES[-5:]] == [0, FLOOR, 0, 0, 0]
    read = ScoredSentences(ROWS, np.array([0.1, 0.3, 0.9], np.float32), [2, 1], np.array([-1.0, 2.0], np.float32))
    assert values(read)["answer"] == 2
    assert set(values(ScoredSentences([], np.zeros(0, np.float32))).values()) == {0.0}


def test_numbers_that_are_asked_for_and_how_near_hits_come():
    matched = {"matches": np.array([0.2, 0.8, 0.5], np.float32), "least": np.array([0.1, 0.3, 0.2], np.float32)}
    scored = ScoredSentences(ROWS, np.array([0.9, 0, 0], np.float32), **matched)
    found = values(scored, "How much warfarin thins blood?")
    assert found["number_missing"] == 1
    assert (found["match_best"], found["match_ahead"]) == pytest.approx((0.8, 0.3))
    assert found["match_least"] == pytest.approx(0.1), "of the best sentence's hit"
    numbered = candidates((Hit(1, Snippet("s", "", "Adults took five tablets."), 1.0),))
    for question, rows in (("How is warfarin taken?", ROWS), ("How much warfarin is taken?", numbered)):
        assert values(ScoredSentences(rows, np.ones(len(rows), np.float32)), question)["number_missing"] == 0


def model(**changes) -> CertaintyModel:
    """Return a model whose log-odds are twice what `coverage` lies above a half."""
    count = len(FEATURES)
    weights = tuple(1.0 * (name == "coverage") for name in FEATURES)
    fields = {"may": 0.3, "answer": 0.6, "intercept": 0.0, **changes}
    return CertaintyModel(FEATURES, (0.5,) * count, (0.5,) * count, weights, fitted={}, **fields)


def test_a_probability_by_hand_and_the_answer_it_makes():
    row = [0.5] * len(FEATURES)
    assert model().probability(row) == pytest.approx(0.5)
    row[FEATURES.index("coverage")] = 1.0
    assert model(intercept=1.0).probability(row) == pytest.approx(1 / (1 + math.exp(-2)))
    assert [model().certainty(p) for p in (0.29, 0.3, 0.59, 0.6)] == ["nothing", "may", "may", "answer"]
    assert [model().certainty(p, 0.9) for p in (0.29, 0.3, 0.89, 0.9)] == ["nothing", "may", "may", "answer"]
    assert [model().certainty(p, 0.1) for p in (0.09, 0.1)] == ["nothing", "answer"]


@pytest.mark.parametrize("matched", KNOWN)
def test_packaged_coefficients_are_of_these_features(matched):
    packaged = certainty_model(matched)
    assert packaged.features == FEATURES
    assert len(packaged.mean) == len(packaged.scale) == len(packaged.weights) == len(FEATURES)
    assert all(scale > 0 for scale in packaged.scale)
    assert 0 < packaged.may < packaged.answer < 1


# --- what an answerer makes of it ---

ASKED = Question("q", "What blocks vitamin K?")
ANSWERING = Snippet("s1", "Warfarin", "Warfarin blocks the recycling of vitamin K. It thins the blood of adults.")
RANKING = Ranking(ASKED.text, (Hit(1, ANSWERING, 1.0),), {"total": 1.0})


@pytest.fixture
def probability(monkeypatch):
    """Set the probability of an answer by the evidence."""
    chance = {"is": 0.5}
    monkeypatch.setattr(CertaintyModel, "probability", lambda model, row: chance["is"])
    monkeypatch.setattr(module, "certainty_model", lambda matched: model())
    return lambda value: chance.update({"is": value})


def withheld_or_given(question=ASKED, generator=None, **settings):
    return Answerer(None, generator, Settings.of(**settings)).answer_or_withhold(question, RANKING)


def test_an_answer_is_given_as_one_as_what_may_be_one_or_withheld(probability):
    probability(0.6)
    given = withheld_or_given()
    assert (given.certainty, given.abstained, given.evidence_probability) == ("answer", False, 0.6)
    assert given.text.startswith("Warfarin blocks the recycling of vitamin K. [1]")
    probability(0.59)
    doubtful = withheld_or_given()
    assert (doubtful.certainty, doubtful.abstained) == ("may", False)
    assert doubtful.text == f"{MAY} {given.text}"
    assert (doubtful.sentences, doubtful.citations) == (given.sentences, given.citations)
    probability(0.29)
    withheld = withheld_or_given()
    assert (withheld.certainty, withheld.abstained, withheld.text) == ("nothing", True, NOTHING)
    assert (withheld.sentences, withheld.citations, len(withheld.hits)) == ((), (), 1)
    assert "with probability 0.29 (--answer-anyway" in withheld.notes[0]


def test_what_is_withheld_names_what_no_hit_holds(probability):
    probability(0.1)
    withheld = withheld_or_given(Question("q", "Does warfarin with velnacitinib cause tinnitus and pneumatosis?"))
    assert withheld.text == "I found nothing that answers this: no mention of velnacitinib, pneumatosis."


def test_a_withheld_question_is_not_generated_and_choices_and_overrides_are_answered(probability):
    probability(0.1)
    generator = ScriptedGenerator(
        [json.dumps({"answer": "Warfarin blocks the recycling of vitamin K.", "citations": [1]})]
    )
    assert withheld_or_given(generator=generator).abstained and generator.prompts == []
    anyway = withheld_or_given(generator=generator, answer_anyway=True)
    assert (anyway.abstained, anyway.certainty, anyway.evidence_probability) == (False, None, None)
    assert withheld_or_given(evidence_threshold=0.1).certainty == "answer"
    chosen = withheld_or_given(Question("q", ASKED.text, {"A": "warfarin", "B": "zinc"}))
    assert (chosen.choice, chosen.abstained) == ("A", False)


def test_initials_hold_an_abbreviation_but_not_those_of_little_words():
    assert not missing_words("ACE", ["Angiotensin-converting enzyme was raised."])
    assert list(missing_words("ECT", ["Each case of the condition tested positive."])) == ["ECT"]
