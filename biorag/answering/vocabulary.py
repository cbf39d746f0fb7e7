"""Everyday words, brands, synonyms and units, and what the literature writes for them.

`scripts/fit_vocabulary.py` makes the packaged table; a table of one's own has lines of `phrase<TAB>names`, too.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from biorag.answering.guards.words import stems, units
from biorag.errors import BadInputError, MissingError
from biorag.types import Hit
from biorag.utils.parsing import read_regular

PACKAGED, NONE = "packaged", "none"
WIDER = "\n--*"  # in the packaged table, before what may be wider than its phrase
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
    """A phrase of a question at `start` to `end`, and what the literature writes for it; `same` if it is no wider."""

    start: int
    end: int
    names: tuple[str, ...]
    same: bool


class Vocabulary:
    """The literature's terms for a phrase, by `key_of` the phrase; those in `searched` only widen a search."""

    def __init__(self, names: Names, searched: Container[str] = ()) -> None:
        self._names, self._searched = names, searched

    def found(self, text: str) -> Iterator[Everyday]:
        """Yield the phrases of a text that have other names, the longest where several begin at a word."""
        words = list(_WORD.finditer(text))
        position = 0
        while position < len(words):
            for size in range(min(LONGEST, len(words) - position), 0, -1):
                start, end = words[position].start(), words[position + size - 1].end()
                key = key_of(text[start:end])
                if known := next((one for one in (key, key.removesuffix("s")) if one in self._names), ""):
                    yield Everyday(start, end, self._names[known], known not in self._searched)
                    position += size
                    break
            else:
                position += 1

    def expanded(self, text: str) -> str:
        """Return a text with the other names of its phrases behind it."""
        names, typed = dict.fromkeys(name for one in self.found(text) for name in one.names), key_of(text)
        return " ".join([text, *(name for name in names if key_of(name) not in typed)])

    def reworded(self, text: str, hits: Sequence[Hit]) -> str:
        """Return a text whose phrases that no hit holds are called as most hits call them."""
        found = [one for one in self.found(text) if one.same]
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
    packaged = gzip.decompress(files("biorag.answering").joinpath("vocabulary.tsv.gz").read_bytes()).decode()
    same, mark, rest = packaged.partition(WIDER)
    wider = dict(_rows(mark + rest, "the packaged vocabulary"))
    names = _unit_names() | wider | dict(_rows(same, "the packaged vocabulary"))
    own: dict[str, tuple[str, ...]] = {}
    if spec != PACKAGED:
        if not (file := Path(spec)).is_file():
            raise MissingError(f"--vocabulary {spec} is no file: give one of 'phrase<TAB>names', packaged or none")
        try:
            own = dict(_rows(read_regular(file, LARGEST).decode("utf-8-sig"), spec))
        except UnicodeDecodeError:
            raise BadInputError(f"{spec} is not UTF-8: save it so") from None
    return Vocabulary(names | own, wider.keys() - own.keys())


def _rows(text: str, source: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith(("#", "--")):
            continue
        phrase, _, told = line.rstrip("\r").partition("\t")
        key, names = key_of(phrase), tuple(map(str.strip, told.split("|")))
        if not key or not all(name.isprintable() and name for name in names):
            raise BadInputError(f"{source}, line {number}: write a phrase, one tab, and its other names with | between")
        if len(key.split()) > LONGEST:
            raise BadInputError(
                f"{source}, line {number}: the phrase has more than {LONGEST} words, so nothing finds it"
            )
        yield key, names


def _unit_names() -> dict[str, tuple[str, ...]]:
    """Return the symbols of units that are spelt out: "milligrams" is mg."""
    names: dict[str, tuple[str, ...]] = {}
    for spelling, unit in units().items():
        symbols = tuple(other for other, same in units().items() if same == unit and len(other) < SPELT_OUT)
        if len(spelling) >= SPELT_OUT and symbols:
            names[spelling] = symbols
    return names
