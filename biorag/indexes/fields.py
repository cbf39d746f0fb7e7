"""The fields of an index's snippets, their commonest values, and the check of the fields that a filter names."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from biorag.errors import UsageError, nearest
from biorag.indexes.points import OWN_FIELDS
from biorag.indexes.reading import stored_snippets
from biorag.types import EXISTS, FieldFilter, Index, IndexQuery, Snippet

ALWAYS = (*OWN_FIELDS, "retracted")  # which a filter may name whether a snippet has them or not
UNCOUNTED = ("id", "title", "content")  # fields whose values are nearly all different
MOST_VALUES = 100_000  # distinct values of a field that are counted
COMMONEST = 5
WORD = re.compile(r"[A-Za-z_]\w*")
SAMPLE = 20_000  # snippets in which a field is looked for that the store has not found

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
    own = {"id": snippet.id, "title": snippet.title, "content": snippet.content, "pmid": snippet.pmid}
    yield from _fields({name: value for name, value in own.items() if value not in (None, "")}, "")
    yield from _fields(snippet.metadata, "")


def _fields(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Sequence[Value]]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _fields(value, f"{prefix}{_spelled(name)}.")
            continue
        parts = value if isinstance(value, list) else [value]
        if plain := [part for part in parts if isinstance(part, str | int | float)]:
            yield prefix + _spelled(name), plain


def _spelled(name: str) -> str:
    """Return a name as filters write it: in double quotes where it is more than a word."""
    return name if WORD.fullmatch(name) else f'"{name}"'


def check_fields(index: Index, dimension: int, conditions: Iterable[FieldFilter]) -> None:
    """Check that the snippets of an index have the fields that conditions name, and numbers where they name numbers.

    The store is asked first, without its graph only where that finds none; so a field that is there costs little.

    Raises `UsageError` naming the field, the nearest one, and those there are; or how a text is named.
    """
    checked = [condition for condition in conditions if condition.field not in ALWAYS]
    named = dict.fromkeys(condition.field for condition in checked)
    lacking = [name for name in named if not _holds(index, dimension, FieldFilter(name, EXISTS, True))]
    if lacking:
        known = {name for snippet in islice(stored_snippets(index), SAMPLE) for name, _ in fields_of(snippet)}
        for name in (name for name in lacking if name not in known):
            alike = nearest(name, sorted(known))
            meant = f" (did you mean {alike!r}?)" if alike else ""
            raise UsageError(
                f"no snippet has the field {name!r} of --filter{meant}: the fields are {', '.join(sorted(known))}; "
                "'biorag indexes show NAME --fields' shows their values"
            )
    for name, value in {condition.field: condition.value for condition in checked if _is_number(condition)}.items():
        if not _holds(index, dimension, FieldFilter(name, ">=", -sys.float_info.max)):
            raise UsageError(
                f'the field {name!r} of --filter holds texts, no numbers: compare it with one, as in {name}="{value}"'
            )


def _is_number(condition: FieldFilter) -> bool:
    return isinstance(condition.value, int | float) and not isinstance(condition.value, bool)


def _holds(index: Index, dimension: int, condition: FieldFilter) -> bool:
    """Return whether a snippet fulfils a condition, as far as the store tells."""
    probe = np.ones(dimension, np.float32)
    return any(index.search([IndexQuery(probe, 1, (condition,), exact=exact)])[0] for exact in (False, True))
