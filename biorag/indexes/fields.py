"""The fields of an index's snippets, their commonest values, and the check of what a filter names."""

from __future__ import annotations

import logging
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any
from unicodedata import combining, lookup, normalize

import numpy as np

from biorag.errors import UsageError, nearest
from biorag.indexes.manifest import Manifest
from biorag.indexes.points import OWN_FIELDS, comparisons
from biorag.indexes.reading import stored_snippets
from biorag.settings.section import ONCE
from biorag.types import CONTAINS, EXISTS, AnyOf, Condition, FieldFilter, Index, IndexQuery, Snippet, Where

MOST_FIELDS, LONGEST_NAME = 1000, 200  # fields that a manifest has, characters of each
ALWAYS = (*OWN_FIELDS, "retracted")  # which a filter may name whether a snippet has them or not
UNCOUNTED = ("id", "title", "content")  # fields whose values are nearly all different
MOST_VALUES = 100_000  # distinct values of a field that are counted
COMMONEST = 5
WORD = re.compile(r"[A-Za-z_]\w*")
SAMPLE = 20_000  # snippets in which a field or a value is looked for that the store has not found
SPAN = re.compile(r"(-?\d+)\s*[-–]\s*(-?\d+)")  # 2015-2020
logger = logging.getLogger(__name__)

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class FieldCount:
    """A field, how many snippets have it, and its commonest values, each with the number of its snippets.

    Of a field with more than `MOST_VALUES` distinct values the first so many are counted.
    """

    name: str
    snippets: int
    values: tuple[tuple[Value, int], ...]

    def to_json(self) -> dict[str, Any]:
        """Return its JSON values."""
        values = [{"value": value, "count": count} for value, count in self.values]
        return {"name": self.name, "snippets": self.snippets, "values": values}


def field_counts(snippets: Iterable[Snippet], commonest: int = COMMONEST) -> list[FieldCount]:
    """Return the fields of snippets, those that all have first, then by name."""
    having: Counter[str] = Counter()
    values: dict[str, Counter[tuple[type, Value]]] = {}  # with the type: True equals 1
    for snippet in snippets:
        for name, of_snippet in fields_of(snippet):
            having[name] += 1
            counts = values.setdefault(name, Counter())
            for value in {(type(value), value) for value in of_snippet} if name not in UNCOUNTED else ():
                if value in counts or len(counts) < MOST_VALUES:
                    counts[value] += 1
    fields = (FieldCount(name, count, _commonest(values[name], commonest)) for name, count in having.items())
    return sorted(fields, key=lambda field: (-field.snippets, field.name))


def _commonest(counts: Counter[tuple[type, Value]], most: int) -> tuple[tuple[Value, int], ...]:
    ordered = sorted(
        ((value, count) for (_, value), count in counts.items()), key=lambda pair: (-pair[1], str(pair[0]))
    )
    return tuple(ordered[:most])


def fields_of(snippet: Snippet) -> Iterator[tuple[str, Sequence[Value]]]:
    """Yield the fields of a snippet as filters name them, with their values; a field without any is left out."""
    values = {"id": snippet.id, "title": snippet.title, "content": snippet.content, "pmid": snippet.pmid}
    yield from _fields({name: value for name, value in values.items() if value not in (None, "")}, "")
    yield from _fields(snippet.metadata, "")


def _fields(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Sequence[Value]]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _fields(value, f"{prefix}{_spelled(name)}.")
            continue
        parts = value if isinstance(value, list) else [value]
        if plain := [part for part in parts if isinstance(part, str | int | float)]:
            yield prefix + _spelled(name), plain


