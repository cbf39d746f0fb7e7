"""Weights of merged experts chosen on development questions: dense retrieval, exact, from vectors in memory."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

import numpy as np

from biorag.benchmarks.retrieval import DEPTH, evaluate, judged_id
from biorag.benchmarks.tuning.study import Point, Study
from biorag.corpus.datasets import Dataset
from biorag.errors import BadInputError
from biorag.types import Encoder, OnProgress, Snippet, Vectors
from biorag.utils.files import write_text
from biorag.utils.plots import Panel, write_plot

GRID = tuple(place / 10 for place in range(11))
DENSITIES = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
ENCODED_AT_ONCE = 1024  # passages, between two reports of progress
SEARCHED_AT_ONCE = 64  # questions: bounds the matrix of scores

Candidate: TypeAlias = tuple[float, ...]  # the experts' weights in their order, then TIES' density


@dataclass(frozen=True, slots=True)
class Search:
    """How candidates are looked for, beginning with equal weights and the density `density`.

    Two experts' weights are w and 1 − w, for w on `GRID`. Of more experts, or where the weights need not sum to 1
    (`free`), one weight after the other takes the grid's values while the others keep theirs, or their proportions.
    Then, at the best weights, the `densities`.
    """

    experts: int
    measure: str
    density: float
    densities: tuple[float, ...]
    free: bool

    def best(self, study: Study[Candidate]) -> Candidate:
        """Measure the candidates; return the best, of equals the first."""
        best = self._best(study, [(*[1 / self.experts] * self.experts, self.density)])
        for expert in range(1 if self.experts == 2 and not self.free else self.experts):
            best = self._best(study, [best, *(self._with(best, expert, value) for value in GRID)])
        return self._best(study, [best, *((*best[:-1], density) for density in self.densities)])

    def _with(self, candidate: Candidate, expert: int, value: float) -> Candidate:
        """Return a candidate with another weight of one expert."""
        *weights, density = candidate
        others = sum(weights) - weights[expert]
        if not self.free:
            share = (1 - value) / others if others else 0.0
            weights = [weight * share if others else (1 - value) / (self.experts - 1) for weight in weights]
        weights[expert] = value
        return (*(round(weight, 6) for weight in weights), density)

    def _best(self, study: Study[Candidate], candidates: Sequence[Candidate]) -> Candidate:
        return max((each for each in candidates if sum(each[:-1])), key=lambda each: study.at(each).mean(self.measure))


@dataclass(frozen=True, slots=True)
class Corpus:
    """The passages that a development set's questions are searched in, of each its document's id and its PMID."""

    texts: Sequence[str]
    ids: Sequence[tuple[str, int | None]]

    @classmethod
    def of(cls, snippets: Iterable[Snippet]) -> Corpus:
        """Return the corpus of snippets; of those with one id the last counts, as in an index."""
        held = {each.id: each for each in snippets}.values()
        return cls([each.contents for each in held], [(each.document, each.pmid) for each in held])

    def check(self, datasets: Iterable[Dataset]) -> None:
        """Refuse a corpus in which nothing could be found.

        Raises
        ------
        BadInputError
            If it holds no snippet that a data set judges.
        """
        held = {id for document, pmid in self.ids for id in (document, str(pmid))}
        for each in datasets:
            if not any(held.intersection(found) for found in each.qrels.values()):
                raise BadInputError(f"the corpus holds no snippet that {each.name} judges: give the one it belongs to")

    def measures(
        self, datasets: Sequence[Dataset], encoder: Encoder, on_progress: OnProgress
    ) -> dict[str, Mapping[str, float]]:
        """Return each data set's measures of dense retrieval by an encoder; memory: the corpus's vectors."""
        parts = []
        for start in range(0, len(self.texts), ENCODED_AT_ONCE):
            parts.append(encoder.encode_snippets(self.texts[start : start + ENCODED_AT_ONCE]))
            on_progress(len(parts[-1]))
        vectors = np.concatenate(parts)
        return {each.name: self._measures(each, vectors, encoder) for each in datasets}

    def _measures(self, dataset: Dataset, vectors: Vectors, encoder: Encoder) -> Mapping[str, float]:
        judged = {id for found in dataset.qrels.values() for id in found}
        run = {}
        for start in range(0, len(dataset.questions), SEARCHED_AT_ONCE):
            questions = dataset.questions[start : start + SEARCHED_AT_ONCE]
            found = nearest(encoder.encode_queries([each.text for each in questions]), vectors, DEPTH)
            for question, places in zip(questions, found, strict=True):
                run[question.id] = list(dict.fromkeys(judged_id(*self.ids[place], judged) for place in places))
        return evaluate(dataset.qrels, run)[0]


def nearest(queries: Vectors, passages: Vectors, depth: int) -> list[list[int]]:
    """Return the places of the `depth` passages of highest dot product with each query, best first.

    Of equal scores the earlier place comes first.

    Parameters
    ----------
    queries : (queries, dimension)
    passages : (passages, dimension)
    """
    scores = queries @ passages.T
    depth = min(depth, scores.shape[1])
    lowest = -np.partition(-scores, depth - 1, axis=1)[:, depth - 1]
    found = []
    for row, least in zip(scores, lowest, strict=True):
        places = np.flatnonzero(row >= least)
        found.append(places[np.argsort(-row[places], kind="stable")][:depth].tolist())
    return found


def write_curve(folder: Path, points: Sequence[Point[Candidate]], name: str) -> None:
    """Write `curve.csv`, and `curve.png`: the best mean of a measure over each weight, and over the density.

    Of two weights that sum to 1 the first is shown.
    """
    ordered = sorted(points, key=lambda point: point.value)
    datasets = list(ordered[0].metrics)
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    experts = len(ordered[0].value) - 1
    rows.writerow([*(f"weight {place}" for place in range(1, experts + 1)), "density", *datasets, "mean"])
    rows.writerows(
        [*point.value, *(point.metrics[each][name] for each in datasets), point.mean(name)] for point in ordered
    )
    write_text(folder / "curve.csv", text.getvalue())
    shared = experts == 2 and all(math.isclose(sum(point.value[:-1]), 1) for point in points)
    panels = [
        _panel(f"weight of expert {place + 1}", place, ordered, name) for place in range(1 if shared else experts)
    ]
    if len({point.value[-1] for point in points}) > 1:
        panels.append(_panel("density", experts, ordered, name))
    write_plot(folder / "curve.png", panels)


def _panel(title: str, place: int, points: Sequence[Point[Candidate]], name: str) -> Panel:
    """Return the best mean at each value of one coordinate."""
    rising = sorted(points, key=lambda point: point.value[place])
    best = [
        (value, max(point.mean(name) for point in found))
        for value, found in groupby(rising, key=lambda point: point.value[place])
    ]
    return Panel(title, title, name, {"best": best})
