"""Weights of merged experts chosen on development questions: dense retrieval, exact, from vectors in memory."""

from __future__ import annotations

import hashlib
import heapq
import itertools
import json
import math
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from biorag.benchmarks.retrieval import DEPTH, evaluate, judged_id
from biorag.benchmarks.tuning.study import Metrics, Point, Study, dataset_hash, write_csv
from biorag.corpus.datasets import Dataset
from biorag.engine import load_encoder
from biorag.errors import BadInputError
from biorag.models.finding import find_encoder
from biorag.training.experts import Experts
from biorag.training.merging import LINEAR, TIES, MergeRecipe
from biorag.types import Encoder, OnProgress, Progress, Question, Snippet, Vectors
from biorag.utils.network import command_line
from biorag.utils.plots import PlotPanel, write_plot
from biorag.utils.runs import RunDirectory
from biorag.utils.versions import installed_versions

STEPS = {2: 10, 3: 6}  # from no weight to all of it, by the number of experts; of more experts as many as there are
# The full grid of Synthesize-Train-Merge (arXiv 2602.04731, section 4.3).
FULL_WEIGHTS = tuple(tenth / 10 for tenth in range(10))
FULL_DENSITIES = tuple(tenth / 10 for tenth in range(1, 10))
ENCODED_AT_ONCE = 1024  # passages, between two reports of progress
CANDIDATE = "candidate"  # the folder of the encoder that is being measured
SEARCHED_AT_ONCE = 64  # questions: bounds the matrix of scores

Weighting: TypeAlias = tuple[float, ...]  # the experts' weights in their order, then TIES' density


def shares(experts: int) -> list[tuple[float, ...]]:
    """Return weights that sum to 1, evenly spaced: of two experts in tenths. Equal weights come first."""
    steps = STEPS.get(experts, experts)
    counts = (share for share in itertools.product(range(steps + 1), repeat=experts) if sum(share) == steps)
    return [tuple(round(count / steps, 6) for count in share) for share in sorted(counts, key=max)]


def full_grid(experts: int, free: bool) -> list[tuple[float, ...]]:
    """Return every combination of weights in `FULL_WEIGHTS`, as Synthesize-Train-Merge searches them.

    Of weights in one proportion the smallest are returned, unless the weights need not sum to 1 (`free`): their merges
    are the same.
    """
    smallest: dict[tuple[float, ...], tuple[float, ...]] = {}
    for tenths in itertools.product(range(len(FULL_WEIGHTS)), repeat=experts):
        if any(tenths):
            divisor = 1 if free else math.gcd(*tenths)
            proportions = tuple(tenth / divisor for tenth in tenths)
            smallest.setdefault(proportions, tuple(FULL_WEIGHTS[tenth] for tenth in tenths))
    return list(smallest.values())


