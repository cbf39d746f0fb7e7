"""The fields of an index's snippets, their commonest values, and the check of what a filter names."""

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
from biorag.types import EXISTS, AnyOf, FieldFilter, Index, IndexQuery, Snippet, Where

ALWAYS = (*OWN_FIELDS, "retracted")  # which a filter may name whether a snippet has them or not
UNCOUNTED = ("id", "title", "content")  # fields whose values are nearly all different
MOST_VALUES = 100_000  # distinct values of a field that are counted
COMMONEST = 5
WORD = re.compile(r"[A-Za-z_]\w*")
SAMPLE = 20_000  # snippets in which a field or a value is looked for that the store has not found
SHOW_VALUES = "'biorag indexes show NAME --fields' shows their values"

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


def check_fields(index: Index, dimension: int, where: Where) -> None:
    """Check that the snippets of an index have the fields that conditions name, and numbers where they name numbers.

    The store is asked first, without its graph only where that finds none; so a field that is there costs little.

    Raises `UsageError` naming the field, the nearest one, and those there are; or how a text is named.
    """
    checked = [condition for condition in comparisons(where) if condition.field not in ALWAYS]
    named = dict.fromkeys(condition.field for condition in checked)
    lacking = [name for name in named if not _holds(index, dimension, (FieldFilter(name, EXISTS, True),))]
    if lacking:
        known = {name for name, _ in _sampled(index)}
        for name in (name for name in lacking if name not in known):
            alike = nearest(name, sorted(known))
            meant = f" (did you mean {alike!r}?)" if alike else ""
            raise UsageError(
                f"no snippet has the field {name!r} of --filter{meant}: the fields are {', '.join(sorted(known))}; "
                f"{SHOW_VALUES}"
            )
    for name, value in {condition.field: condition.value for condition in checked if _is_number(condition)}.items():
        if not _holds(index, dimension, (FieldFilter(name, ">=", -sys.float_info.max),)):
            raise UsageError(
                f'the field {name!r} of --filter holds texts, no numbers: compare it with one, as in {name}="{value}"'
            )


def check_values(index: Index, dimension: int, where: Where) -> None:
    """Check that snippets have the texts that conditions ask for, where no snippet fulfils all conditions.

    Raises `UsageError` naming the text, and the nearest or the commonest values of its field.
    """
    texts = [condition for condition in comparisons(where) if _is_text(condition)]
    if not texts or _holds(index, dimension, where):
        return
    for condition in texts:
        if not _holds(index, dimension, (condition,)):
            asked = f'{condition.field}="{condition.value}"'
            raise UsageError(f"no snippet has {asked}, as --filter asks{_meant(index, condition)}; {SHOW_VALUES}")


def _meant(index: Index, condition: FieldFilter) -> str:
    """Return the value of a field that a condition may mean, else its commonest, for the end of a message."""
    values = (values for name, values in _sampled(index) if name == condition.field)
    counts = Counter((type(value), value) for of_snippet in values for value in of_snippet)
    written = {str(value): f'"{value}"' if kind is str else str(value) for kind, value in counts}
    if alike := nearest(str(condition.value), sorted(written)):
        return f" (did you mean {written[alike]}?)"
    commonest = ", ".join(f"{written[str(value)]:.60}" for value, _ in _commonest(counts, COMMONEST))
    return f": the commonest values are {commonest}" if commonest else ""


def comparisons(where: Where) -> Iterator[FieldFilter]:
    """Yield the conditions on fields, those of alternatives too."""
    for condition in where:
        if isinstance(condition, AnyOf):
            for alternative in condition.alternatives:
                yield from comparisons(alternative)
        else:
            yield condition


def _sampled(index: Index) -> Iterator[tuple[str, Sequence[Value]]]:
    """Yield the fields of some snippets with their values."""
    for snippet in islice(stored_snippets(index), SAMPLE):
        yield from fields_of(snippet)


def _is_text(condition: FieldFilter) -> bool:
    """Return whether a condition asks for a text."""
    is_asked = condition.op == "=" and not condition.negated and condition.field not in ALWAYS
    return is_asked and isinstance(condition.value, str)


def _is_number(condition: FieldFilter) -> bool:
    return isinstance(condition.value, int | float) and not isinstance(condition.value, bool)


def _holds(index: Index, dimension: int, where: Where) -> bool:
    """Return whether a snippet fulfils conditions, as far as the store tells."""
    probe = np.ones(dimension, np.float32)
    return any(index.search([IndexQuery(probe, 1, where, exact=exact)])[0] for exact in (False, True))
