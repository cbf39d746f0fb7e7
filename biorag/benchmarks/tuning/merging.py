"""Weights of merged experts chosen on development questions: dense retrieval, exact, from vectors in memory."""

from __future__ import annotations

import csv
import hashlib
import heapq
import io
import itertools
import json
import math
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from biorag.benchmarks.retrieval import DEPTH, evaluate, judged_id
from biorag.benchmarks.tuning.study import Point, Study, dataset_hash
from biorag.corpus.datasets import Dataset
from biorag.engine import load_encoder
from biorag.errors import BadInputError
from biorag.models.finding import find_encoder
from biorag.training.merging.arithmetic import LINEAR, TIES, Recipe
from biorag.training.merging.encoder import Experts
from biorag.types import Encoder, OnProgress, Progress, Question, Snippet, Vectors
from biorag.utils.files import write_text
from biorag.utils.plots import PlotPanel, write_plot
from biorag.utils.versions import installed_versions

GRID = tuple(place / 10 for place in range(11))
# The full grid of Synthesize-Train-Merge (arXiv 2602.04731, section 4.3).
FULL_WEIGHTS = tuple(place / 10 for place in range(10))
FULL_DENSITIES = tuple(place / 10 for place in range(1, 10))
DENSITIES = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
ENCODED_AT_ONCE = 1024  # passages, between two reports of progress
CANDIDATE = "candidate"  # the folder of the encoder that is being measured
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
class FullGrid:
    """Every combination of weights in `FULL_WEIGHTS`, and of `densities`, as Synthesize-Train-Merge searches them.

    Of weights in one proportion the smallest are measured, unless the weights need not sum to 1 (`free`): their merges
    are the same.
    """

    experts: int
    measure: str
    densities: tuple[float, ...]
    free: bool

    def candidates(self) -> list[Candidate]:
        """Return the candidates, by rising weights."""
        found: dict[Candidate, Candidate] = {}
        for tenths in itertools.product(range(len(FULL_WEIGHTS)), repeat=self.experts):
            if any(tenths):
                divisor = 1 if self.free else math.gcd(*tenths)
                found.setdefault(tuple(each / divisor for each in tenths), tuple(FULL_WEIGHTS[each] for each in tenths))
        return [(*weights, density) for weights in found.values() for density in self.densities]

    def best(self, study: Study[Candidate]) -> Candidate:
        """Measure the candidates; return the best, of equals the first."""
        return max(self.candidates(), key=lambda each: study.at(each).mean(self.measure))