@dataclass(frozen=True, slots=True)
class DevelopmentSample:
    """The number of questions drawn of a data set, and of passages beside the judged ones; None: all.

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
        judged = {id for data in datasets for grades in data.qrels.values() for id in grades}
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
        """All that determines the drawn passages; empty if none are drawn."""
        return {} if self.passages is None else {"sample_passages": self.passages, "seed": self.seed}

    def _hash_of(self, drawn: Question | Snippet) -> bytes:
        return hashlib.blake2b(json.dumps([self.seed, drawn.id]).encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class DevelopmentCorpus:
    """The passages that a development set's questions are searched in, of each its document's id and its PMID.

    `source` determines them.
    """

    texts: Sequence[str]
    ids: Sequence[tuple[str, int | None]]
    source: Mapping[str, Any]

    @classmethod
    def of(cls, snippets: Iterable[Snippet], source: Mapping[str, Any]) -> DevelopmentCorpus:
        """Return the corpus of snippets; of those with one id the last counts, as in an index."""
        last = {snippet.id: snippet for snippet in snippets}.values()
        ids = [(snippet.document, snippet.pmid) for snippet in last]
        return cls([snippet.contents for snippet in last], ids, source)

    def check(self, datasets: Iterable[Dataset]) -> None:
        """Refuse a corpus in which nothing could be found.

        Raises BadInputError if it holds no snippet that a data set judges.
        """
        held = {id for document, pmid in self.ids for id in (document, str(pmid))}
        for data in datasets:
            if not any(held.intersection(grades) for grades in data.qrels.values()):
                raise BadInputError(f"the corpus holds no snippet that {data.name} judges: give the one it belongs to")

    def measures(self, datasets: Sequence[Dataset], encoder: Encoder, on_progress: OnProgress) -> Metrics:
        """Return each data set's measures of dense retrieval by an encoder; memory: the corpus's vectors."""
        parts = []
        for start in range(0, len(self.texts), ENCODED_AT_ONCE):
            parts.append(encoder.encode_snippets(self.texts[start : start + ENCODED_AT_ONCE]))
            on_progress(len(parts[-1]))
        vectors = np.concatenate(parts)
        return {data.name: self._measures(data, vectors, encoder) for data in datasets}

    def _measures(self, data: Dataset, vectors: Vectors, encoder: Encoder) -> Mapping[str, float]:
        judged = {id for grades in data.qrels.values() for id in grades}
        run = {}
        for start in range(0, len(data.questions), SEARCHED_AT_ONCE):
            questions = data.questions[start : start + SEARCHED_AT_ONCE]
            queries = encoder.encode_queries([question.text for question in questions])
            # Of equal scores the earlier passage comes first.
            order: list[list[int]] = np.argsort(-(queries @ vectors.T), axis=1, kind="stable")[:, :DEPTH].tolist()
            for question, rows in zip(questions, order, strict=True):
                run[question.id] = list(dict.fromkeys(judged_id(*self.ids[row], judged) for row in rows))
        return evaluate(data.qrels, run)[0]


@dataclass(frozen=True, slots=True)
class WeightSearch:
    """Chooses the weights, and TIES' density, of merged experts on development sets."""

    searched: Sequence[tuple[DevelopmentCorpus, Sequence[Dataset]]]  # corpora, and the data sets searched in each
    part: str  # of the questions
    measure: str  # to maximise
    precision: str  # of the merged encoders
    full: bool = False  # whether the full grid of Synthesize-Train-Merge is measured, in place of `shares`

    def identity(self, method: str) -> dict[str, Any]:
        """Return all that determines the measures of a candidate besides the experts."""
        datasets = [data for _, searched in self.searched for data in searched]
        sources = [corpus.source for corpus, _ in self.searched]
        return {
            "method": method,
            "measure": self.measure,
            "side": self.part,
            "datasets": {data.name: dataset_hash(data) for data in datasets},
            "questions": {data.name: len(data.questions) for data in datasets},
            "corpus": sources[0] if len(sources) == 1 else sources,
            "snippets": sum(len(corpus.texts) for corpus, _ in self.searched),
            "precision": self.precision,
            "versions": installed_versions(),
        }

    def choose(
        self, out: Path, experts: Experts, recipe: MergeRecipe, progress: Progress
    ) -> tuple[MergeRecipe, dict[str, Any]]:
        """Return the recipe with the best weights and density, and the report of the search."""

        def measured(candidate: Weighting) -> Metrics:
            return self._measures(out / CANDIDATE, experts, _with(recipe, candidate), progress)

        identity = self.identity(recipe.method)
        study: Study[Weighting] = Study(out, {**experts.hashes, **identity, "scale": recipe.scale}, measured)
        best = study.best(self.candidates(len(experts.experts), experts.base is not None, recipe), self.measure)
        shutil.rmtree(out / CANDIDATE, ignore_errors=True)
        points = study.ordered()
        write_curve(out, points, self.measure)
        rows = [
            {"weights": list(point.value[:-1]), "density": point.value[-1], **point.summary(self.measure)}
            for point in points
        ]
        return _with(recipe, best), {**identity, "points": rows}

    def candidates(self, experts: int, has_base: bool, recipe: MergeRecipe) -> list[Weighting]:
        """Return the weights, and TIES' densities, that are measured."""
        if not self.full:
            return [(*weights, recipe.density) for weights in shares(experts)]
        densities = FULL_DENSITIES if recipe.method == TIES else (recipe.density,)
        weights = full_grid(experts, free=recipe.method == LINEAR and has_base)
        return [(*chosen, density) for chosen in weights for density in densities]

    def _measures(self, folder: Path, experts: Experts, recipe: MergeRecipe, progress: Progress) -> Metrics:
        """Return the measures of the encoder that a recipe gives, written into a folder for them."""
        experts.write(folder, recipe, lambda _: None)
        files = find_encoder(str(folder))
        encoder = load_encoder(files, files.similarity() or "cosine", self.precision)
        weights = ", ".join(f"{weight:g}" for weight in recipe.weights)
        measures: dict[str, Mapping[str, float]] = {}
        with progress(f"Passages, weights {weights}", sum(len(corpus.texts) for corpus, _ in self.searched)) as advance:
            for corpus, datasets in self.searched:
                measures |= corpus.measures(datasets, encoder, advance)
        return measures


