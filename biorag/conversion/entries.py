"""The entries of a large JSON file, one after another: of an object, of an array, or of lines."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from biorag.corpus.readers import SHOWN, OnReject, Reject
from biorag.corpus.sources import MAX_LINE, DamagedSourceError, Source, read_chunks, read_lines
from biorag.errors import BadInputError
from biorag.utils.parsing import parse_json

NEXT_STEP = "fix or remove it, or skip it with --on-bad-line skip"
PIECE = 2**20  # characters read at once
WHITE = " \t\n\r"
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

    @property
    def shown(self) -> str:
        """The beginning, for the rejects file."""
        return self.raw[:SHOWN] if isinstance(self.raw, str) else self.raw[:SHOWN].decode("utf-8", "replace")

    def value(self) -> Any:
        """Return the value of JSON; see `parse_json`, and what it raises."""
        return parse_json(self.text)


def read_each(
    name: str,
    entries: Iterator[Entry],
    parse: Callable[[Entry], T],
    on_reject: OnReject | None,
    advice: str = NEXT_STEP,
) -> Iterator[T]:
    """Yield what `parse` makes of each entry of the file `name`.

    An entry at which `parse` raises ValueError raises, or goes to `on_reject` if one is given; so does damage to the
    file, where its reading ends.

    Raises
    ------
    BadInputError
        Naming file, line, key and reason.
    """
    try:
        for entry in entries:
            try:
                parsed = parse(entry)
            except ValueError as error:
                reason = f"{entry.key:.60}: {error}" if entry.key else str(error)
                if on_reject is None:
                    raise BadInputError(f"{name}, line {entry.line}: {reason}; {advice}") from None
                on_reject(Reject(name, entry.line, reason, entry.shown))
                continue
            yield parsed
    except DamagedSourceError as error:
        if on_reject is None:
            raise
        on_reject(Reject(name, error.line, error.reason, "", damaged=True))


def read_object(source: Source) -> Iterator[Entry]:
    """Yield the entries of a file that is one JSON object; no more than one is held in memory.

    Raises
    ------
    DamagedSourceError
        If it is not an object, not JSON, not UTF-8, breaks off, or has an entry of more than 16 MiB.
    """
    text = _Text(source)
    text.expect("{", "not a JSON object")
    if text.peek() != "}":
        while True:
            key = json.loads(text.expect_string())
            text.expect(":", "no ':' after a key")
            yield text.entry(key)
            if text.peek() != ",":
                break
            text.expect(",", "")
    text.expect("}", "no ',' or '}' after an entry")
    text.expect_end()


def read_array_or_lines(source: Source) -> Iterator[Entry]:
    """Yield the entries of a file that is one JSON array, or has a JSON value a line; see `read_object`."""
    text = _Text(source)
    if text.peek() != "[":
        yield from (Entry(number, "", line) for number, line in read_lines(source))
        return
    text.expect("[", "")
    if text.peek() != "]":
        while True:
            yield text.entry("")
            if text.peek() != ",":
                break
            text.expect(",", "")
    text.expect("]", "no ',' or ']' after an entry")
    text.expect_end()


class _Text:
    """The text of a file, read piece by piece; what was passed over is dropped."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._chunks = read_chunks(source)
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._rest = ""
        self._start = 0
        self._line = 1
        self._ended = False

    def peek(self) -> str:
        """Return the next character that is not white space, and stand before it; empty at the end."""
        while True:
            while self._start < len(self._rest) and self._rest[self._start] in WHITE:
                self._pass(self._start + 1)
            if self._start < len(self._rest):
                return self._rest[self._start]
            if not self._more():
                return ""

    def expect(self, mark: str, fault: str) -> None:
        """Pass over a character."""
        if self.peek() != mark:
            raise self._damaged(fault if self.peek() else "breaks off: fetch the file again")
        self._pass(self._start + 1)

    def expect_string(self) -> str:
        """Pass over a string, and return it as JSON."""
        if self.peek() != '"':
            raise self._damaged("a key that is not a string" if self.peek() else "breaks off: fetch the file again")
        return self._value()

    def expect_end(self) -> None:
        """Hold that nothing follows."""
        if self.peek():
            raise self._damaged("more text after the end of the JSON value")

    def entry(self, key: str) -> Entry:
        """Pass over a value, and return it."""
        if not self.peek():
            raise self._damaged("breaks off: fetch the file again")
        line = self._line
        return Entry(line, key, self._value())

    def _value(self) -> str:
        while True:
            try:
                _, end = _DECODER.raw_decode(self._rest, self._start)
                if end < len(self._rest) or not self._more():
                    break
            except json.JSONDecodeError as error:
                if not self._more():
                    raise self._damaged(f"not JSON, or it breaks off ({error.msg}): fetch the file again") from None
            except (RecursionError, ValueError):  # the latter: a number of thousands of digits
                raise self._damaged("nested too deeply, or a number of too many digits") from None
            if len(self._rest) - self._start > MAX_LINE:
                raise self._damaged(f"an entry of more than {MAX_LINE >> 20} MiB, or not JSON")
        value = self._rest[self._start : end]
        self._pass(end)
        return value

    def _pass(self, end: int) -> None:
        self._line += self._rest.count("\n", self._start, end)
        self._start = end

    def _more(self) -> bool:
        """Read on: as much as is held, so that a long entry is parsed a few times only; False at the end."""
        if self._ended:
            return False
        pieces = [self._rest[self._start :]]
        wanted = max(PIECE, len(pieces[0]))
        size = 0
        try:
            for chunk in self._chunks:
                pieces.append(self._decode(chunk))
                size += len(chunk)
                if size >= wanted:
                    break
            else:
                pieces.append(self._decode(b"", True))
                self._ended = True
        except UnicodeDecodeError:
            raise self._damaged("not UTF-8 from here or soon after") from None
        self._rest, self._start = "".join(pieces), 0
        return True

    def _damaged(self, reason: str) -> DamagedSourceError:
        return DamagedSourceError(self._source.name, self._line, reason)
