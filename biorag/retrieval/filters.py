"""Filters on snippet fields: `year>=2015 and journal=Lancet and not retracted`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from biorag.errors import UsageError
from biorag.types import FieldFilter, Snippet

# Names joined by dots; a name with other characters stands in double quotes.
_FIELD = r'(?P<field>(?:[A-Za-z_]\w*|"[^"]+")(?:\.(?:\w+|"[^"]+"))*)'
_TERM = re.compile(
    rf"""\s*(?P<not>not\s+)?{_FIELD}\s*(?P<op>>=|<=|=|:|>|<)\s*
        (?P<value>"[^"]*"|[^"\s=<>:]\S*)\s*(?P<rest>.*)$""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_FLAG = re.compile(rf"\s*(?P<not>not\s+)?{_FIELD}\s*(?P<rest>and\s.*)?$", re.DOTALL | re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
TEXT_FIELDS = ("id", "title", "content")
RESERVED = ("and", "not")
_AND = re.compile(r"and\s+", re.IGNORECASE)


def parse_filter(text: str) -> tuple[FieldFilter, ...]:
    """Parse conditions joined by `and`; names and values with spaces are in double quotes; a field alone must be true.

    Raises `UsageError` if the text does not follow the grammar, naming the place.
    """
    conditions: list[FieldFilter] = []
    rest = text
    while True:
        condition, rest = _flag(rest) or _comparison(rest, text)
        conditions.append(condition)
        if not rest:
            return tuple(conditions)
        joint = _AND.match(rest)
        if not joint:
            raise UsageError(f'filter {text!r}: expected "and" before {rest!r}')
        rest = rest[joint.end() :]


def parse_filters(texts: Iterable[str], excluded: Iterable[int] = ()) -> tuple[FieldFilter, ...]:
    """Return the conditions of all texts, without these PubMed records; raises as `parse_filter`."""
    return (*(condition for text in texts for condition in parse_filter(text)), *exclude_pmids(tuple(excluded)))


def _flag(text: str) -> tuple[FieldFilter, str] | None:
    """Return a field that stands alone and what follows it; None if the text does not begin with one."""
    match = _FLAG.match(text)
    if not match or match["field"].lower() in RESERVED:
        return None
    return FieldFilter(match["field"], "=", True, bool(match["not"])), match["rest"] or ""


def _comparison(rest: str, text: str) -> tuple[FieldFilter, str]:
    """Return the comparison that `rest`, the end of the filter `text`, begins with, and what follows it."""
    match = _TERM.match(rest)
    if not match:
        raise UsageError(
            f"filter {text!r} cannot be read at {rest!r}: write FIELD=VALUE, FIELD>=NUMBER, or FIELD for one that is "
            'true, joined by "and"'
        )
    op = "=" if match["op"] == ":" else match["op"]
    value = match["value"].strip('"') if match["field"] in TEXT_FIELDS else _value(match["value"])
    if op != "=" and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise UsageError(f"filter {text!r} compares {match['field']!r} with {value!r}, which is not a number")
    return FieldFilter(match["field"], op, value, bool(match["not"])), match["rest"]


def _value(text: str) -> str | int | float | bool:
    if text.startswith('"'):
        return text.strip('"')
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        return text
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def exclude_pmids(pmids: tuple[int, ...]) -> tuple[FieldFilter, ...]:
    """Return the conditions that leave these PubMed records out; none for no records."""
    return (FieldFilter("pmid", "in", pmids, negated=True),) if pmids else ()


def exclude_documents(snippets: Iterable[Snippet]) -> tuple[FieldFilter, ...]:
    """Return the conditions that leave out the PubMed records of these snippets; of one without a PMID itself alone."""
    kept = list(snippets)
    pmids = tuple(sorted({snippet.pmid for snippet in kept if snippet.pmid is not None}))
    alone = sorted(snippet.id for snippet in kept if snippet.pmid is None)
    return (*exclude_pmids(pmids), *(FieldFilter("id", "=", id, negated=True) for id in alone))
