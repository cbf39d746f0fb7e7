"""Merged encoders, and the choice of their weights by exact dense retrieval on development questions."""

from __future__ import annotations

import heapq
import itertools
import math
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import numpy as np
from typing_extensions import TypedDict

from biorag.benchmarks.retrieval import DEPTH, evaluate, judged_id
from biorag.corpus.datasets import Dataset, corpus_file, drawn
from biorag.engine import load_encoder, open_snippets
from biorag.errors import BadInputError
from biorag.lab.merging.experts import Experts
from biorag.lab.merging.weights import LINEAR, TIES, MergeRecipe
from biorag.lab.tuning.run import dataset_hash, mean_of
from biorag.models.finding import check_model_name, find_encoder
from biorag.settings.settings import Settings
from biorag.types import Encoder, OnProgress, Progress, Snippet, Vectors
from biorag.utils.network import command_line
from biorag.utils.progress import batched
from biorag.utils.runs import RunDirectory
from biorag.utils.versions import installed_versions

STEPS = {2: 10, 3: 6}  # of a weight from 0 to 1, by the number of experts; of more experts, their number
# The full grid of Synthesize-Train-Merge (arXiv 2602.04731, section 4.3).
FULL_WEIGHTS = tuple(tenth / 10 for tenth in range(10))
FULL_DENSITIES = tuple(tenth / 10 for tenth in range(1, 10))
ENCODED_AT_ONCE = 1024  # passages, between two reports of progress
CANDIDATE = "candidate"  # the folder of the encoder that is being measured
CANDIDATES = "candidates.jsonl"
SEARCHED_AT_ONCE = 64  # questions: bounds the matrix of scores


def shares(experts: int) -> list[tuple[float, ...]]:
    """Return evenly spaced weights that sum to 1, equal weights first; of two experts in tenths."""
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


def draw_questions(data: Dataset, number: int | None, seed: int) -> Dataset:
    """Return a data set with `number` of its questions, in their order; None for all."""
    questions = drawn(data.questions, number, seed)
    return Dataset(data.name, questions, {question.id: data.qrels[question.id] for question in questions})


def draw_snippets(
    snippets: Iterable[Snippet], datasets: Sequence[Dataset], number: int | None, seed: int
) -> Iterable[Snippet]:
    """Return the snippets that data sets judge, and `number` of the others; None for all."""
    if number is None:
        return snippets
    judged = {id for data in datasets for grades in data.qrels.values() for id in grades}
    kept: list[Snippet] = []

    def others() -> Iterator[Snippet]:
        for snippet in snippets:
            if judged_id(snippet.document, snippet.pmid, judged) in judged:
                kept.append(snippet)
            else:
                yield snippet

    draw = Random(seed)
    sampled = heapq.nsmallest(number, others(), key=lambda _: draw.random())  # fills `kept`
    return [*kept, *sampled]


@dataclass(frozen=True, slots=True)
class DevelopmentCorpus:
    """Data sets, and the passages to search: text, document id and PMID of each; `source` determines them."""

    datasets: Sequence[Dataset]
    texts: Sequence[str]
    ids: Sequence[tuple[str, int | None]]
    source: Mapping[str, Any]

    @classmethod
    def of(
        cls, datasets: Sequence[Dataset], snippets: Iterable[Snippet], source: Mapping[str, Any]
    ) -> DevelopmentCorpus:
        """Return the corpus of snippets; of several with one id the last counts, as in an index.

        Raises BadInputError if it holds no snippet that a data set judges.
        """
        last = {snippet.id: snippet for snippet in snippets}.values()
        ids = [(snippet.document, snippet.pmid) for snippet in last]
        held = {id for document, pmid in ids for id in (document, str(pmid))}
        for data in datasets:
            if not any(held.intersection(grades) for grades in data.qrels.values()):
                raise BadInputError(f"the corpus holds no snippet that {data.name} judges: give the one it belongs to")
        return cls(datasets, [snippet.contents for snippet in last], ids, source)

    def measures(self, encoder: Encoder, on_progress: OnProgress) -> dict[str, dict[str, float]]:
        """Return each data set's measures of dense retrieval by an encoder; all vectors are held in memory."""
        blocks: list[Vectors] = []
        for texts in batched(self.texts, ENCODED_AT_ONCE):
            blocks.append(encoder.encode_snippets(texts))
            on_progress(len(texts))
        vectors = np.concatenate(blocks)
        return {data.name: self._measures(data, vectors, encoder) for data in self.datasets}

    def _measures(self, data: Dataset, vectors: Vectors, encoder: Encoder) -> dict[str, float]:
        judged = {id for grades in data.qrels.values() for id in grades}
        run = {}
        for questions in batched(data.questions, SEARCHED_AT_ONCE):
            queries = encoder.encode_queries([question.text for question in questions])
            # Of equal scores the earlier passage comes first.
            order: list[list[int]] = np.argsort(-(queries @ vectors.T), axis=1, kind="stable")[:, :DEPTH].tolist()
            for question, rows in zip(questions, order, strict=True):
                run[question.id] = list(dict.fromkeys(judged_id(*self.ids[row], judged) for row in rows))
        return evaluate(data.qrels, run)[0]


def read_corpora(
    folders: Sequence[Path], datasets: Sequence[Dataset], corpus: Sequence[str], number: int | None, settings: Settings
) -> list[DevelopmentCorpus]:
    """Return the passages with the data sets (of these folders) that are searched in them.

    They are those of the files and folders `corpus`, else each data set's own; `number` are drawn beside judged ones,
    None for all.
    """
    groups: list[tuple[Sequence[str], Sequence[Dataset]]] = [(corpus, datasets)]
    if not corpus:
        pairs = zip(folders, datasets, strict=True)
        groups = [([str(corpus_file(folder))], [data]) for folder, data in pairs]
    sampling = {} if number is None else {"sample_passages": number, "seed": settings.seed}
    corpora = []
    for names, group in groups:
        with open_snippets(settings, names, None) as (source, snippets):
            passages = draw_snippets(snippets, group, number, settings.seed)
            corpora.append(DevelopmentCorpus.of(group, passages, {**source, **sampling}))
    return corpora


