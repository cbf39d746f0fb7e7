"""What a sweep asks for, read from TOML, and the cells it comes to."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from biorag.errors import MissingError
from biorag.recipes.files import SharedSettings, check_no_secrets, read_toml
from biorag.registries import NEGATIVES, swept_negatives
from biorag.settings.section import STARTER
from biorag.utils.registry import or_list


def _swept(name: str) -> str:
    if name not in swept_negatives():
        raise ValueError(f"use {or_list(swept_negatives())}")
    return name


Negatives = Annotated[str, AfterValidator(_swept)]
Similarity = Literal["cosine", "dot"]
Reranker = Literal["none", "untrained", "independent", "own-kind", "aligned"]


class Mirage(BaseModel):
    """MIRAGE accuracy for each cell: a benchmark file, questions of each task, and a generator."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    benchmark: Path
    llm: str
    limit: int | None = Field(None, ge=1)
    task: tuple[str, ...] = ()


class Sweep(BaseModel):
    """A grid. Paths are relative to where the command runs.

    `settings` are biorag's own, as in biorag.toml; they hold for every command of the sweep. `hard_negatives` are those
    used of each mined row, of which as many are mined unless `per_row` says more. `aligned` are the negatives whose
    retrievers get an aligned reranker; None: all.
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
    mirage: Mirage | None = None

    @field_validator("negatives", "similarity", "reranker", "k_init")
    @classmethod
    def _distinct(cls, values: tuple[str | int, ...]) -> tuple[str | int, ...]:
        return tuple(dict.fromkeys(values))

    @model_validator(mode="after")
    def _mines_what_it_uses(self) -> Sweep:
        if self.hard_negatives and "per_row" in self.model_fields_set and self.per_row < self.hard_negatives:
            raise ValueError(f"per_row mines {self.per_row} negatives, and hard_negatives uses {self.hard_negatives}")
        return self

    @property
    def mined(self) -> int:
        """The negatives that are mined for each row."""
        return self.per_row if "per_row" in self.model_fields_set else self.hard_negatives or self.per_row

    def has(self, negatives: str, reranker: str) -> bool:
        """Return whether retrievers of these negatives get such a reranker; in-batch negatives have no own kind."""
        if reranker == "aligned":
            return self.aligned is None or negatives in self.aligned
        return reranker != "own-kind" or not NEGATIVES[negatives].in_batch

    @field_validator("evaluate")
    @classmethod
    def _told_apart(cls, folders: tuple[Path, ...]) -> tuple[Path, ...]:
        if len({folder.name for folder in folders}) < len(folders):
            raise ValueError("two folders have the same name, which tables go by")
        return folders


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


# What every sweep is held against: no training at all.
BASELINES = (Cell("BM25", "", "none", None), Cell("base encoder", "", "none", None))


def cells(sweep: Sweep) -> list[Cell]:
    """Return the grid's cells."""
    found = []
    for negatives, similarity, reranker in product(sweep.negatives, sweep.similarity, sweep.reranker):
        if not sweep.has(negatives, reranker):
            continue
        depths: tuple[int | None, ...] = (None,) if reranker == "none" else sweep.k_init
        found += [Cell(negatives, similarity, reranker, k_init) for k_init in depths]
    return found


def load_sweep(path: Path) -> Sweep:
    """Read a sweep file.

    Raises
    ------
    MissingError
        If the file, or one that it names, is not there.
    BadInputError
        If it is not valid TOML, or a key is unknown or has a value that is not allowed.
    """
    if not path.is_file():
        raise MissingError(f"sweep {path} is not there: docs/ablation.md has one to start from")
    sweep = read_toml(path, Sweep)
    check_no_secrets(path, sweep.settings, {"llm": sweep.mirage.llm} if sweep.mirage else {})
    named = [*sweep.train, *sweep.corpus, *sweep.evaluate, *sweep.guard]
    for file in [*named, *([sweep.mirage.benchmark] if sweep.mirage else [])]:
        if not file.exists():
            raise MissingError(f"{path} names {file}, which is not there")
    return sweep
