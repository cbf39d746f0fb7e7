"""A sweep of the ablation, negatives × similarity × reranker × k_init: its TOML file, and the recipe of its grid.

Cells that share a retriever or a reranker share its steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from biorag.benchmarks.per_question import PER_QUESTION
from biorag.errors import MissingError
from biorag.recipes.recipe import ExperimentRecipe, Point, SharedSettings, StepTemplate, check_no_secrets, read_toml
from biorag.recipes.steps import METRICS
from biorag.registries import NEGATIVES, swept_negatives
from biorag.settings.section import STARTER
from biorag.utils.registry import or_list

SCALE = "sweep"  # the one scale of a sweep's recipe
PAIR = ("negatives", "similarity")  # the axes of a retriever
SHOWN = ("success@3", "success@5", "success@10", "nDCG@10")
PER_ROW = 4
INDEPENDENT = ("bm25",)  # negatives of the reranker that all cells share
# How the untrained are searched, with which every sweep is compared.
BASE = "base"
BASELINES = {"bm25": "--name {base-index.name} --mode bm25 --no-rerank", BASE: "--name {base-index.name} --no-rerank"}


def _swept(name: str) -> str:
    if name not in swept_negatives():
        raise ValueError(f"use {or_list(swept_negatives())}")
    return name


Negatives = Annotated[str, AfterValidator(_swept)]
Similarity = Literal["cosine", "dot"]
Reranker = Literal["none", "untrained", "independent", "own-kind", "aligned"]


class Sweep(BaseModel):
    """A grid. Paths are relative to the folder the command runs in.

    `settings` are biorag's own, as in biorag.toml; all commands read them. `hard_negatives` is the number used of each
    mined row; `per_row`, the number mined, defaults to it. `aligned` lists the negatives whose retrievers get an
    aligned reranker; None means all of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    train: tuple[Path, ...] = Field(min_length=1)
    corpus: tuple[Path, ...] = Field(min_length=1)
    evaluate: tuple[Path, ...] = Field(min_length=1)
    held_out: bool = True
    guard: tuple[Path, ...] = ()
    base: str = STARTER
    reranker_base: str | None = None
    max_positives: int | None = Field(None, ge=1)
    per_row: int | None = Field(None, ge=1)
    hard_negatives: int | None = Field(None, ge=1, le=64)
    negatives: tuple[Negatives, ...] = ("in-batch", "bm25", "random")
    similarity: tuple[Similarity, ...] = ("cosine", "dot")
    reranker: tuple[Reranker, ...] = ("none", "untrained", "independent", "aligned")
    aligned: tuple[Negatives, ...] | None = None
    k_init: tuple[Annotated[int, Field(ge=1, le=10_000)], ...] = Field((20, 100), min_length=1)
    settings: SharedSettings = {}

    @field_validator("evaluate", "negatives", "similarity", "reranker", "k_init")
    @classmethod
    def _distinct(cls, values: tuple[Path | str | int, ...]) -> tuple[Path | str | int, ...]:
        return tuple(dict.fromkeys(values))

    @model_validator(mode="after")
    def _mines_enough(self) -> Sweep:
        if self.mined < (self.hard_negatives or 1):
            raise ValueError(f"per_row mines {self.per_row} negatives, and hard_negatives uses {self.hard_negatives}")
        return self

    @property
    def mined(self) -> int:
        """The negatives that are mined for each row."""
        return self.per_row or self.hard_negatives or PER_ROW

    @property
    def files(self) -> list[Path]:
        """The files and folders that the sweep names."""
        return [*self.train, *self.corpus, *self.evaluate, *self.guard]

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
        raise MissingError(f"sweep {path} is not there: docs/ablation.md has one to start from")
    sweep = read_toml(path, Sweep)
    check_no_secrets(path, sweep.settings)
    for file in sweep.files:
        if not file.exists():
            raise MissingError(f"{path} names {file}, which is not there")
    return sweep


