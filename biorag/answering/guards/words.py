"""Words of a text with their offsets and keys: stems, names as they are, numbers with their units; how rare they are.

The lists that they are told by are data files of the package, each with its sources.
"""

from __future__ import annotations

import gzip
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import cache, lru_cache
from importlib import resources
from typing import Any

import Stemmer
from tokenizers import Regex, pre_tokenizers

from biorag.utils.spelling import one_spelling
from biorag.utils.text import plain_form

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
    """Closed classes of English, numbers in words, and Greek letters; see `data/words.toml`."""

    function: frozenset[str]
    unread: frozenset[str]
    places: frozenset[str]
    negations: frozenset[str]
    reporting: frozenset[str]
    restricting: frozenset[str]
    joining: frozenset[str]
    numbers: Mapping[str, Decimal]
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
        greek=dict(lists["greek"]),
    )


@cache
def _frequencies() -> tuple[int, Mapping[str, int]]:
    lines = gzip.decompress((FILES / "frequencies.tsv.gz").read_bytes()).decode().splitlines()
    rows = (line.split("\t") for line in lines[1:])
    return int(lines[0]), {stem: int(count) for stem, count in rows}


RARE = 0.65  # rarity from which a word names something, and is not of those that questions are made of
COMMON = 0.36  # rarity up to which a word names nothing: a sixteenth of the snippets that words were counted in


def rarity(stem: str) -> float:
    """Return the weight of a stem: its inverse document frequency, as a share of that of a stem never seen, 0 to 1."""
    total, counts = _frequencies()
    return math.log((total + 1) / (counts.get(stem, 0) + 1)) / math.log(total + 1)


def is_common(stem: str) -> bool:
    """Return whether a word is so common that it names nothing."""
    return rarity(stem) <= COMMON


HYPHENS = "-\N{HYPHEN}\N{NON-BREAKING HYPHEN}\N{EN DASH}\N{MINUS SIGN}"
PREFIXES = frozenset(
    {"up", "down", "over", "under", "anti", "pro", "re", "co", "pre", "post", "sub", "hyper", "hypo", "un"}
)
SHORTEST_PART = 4  # letters from which a part of a hyphenated word is a word of its own
DIGITS = 40  # no number of medicine is longer
_SPLIT = re.compile(f"[{HYPHENS}]")
_NUMBER = re.compile(r"\d+(?:[.,·]\d+)*")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
COMPARATORS = frozenset("<>≤≥")
NO_UNIT = Unit("", Decimal(1))


class WordKind(StrEnum):
    """What a word is compared as."""

    FUNCTION = "function"
    CONTENT = "content"
    NAME = "name"
    NUMBER = "number"
    MARK = "mark"


@dataclass(frozen=True, slots=True)
class Word:
    """A word, name, number or mark of a text; `end` is that of the unit, where a number has one.

    Two words are the same where their keys are; that of a number is its value in the base unit of its dimension.
    """

    text: str
    start: int
    end: int
    key: str
    kind: WordKind


@cache
def _tokenizer() -> Any:
    glued = sorted((unit for unit in units() if len(unit) > 1 or unit in "ghd%"), key=len, reverse=True)
    endings = "|".join(re.escape(unit) for unit in glued)
    number = rf"\d+(?:[.,·]\d+)*(?:(?![\p{{L}}\p{{N}}])|(?=(?:{endings})(?![\p{{L}}\p{{N}}])))"
    word = rf"[\p{{L}}\p{{N}}]+(?:[{HYPHENS}'’]+[\p{{L}}\p{{N}}]+)*"
    return pre_tokenizers.Split(Regex(rf"{number}|{word}|[^\s\p{{L}}\p{{N}}]"), "removed", invert=True)


@cache
def _stemmer() -> Any:
    return Stemmer.Stemmer("english")


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """Return the Snowball stem of a lower-case word, the same for British and American spelling."""
    return str(_stemmer().stemWord(one_spelling(word)))


def stems(text: str) -> list[str]:
    """Return the keys of the words and names of a text, for counting them."""
    return [word.key for word in words(text) if word.kind in (WordKind.CONTENT, WordKind.NAME)]


def names(text: str) -> set[str]:
    """Return the words of a text that are names by how they are written: "ECT", "R95X", "Bruckner"."""
    return {word.text for word in words(text) if word.kind is WordKind.NAME}


def lacking(claim: str, text: str) -> tuple[str, ...]:
    """Return the words, names and quantities of a claim that a text lacks, as they are written, but for common ones."""
    held, plain = {word.key for word in words(text)}, plain_form(claim)
    told = (WordKind.CONTENT, WordKind.NAME, WordKind.NUMBER)
    return tuple(
        dict.fromkeys(
            plain[word.start : word.end]
            for word in words(claim)
            if word.key not in held and word.kind in told and not is_common(word.key)
        )
    )


def denial(text: str) -> str:
    """Return the first word of a text that denies, "" if there is none."""
    pieces = (word.text for word in words(text))
    return next((piece for piece in pieces if piece.lower() in lexicon().negations), "")


def words(text: str) -> list[Word]:
    """Return the words, numbers and marks of a text in their order; they stand in its plain form."""
    text = plain_form(text)
    pieces = [part for piece, (start, _) in _tokenizer().pre_tokenize_str(text) for part in _parts(piece, start)]
    return list(_with_quantities(text, pieces))