class CandidateRow(TypedDict):
    """A line of `CANDIDATES`: weights and TIES' density, and the means of the merge's measures.

    `measures` has each over the data sets, `datasets` those of each set, `mean` all.
    """

    weights: list[float]
    density: float
    mean: float
    measures: dict[str, float]
    datasets: dict[str, float]


@dataclass(frozen=True, slots=True)
class WeightSearch:
    """Chooses the weights, and TIES' density, of merged experts on development sets."""

    corpora: Sequence[DevelopmentCorpus]
    part: str  # of the questions
    measured: Sequence[str]  # their mean is to be maximised
    precision: str  # of the merged encoders
    full: bool = False  # measure `full_grid` instead of `shares`
    drawn: int | None = None  # so many of its candidates alone, drawn with the seed
    seed: int = 0

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that determines the measures besides the experts and the recipe."""
        datasets = [data for corpus in self.corpora for data in corpus.datasets]
        sources = [corpus.source for corpus in self.corpora]
        return {
            "measure": self.measured[0] if len(self.measured) == 1 else list(self.measured),
            "side": self.part,
            "datasets": {data.name: dataset_hash(data) for data in datasets},
            "questions": {data.name: len(data.questions) for data in datasets},
            "corpus": sources[0] if len(sources) == 1 else sources,
            "snippets": sum(len(corpus.texts) for corpus in self.corpora),
            "precision": self.precision,
            "grid": self.full,
            **({"drawn": self.drawn, "seed": self.seed} if self.drawn else {}),
            "versions": installed_versions(),
        }

    def choose(
        self, run: MergeRun, experts: Experts, recipe: MergeRecipe, progress: Progress
    ) -> tuple[MergeRecipe, dict[str, Any]]:
        """Return the recipe with the best weights and density, and the report of the search."""

        def measured(candidates: Sequence[MergeRecipe]) -> Iterator[CandidateRow]:
            for candidate in candidates:
                metrics = self._measures(run.path / CANDIDATE, experts, candidate, progress)
                means = {measure: mean_of(metrics, measure) for measure in self.measured}
                yield CandidateRow(
                    weights=list(candidate.weights),
                    density=candidate.density,
                    mean=fmean(means.values()),
                    measures=means,
                    datasets={data: fmean(values[name] for name in means) for data, values in metrics.items()},
                )

        def is_row_of(candidate: MergeRecipe, row: CandidateRow) -> bool:
            return (list(candidate.weights), candidate.density) == (row["weights"], row["density"])

        rows = run.rows_in(CANDIDATES, CandidateRow, is_row_of)
        rows.fill(self.candidates(recipe, experts.base is not None), measured, lambda _: None)
        shutil.rmtree(run.path / CANDIDATE, ignore_errors=True)
        points = list(rows.read())
        best = max(points, key=lambda row: row["mean"])
        chosen = replace(recipe, weights=tuple(best["weights"]), density=best["density"])
        return chosen, {**self.identity, "best": best["measures"], "points": points}

    def candidates(self, recipe: MergeRecipe, has_base: bool) -> list[MergeRecipe]:
        """Return the recipes to measure, which differ in weights, and in TIES' density."""
        experts = len(recipe.weights)
        if not self.full:
            return [replace(recipe, weights=weights) for weights in shares(experts)]
        densities = FULL_DENSITIES if recipe.method == TIES else (recipe.density,)
        grid = full_grid(experts, free=recipe.method == LINEAR and has_base)
        points = [(weights, density) for weights in grid for density in densities]
        drawn_points = drawn(points, self.drawn, self.seed)
        return [replace(recipe, weights=weights, density=density) for weights, density in drawn_points]

    def _measures(
        self, folder: Path, experts: Experts, recipe: MergeRecipe, progress: Progress
    ) -> dict[str, dict[str, float]]:
        """Write the encoder of a recipe into a folder and return its measures."""
        experts.write(folder, recipe, lambda _: None)
        files = find_encoder(str(folder))
        encoder = load_encoder(files, files.similarity() or "cosine", self.precision)
        weights = ", ".join(f"{weight:g}" for weight in recipe.weights)
        measures: dict[str, dict[str, float]] = {}
        with progress(f"Passages, weights {weights}", sum(len(corpus.texts) for corpus in self.corpora)) as advance:
            for corpus in self.corpora:
                measures |= corpus.measures(encoder, advance)
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
    into the folder, or memory or disk have no room; UsageError as `check_model_name` does.
    """
    check_model_name(out)
    started = time.perf_counter()
    run = MergeRun(out, {**asdict(recipe), **experts.hashes, **(search.identity if search else {})})

    def merged() -> dict[str, Any]:
        best, points = search.choose(run, experts, recipe, progress) if search else (recipe, None)
        with progress("Merging", experts.tensors) as advance:
            experts.write(out, best, advance)
        weighted = zip(experts.experts, best.weights, strict=True)
        return {
            **asdict(best),
            "experts": [
                {"id": expert.files.id, "sha256": expert.files.sha256, "weight": weight} for expert, weight in weighted
            ],
            "base": {"id": experts.base.files.id, "sha256": experts.base.files.sha256} if experts.base else None,
            "search": points,
            "command": command_line(),
            "versions": installed_versions(),
            "seconds": round(time.perf_counter() - started, 3),
        }

    return run.perform(merged)
