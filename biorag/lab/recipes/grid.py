"""A sweep of the ablation: its TOML file and its cells."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from biorag.corpus.sources import DEMO
from biorag.errors import BadInputError, MissingError, UsageError
from biorag.lab.conversion.run import QUERIES
from biorag.lab.conversion.sampling import qrels_of
from biorag.lab.recipes.recipe import Point, SharedSettings, check_no_secrets, read_toml
from biorag.registries import NEGATIVES, swept_negatives
from biorag.settings.section import STARTER
from biorag.utils.registry import or_list

NONE = "none"  # no pretraining, no reranker
EVIDENCE = "evidence"  # a generator's place is taken by the reader of evidence
PAIR = ("negatives", "similarity")
RETRIEVER = ("base", "pretraining", *PAIR)  # the axes of a retriever
ASKED = ("k", "generator")  # those of answers
NAMING = (*PAIR, "k_init")
MIRAGE = "MIRAGE"
PER_ROW = 4
TEMPLATE = Path(__file__).parent / "sweep-of-data.toml"
CORPORA = ("corpus.jsonl*", "snippets.jsonl*")
BASE = "base"  # the step of a retriever as it was given


def _swept(name: str) -> str:
    if name not in swept_negatives():
        raise ValueError(f"use {or_list(swept_negatives())}")
    return name


def _listed(value: object) -> object:
    return [value] if isinstance(value, str | int) else value


Negatives = Annotated[str, AfterValidator(_swept)]
Similarity = Literal["cosine", "dot"]
Reranker = Literal["none", "untrained", "independent", "own-kind", "aligned"]
Several = BeforeValidator(_listed)  # a value alone is a list of it
Depths = Annotated[tuple[Annotated[int, Field(ge=1, le=10_000)], ...], Several, Field(min_length=1)]
Names = Annotated[tuple[str, ...], Several, Field(min_length=1)]


class Sweep(BaseModel):
    """A grid. Paths are relative to the folder the command runs in.

    `settings` are biorag's own, as in biorag.toml; all commands read them. `hard_negatives` is the number used of each
    mined row; `per_row`, the number mined, defaults to it. `aligned` lists the negatives whose retrievers get an
    aligned reranker; None means all of them. `pretraining` names corpora whose titles and abstracts retrievers read
    first, or "none". With `mirage`, its benchmark.json, each cell answers its questions, of `mirage_tasks` or all, from
    `k` snippets by each `generator`: a model or server as --llm takes it, or "evidence", the reader alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    train: tuple[Path, ...] = Field(min_length=1)
    corpus: tuple[Path, ...] = Field(min_length=1)
    evaluate: tuple[Path, ...] = ()
    held_out: bool = True
    guard: tuple[Path, ...] = ()
    base: Names = (STARTER,)
    pretraining: Names = (NONE,)
    reranker_base: str | None = None
    max_positives: int | None = Field(None, ge=1)
    per_row: int | None = Field(None, ge=1)
    hard_negatives: int | None = Field(None, ge=1, le=64)
    negatives: tuple[Negatives, ...] = ("in-batch", "bm25", "random")
    similarity: tuple[Similarity, ...] = ("cosine", "dot")
    reranker: tuple[Reranker, ...] = ("none", "untrained", "independent", "aligned")
    aligned: tuple[Negatives, ...] | None = None
    k_init: Depths = (20, 100)
    mirage: Path | None = None
    mirage_tasks: tuple[str, ...] = ()
    mirage_limit: int | None = Field(None, ge=1)
    k: Depths = (5,)
    generator: Names = (EVIDENCE,)
    settings: SharedSettings = {}

    @field_validator(
        "evaluate", "base", "pretraining", "negatives", "similarity", "reranker", "k_init", "k", "generator"
    )
    @classmethod
    def _distinct(cls, values: tuple[Path | str | int, ...]) -> tuple[Path | str | int, ...]:
        return tuple(dict.fromkeys(values))

    @model_validator(mode="after")
    def _mines_enough(self) -> Sweep:
        if self.mined < (self.hard_negatives or 1):
            raise ValueError(f"per_row mines {self.per_row} negatives, and hard_negatives uses {self.hard_negatives}")
        return self

    @classmethod
    def of(cls, values: Mapping[str, object]) -> Sweep:
        """Return the sweep of values that a command was given; raises UsageError for one that it may not have."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            option = str(first["loc"][0]).replace("_", "-") if first["loc"] else "pipeline"
            raise UsageError(f"--{option}: {first['msg'].removeprefix('Value error, ')}") from None

    @property
    def mined(self) -> int:
        """The negatives that are mined for each row."""
        return self.per_row or self.hard_negatives or PER_ROW

    @property
    def files(self) -> list[Path]:
        """The files and folders that the sweep names."""
        pretraining = [Path(name) for name in self.pretraining if name != NONE]
        return [*self.train, *self.corpus, *self.evaluate, *self.guard, *pretraining, *filter(None, [self.mirage])]

    def varied(self, axes: Sequence[str]) -> tuple[str, ...]:
        """Return those of the axes that have several values; negatives and similarity always name a cell."""
        return tuple(axis for axis in axes if axis in NAMING or len(getattr(self, axis)) > 1)

    def kinds(self, reranker: str) -> list[str]:
        """Return the negatives whose retrievers get such a reranker; in-batch negatives have no own kind."""
        if reranker not in self.reranker:
            return []
        if reranker == "aligned":
            return [kind for kind in self.negatives if self.aligned is None or kind in self.aligned]
        return [kind for kind in self.negatives if reranker != "own-kind" or not NEGATIVES[kind].in_batch]


def load_sweep(path: Path) -> Sweep:
    """Read a sweep file.

    Raises MissingError if the file, or one that it names, is not there; BadInputError if it is not valid TOML, or a key
    is unknown or has a value that is not allowed.
    """
    if not path.is_file():
        raise MissingError(f"sweep {path} is not there: `biorag ablate {path} --init DATA` writes one for your data")
    sweep = read_toml(path, Sweep)
    check_no_secrets(path, sweep.settings)
    if not sweep.evaluate and not sweep.mirage:
        raise BadInputError(f"{path} measures nothing: give `evaluate`, folders in BEIR's layout, or `mirage`")
    for file in sweep.files:
        if not file.exists() and str(file) != DEMO:
            raise MissingError(f"{path} names {file}, which is not there")
    return sweep


class Cell(NamedTuple):
    """One configuration: its name in tables, the end of the names of the steps that measure it, and its axes."""

    name: str
    pipeline: str
    point: Point


def cells(sweep: Sweep) -> list[Cell]:
    """Return the baselines, BM25 and each base, and the cells of the grid."""
    several = sweep.varied(("base",))
    grid = [Cell("BM25", "bm25", dict.fromkeys(several, sweep.base[0]))]
    for base in sweep.base:
        grid.append(Cell(f"{_of(sweep.base, base)}base encoder", BASE, dict.fromkeys(several, base)))
    axes = (sweep.base, sweep.pretraining, sweep.negatives, sweep.similarity)
    for values, reranker in product(product(*axes), sweep.reranker):
        base, pretraining, negatives, similarity = values
        if negatives not in sweep.kinds(reranker):
            continue
        name = f"{_of(sweep.base, base)}{_of(sweep.pretraining, pretraining)}{negatives} {similarity}"
        point = {axis: value for axis, value in zip(RETRIEVER, values, strict=True) if axis in sweep.varied(RETRIEVER)}
        if reranker == NONE:
            grid.append(Cell(name, reranker, point))
        else:
            for depth in sweep.k_init:
                grid.append(Cell(f"{name}, {reranker}, k_init {depth}", reranker, {**point, "k_init": depth}))
    return grid


def _of(values: Sequence[str], value: str) -> str:
    """Return the beginning of a cell's name that tells a value from the others; "" for one alone."""
    return f"{Path(value).name}, " if len(values) > 1 else ""


