"""The word lists that verification reads: data files of the package, each with its sources."""

from __future__ import annotations

import gzip
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib import resources
from typing import Any

Phrase = tuple[str, ...]
FILES = resources.files("biorag.answering.verification") / "data"


def read_list(name: str) -> dict[str, Any]:
    """Return a TOML file of word lists."""
    return tomllib.loads((FILES / name).read_text(encoding="utf-8"), parse_float=Decimal)


class Phrases:
    """Phrases that are looked up in a list of lower-case words, the longest first; "^" holds one to the beginning."""

    def __init__(self, phrases: Iterable[str]) -> None:
        self._by_first: dict[str, list[Phrase]] = {}
        for phrase in sorted(set(phrases), key=lambda text: -len(text.split())):
            words = tuple(phrase.split())
            self._by_first.setdefault(words[0].removeprefix("^"), []).append(words)

    def match(self, words: list[str], start: int) -> int:
        """Return how many words the longest phrase that begins at `start` has; 0 for none."""
        for phrase in self._by_first.get(words[start], ()):
            if phrase[0].startswith("^") and start > 0:
                continue
            if tuple(words[start + 1 : start + len(phrase)]) == phrase[1:]:
                return len(phrase)
        return 0


@dataclass(frozen=True, slots=True)
class Cues:
    """Cues of negation, hedging and aims; see `data/negation.toml` and `data/modality.toml`.

    `scoped` are those that govern words, by the name of their list; of equally long ones the first list's counts.
    """

    scoped: Mapping[str, Phrases]
    certain: Phrases
    terminations: frozenset[str]
    denials: frozenset[str]
    universal: frozenset[str]
    coupled: frozenset[str]
    prefixed: Mapping[str, str]
    quantifiers: Mapping[str, str]


@cache
def cues() -> Cues:
    """Return the cues of the package."""
    lists = read_list("negation.toml") | read_list("modality.toml")
    return Cues(
        {name: Phrases(lists[name]) for name in ("pseudo", "aims", "after", "determiners", "before", "hedges")},
        certain=Phrases(lists["certain"]),
        terminations=frozenset(lists["terminations"]),
        denials=frozenset(lists["denials"]),
        universal=frozenset(lists["universal"]),
        coupled=frozenset(lists["coupled"]),
        prefixed=lists["prefixed"],
        quantifiers=_inverted(lists["quantifiers"]),
    )


def _inverted(groups: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return the name of the group of each word."""
    return {word: name for name, words in groups.items() for word in words}


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
        for dimension, sizes in read_list("units.toml").items()
        for spelling, size in sizes.items()
    }


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Words with a part of their own; see `data/words.toml`. `populations` maps a word to the name of its group."""

    function: frozenset[str]
    reporting: frozenset[str]
    periods: frozenset[str]
    ordering: frozenset[str]
    symmetric: frozenset[str]
    generic: frozenset[str]
    statistics: frozenset[str]
    populations: Mapping[str, str]
    numbers: Mapping[str, Decimal]
    fractions: Mapping[str, Decimal]
    names: Mapping[str, Sequence[str]]
    greek: Mapping[str, str]


@cache
def lexicon() -> Lexicon:
    """Return the lexicon of the package."""
    lists = read_list("words.toml")
    return Lexicon(
        function=frozenset(lists["function"]),
        reporting=frozenset(lists["reporting"]),
        periods=frozenset(lists["periods"]),
        ordering=frozenset(lists["ordering"]),
        symmetric=frozenset(lists["symmetric"]["relations"]),
        generic=frozenset(lists["generic"]["words"]),
        statistics=frozenset(lists["statistics"]["stems"]),
        populations=_inverted(lists["populations"]),
        numbers={word: Decimal(value) for word, value in lists["numbers"].items()},
        fractions={word: Decimal(value) for word, value in lists["fractions"].items()},
        names=lists["names"],
        greek=lists["greek"],
    )


@cache
def _frequencies() -> tuple[int, Mapping[str, int]]:
    lines = gzip.decompress((FILES / "frequencies.tsv.gz").read_bytes()).decode().splitlines()
    rows = (line.split("\t") for line in lines[1:])
    return int(lines[0]), {stem: int(count) for stem, count in rows}


@cache
def general() -> frozenset[str]:
    """Return the stems of general English."""
    lines = (FILES / "general.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if not line.startswith("#"))


def rarity(stem: str) -> float:
    """Return the weight of a stem: its inverse document frequency, as a share of that of a stem never seen, 0 to 1."""
    total, counts = _frequencies()
    return math.log((total + 1) / (counts.get(stem, 0) + 1)) / math.log(total + 1)
