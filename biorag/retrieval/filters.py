"""Filters on snippet fields: `year>=2015 and (type=Review or journal~Lancet) and not retracted`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from biorag.errors import UsageError
from biorag.types import CONTAINS, AnyOf, FieldFilter, Snippet, Where

DEEPEST = 16  # parentheses inside one another
# Names joined by dots; a name with other characters stands in double quotes.
_FIELD = r'(?P<not>not\s+)?(?P<field>(?:[A-Za-z_]\w*+|"[^"]+")(?:\.(?:\w++|"[^"]+"))*+)'
# A value's own parentheses come in pairs; one that closes none ends it.
_COMPARISON = re.compile(
    rf"""{_FIELD}\s*(?P<op>>=|<=|=|:|~|>|<)\s*(?P<value>"[^"]*"|(?!["=<>:~])(?:[^\s()]|\([^\s()]*\))+)\s*""",
    re.IGNORECASE,
)
_FLAG = re.compile(rf"{_FIELD}\s*(?=\Z|\)|(?:and|or)\b)", re.IGNORECASE)
_OPENING = re.compile(r"(?P<not>not\s*)?\(\s*", re.IGNORECASE)
_AND, _OR, _CLOSING = (re.compile(mark, re.IGNORECASE) for mark in (r"and\b\s*", r"or\b\s*", r"\)\s*"))
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
TEXT_FIELDS = ("id", "title", "content")
RESERVED = ("and", "or", "not")
HOW = "write FIELD=VALUE, FIELD~WORDS, FIELD>=NUMBER, or FIELD for one that is true"
# What other languages of filters write, and what stands for it here.
_ELSEWHERE = {
    "!=": "write not FIELD=VALUE",
    "<>": "write not FIELD=VALUE",
    "&&": 'write "and"',
    "||": 'write "or"',
    "between": "write FIELD>=NUMBER and FIELD<=NUMBER",
}


def parse_filter(text: str) -> Where:
    """Parse conditions joined by `and` and `or`, where `and` binds closer and parentheses group.

    Names and values with spaces are in double quotes; a field alone must be true.

    Raises `UsageError` if the text does not follow the grammar, naming the place.
    """
    return _Parser(text).where()


def parse_filters(texts: Iterable[str]) -> Where:
    """Return the conditions of all texts; raises as `parse_filter`."""
    return tuple(condition for text in texts for condition in parse_filter(text))


class _Parser:
    """Reads a filter from left to right: a method for each rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = len(text) - len(text.lstrip())

    def where(self) -> Where:
        """Return the conditions of the whole text."""
        where = _joined(self._alternatives(0))
        if self._at < len(self._text):
            advice = _advice(self._rest, "a value of several words is in double quotes")
            raise UsageError(f'filter {self._text!r}: expected "and" or "or" before {self._rest!r}: {advice}')
        return where

    @property
    def _rest(self) -> str:
        return self._text[self._at :]

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Return what stands next, and go past it; None if it is something else."""
        match = pattern.match(self._text, self._at)
        if match:
            self._at = match.end()
        return match

    def _alternatives(self, depth: int) -> tuple[Where, ...]:
        """Read conditions that `or` parts."""
        alternatives = [self._conditions(depth)]
        while self._take(_OR):
            alternatives.append(self._conditions(depth))
        return tuple(alternatives)

    def _conditions(self, depth: int) -> Where:
        """Read conditions that `and` joins."""
        conditions = [*self._term(depth)]
        while self._take(_AND):
            conditions += self._term(depth)
        return tuple(conditions)

    def _term(self, depth: int) -> Where:
        """Read a field, a comparison, or conditions in parentheses."""
        start = self._rest
        if opening := self._take(_OPENING):
            if depth == DEEPEST:
                raise UsageError(f"filter {self._text!r:.200} has more than {DEEPEST} parentheses inside one another")
            alternatives = self._alternatives(depth + 1)
            if not self._take(_CLOSING):
                missing = f'expected "and", "or" or ")" before {self._rest!r}' if self._rest else 'it lacks a ")"'
                raise UsageError(f"filter {self._text!r}: {missing}, for the parenthesis at {start!r}")
            return (AnyOf(alternatives, negated=True),) if opening["not"] else _joined(alternatives)
        flag = _FLAG.match(self._text, self._at)
        if flag and flag["field"].lower() not in RESERVED:
            self._at = flag.end()
            return (FieldFilter(flag["field"], "=", True, bool(flag["not"])),)
        return (self._comparison(),)

    def _comparison(self) -> FieldFilter:
        text = self._rest
        match = self._take(_COMPARISON)
        if not match:
            fault = f"cannot be read at {text!r}" if text else "lacks a condition at its end"
            raise UsageError(f"filter {self._text!r} {fault}: {_advice(text, HOW)}")
        op, field = "=" if match["op"] == ":" else match["op"], match["field"]
        is_text = op == CONTAINS or field.lower() in TEXT_FIELDS
        value = match["value"].strip('"') if is_text else _value(match["value"])
        if op not in ("=", CONTAINS) and (isinstance(value, bool) or not isinstance(value, int | float)):
            advice = ': join conditions by "and"' if str(value).endswith((",", ";")) else ""
            raise UsageError(f"filter {self._text!r} compares {field!r} with {value!r}, which is not a number{advice}")
        is_negated = bool(match["not"])
        if value is False:  # a record that does not say yes says no
            return FieldFilter(field, op, True, not is_negated)
        return FieldFilter(field, op, value, is_negated)


def _advice(rest: str, otherwise: str) -> str:
    """Return what to write in place of another language's mark that stands in the rest of a filter."""
    return next((advice for mark, advice in _ELSEWHERE.items() if mark in rest.lower()), otherwise)


def _joined(alternatives: tuple[Where, ...]) -> Where:
    """Return alternatives as conditions, those of a single one as they are."""
    return alternatives[0] if len(alternatives) == 1 else (AnyOf(alternatives),)


def _value(text: str) -> str | int | float | bool:
    if text.startswith('"'):
        return text.strip('"')
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        return text
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def exclude_pmids(pmids: tuple[int, ...]) -> Where:
    """Return the conditions that leave these PubMed records out; none for no records."""
    return (FieldFilter("pmid", "in", pmids, negated=True),) if pmids else ()


def exclude_documents(snippets: Iterable[Snippet]) -> Where:
    """Return the conditions that leave out the PubMed records of these snippets; of one without a PMID itself alone."""
    pmids = {snippet.id: snippet.pmid for snippet in snippets}
    records = tuple(sorted({pmid for pmid in pmids.values() if pmid is not None}))
    others = sorted(id for id, pmid in pmids.items() if pmid is None)
    return (*exclude_pmids(records), *(FieldFilter("id", "=", id, negated=True) for id in others))
