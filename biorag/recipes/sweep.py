"""A sweep of the ablation, negatives × similarity × reranker × k_init: its TOML file, and the recipe of its grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from biorag.errors import MissingError
from biorag.recipes.recipe import ExperimentRecipe, SharedSettings, StepTemplate, check_no_secrets, read_toml
from biorag.recipes.steps import PER_QUESTION
from biorag.registries import NEGATIVES, swept_negatives
from biorag.settings.section import STARTER
from biorag.utils.registry import or_list

SCALE = "sweep"  # the one scale of a sweep's recipe
PAIR = ("negatives", "similarity")  # the axes of a retriever


def _swept(name: str) -> str:
    if name not in swept_negatives():
        raise ValueError(f"use {or_list(swept_negatives())}")
    return name


Negatives = Annotated[str, AfterValidator(_swept)]
Similarity = Literal["cosine", "dot"]
Reranker = Literal["none", "untrained", "independent", "own-kind", "aligned"]


class SweptMirage(BaseModel):
    """MIRAGE accuracy for each cell: a benchmark file, questions of each task, and a generator."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    benchmark: Path
    llm: str
    limit: int | None = Field(None, ge=1)
    task: tuple[str, ...] = ()


class Sweep(BaseModel):
    """A grid. Paths are relative to the folder the command runs in.

    `settings` are biorag's own, as in biorag.toml; all its commands read them. `hard_negatives` is the number
    used of each mined row; `per_row`, the number mined, defaults to it. `aligned` lists the negatives whose retrievers
    get an aligned reranker; None means all of them.
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
    per_row: int = Field(4, ge=1)
    hard_negatives: int | None = Field(None, ge=1, le=64)
    negatives: tuple[Negatives, ...] = ("in-batch", "bm25", "random")
    similarity: tuple[Similarity, ...] = ("cosine", "dot")
    reranker: tuple[Reranker, ...] = ("none", "untrained", "independent", "aligned")
    aligned: tuple[Negatives, ...] | None = None
    k_init: tuple[Annotated[int, Field(ge=1, le=10_000)], ...] = Field((20, 100), min_length=1)
    settings: SharedSettings = {}
    mirage: SweptMirage | None = None

    @field_validator("negatives", "similarity", "reranker", "k_init")
    @classmethod
    def _distinct(cls, values: tuple[str | int, ...]) -> tuple[str | int, ...]:
        return tuple(dict.fromkeys(values))

    @field_validator("evaluate")
    @classmethod
    def _distinct_names(cls, folders: tuple[Path, ...]) -> tuple[Path, ...]:
        if len({folder.name for folder in folders}) < len(folders):
            raise ValueError("two folders have the same name, which tables go by")
        return folders

    @model_validator(mode="after")
    def _mines_what_it_uses(self) -> Sweep:
        if self.hard_negatives and "per_row" in self.model_fields_set and self.per_row < self.hard_negatives:
            raise ValueError(f"per_row mines {self.per_row} negatives, and hard_negatives uses {self.hard_negatives}")
        return self

    @property
    def mined(self) -> int:
        """The negatives that are mined for each row."""
        return self.per_row if "per_row" in self.model_fields_set else self.hard_negatives or self.per_row

    @property
    def files(self) -> list[Path]:
        """The files and folders that the sweep names."""
        files = [*self.train, *self.corpus, *self.evaluate, *self.guard]
        return [*files, *([self.mirage.benchmark] if self.mirage else [])]

    def has(self, negatives: str, reranker: str) -> bool:
        """Return whether retrievers of these negatives get such a reranker; in-batch negatives have no own kind."""
        if reranker == "aligned":
            return self.aligned is None or negatives in self.aligned
        return reranker != "own-kind" or not NEGATIVES[negatives].in_batch


def load_sweep(path: Path) -> Sweep:
    """Read a sweep file.

    Raises MissingError if the file, or one that it names, is not there; BadInputError if it is not valid TOML, or a key
    is unknown or has a value that is not allowed.
    """
    if not path.is_file():
        raise MissingError(f"sweep {path} is not there: docs/ablation.md has one to start from")
    sweep = read_toml(path, Sweep)
    check_no_secrets(path, sweep.settings, {"llm": sweep.mirage.llm} if sweep.mirage else {})
    for file in sweep.files:
        if not file.exists():
            raise MissingError(f"{path} names {file}, which is not there")
    return sweep


class Cell(NamedTuple):
    """One configuration; `k_init` is None without a reranker, where nothing is reranked."""

    negatives: str
    similarity: str
    reranker: str
    k_init: int | None

    @property
    def name(self) -> str:
        """Return a name for tables: `in-batch cosine, aligned, k_init 20`."""
        name = f"{self.negatives} {self.similarity}".strip()
        return name if self.reranker == "none" else f"{name}, {self.reranker}, k_init {self.k_init}"


# What every sweep is compared with: no training at all.
BASELINES = BM25, BASE = Cell("BM25", "", "none", None), Cell("base encoder", "", "none", None)


def cells(sweep: Sweep) -> list[Cell]:
    """Return the two baselines and the cells of the grid."""
    grid = list(BASELINES)
    for negatives, similarity, reranker in product(sweep.negatives, sweep.similarity, sweep.reranker):
        if sweep.has(negatives, reranker):
            depths: tuple[int | None, ...] = (None,) if reranker == "none" else sweep.k_init
            grid += [Cell(negatives, similarity, reranker, k_init) for k_init in depths]
    return grid


def pipeline_of(cell: Cell) -> str:
    """Return the key of `PIPELINES` that a cell searches with."""
    return {BM25: "bm25", BASE: "base"}.get(cell, cell.reranker)


# How each kind of cell searches: axes, and options of `bench`.
RERANKED = (*PAIR, "k_init"), "--name {index.name} --k-init {k_init} --reranker "
PIPELINES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "bm25": ((), "--name {base-index.name} --mode bm25 --no-rerank"),
    "base": ((), "--name {base-index.name} --no-rerank"),
    "none": (PAIR, "--name {index.name} --no-rerank"),
    "untrained": (RERANKED[0], f"{RERANKED[1]}encoder"),
    "independent": (RERANKED[0], f"{RERANKED[1]}{{independent}}"),
    "own-kind": (RERANKED[0], f"{RERANKED[1]}{{own-kind}}"),
    "aligned": (RERANKED[0], f"{RERANKED[1]}{{aligned}}"),
}


def recipe_of(sweep: Sweep) -> ExperimentRecipe:
    """Return the recipe of a sweep: cells that share a retriever or a reranker share its steps."""
    files = {str(path): str(path) for path in sweep.files}
    files |= {base: base for base in (sweep.base, sweep.reranker_base) if base and Path(base).exists()}
    axes: dict[str, tuple[str | int, ...]] = {
        "negatives": tuple(swept_negatives()),
        "similarity": ("cosine", "dot"),
        "k_init": sweep.k_init,
        "dataset": tuple(map(str, sweep.evaluate)),
    }
    scale = {"about": "", "backbone": SCALE, "inputs": files, "values": _values(sweep), "settings": sweep.settings}
    return ExperimentRecipe.model_validate(
        {
            "title": "Ablation",
            "inputs": {name: {"what": "a file of the sweep"} for name in files},
            "backbones": {SCALE: {"model": sweep.base}},
            "axes": axes,
            "scales": {SCALE: scale},
            "steps": (*_made(), *_measured(sweep)),
        }
    )


def _values(sweep: Sweep) -> dict[str, str | tuple[str, ...]]:
    """Return the words that the templates' blanks stand for."""
    guards = [word for path in sweep.guard for word in ("--guard", str(path))]
    values: dict[str, str | tuple[str, ...]] = {
        "train": tuple(map(str, sweep.train)),
        "corpus": tuple(map(str, sweep.corpus)),
        "guard": (*guards, "--drop-contaminated") if guards else (),
        "per_row": str(sweep.mined),
        "reranker_base": sweep.reranker_base or sweep.base,
        "used": ("--hard-negatives", str(sweep.hard_negatives)) if sweep.hard_negatives else (),
        "capped": ("--max-positives", str(sweep.max_positives)) if sweep.max_positives else (),
        "held_out": ("--held-out",) if sweep.held_out else (),
    }
    if (mirage := sweep.mirage) is not None:
        tasks = [word for task in mirage.task for word in ("--task", task)]
        values |= {
            "benchmark": str(mirage.benchmark),
            "llm": mirage.llm,
            "asked": (*(("--limit", str(mirage.limit)) if mirage.limit else ()), *tasks),
        }
    return values


