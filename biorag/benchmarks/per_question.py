"""A benchmark's figures question by question: written beside its report, read for intervals and comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from biorag.benchmarks.significance import Paired, bootstrap_means, paired_tasks, wilson
from biorag.utils.files import json_line, replacing
from biorag.utils.runs import whole_rows

PER_QUESTION = "per-question.jsonl"
NESTED = "/"  # between a set and a part of it, in the name of a set


class QuestionFigures(TypedDict):
    """One question: its id, its set if there are several, and what it adds to figures of the report, by their paths.

    A figure is the unweighted mean of its sets, a set with parts that of its parts, a part that of its questions.
    """

    id: str
    set: NotRequired[str]
    metrics: Mapping[str, float]


def write_figures(path: Path, rows: Iterable[QuestionFigures]) -> None:
    """Write one JSON line per question."""
    with replacing(path) as stream:
        for row in rows:
            stream.write(json_line(dict(row)))


def read_figures(path: Path) -> list[QuestionFigures]:
    """Return the rows of a file; none if it is not there."""
    return [row for _, row in whole_rows(path, QuestionFigures)] if path.is_file() else []


@dataclass(frozen=True, slots=True)
class QuestionValues:
    """The values of one figure by question: ids, values and weight of each set, in the same order."""

    ids: tuple[tuple[str, ...], ...]
    values: tuple[NDArray[np.float64], ...]  # (questions,) each
    weights: tuple[float, ...]

    def interval(self, seed: int) -> tuple[float, float]:
        """Return the 95 % interval of the figure: by bootstrap, or of shares of questions by Wilson's interval.

        The bootstrap of a share of 0 or 1 has no width. Intervals of several sets are combined as Zou and Donner do
        (2008, Construction of confidence limits about effect measures, MOVER).
        """
        if all(np.isin(values, (0.0, 1.0)).all() for values in self.values):
            return self._of_shares()
        low, high = np.quantile(bootstrap_means(self.values, seed, weights=self.weights), [0.025, 0.975])
        return float(low), float(high)

    def _of_shares(self) -> tuple[float, float]:
        shares = np.array([values.mean() for values in self.values])
        ends = np.array([wilson(int(values.sum()), len(values)) for values in self.values])  # (sets, 2)
        weights = np.asarray(self.weights) / sum(self.weights)
        middle, apart = weights @ shares, np.sqrt(weights**2 @ (ends - shares[:, None]) ** 2)
        return float(middle - apart[0]), float(middle + apart[1])

    def against(self, other: QuestionValues, seed: int) -> Paired | None:
        """Compare with another system; None if it answered other questions."""
        if self.ids != other.ids:
            return None
        ours, theirs = ([values.tolist() for values in side.values] for side in (self, other))
        return paired_tasks(ours, theirs, seed, self.weights)


def values_of(rows: Sequence[QuestionFigures], paths: Sequence[str]) -> QuestionValues | None:
    """Return the values of a figure, or of the unweighted mean of several, from rows that have them.

    None if no question has one of them.
    """
    by_set: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        for path in paths:
            if path in row["metrics"]:
                by_set.setdefault((path, row.get("set", "")), {})[row["id"]] = row["metrics"][path]
    if {path for path, _ in by_set} != set(paths):
        return None
    ordered = sorted(by_set)
    weights = nested_weights([NESTED.join((str(paths.index(path)), name)) for path, name in ordered])
    return QuestionValues(
        tuple(tuple(by_set[key]) for key in ordered),
        tuple(np.array(list(by_set[key].values()), np.float64) for key in ordered),
        tuple(weights),
    )


def averaged(runs: Sequence[QuestionValues]) -> QuestionValues:
    """Return the mean by question of several runs of the same questions, such as those of several seeds."""
    sets = zip(*(run.values for run in runs), strict=True)
    return QuestionValues(runs[0].ids, tuple(np.mean(values, axis=0) for values in sets), runs[0].weights)


def together(figures: Sequence[QuestionValues]) -> QuestionValues:
    """Return the values of several data sets as one figure, their unweighted mean."""
    return QuestionValues(
        tuple(ids for figure in figures for ids in figure.ids),
        tuple(values for figure in figures for values in figure.values),
        tuple(weight for figure in figures for weight in figure.weights),
    )


def nested_weights(names: Sequence[str]) -> list[float]:
    """Return each set's weight in the mean of means: at every level of the names, siblings count alike."""
    paths = [name.split(NESTED) for name in names]
    siblings: dict[tuple[str, ...], set[str]] = {}
    for levels in paths:
        for depth, level in enumerate(levels):
            siblings.setdefault(tuple(levels[:depth]), set()).add(level)
    return [
        float(np.prod([1 / len(siblings[tuple(levels[:depth])]) for depth in range(len(levels))])) for levels in paths
    ]