class Cell(NamedTuple):
    """One configuration: its name in tables, the end of the names of the steps that measure it, and its axes."""

    name: str
    pipeline: str
    point: Point


def cells(sweep: Sweep) -> list[Cell]:
    """Return the two baselines and the cells of the grid."""
    grid = [Cell("BM25", "bm25", {}), Cell("base encoder", BASE, {})]
    for negatives, similarity, reranker in product(sweep.negatives, sweep.similarity, sweep.reranker):
        if negatives not in sweep.kinds(reranker):
            continue
        name, pair = f"{negatives} {similarity}", {"negatives": negatives, "similarity": similarity}
        if reranker == "none":
            grid.append(Cell(name, reranker, pair))
        else:
            for depth in sweep.k_init:
                grid.append(Cell(f"{name}, {reranker}, k_init {depth}", reranker, {**pair, "k_init": depth}))
    return grid


def recipe_of(sweep: Sweep) -> ExperimentRecipe:
    """Return the recipe of a sweep."""
    files = {str(path): str(path) for path in sweep.files}
    files |= {base: base for base in (sweep.base, sweep.reranker_base) if base and Path(base).exists()}
    datasets = [str(path) for path in sweep.evaluate]
    axes: dict[str, Sequence[str | int]] = {
        "negatives": tuple(dict.fromkeys((*sweep.negatives, *INDEPENDENT))),
        "similarity": sweep.similarity,
        "k_init": sweep.k_init,
        "dataset": datasets,
    }
    scale = {"about": "A grid.", "backbone": SCALE, "inputs": files, "values": _values(sweep)}
    return ExperimentRecipe.model_validate(
        {
            "title": "Ablation",
            "inputs": {name: {"what": "a file of the sweep"} for name in files},
            "backbones": {SCALE: {"model": sweep.base}},
            "axes": axes,
            "scales": {SCALE: {**scale, "settings": sweep.settings}},
            "steps": (*_made(sweep), *_measured(sweep)),
            "tables": [_table(sweep, dataset) for dataset in datasets],
            "findings": list(_findings(sweep)),
            "plots": [plot for dataset in datasets for plot in _plots(dataset)],
        }
    )


def _values(sweep: Sweep) -> dict[str, str | tuple[str, ...]]:
    """Return the words that fill the blanks of the templates."""
    guards = [word for path in sweep.guard for word in ("--guard", str(path))]
    return {
        "train": tuple(map(str, sweep.train)),
        "corpus": tuple(map(str, sweep.corpus)),
        "guard": (*guards, "--drop-contaminated") if guards else (),
        "per_row": str(sweep.mined),
        "reranker_base": sweep.reranker_base or sweep.base,
        "used": ("--hard-negatives", str(sweep.hard_negatives)) if sweep.hard_negatives else (),
        "capped": ("--max-positives", str(sweep.max_positives)) if sweep.max_positives else (),
        "held_out": ("--held-out",) if sweep.held_out else (),
    }


def _step(name: str, axes: Sequence[str], run: str, kinds: Sequence[str] | None = None) -> list[StepTemplate]:
    """Return a step, for these kinds of negatives alone if they are given; nothing for no kind."""
    if kinds is None:
        return [StepTemplate(name=name, axes=tuple(axes), run=run)]
    return [StepTemplate(name=name, axes=tuple(axes), run=run, when=({"negatives": tuple(kinds)},))] if kinds else []