def _made() -> list[StepTemplate]:
    """Return the steps that make indexes, rows, retrievers and rerankers."""
    in_batch = {"negatives": tuple(name for name in swept_negatives() if NEGATIVES[name].in_batch)}
    mined = {"negatives": tuple(name for name in swept_negatives() if not NEGATIVES[name].in_batch)}
    trained = "--base {base} --negatives {negatives} --similarity {similarity} --out {out} {capped}"
    mining = "{guard} --per-row {per_row} --out {out}/rows.jsonl"
    reranker = "{used} --base {reranker_base} --out {out} {capped}"

    def step(
        name: str, axes: Sequence[str], run: str, when: Mapping[str, tuple[str, ...]] | None = None
    ) -> StepTemplate:
        return StepTemplate(name=name, axes=tuple(axes), run=run, when=(when,) if when else ())

    return [
        step("base-index", (), "index {corpus} --encoder {base} --name {name}"),
        step("retriever", PAIR, f"train retriever {{train}} --name {{base-index.name}} {{guard}} {trained}", in_batch),
        step("mined", PAIR[:1], f"mine {{train}} --negatives {{negatives}} --name {{base-index.name}} {mining}", mined),
        step("retriever", PAIR, f"train retriever {{mined}}/rows.jsonl {{used}} {trained}", mined),
        step("index", PAIR, "index {corpus} --encoder {retriever} --similarity {similarity} --name {name}"),
        step("independent", (), f"train reranker {{mined(negatives=bm25)}}/rows.jsonl {reranker}"),
        step("own-kind", PAIR[:1], f"train reranker {{mined}}/rows.jsonl {reranker} --negatives {{negatives}}", mined),
        step("mistakes", PAIR, f"mine {{train}} --negatives retriever --name {{index.name}} {mining}"),
        step("aligned", PAIR, f"train reranker {{mistakes}}/rows.jsonl {reranker}"),
    ]


def _measured(sweep: Sweep) -> list[StepTemplate]:
    """Return the steps that measure cells: on a data set, and on MIRAGE where the sweep asks for it."""
    kept = f"{{held_out}} --per-question {{out}}/{PER_QUESTION} --run-file {{out}}/run.trec"
    mirage = "bench mirage --benchmark {benchmark} --llm {llm} --out {out} {asked}"
    templates = []
    for name, (axes, options) in PIPELINES.items():
        when = ({"negatives": tuple(kind for kind in swept_negatives() if sweep.has(kind, name))},) if axes else ()
        run = f"bench retrieval {{dataset}} {options} {kept}"
        templates.append(StepTemplate(name=f"retrieval-{name}", axes=(*axes, "dataset"), run=run, when=when))
        if sweep.mirage:
            templates.append(StepTemplate(name=f"mirage-{name}", axes=axes, run=f"{mirage} {options}", when=when))
    return templates
