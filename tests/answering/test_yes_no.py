"""The lead of a yes/no question."""

from __future__ import annotations

import numpy as np
import pytest

from biorag.answering.sentence_matching import EvidenceSentence
from biorag.answering.yes_no import FEATURES, compares_alike, judged, weighted_features, yes_no_lead

QUESTION = "Does aspirin lower fever in adults?"


def rows_of(*texts):
    return [EvidenceSentence(n, 0, len(text), text) for n, text in enumerate(texts, 1)]


def lead_of(question, *texts):
    return yes_no_lead(question, rows_of(*texts), -0.01 * np.arange(len(texts)))


def features_of(question, text):
    _, features, _ = weighted_features(question, rows_of(text), np.zeros(1))
    return dict(zip(FEATURES, features[0], strict=True))


@pytest.mark.parametrize(
    ("question", "text", "answer"),
    [
        (QUESTION, "Aspirin lowers fever in adults.", "yes"),
        (QUESTION, "Aspirin does not lower fever in adults.", "no"),
        (QUESTION, "There was no significant effect of aspirin on fever in adults.", "no"),
        ("Is the disease dominant?", "The disease is an autosomal recessive disorder.", "no"),
        ("Does the drug increase mortality?", "The drug significantly reduced mortality.", "no"),
        ("Does aspirin not lower fever?", "Aspirin lowers fever in adults.", "no"),
    ],
)
def test_the_lead_is_what_the_sentence_says(question, text, answer):
    lead = lead_of(question, text)
    assert max(lead.probability, key=lead.probability.get) == answer
    assert sum(lead.probability.values()) == pytest.approx(1)
    assert lead.deciding.text == text


@pytest.mark.parametrize(
    "text",
    [
        "Nevoglitin has not been adequately evaluated in breastfeeding women.",
        "Nevoglitin was never tested in breastfeeding women.",
    ],
)
def test_what_was_not_studied_is_not_denied(text):
    lead = lead_of("Is nevoglitin safe during breastfeeding?", text)
    assert (lead.answer, lead.deciding.text) == ("unclear", text)
    asked = lead_of("Was nevoglitin evaluated in breastfeeding women?", "Nevoglitin was not evaluated in such women.")
    assert asked.answer == "no"


def test_where_snippets_disagree_the_other_side_is_told_too():
    affirmed, denied = "Aspirin lowers fever in adults.", "Aspirin does not lower fever in adults."
    lead = lead_of(QUESTION, *[affirmed] * 4, denied)
    assert {lead.deciding.text, lead.other.text} == {affirmed, denied}
    assert lead.answer == "unclear", "the sides are nearly even"
    sure = lead_of(QUESTION, affirmed, affirmed)
    assert (sure.answer, sure.deciding.text, sure.other) == ("yes", affirmed, None)


def test_the_features_of_a_sentence():
    denying = features_of("Does aspirin lower fever?", "Aspirin does not lower fever.")
    assert denying["coverage"] == pytest.approx(1)
    assert (denying["denies"], denying["denies_covering"], denying["grants_denied"]) == (1, 1, 0)
    assert features_of("Is it maternal?", "It is paternal.")["exchanged"] == 1
    assert features_of("Is it maternal?", "It is maternal or paternal.")["exchanged"] == 0
    assert features_of("Does it raise pressure?", "It lowers pressure.")["opposed"] == 1


def test_log_odds_are_the_weighted_mean_of_the_sentences():
    rows = rows_of("Aspirin lowers fever.", "Did aspirin lower fever?", "It may.")
    top, log_odds, weights = judged(QUESTION, rows, np.array([1.0, 1.1, 0.5]))
    assert top == [1, 0, 2], "best first"
    assert log_odds.shape == (3, 3) and weights.sum() == pytest.approx(1)
    assert weights[1] > weights[0], "a question weighs less than what answers it"


def test_without_evidence_there_is_no_lead():
    assert yes_no_lead(QUESTION, [], np.zeros(0)) is None


@pytest.mark.parametrize(
    ("question", "text", "expected"),
    [
        ("Does A1-drug cause more rash than B2-drug?", "Rash was commoner with A1-drug than with B2-drug.", True),
        ("Does A1-drug cause more rash than B2-drug?", "Rash was commoner with B2-drug than with A1-drug.", False),
        ("Was dupilumab superior to velnacitinib?", "Velnacitinib was superior to dupilumab.", False),
        ("Is valproate safer than levetiracetam?", "Harm: valproate 10 %, levetiracetam 2 %.", False),
        ("Does aspirin lower fever?", "Aspirin lowers fever more than placebo.", True),
    ],
)
def test_a_comparison_is_answered_by_one_with_the_same_sides(question, text, expected):
    assert compares_alike(question, text) is expected
