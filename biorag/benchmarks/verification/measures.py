"""Measures of verdicts against the labels that people gave: from tables of confusion, and from probabilities.

A table of confusion is (3, 3): how many claims of each label, by row, were called each, by column, in the order of
`LABELS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biorag.types import LABELS, ClaimLabel

FALSE_SUPPORT = 0.03  # share of the claims that are not supported which may be called supported
BINS = 10
Table = NDArray[np.int64]
Floats = NDArray[np.float64]


class ClassScores(NamedTuple):
    """Precision, recall and F1 of each class, (..., 3) each; 0 for a class that nothing belongs to or is called."""

    precision: Floats
    recall: Floats
    f1: Floats


class OperatingPoint(NamedTuple):
    """Share of the supported claims that are called so, and of the others; `threshold` of the probability, if any."""

    recall: float
    false_support: float
    threshold: float | None = None


def confusion(labels: Sequence[ClaimLabel], called: Sequence[ClaimLabel]) -> Table:
    """Return the table of confusion of claims, (3, 3)."""
    table = np.zeros((len(LABELS), len(LABELS)), np.int64)
    for label, verdict in zip(labels, called, strict=True):
        table[LABELS.index(label), LABELS.index(verdict)] += 1
    return table


def class_scores(tables: Table) -> ClassScores:
    """Return the scores of the classes of tables of confusion, (..., 3, 3)."""
    right = np.diagonal(tables, axis1=-2, axis2=-1)
    of_label, called = tables.sum(-1), tables.sum(-2)
    return ClassScores(_share(right, called), _share(right, of_label), _share(2 * right, of_label + called))


def macro_f1(tables: Table, labelled: NDArray[np.bool_]) -> Floats:
    """Return the mean F1 of the classes that are `labelled`, (3,), of tables of confusion, (..., 3, 3)."""
    mean: Floats = class_scores(tables).f1[..., labelled].mean(-1)
    return mean


def macro_f1_interval(table: Table, seed: int, samples: int = 2000) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of macro-F1, claims being redrawn.

    To draw as many claims with replacement is to draw a table from the multinomial distribution of its cells.
    """
    total = int(table.sum())
    drawn = np.random.default_rng(seed).multinomial(total, table.ravel() / total, samples)
    low, high = np.quantile(macro_f1(drawn.reshape(samples, *table.shape), table.sum(1) > 0), [0.025, 0.975])
    return float(low), float(high)


def operating_point(table: Table) -> OperatingPoint:
    """Return what the verdicts of a table of confusion do."""
    totals = table.sum(1)
    others = _share(table[1:, 0].sum(), totals[1:].sum())
    return OperatingPoint(float(_share(table[0, 0], totals[0])), float(others))


def support_recall(supported: NDArray[np.bool_], probabilities: Floats, most: float = FALSE_SUPPORT) -> OperatingPoint:
    """Return the point of the lowest threshold at which at most a share `most` of the others are called supported.

    `supported`: whether the label is "supports", (claims,); `probabilities`: of support, (claims,). A claim is called
    supported from the threshold on; without a threshold that keeps to `most` none is.
    """
    best = OperatingPoint(0.0, 0.0)
    for threshold in np.unique(probabilities)[::-1]:
        called = probabilities >= threshold
        false_support = float(_share((called & ~supported).sum(), (~supported).sum()))
        if false_support > most:
            break
        best = OperatingPoint(float(_share((called & supported).sum(), supported.sum())), false_support, threshold)
    return best


def calibration_error(labels: Sequence[ClaimLabel], probabilities: Floats, bins: int = BINS) -> float:
    """Return the expected calibration error: |accuracy - confidence| of bins of confidence, weighted by their claims.

    `probabilities`: of the classes, (claims, 3); the confidence is that of the likeliest class.

    Guo et al. (2017), On Calibration of Modern Neural Networks, equation 3.
    """
    confidence = probabilities.max(1)
    right = probabilities.argmax(1) == [LABELS.index(label) for label in labels]
    bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = np.bincount(bin_of, right - confidence, bins)
    return float(np.abs(gaps).sum() / len(labels))


def _share(part: NDArray[np.int64], whole: NDArray[np.int64]) -> Floats:
    """Return part / whole, 0 where there is nothing."""
    return np.divide(part, whole, out=np.zeros(np.shape(whole)), where=np.asarray(whole) > 0)