class MergeRun(RunDirectory):
    """The directory of a merged encoder."""

    kind = "merge"
    manifest_name = "merge.json"


def merge_experts(
    out: Path, experts: Experts, recipe: MergeRecipe, search: WeightSearch | None, progress: Progress
) -> dict[str, Any]:
    """Write the merged encoder into the folder `out`, resuming an interrupted merge; return its manifest.

    Raises MismatchError if the folder holds something else, or another merge; ServiceError if another process merges
    into the folder, or memory or disk have no room.
    """
    started = time.perf_counter()
    run = MergeRun(out, {**asdict(recipe), **experts.hashes, **(search.identity(recipe.method) if search else {})})
    if (report := run.finished()) is not None:
        return report
    with run.locked():
        run.begin({})
        best, points = search.choose(out, experts, recipe, progress) if search else (recipe, None)
        with progress("Merging", experts.tensors) as advance:
            experts.write(out, best, advance)
        merged = zip(experts.experts, best.weights, strict=True)
        facts = {
            **asdict(best),
            "experts": [
                {"id": expert.files.id, "sha256": expert.files.sha256, "adapter": expert.adapted, "weight": weight}
                for expert, weight in merged
            ],
            "base": {"id": experts.base.files.id, "sha256": experts.base.files.sha256} if experts.base else None,
            "search": points,
            "command": command_line(),
            "versions": installed_versions(),
        }
        return run.finish({**facts, "seconds": round(time.perf_counter() - started, 3)})


def _with(recipe: MergeRecipe, candidate: Weighting) -> MergeRecipe:
    return replace(recipe, weights=candidate[:-1], density=candidate[-1])


def write_curve(folder: Path, points: Sequence[Point[Weighting]], name: str) -> None:
    """Write `curve.csv`, and `curve.png`: the best mean of a measure over each weight, and over the density.

    Of two weights that sum to 1 the first is shown.
    """
    datasets, experts = list(points[0].metrics), len(points[0].value) - 1
    rows = [[*point.value, *(point.metrics[data][name] for data in datasets), point.mean(name)] for point in points]
    weights = [f"weight {number}" for number in range(1, experts + 1)]
    write_csv(folder / "curve.csv", [*weights, "density", *datasets, "mean"], rows)
    shared = experts == 2 and all(math.isclose(sum(point.value[:-1]), 1) for point in points)
    shown = list(range(1 if shared else experts))
    if len({point.value[-1] for point in points}) > 1:
        shown.append(experts)
    titles = [*(f"weight of expert {number}" for number in range(1, experts + 1)), "density"]
    write_plot(folder / "curve.png", [_panel(titles[column], column, points, name) for column in shown])


def _panel(title: str, column: int, points: Sequence[Point[Weighting]], name: str) -> PlotPanel:
    """Return the best mean at each value of one coordinate."""
    rising = sorted(points, key=lambda point: point.value[column])
    best = [
        (value, max(point.mean(name) for point in equal))
        for value, equal in groupby(rising, key=lambda point: point.value[column])
    ]
    return PlotPanel(title, title, name, {"best": best})
