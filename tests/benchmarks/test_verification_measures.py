"""Measures of verdicts on labelled claims, beside scikit-learn and slow loops."""

from __future__ import annotations

import random

import numpy as np
import pytest
from sklearn import metrics

from biorag.benchmarks import verification
from biorag.types import LABEL_OF, LABELS


def drawn(seed, claims=80, labels=LABELS):
    rng = random.Random(seed)
    return rng.choices(labels, k=claims), rng.choices(LABELS, k=claims)


@pytest.mark.parametrize("seed", range(5))
def test_tables_and_scores_are_those_of_scikit_learn(seed):
    labels, called = drawn(seed)
    scored = verification.scores(judged(labels, called), 0)
    expected = metrics.precision_recall_fscore_support(labels, called, labels=LABELS, zero_division=0)
    by_label = [[scored["labels"][label][name] for label in LABELS] for name in ("precision", "recall", "f1")]
    assert np.allclose(by_label, expected[:3], atol=1e-4)
    assert [list(scored["labels"][label]["called"].values()) for label in LABELS] == metrics.confusion_matrix(
        labels, called, labels=LABELS
    ).tolist()
    assert scored["macro_f1"] == pytest.approx(
        metrics.f1_score(labels, called, labels=LABELS, average="macro"), abs=1e-4
    )


@pytest.mark.slow
def test_the_interval_is_that_of_redrawing_claims_one_by_one():
    labels, called = map(np.array, drawn(2, claims=120))
    generator = np.random.default_rng(0)
    redrawn = []
    for _ in range(1000):
        chosen = generator.integers(0, len(labels), len(labels))
        redrawn.append(metrics.f1_score(labels[chosen], called[chosen], labels=LABELS, average="macro"))
    expected = np.quantile(redrawn, [0.025, 0.975])
    table = metrics.confusion_matrix(labels, called, labels=LABELS)
    assert np.allclose(verification.macro_f1_interval(table, 0), expected, atol=0.015)
    assert verification.macro_f1_interval(table, 0) == verification.macro_f1_interval(table, 0)


def test_an_operating_point_counts_the_others_together():
    table = np.array([[6, 1, 3], [2, 7, 1], [1, 0, 19]])
    assert verification.operating_point(table) == (0.6, 0.1, None)
    assert verification.operating_point(np.array([[0, 0, 0], [1, 1, 0], [0, 0, 0]])) == (0.0, 0.5, None)


@pytest.mark.parametrize("seed", range(5))
def test_support_recall_is_the_best_that_a_threshold_allows(seed):
    rng = np.random.default_rng(seed)
    supported = rng.random(150) < 0.4
    probabilities = np.round(np.clip(rng.normal(0.4 + 0.3 * supported, 0.2), 0, 1), 2)  # with ties
    best = 0.0
    for threshold in np.linspace(0, 1.01, 102):
        called = probabilities >= threshold - 1e-9
        if called[~supported].mean() <= 0.03:
            best = max(best, called[supported].mean())
    point = verification.support_recall(supported, probabilities)
    assert point.recall == pytest.approx(best)
    called = probabilities >= point.threshold
    assert (called[supported].mean(), called[~supported].mean()) == pytest.approx(point[:2])


@pytest.mark.parametrize("seed", range(5))
def test_the_calibration_error_is_that_of_a_loop_over_bins(seed):
    labels, _ = drawn(seed)
    probabilities = np.random.default_rng(seed).dirichlet([0.5, 0.5, 0.5], len(labels))
    error = 0.0
    for number in range(10):
        inside = [
            (row.max(), LABELS[row.argmax()] == label)
            for row, label in zip(probabilities, labels, strict=True)
            if number / 10 <= row.max() < (number + 1) / 10 or (number == 9 and row.max() == 1)
        ]
        if inside:
            confidence, right = map(np.mean, zip(*inside, strict=True))
            error += len(inside) / len(labels) * abs(right - confidence)
    assert verification.calibration_error(labels, probabilities) == pytest.approx(error)
    certain = np.eye(3)[[LABELS.index(label) for label in labels]]
    assert verification.calibration_error(labels, certain) == 0


def judged(labels, called, probability=()):
    verdicts = {label: verdict for verdict, label in LABEL_OF.items() if verdict != "unsure"}
    return [
        {"label": label, "verdict": verdicts.get(one, "unsupported"), "probability": dict(probability)}
        for label, one in zip(labels, called, strict=True)
    ]


def test_scores_by_hand():
    rows = judged(["supports", "supports", "contradicts", "neither"], ["supports", "neither", "supports", "neither"])
    assert verification.scores(rows, 0) | {"interval": None} == {
        "claims": 4,
        "macro_f1": 0.3889,  # (1/2 + 0 + 2/3) / 3
        "interval": None,
        "labels": {
            "supports": {
                "claims": 2, "precision": 0.5, "recall": 0.5, "f1": 0.5,
                "called": {"supports": 1, "contradicts": 0, "neither": 1},
            },
            "contradicts": {
                "claims": 1, "precision": 0.0, "recall": 0.0, "f1": 0.0,
                "called": {"supports": 1, "contradicts": 0, "neither": 0},
            },
            "neither": {
                "claims": 1, "precision": 0.5, "recall": 1.0, "f1": 0.6667,
                "called": {"supports": 0, "contradicts": 0, "neither": 1},
            },
        },
        "support": {"recall": 0.5, "false_support": 0.5},
        "unsure": 0,
        "floor": {"label": "supports", "always": 0.2222, "base_rates": 0.3333},  # (2/3 + 0 + 0) / 3
    }  # fmt: skip


def test_what_the_check_is_not_sure_of_counts_as_what_it_leans_to_but_not_as_a_verdict():
    rows = judged(["supports", "contradicts"], ["supports", "neither"])
    for row, support in zip(rows, (0.6, 0.1), strict=True):
        row |= {"verdict": "unsure", "probability": {"supports": support, "contradicts": 0.8 - support, "neither": 0.2}}
    measured = verification.scores(rows, 0)
    assert (measured["macro_f1"], measured["unsure"], measured["support"]["recall"]) == (1.0, 2, 0.0)


def test_what_the_rules_decided_alone_counts_as_certain_and_not_in_the_calibration():
    rows = judged(["supports", "neither", "supports"], ["supports", "neither", "neither"])
    for row, support in zip(rows[1:], (0.4, 0.6), strict=True):
        row["probability"] = {"supports": support, "contradicts": 0.0, "neither": 1 - support}
    measured = verification.scores(rows, 0)
    assert measured["support_at_3_percent"] == {"recall": 1.0, "false_support": 0.0, "threshold": 0.6}
    assert measured["calibration"] == {"claims": 2, "error": 0.4}
