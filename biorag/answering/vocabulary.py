"""Everyday words, brands, synonyms and units, and what the literature writes for them.

`scripts/fit_vocabulary.py` makes the packaged table; a table of one's own has lines of `phrase<TAB>names`, too.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from biorag.answering.guards.lexicon import units
from biorag.answering.guards.words import stems
from biorag.errors import BadInputError, MissingError
from biorag.types import Hit
from biorag.utils.parsing import read_regular

PACKAGED, NONE = "packaged", "none"
LARGEST = 64 << 20  # bytes of a table
LONGEST = 5  # words of a phrase
SPELT_OUT = 4  # letters from which the name of a unit is no symbol
_WORD = re.compile(r"[^\W_]+")
Names = Mapping[str, tuple[str, ...]]


def key_of(text: str) -> str:
    """Return the words of a text in lower case, with a space between."""
    return " ".join(_WORD.findall(text.lower()))


@dataclass(frozen=True, slots=True)
class Everyday:
    """A phrase of a question at `start` to `end`, and what the literature writes for it."""

    start: int
    end: int
    names: tuple[str, ...]


class Vocabulary:
    """What the literature writes for a phrase, by `key_of` the phrase."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def found(self, text: str) -> Iterator[Everyday]:
        """Yield the phrases of a text that have other names, the longest where several begin at a word."""
        words = list(_WORD.finditer(text))
        position = 0
        while position < len(words):
            for size in range(min(LONGEST, len(words) - position), 0, -1):
                start, end = words[position].start(), words[position + size - 1].end()
                key = key_of(text[start:end])
                if names := self._names.get(key) or self._names.get(key.removesuffix("s")):
                    yield Everyday(start, end, names)
                    position += size
                    break
            else:
                position += 1

    def expanded(self, text: str) -> str:
        """Return a text with the other names of its phrases behind it."""
        names = dict.fromkeys(name for one in self.found(text) for name in one.names)
        return " ".join([text, *(name for name in names if key_of(name) not in key_of(text))])

    def reworded(self, text: str, hits: Sequence[Hit]) -> str:
        """Return a text whose phrases that no hit holds are called as most hits call them."""
        found = list(self.found(text))
        if not found:
            return text
        held = [set(stems(hit.snippet.contents)) for hit in hits]
        lower = [hit.snippet.contents.lower() for hit in hits]

        def holding(name: str) -> int:
            words = set(stems(name))
            return sum(
                words <= words_held if words else name in one for words_held, one in zip(held, lower, strict=True)
            )

        for one in reversed(found):
            name = max(one.names, key=holding)
            if holding(name) and not holding(text[one.start : one.end]):
                text = text[: one.start] + name + text[one.end :]
        return text


@cache
def load_vocabulary(spec: str) -> Vocabulary:
    """Return the packaged vocabulary, that with a file's lines before its own, or none.

    Raises `MissingError` if the file is not there; `BadInputError` naming the line if one is not `phrase<TAB>names`.
    """
    if spec == NONE:
        return Vocabulary({})
    packaged = files("biorag.answering").joinpath("vocabulary.tsv.gz").read_bytes()
    names = _unit_names() | dict(_rows(gzip.decompress(packaged).decode(), "the packaged vocabulary"))
    if spec != PACKAGED:
        if not (file := Path(spec)).is_file():
            raise MissingError(f"--vocabulary {spec} is not there: give a file of 'phrase<TAB>names', packaged or none")
        try:
            names |= dict(_rows(read_regular(file, LARGEST).decode("utf-8-sig"), spec))
        except UnicodeDecodeError:
            raise BadInputError(f"{spec} is not UTF-8: save it so") from None
    return Vocabulary(names)


def _rows(text: str, source: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("--"):
            continue
        phrase, tab, names = line.partition("\t")
        if not (tab and key_of(phrase) and names.strip()):
            raise BadInputError(f"{source}, line {number}: write a phrase, a tab, and its other names with | between")
        yield key_of(phrase), tuple(map(str.strip, names.split("|")))


def _unit_names() -> dict[str, tuple[str, ...]]:
    """Return the symbols of units that are spelt out: "milligrams" is mg."""
    names: dict[str, tuple[str, ...]] = {}
    for spelling, unit in units().items():
        symbols = tuple(other for other, same in units().items() if same == unit and len(other) < SPELT_OUT)
        if len(spelling) >= SPELT_OUT and symbols:
            names[spelling] = symbols
    return names