@dataclass(frozen=True, slots=True)
class Sample:
    """How many questions of a data set are drawn, and how many passages beside those judged; None: all.

    The draw is a hash of the seed and the id, so that a larger number adds to a smaller one's.
    """

    questions: int | None = None
    passages: int | None = None
    seed: int = 0

    def dataset(self, data: Dataset) -> Dataset:
        """Return a data set with the drawn questions, in their order."""
        if self.questions is None or self.questions >= len(data.questions):
            return data
        ids = {question.id for question in heapq.nsmallest(self.questions, data.questions, self._hash_of)}
        questions = [question for question in data.questions if question.id in ids]
        return Dataset(data.name, questions, {id: data.qrels[id] for id in data.qrels if id in ids})

    def snippets(self, snippets: Iterable[Snippet], datasets: Sequence[Dataset]) -> Iterable[Snippet]:
        """Return the snippets that data sets judge, and the drawn ones of the others."""
        if self.passages is None:
            return snippets
        judged = {id for data in datasets for found in data.qrels.values() for id in found}
        kept: list[Snippet] = []

        def others() -> Iterator[Snippet]:
            for snippet in snippets:
                if judged_id(snippet.document, snippet.pmid, judged) in judged:
                    kept.append(snippet)
                else:
                    yield snippet

        drawn = heapq.nsmallest(self.passages, others(), self._hash_of)
        return [*kept, *drawn]

    @property
    def identity(self) -> dict[str, Any]:
        """What determines the passages that are drawn; nothing where none are."""
        return {} if self.passages is None else {"sample_passages": self.passages, "seed": self.seed}

    def _hash_of(self, drawn: Question | Snippet) -> bytes:
        return hashlib.blake2b(json.dumps([self.seed, drawn.id]).encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Corpus:
    """The passages that a development set's questions are searched in, of each its document's id and its PMID.

    `source` is what determines them.
    """

    texts: Sequence[str]
    ids: Sequence[tuple[str, int | None]]
    source: Mapping[str, Any]

    @classmethod
    def of(cls, snippets: Iterable[Snippet], source: Mapping[str, Any]) -> Corpus:
        """Return the corpus of snippets; of those with one id the last counts, as in an index."""
        held = {each.id: each for each in snippets}.values()
        return cls([each.contents for each in held], [(each.document, each.pmid) for each in held], source)

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


@dataclass(frozen=True, slots=True)
class WeightSearch:
    """Chooses the weights, and TIES' density, of merged experts on development sets: a `WeightChoice`.

    Parameters
    ----------
    searched : corpora, and the data sets whose questions are searched in each, with the part that weights are chosen on
    part : which part of the questions it is
    measure : what is to be highest
    precision : of the merged encoders
    full : whether the full grid is measured, in place of one weight after the other
    """

    searched: Sequence[tuple[Corpus, Sequence[Dataset]]]
    part: str
    measure: str
    precision: str
    full: bool = False

    @property
    def datasets(self) -> list[Dataset]:
        """All data sets."""
        return [dataset for _, datasets in self.searched for dataset in datasets]

    def identity(self, method: str) -> dict[str, Any]:
        """Return what determines the measures of a candidate besides the experts."""
        sources = [corpus.source for corpus, _ in self.searched]
        return {
            "method": method,
            "measure": self.measure,
            "side": self.part,
            "datasets": {dataset.name: dataset_hash(dataset) for dataset in self.datasets},
            "questions": {dataset.name: len(dataset.questions) for dataset in self.datasets},
            "corpus": sources[0] if len(sources) == 1 else sources,
            "snippets": sum(len(corpus.texts) for corpus, _ in self.searched),
            "precision": self.precision,
            "versions": installed_versions(),
        }

    def choose(self, out: Path, experts: Experts, recipe: Recipe, progress: Progress) -> tuple[Recipe, dict[str, Any]]:
        """Return the recipe with the best weights and density, and the report of the search."""

        def measured(candidate: Candidate) -> Mapping[str, Mapping[str, float]]:
            return self._measures(out / CANDIDATE, experts, _with(recipe, candidate), progress)

        identity = self.identity(recipe.method)
        study: Study[Candidate] = Study(out, {**experts.hashes, **identity, "scale": recipe.scale}, measured)
        best = self._search(len(experts.experts), experts.base is not None, recipe).best(study)
        shutil.rmtree(out / CANDIDATE, ignore_errors=True)
        write_curve(out, list(study.points.values()), self.measure)
        return _with(recipe, best), {**identity, "points": self._points(study)}

    def full_grid(self, experts: int, has_base: bool, recipe: Recipe) -> FullGrid:
        """Return the full grid of a recipe."""
        densities = FULL_DENSITIES if recipe.method == TIES else (recipe.density,)
        return FullGrid(experts, self.measure, densities, recipe.method == LINEAR and has_base)

    def _search(self, experts: int, has_base: bool, recipe: Recipe) -> Search | FullGrid:
        """Return which candidates are measured."""
        if self.full:
            return self.full_grid(experts, has_base, recipe)
        densities = DENSITIES if recipe.method == TIES else ()
        return Search(experts, self.measure, recipe.density, densities, recipe.method == LINEAR and has_base)

    def _measures(
        self, folder: Path, experts: Experts, recipe: Recipe, progress: Progress
    ) -> Mapping[str, Mapping[str, float]]:
        """Return the measures of the encoder that a recipe gives, written into a folder for them."""
        experts.write(folder, recipe, lambda _: None)
        files = find_encoder(str(folder))
        encoder = load_encoder(files, files.similarity() or "cosine", self.precision)
        weights = ", ".join(f"{weight:g}" for weight in recipe.weights)
        found: dict[str, Mapping[str, float]] = {}
        with progress(f"Passages, weights {weights}", sum(len(each.texts) for each, _ in self.searched)) as advance:
            for corpus, datasets in self.searched:
                found |= corpus.measures(datasets, encoder, advance)
        return found

    def _points(self, study: Study[Candidate]) -> list[dict[str, Any]]:
        return [
            {
                "weights": list(point.value[:-1]),
                "density": point.value[-1],
                "mean": point.mean(self.measure),
                "datasets": {name: measures[self.measure] for name, measures in point.metrics.items()},
            }
            for point in (study.points[value] for value in sorted(study.points))
        ]


def _with(recipe: Recipe, candidate: Candidate) -> Recipe:
    return replace(recipe, weights=candidate[:-1], density=candidate[-1])


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


def _panel(title: str, place: int, points: Sequence[Point[Candidate]], name: str) -> PlotPanel:
    """Return the best mean at each value of one coordinate."""
    rising = sorted(points, key=lambda point: point.value[place])
    best = [
        (value, max(point.mean(name) for point in found))
        for value, found in groupby(rising, key=lambda point: point.value[place])
    ]
    return PlotPanel(title, title, name, {"best": best})
