"""The word lists that the guards read: data files of the package, each with its sources."""

from __future__ import annotations

import gzip
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib import resources
from typing import Any

FILES = resources.files("biorag.answering.guards") / "data"


def _read_list(name: str) -> dict[str, Any]:
    return tomllib.loads((FILES / name).read_text(encoding="utf-8"), parse_float=Decimal)


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of measurement: its dimension, and its size in the dimension's base unit."""

    dimension: str
    size: Decimal


@cache
def units() -> Mapping[str, Unit]:
    """Return the units by their spelling."""
    return {
        spelling: Unit(dimension, Decimal(size))
        for dimension, sizes in _read_list("units.toml").items()
        for size, spellings in sizes.items()
        for spelling in spellings
    }


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Closed classes of English, numbers in words, and names of several words; see `data/words.toml`."""

    function: frozenset[str]
    unread: frozenset[str]
    places: frozenset[str]
    negations: frozenset[str]
    reporting: frozenset[str]
    restricting: frozenset[str]
    joining: frozenset[str]
    numbers: Mapping[str, Decimal]
    fractions: Mapping[str, Decimal]
    names: Mapping[str, Sequence[str]]
    greek: Mapping[str, str]


@cache
def lexicon() -> Lexicon:
    """Return the lexicon of the package."""
    lists = _read_list("words.toml")
    classes = ("unread", "places", "negations", "reporting", "restricting", "joining")
    return Lexicon(
        frozenset(lists["function"]).union(*(lists[name] for name in ("unread", "places", "negations", "joining"))),
        **{name: frozenset(lists[name]) for name in classes},
        numbers={word: Decimal(value) for word, value in lists["numbers"]},
        fractions={word: Decimal(value) for word, value in lists["fractions"]},
        names=lists["names"],
        greek=dict(lists["greek"]),
    )


@cache
def _frequencies() -> tuple[int, Mapping[str, int]]:
    lines = gzip.decompress((FILES / "frequencies.tsv.gz").read_bytes()).decode().splitlines()
    rows = (line.split("\t") for line in lines[1:])
    return int(lines[0]), {stem: int(count) for stem, count in rows}


COMMON = 0.36  # rarity up to which a word names nothing: a sixteenth of the snippets that words were counted in


def rarity(stem: str) -> float:
    """Return the weight of a stem: its inverse document frequency, as a share of that of a stem never seen, 0 to 1."""
    total, counts = _frequencies()
    return math.log((total + 1) / (counts.get(stem, 0) + 1)) / math.log(total + 1)


def is_common(stem: str) -> bool:
    """Return whether a word is so common that it names nothing."""
    return rarity(stem) <= COMMON