def _made(sweep: Sweep) -> list[StepTemplate]:
    """Return the steps that make indexes, rows, retrievers and rerankers."""
    in_batch = [kind for kind in sweep.negatives if NEGATIVES[kind].in_batch]
    mined = [kind for kind in sweep.negatives if not NEGATIVES[kind].in_batch]
    independent = INDEPENDENT if "independent" in sweep.reranker else ()
    aligned, own = sweep.kinds("aligned"), sweep.kinds("own-kind")
    trained = "--base {base} --negatives {negatives} --similarity {similarity} --out {out} {capped}"
    mine, rows = "mine {train} --negatives", "{guard} --per-row {per_row} --out {out}/rows.jsonl"
    reranker = "/rows.jsonl {used} --base {reranker_base} --out {out} {capped}"
    read = "train retriever {train} --name {base-index.name} {guard}"
    index = "index {corpus} --encoder {retriever} --similarity {similarity} --name {name}"
    return [
        *_step("base-index", (), "index {corpus} --encoder {base} --name {name}"),
        *_step("retriever", PAIR, f"{read} {trained}", in_batch),
        *_step(
            "mined",
            PAIR[:1],
            f"{mine} {{negatives}} --name {{base-index.name}} {rows}",
            [*mined, *(kind for kind in independent if kind not in mined)],
        ),
        *_step("retriever", PAIR, f"train retriever {{mined}}/rows.jsonl {{used}} {trained}", mined),
        *_step("index", PAIR, index, sweep.negatives),
        *(_step("independent", (), f"train reranker {{mined(negatives=bm25)}}{reranker}") if independent else ()),
        *_step("own-kind", PAIR[:1], f"train reranker {{mined}}{reranker} --negatives {{negatives}}", own),
        *_step("mistakes", PAIR, f"{mine} retriever --name {{index.name}} {rows}", aligned),
        *_step("aligned", PAIR, f"train reranker {{mistakes}}{reranker}", aligned),
    ]


def _measured(sweep: Sweep) -> list[StepTemplate]:
    """Return the steps that measure cells on a data set."""
    kept = f"{{held_out}} --per-question {{out}}/{PER_QUESTION} --run-file {{out}}/run.trec"
    templates = []
    for name in (*BASELINES, *sweep.reranker):
        axes: tuple[str, ...] = (*PAIR, "k_init")
        if name in BASELINES:
            axes, options = (), BASELINES[name]
        elif name == "none":
            axes, options = PAIR, "--name {index.name} --no-rerank"
        else:
            reranker = "encoder" if name == "untrained" else f"{{{name}}}"
            options = f"--name {{index.name}} --k-init {{k_init}} --reranker {reranker}"
        run = f"bench retrieval {{dataset}} {options} {kept}"
        templates += _step(f"retrieval-{name}", (*axes, "dataset"), run, sweep.kinds(name) if axes else None)
    return templates


def _table(sweep: Sweep, dataset: str) -> dict[str, Any]:
    figures = {**{name: METRICS + name for name in SHOWN}, "ms/query": "timings_ms.total.p50"}
    return {
        "title": dataset,
        "columns": [{"title": name, "value": value} for name, value in figures.items()],
        "rows": [
            {"title": cell.name, "step": f"retrieval-{cell.pipeline}", "at": {**cell.point, "dataset": dataset}}
            for cell in cells(sweep)
        ],
    }


def _plots(dataset: str) -> Iterator[dict[str, Any]]:
    """Yield what is found by each cell, and how much better for how much longer."""
    success = [{"table": dataset, "title": name} for name in SHOWN[:-1]]
    yield {"title": f"{dataset}: share of questions with a relevant snippet", "columns": success}
    both = [{"table": dataset, "title": name} for name in ("ms/query", SHOWN[-1])]
    yield {"title": f"{dataset}: {SHOWN[-1]} against time", "kind": "points", "columns": both, "log_x": True}


def _findings(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """Yield whether each cell, and BM25, ranks higher than the base encoder, by nDCG@10 of the same questions."""
    for path, cell in product(map(str, sweep.evaluate), cells(sweep)):
        higher, lower = (
            {"step": f"retrieval-{pipeline}", "at": {**point, "dataset": path}, "value": METRICS + SHOWN[-1]}
            for pipeline, point in ((cell.pipeline, cell.point), (BASE, {}))
        )
        if cell.pipeline != BASE:
            yield {"text": f"{path}: {cell.name} above the base encoder", "higher": higher, "lower": lower}
