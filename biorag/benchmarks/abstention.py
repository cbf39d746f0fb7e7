"""How well a probability tells questions that an index can answer from those that it cannot. Pure functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]
SAMPLES = 1000  # redrawn sets of questions
BINS = 10  # of probability


def auroc(probabilities: Values, answerable: Flags) -> float:
    """Return the probability that an answerable question scores above an unanswerable one, a tie counting half.

    Both arrays are (questions,), with a question of each kind. Hanley and McNeil (1982), The meaning and use of the
    area under a ROC curve.
    """
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(answerable, probabilities))


def risk_coverage(probabilities: Values, answerable: Flags) -> tuple[Values, Values]:
    """Return coverage and selective risk as the threshold falls, (questions,) each.

    Coverage is the share of all questions that are answered, risk the share of unanswerable ones among these. Questions
    of one probability are answered together and share a risk. El-Yaniv and Wiener (2010), On the foundations of
    noise-free selective classification, JMLR.
    """
    order = np.argsort(-probabilities, kind="stable")
    sorted_probabilities, wrong = probabilities[order], np.cumsum(~answerable[order])
    last = np.searchsorted(-sorted_probabilities, -sorted_probabilities, "right")  # answered with each question
    counts = np.arange(1, len(order) + 1)
    return counts / len(order), wrong[last - 1] / last


def risk_coverage_area(probabilities: Values, answerable: Flags) -> float:
    """Return the mean of the risk over all coverages (AURC); 0 is perfect, the share of the unanswerable is chance."""
    return float(risk_coverage(probabilities, answerable)[1].mean())


def threshold_at(probabilities: Values, share: float) -> float:
    """Return the highest threshold at which at least `share` of these questions are answered."""
    ranked = np.sort(probabilities)[::-1]
    return float(ranked[max(0, int(np.ceil(share * len(ranked))) - 1)])


def answered_share(probabilities: Values, threshold: float) -> float:
    """Return the share of questions whose probability reaches the threshold."""
    return float((probabilities >= threshold).mean())


def false_answer_share(probabilities: Values, answerable: Flags, share: float = 0.9) -> float:
    """Return the share of the unanswerable that are answered where `share` of the answerable are."""
    return answered_share(probabilities[~answerable], threshold_at(probabilities[answerable], share))


def risk_coverage_curve(probabilities: Values, answerable: Flags, points: int = 50) -> list[tuple[float, float]]:
    """Return at most so many points (coverage, risk) of `risk_coverage`, the last with all questions answered."""
    coverage, risk = risk_coverage(probabilities, answerable)
    shown = np.unique(np.linspace(0, len(coverage) - 1, points).round().astype(int))
    return [(round(float(coverage[n]), 4), round(float(risk[n]), 4)) for n in shown]


def reliability(probabilities: Values, right: Flags) -> list[tuple[float, float]]:
    """Return the mean probability and the share that is right, of each of ten bins of equal width that has any."""
    bins = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    filled = [bins == number for number in range(BINS) if (bins == number).any()]
    return [(round(float(probabilities[inside].mean()), 4), round(float(right[inside].mean()), 4)) for inside in filled]


def expected_calibration_error(probabilities: Values, right: Flags) -> float:
    """Return the mean gap between probability and accuracy, over ten bins of equal width weighted by their number.

    Both arrays are (predictions,). Guo et al. (2017), On Calibration of Modern Neural Networks, equation 3.
    """
    bins = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    return float(np.abs(np.bincount(bins, right - probabilities)).sum() / len(bins))


MEASURES: dict[str, Callable[[Values, Flags], float]] = {
    "AUROC": auroc,
    "AURC": risk_coverage_area,
    "unanswerable_answered@90": false_answer_share,
    "calibration_error": expected_calibration_error,
}


def measured(probabilities: Values, answerable: Flags, questions: NDArray[Any], seed: int) -> dict[str, Any]:
    """Return each measure with its 95 % percentile bootstrap interval.

    `questions` is the question of each row, (rows,); a question is drawn with all its rows, with and without its gold.
    """
    ids, owners = np.unique(questions, return_inverse=True)
    counts = np.bincount(owners)
    rows = np.full((len(ids), counts.max()), -1)  # those of each question, -1 where it has fewer
    rows[np.arange(counts.max()) < counts[:, None]] = np.argsort(owners, kind="stable")
    generator = np.random.default_rng(seed)
    draws: dict[str, list[float]] = {name: [] for name in MEASURES}
    for _ in range(SAMPLES):
        drawn = rows[generator.integers(0, len(rows), len(rows))].ravel()
        drawn = drawn[drawn >= 0]
        if answerable[drawn].all() or not answerable[drawn].any():
            continue
        for name, measure in MEASURES.items():
            draws[name].append(measure(probabilities[drawn], answerable[drawn]))
    intervals = {name: np.quantile(values, (0.025, 0.975)).tolist() for name, values in draws.items() if values}
    return {
        name: {"value": measure(probabilities, answerable), "interval": intervals.get(name)}
        for name, measure in MEASURES.items()
    }
