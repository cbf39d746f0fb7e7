"""Measures of verdicts against the labels that people gave: from tables of confusion, and from probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biorag.benchmarks.answers.abstention import expected_calibration_error
from biorag.types import LABELS, ClaimLabel
from biorag.utils.confusion import Floats, Table, macro_f1, share

FALSE_SUPPORT = 0.03  # share of the claims that are not supported which may be called supported
SAMPLES = 2000


class OperatingPoint(NamedTuple):
    """Share of the supported claims that are called so, and of the others; `threshold` of the probability, if any."""

    recall: float
    false_support: float
    threshold: float | None = None


def macro_f1_interval(table: Table, seed: int) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of macro-F1, claims being redrawn.

    To draw as many claims with replacement is to draw a table from the multinomial distribution of its cells.
    """
    total = int(table.sum())
    drawn = np.random.default_rng(seed).multinomial(total, table.ravel() / total, SAMPLES)
    low, high = np.quantile(macro_f1(drawn.reshape(SAMPLES, *table.shape), table.sum(1) > 0), [0.025, 0.975])
    return float(low), float(high)


def operating_point(table: Table) -> OperatingPoint:
    """Return what the verdicts of a table of confusion do."""
    totals = table.sum(1)
    others = share(table[1:, 0].sum(), totals[1:].sum())
    return OperatingPoint(float(share(table[0, 0], totals[0])), float(others))


def support_recall(supported: NDArray[np.bool_], probabilities: Floats) -> OperatingPoint:
    """Return the point of the lowest threshold at which at most `FALSE_SUPPORT` of the others are called supported.

    `supported`: whether the label is "supports", (claims,); `probabilities`: of support, (claims,). A claim is called
    supported from the threshold on; without such a threshold none is.
    """
    best = OperatingPoint(0.0, 0.0)
    for threshold in np.unique(probabilities)[::-1]:
        called = probabilities >= threshold
        false_support = float(share((called & ~supported).sum(), (~supported).sum()))
        if false_support > FALSE_SUPPORT:
            break
        best = OperatingPoint(float(share((called & supported).sum(), supported.sum())), false_support, threshold)
    return best


def calibration_error(labels: Sequence[ClaimLabel], probabilities: Floats) -> float:
    """Return the expected calibration error; the confidence is the probability of the likeliest class.

    `probabilities`: of the classes, (claims, 3).
    """
    right = probabilities.argmax(1) == [LABELS.index(label) for label in labels]
    return expected_calibration_error(probabilities.max(1), right)