def sweep_text(data: Path) -> str:
    """Return the text of a sweep of the files in a folder: data sets in BEIR's layout, corpora, MIRAGE's questions.

    Raises MissingError if it has no data set or no corpus.
    """
    datasets = sorted({path.parent for path in data.rglob(QUERIES) if qrels_of(path.parent).is_file()})
    corpora = sorted(path for pattern in CORPORA for path in data.rglob(pattern))
    if not datasets or not corpora:
        lacks = (
            "no corpus (corpus.jsonl, snippets.jsonl)" if datasets else f"no folder with {QUERIES} and qrels/test.tsv"
        )
        raise MissingError(f"{data} has {lacks}: docs/ablation.md says what a sweep needs")
    benchmark = next(iter(sorted(data.rglob("benchmark.json"))), None)
    asked = (
        [f"mirage = {json.dumps(str(benchmark))}", "mirage_limit = 50  # questions of each task", ""]
        if benchmark
        else []
    )
    paths = {"train": datasets, "corpus": corpora, "evaluate": datasets, "guard": [benchmark] if benchmark else []}
    lists = {name: json.dumps(list(map(str, values)), ensure_ascii=False) for name, values in paths.items()}
    return TEMPLATE.read_text("utf-8").format(**lists, mirage="\n".join(asked))
