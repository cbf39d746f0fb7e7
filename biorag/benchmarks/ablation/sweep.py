"""What a sweep asks for, read from TOML, and the cells it comes to."""

from __future__ import annotations

import json
import tomllib
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from biorag.errors import BadInputError, MissingError, UsageError
from biorag.registries import swept_negatives
from biorag.settings.section import STARTER
from biorag.settings.settings import SECRETS, URLS, checked
from biorag.settings.sources import PREFIX
from biorag.utils.files import write_text
from biorag.utils.network import is_server, login_apart
from biorag.utils.registry import or_list


def _swept(name: str) -> str:
    if name not in swept_negatives():
        raise ValueError(f"use {or_list(swept_negatives())}")
    return name


Negatives = Annotated[str, AfterValidator(_swept)]
Similarity = Literal["cosine", "dot"]
Reranker = Literal["none", "untrained", "independent", "aligned"]


class Mirage(BaseModel):
    """MIRAGE accuracy for each cell: a benchmark file, questions of each task, and a generator."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    benchmark: Path
    llm: str
    limit: int | None = Field(None, ge=1)
    task: tuple[str, ...] = ()


class Sweep(BaseModel):
    """A grid. Paths are relative to where the command runs.

    `settings` are biorag's own, as in biorag.toml; they hold for every command of the sweep.
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
    negatives: tuple[Negatives, ...] = ("in-batch", "bm25", "random")
    similarity: tuple[Similarity, ...] = ("cosine", "dot")
    reranker: tuple[Reranker, ...] = ("none", "untrained", "independent", "aligned")
    k_init: tuple[Annotated[int, Field(ge=1, le=10_000)], ...] = Field((20, 100), min_length=1)
    settings: dict[str, str | int | float | bool] = {}
    mirage: Mirage | None = None

    @field_validator("negatives", "similarity", "reranker", "k_init")
    @classmethod
    def _distinct(cls, values: tuple[str | int, ...]) -> tuple[str | int, ...]:
        return tuple(dict.fromkeys(values))

    @field_validator("evaluate")
    @classmethod
    def _told_apart(cls, folders: tuple[Path, ...]) -> tuple[Path, ...]:
        if len({folder.name for folder in folders}) < len(folders):
            raise ValueError("two folders have the same name, which tables go by")
        return folders

    @field_validator("settings")
    @classmethod
    def _are_settings(cls, values: dict[str, str | int | float | bool]) -> dict[str, str | int | float | bool]:
        try:
            checked(values)
        except UsageError as error:
            raise ValueError(str(error)) from None
        return values


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
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        sweep = Sweep.model_validate(values)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path} is not valid TOML: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise BadInputError(f"{path}: {place or 'the file'}: {first['msg']} (it has {first['input']!r})") from None
    if variable := _variable_of_secret(sweep):
        raise BadInputError(f"{path} has a key or a login, which reports of the sweep would repeat: set {variable}")
    named = [*sweep.train, *sweep.corpus, *sweep.evaluate, *sweep.guard]
    for file in [*named, *([sweep.mirage.benchmark] if sweep.mirage else [])]:
        if not file.exists():
            raise MissingError(f"{path} names {file}, which is not there")
    return sweep


def _variable_of_secret(sweep: Sweep) -> str:
    """Return the variable in which a secret belongs that a sweep's settings or URLs hold; empty for none."""
    urls = [(name, str(sweep.settings.get(name, ""))) for name in URLS]
    urls += [("llm", sweep.mirage.llm)] if sweep.mirage else []
    logins = [f"{name}_login" for name, url in urls if is_server(url) and login_apart(url)[1] is not None]
    found = [name for name in sweep.settings if name in SECRETS] + logins
    return PREFIX + found[0].upper() if found else ""


def write_settings(sweep: Sweep, out: Path) -> Path:
    """Write the sweep's settings as the configuration file that all its commands read."""
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in sweep.settings.items()]
    path = out / "biorag.toml"
    write_text(path, "".join(lines))
    return path
