"""The entries of a large JSON file, one after another: of an object, of an array, or of lines."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from biorag.corpus.readers import SHOWN, OnReject, Reject
from biorag.corpus.sources import MAX_LINE, DamagedSourceError, Source, read_chunks, read_lines
from biorag.errors import BadInputError
from biorag.utils.parsing import parse_json

NEXT_STEP = "fix or remove it, or skip it with --on-bad-line skip"
BREAKS_OFF = "breaks off: fetch the file again"
PIECE = 2**20  # characters read at once
_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry as it stands in a file: the line it begins in, its key in an object, and its own text."""

    line: int
    key: str
    raw: bytes | str

    @property
    def text(self) -> str:
        """The text; raises ValueError if it is not UTF-8."""
        try:
            return self.raw if isinstance(self.raw, str) else self.raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"not UTF-8 (byte {error.start})") from None

    def value(self) -> Any:
        """Return the value of JSON; raises as `parse_json` does."""
        return parse_json(self.text)

    def json_object(self) -> dict[str, Any]:
        """Return a JSON object; raise ValueError at anything else."""
        value = self.value()
        if not isinstance(value, dict):
            raise ValueError(f"not a JSON object but {type(value).__name__}")
        return value


def read_each(
    name: str,
    entries: Iterator[Entry],
    parse: Callable[[Entry], T],
    on_reject: OnReject | None,
    advice: str = NEXT_STEP,
    unit: str = "line",
) -> Iterator[T]:
    """Yield what `parse` makes of each entry of a source; `unit` names the unit of an entry's `line`.

    An entry at which it raises ValueError raises `BadInputError`, or goes to `on_reject` if one is given; so does
    damage to the file, where its reading ends.
    """
    try:
        for entry in entries:
            try:
                result = parse(entry)
            except ValueError as error:
                reason = f"{entry.key:.60}: {error}" if entry.key else str(error)
                if on_reject is None:
                    raise BadInputError(f"{name}, {unit} {entry.line}: {reason}; {advice}") from None
                raw = entry.raw[:SHOWN]
                shown = raw if isinstance(raw, str) else raw.decode("utf-8", "replace")
                on_reject(Reject(name, entry.line, reason, shown, unit=unit))
                continue
            yield result
    except DamagedSourceError as error:
        if on_reject is None:
            raise
        on_reject(Reject(name, error.line, error.reason, "", damaged=True))


def read_object(source: Source) -> Iterator[Entry]:
    """Yield the entries of a file that is one JSON object, one at a time; raises `DamagedSourceError`."""
    return _entries(_Text(source), "{", "}")


def read_array_or_lines(source: Source) -> Iterator[Entry]:
    """Yield the entries of a file that is one JSON array, or has a JSON value a line; see `read_object`."""
    text = _Text(source)
    if text.peek() == "[":
        yield from _entries(text, "[", "]")
    else:
        yield from (Entry(number, "", line) for number, line in read_lines(source))


def _entries(text: _Text, opening: str, closing: str) -> Iterator[Entry]:
    text.take(opening, "not a JSON object")
    more = text.peek() != closing
    while more:
        key = ""
        if closing == "}":
            if text.peek() not in ('"', ""):
                raise text.damaged("a key that is not a string")
            key = json.loads(text.value())
            text.take(":", "no ':' after a key")
        text.peek()
        yield Entry(text.line, key, text.value())
        if more := text.peek() == ",":
            text.take(",", "")
    text.take(closing, f"no ',' or '{closing}' after an entry")
    if text.peek():
        raise text.damaged("more text after the end of the JSON value")


class _Text:
    """The text of a file, read piece by piece; consumed text is dropped."""

    def __init__(self, source: Source) -> None:
        self.line = 1
        self._source = source
        self._pieces = codecs.iterdecode(read_chunks(source), "utf-8")
        self._rest, self._start = "", 0

    def peek(self) -> str:
        """Pass over white space, and return the next character; empty at the end."""
        while True:
            self._pass(_BLANK.match(self._rest, self._start).end())  # type: ignore[union-attr]
            if self._start < len(self._rest) or not self._more():
                return self._rest[self._start : self._start + 1]

    def take(self, mark: str, fault: str) -> None:
        """Pass over a character."""
        if (character := self.peek()) != mark:
            raise self.damaged(fault if character else BREAKS_OFF)
        self._pass(self._start + 1)

    def value(self) -> str:
        """Pass over a JSON value, and return it."""
        while True:
            try:
                _, end = _DECODER.raw_decode(self._rest, self._start)
                if end < len(self._rest) or not self._more():  # a number may continue in the next piece
                    break
            except json.JSONDecodeError as error:
                if not self._more():
                    raise self.damaged(f"not JSON, or it {BREAKS_OFF} ({error.msg})") from None
            except (RecursionError, ValueError):  # the latter: a number of thousands of digits
                raise self.damaged("nested too deeply, or a number of too many digits") from None
            if len(self._rest) - self._start > MAX_LINE:
                raise self.damaged(f"an entry of more than {MAX_LINE >> 20} MiB, or not JSON")
        value = self._rest[self._start : end]
        self._pass(end)
        return value

    def damaged(self, reason: str) -> DamagedSourceError:
        """Return the error that names the line reached."""
        return DamagedSourceError(self._source.name, self.line, reason)

    def _pass(self, end: int) -> None:
        self.line += self._rest.count("\n", self._start, end)
        self._start = end

    def _more(self) -> bool:
        """Read on: as much as is held, so that a long entry is parsed a few times only; False at the end."""
        pieces = [self._rest[self._start :]]
        wanted, size = max(PIECE, len(pieces[0])), 0
        try:
            while size < wanted and (piece := next(self._pieces, "")):
                pieces.append(piece)
                size += len(piece)
        except UnicodeDecodeError:
            raise self.damaged("not UTF-8 from here or soon after") from None
        self._rest, self._start = "".join(pieces), 0
        return size > 0
