"""Tables of confusion, and the scores of their classes.

A table of confusion is (3, 3): how many claims of each label, by row, were called each, by column, in the order of
`LABELS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biorag.types import LABELS, ClaimLabel

Table = NDArray[np.int64]
Floats = NDArray[np.float64]


class ClassScores(NamedTuple):
    """Precision, recall and F1 of each class, (..., 3) each; 0 for a class that nothing belongs to or is called."""

    precision: Floats
    recall: Floats
    f1: Floats


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
    return ClassScores(share(right, called), share(right, of_label), share(2 * right, of_label + called))


def macro_f1(tables: Table, labelled: NDArray[np.bool_]) -> Floats:
    """Return the mean F1 of the classes that are `labelled`, (3,), of tables of confusion, (..., 3, 3)."""
    mean: Floats = class_scores(tables).f1[..., labelled].mean(-1)
    return mean


def share(part: NDArray[np.int64], whole: NDArray[np.int64]) -> Floats:
    """Return part / whole, 0 where there is nothing."""
    return np.divide(part, whole, out=np.zeros(np.shape(whole)), where=np.asarray(whole) > 0)