def _parts(piece: str, start: int) -> Iterator[tuple[str, int]]:
    """Split a hyphenated token where a part is a word: `placebo-controlled`, `IL-6-mediated`; `IL-6` stays."""
    if not _SPLIT.search(piece) or not piece[0].isalnum():
        yield piece, start
        return
    joined = ""
    position = start
    # "not-diploid" negates its other half alone, as "non-diploid" does.
    for part in _SPLIT.split(re.sub("^not(?=\\W)", "non", piece, flags=re.IGNORECASE)):
        is_word = len(part) >= SHORTEST_PART and part.isalpha() and (part.islower() or part.istitle())
        is_word = is_word and not (joined and part in lexicon().greek.values())  # "TNF-alpha"
        if part.lower() in PREFIXES and not joined:
            joined = part
        elif is_word and joined.lower() in PREFIXES:
            yield f"{joined}-{part}", position - len(joined) - 1
            joined = ""
        elif is_word or part.lower() in ("non", "in", "of", "to", "the", "and", "by"):
            if joined:
                yield joined, position - len(joined) - 1
                joined = ""
            yield part, position
        else:
            joined = f"{joined}-{part}" if joined else part
        position += len(part) + 1
    if joined:
        yield joined, position - len(joined) - 1


def _with_quantities(text: str, pieces: Sequence[tuple[str, int]]) -> Iterator[Word]:
    position = 0
    while position < len(pieces):
        piece, start = pieces[position]
        value, taken = _value(piece), 0
        if value is None:
            before = pieces[position - 1][0] if position else "."
            yield _word(piece, start, first=before in ".?!:")
        else:
            unit, taken = _unit(pieces, position + 1)
            last, last_start = pieces[position + taken]
            end = last_start + len(last)
            key = f"#{_sign(text, pieces, position)}{_scaled(value, unit)}"
            yield Word(text[start:end], start, end, key, WordKind.NUMBER)
        position += 1 + taken


def _value(piece: str) -> Decimal | None:
    """Return the value of a number in figures or in letters; None where the piece is none."""
    if len(piece) > DIGITS:
        return None
    if _THOUSANDS.fullmatch(piece):
        return Decimal(piece.replace(",", ""))
    if _NUMBER.fullmatch(piece):
        plain = piece.replace("·", ".")
        return Decimal(plain) if plain.isascii() and plain.count(".") <= 1 and "," not in plain else None
    lower = piece.lower()
    return None if lower == "one" else lexicon().numbers.get(lower)


def _unit(pieces: Sequence[tuple[str, int]], position: int) -> tuple[Unit, int]:
    """Return the unit that begins at a position, with how many pieces it takes: `mg`, `-week`, `mg/kg per day`."""
    taken = int(position + 1 < len(pieces) and pieces[position][0] in HYPHENS)
    piece = pieces[position + taken][0] if position + taken < len(pieces) else ""
    if piece.lower() == "per" and position + taken + 1 < len(pieces) and pieces[position + taken + 1][0] == "cent":
        return units()["%"], taken + 2
    unit = units().get(piece) or units().get(piece.lower().replace("μ", "µ"))
    if unit is None:
        return NO_UNIT, 0
    dimension = unit.dimension
    taken += 1
    while position + taken + 1 < len(pieces) and pieces[position + taken][0].lower() in ("/", "per"):
        divisor = pieces[position + taken + 1][0].lower()
        dimension += f"/{divisor.removesuffix('s')}"
        taken += 2
    return Unit(dimension, unit.size), taken


def _sign(text: str, pieces: Sequence[tuple[str, int]], position: int) -> str:
    """Return the comparator or the minus before a number."""
    if position == 0:
        return ""
    before, start = pieces[position - 1]
    if before in COMPARATORS:
        return before
    leads = start == 0 or text[start - 1] in " (=["
    return "-" if before in HYPHENS and leads and pieces[position][1] == start + 1 else ""


def _scaled(value: Decimal, unit: Unit) -> str:
    scaled = (value * unit.size).normalize()
    return f"{scaled:f}{unit.dimension}" if abs(scaled.adjusted()) <= DIGITS else f"{scaled}{unit.dimension}"


def _word(piece: str, start: int, first: bool) -> Word:
    end = start + len(piece)
    if not piece[0].isalnum():
        return Word(piece, start, end, piece, WordKind.MARK)
    lower = piece.lower().replace("’", "'").removesuffix("'s")
    if lower in lexicon().function and not (piece.isupper() and len(piece) > 1):
        return Word(piece, start, end, lower, WordKind.FUNCTION)
    key = "".join(lexicon().greek.get(letter, letter) for letter in lower)
    if _SPLIT.split(key)[0] in PREFIXES:
        key = _SPLIT.sub("", key)
    if is_symbol(piece):
        return Word(piece, start, end, re.sub(f"[{HYPHENS}']", "", key).removesuffix("s") or key, WordKind.NAME)
    kind = WordKind.NAME if piece[0].isupper() and not first else WordKind.CONTENT
    return Word(piece, start, end, stem(key), kind)


def is_symbol(piece: str) -> bool:
    """Return whether a word looks like a gene or an abbreviation: a figure in it, or capitals beyond the first."""
    return any(letter.isdigit() for letter in piece) or sum(letter.isupper() for letter in piece) > 1