def kinds_of(snippets: Iterable[Snippet], known: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Return known fields with those of snippets: of each the kinds of its values, such as "number" or "number text".

    None where they are not known, or too many or too long.
    """
    if known is None:
        return None
    kinds = {name: set(words.split()) for name, words in known.items()}
    for snippet in snippets:
        for name, values in fields_of(snippet):
            kinds.setdefault(name, set()).update(map(_kind, values))
    if any(len(name) > LONGEST_NAME for name in kinds):
        return None
    return {name: " ".join(sorted(kinds[name])) for name in sorted(kinds)} if len(kinds) <= MOST_FIELDS else None


def _kind(value: Value) -> str:
    return "text" if isinstance(value, str) else "bool" if isinstance(value, bool) else "number"


def _spelled(name: str) -> str:
    """Return a name as filters write it: in double quotes where it is more than a word."""
    return name if WORD.fullmatch(name) else f'"{name}"'


def checked_fields(index: Index, manifest: Manifest, where: Where) -> Where:
    """Return conditions with their fields in the case of the index, whose snippets must have them, and their numbers.

    The manifest tells. Where it does not, the store is asked, without its graph only where that finds none.

    Raises `UsageError` naming the field, the nearest one, and those there are; or how a text is named.
    """
    kinds = manifest.fields
    named = dict.fromkeys(condition.field for condition in comparisons(where) if condition.field not in ALWAYS)
    lacking = [
        name for name in named if (name not in kinds if kinds else not _holds(index, FieldFilter(name, EXISTS, True)))
    ]
    known = (set(kinds) if kinds else {name for name, _ in _sampled(index)}) if lacking else set()
    cases = {name.casefold(): name for name in (*known, *ALWAYS)}
    for name in lacking:
        if name.casefold() not in cases:
            alike = nearest(name, sorted(known))
            meant = f" (did you mean {alike!r}?)" if alike else ""
            raise UsageError(
                f"no snippet has the field {name!r} of --filter{meant}: the fields are {', '.join(sorted(known))}; "
                f"{_shown_by(manifest)}"
            )
    spelled = {name: cases[name.casefold()] for name in lacking if name not in known}
    where = _changed(where, lambda part: _accented(index, replace(part, field=spelled.get(part.field, part.field))))
    numbers = {part.field: part.value for part in comparisons(where) if part.field not in ALWAYS and _is_number(part)}
    for name, value in numbers.items():
        any_number = FieldFilter(name, ">=", -sys.float_info.max)
        if not ("number" in kinds.get(name, "") if kinds else _holds(index, any_number)):
            raise UsageError(
                f'the field {name!r} of --filter holds texts, no numbers: compare it with one, as in {name}="{value}"'
            )
    return where


def _changed(where: Where, change: Callable[[FieldFilter], Condition]) -> Where:
    """Return conditions, each on a field changed, those of alternatives too."""
    return tuple(
        replace(part, alternatives=tuple(_changed(alternative, change) for alternative in part.alternatives))
        if isinstance(part, AnyOf)
        else change(part)
        for part in where
    )


def _accented(index: Index, condition: FieldFilter) -> Condition:
    """Return a condition on words; where no snippet has them, with the accents of those that are alike without."""
    if condition.op != CONTAINS or _holds(index, replace(condition, negated=False)):
        return condition
    asked = re.compile(rf"\b{re.escape(''.join(map(_unaccented, str(condition.value))))}\b")
    texts = (str(value) for name, values in _sampled(index) if name == condition.field for value in values)
    spellings = dict.fromkeys(spelling for text in texts if (spelling := _spelt(text, asked)))
    alternatives = tuple((replace(condition, value=spelling, negated=False),) for spelling in spellings)
    return AnyOf(alternatives, condition.negated) if alternatives else condition


def _spelt(text: str, asked: re.Pattern[str]) -> str:
    """Return what a text has where its unaccented form matches; empty if it does not."""
    letters = list(map(_unaccented, text))
    places = [place for place, letter in enumerate(letters) for _ in letter]
    match = asked.search("".join(letters))
    return text[places[match.start()] : places[match.end() - 1] + 1] if match and match[0] else ""


def _unaccented(letter: str) -> str:
    """Return a letter in small, without accents or strokes; "ß" is "ss"."""
    small = letter.casefold()
    with suppress(KeyError, TypeError):  # not one letter
        small = lookup(unicodedata.name(small, "").partition(" WITH ")[0])
    return "".join(part for part in normalize("NFKD", small) if not combining(part))


def check_values(index: Index, manifest: Manifest, where: Where) -> None:
    """Check that snippets have the texts that conditions ask for, where no snippet fulfils all conditions.

    Elsewhere a text that only stands inside others, as a word of a title does, is warned of.

    Raises `UsageError` naming the text, and the nearest or the commonest values of its field.
    """
    texts = [condition for condition in comparisons(where) if isinstance(condition.value, str)]
    lacking = [part for part in texts if not _holds(index, replace(part, negated=False))]
    is_met = bool(lacking) and _holds(index, *where)
    for condition in lacking:
        asked = f'no snippet has {condition.field}{condition.op}"{condition.value}"'
        contained = replace(condition, op=CONTAINS, negated=False)
        if condition.op != CONTAINS and _holds(index, contained):
            words = f'{condition.field}~"{condition.value}"'
            advice = f"{asked} as a whole, as --filter asks: write {words} for texts that contain it"
            if not is_met:
                raise UsageError(advice)
            logger.warning(advice, extra=ONCE)
        elif not is_met and not condition.negated:
            raise UsageError(f"{asked}, as --filter asks{_meant(index, condition)}; {_shown_by(manifest)}")


def _shown_by(manifest: Manifest) -> str:
    return f"'biorag indexes show {manifest.name} --fields' shows their values"


def _meant(index: Index, condition: FieldFilter) -> str:
    """Return the value of a field that a condition may mean, else its commonest, for the end of a message."""
    if span := SPAN.fullmatch(str(condition.value)):
        return f" (did you mean {condition.field}>={span[1]} and {condition.field}<={span[2]}?)"
    values = (values for name, values in _sampled(index) if name == condition.field)
    counts = Counter((type(value), value) for of_snippet in values for value in of_snippet)
    written = {str(value): f'"{value}"' if kind is str else str(value) for kind, value in counts}
    if alike := nearest(str(condition.value), sorted(written)):
        meant = f"{condition.field}=" if condition.op == CONTAINS and alike == str(condition.value) else ""
        return f" (did you mean {meant}{written[alike]}?)"
    if condition.field in UNCOUNTED:
        return ""
    commonest = ", ".join(f"{written[str(value)]:.60}" for value, _ in _commonest(counts, COMMONEST))
    return f": the commonest values are {commonest}" if commonest else ""


def _sampled(index: Index) -> Iterator[tuple[str, Sequence[Value]]]:
    """Yield the fields of some snippets with their values."""
    for snippet in islice(stored_snippets(index), SAMPLE):
        yield from fields_of(snippet)


def _is_number(condition: FieldFilter) -> bool:
    return isinstance(condition.value, int | float) and not isinstance(condition.value, bool)


def _holds(index: Index, *where: Condition) -> bool:
    """Return whether a snippet fulfils conditions, as far as the store tells."""
    probe = np.ones(index.dimension, np.float32)
    return any(index.search([IndexQuery(probe, 1, where, exact=exact)])[0] for exact in (False, True))
