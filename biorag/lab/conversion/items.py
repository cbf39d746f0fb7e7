"""From a published JSON file to items: snippets, judged questions, training rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from biorag.corpus.readers import OnReject, Reject, shown_bytes
from biorag.corpus.sources import DamagedSourceError, Source, read_chunks, read_lines
from biorag.errors import BadInputError
from biorag.types import Snippet
from biorag.utils.files import json_line
from biorag.utils.parsing import parse_json

T = TypeVar("T")
WHOLE = "test"  # the part of a set without parts, which benchmarks read
NEXT_STEP = "fix or remove it, or skip it with --on-bad-line skip"


class Entry(NamedTuple):
    """One entry of a file: its number, its key in an object, and its value, parsed or as the bytes of JSON."""

    number: int
    key: str
    content: Any
    unit: str = "line"  # that the number counts

    def json_object(self) -> dict[str, Any]:
        """Return a JSON object; raise ValueError at anything else."""
        value = parse_json(self.content) if isinstance(self.content, bytes) else self.content
        if not isinstance(value, dict):
            raise ValueError(f"not a JSON object but {type(value).__name__}")
        return value


def read_each(
    name: str, entries: Iterator[Entry], parse: Callable[[Entry], T], on_reject: OnReject | None
) -> Iterator[T]:
    """Yield the result of `parse` for each entry of a source.

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
                    raise BadInputError(f"{name}, {entry.unit} {entry.number}: {reason}; {NEXT_STEP}") from None
                raw = entry.content if isinstance(entry.content, bytes) else json_line(entry.content)
                on_reject(Reject(name, entry.number, reason, shown_bytes(raw), unit=entry.unit))
                continue
            yield result
    except DamagedSourceError as error:
        if on_reject is None:
            raise
        on_reject(Reject(name, error.line, error.reason, "", damaged=True))


def read_object(source: Source) -> Iterator[Entry]:
    """Yield the entries of a file that is one JSON object; raises `DamagedSourceError`."""
    content = _parsed(source)
    if not isinstance(content, dict):
        raise DamagedSourceError(source.name, 1, "not a JSON object")
    yield from (Entry(number, key, value, "entry") for number, (key, value) in enumerate(content.items(), 1))


def read_array_or_lines(source: Source) -> Iterator[Entry]:
    """Yield the entries of a file that is one JSON array, or has a JSON value a line; raises `DamagedSourceError`."""
    if next(read_chunks(source), b"").lstrip().startswith(b"["):
        yield from (Entry(number, "", value, "entry") for number, value in enumerate(_parsed(source), 1))
    else:
        yield from (Entry(number, "", line) for number, line in read_lines(source))


def _parsed(source: Source) -> Any:
    """Return the value of a file that is one JSON value, which is held whole."""
    try:
        return parse_json(b"".join(read_chunks(source)))
    except ValueError as error:
        raise DamagedSourceError(source.name, 1, f"not JSON ({error}): fetch the file again") from None


@dataclass(frozen=True, slots=True)
class JudgedQuestion:
    """A question with its relevant snippets."""

    id: str
    text: str
    part: str = WHOLE  # the part of the set that it belongs to: train, test or dev
    relevant: Mapping[str, int] = field(default_factory=dict)  # relevance by snippet id
    # The experts' answer as `answers.jsonl` has it, without id and question; empty for none
    answer: Mapping[str, Any] = field(default_factory=dict)
    # The question as BioASQ's golden files have it; empty for none
    golden: Mapping[str, Any] = field(default_factory=dict)
    snippets: tuple[Snippet, ...] = ()  # passages that come with the question


# A mapping is a training row, None a dropped record.
Item: TypeAlias = Snippet | JudgedQuestion | Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Request:
    """The set to convert."""

    paths: tuple[Path, ...] = ()  # the files or folders that the user named
    sources: tuple[Source, ...] = ()  # the files behind them; beside a format's folder, corpora
    split: str | None = None  # the only part to write; None for all
    test_ids: Path | None = None  # file of the questions of the official test set
    last: int | None = None  # how many questions at the end are for development
    id_prefix: str = ""  # prefix of a PMID in the id of a snippet

    def read(
        self, entries: Callable[[Source], Iterator[Entry]], parse: Callable[[Entry], T], on_reject: OnReject | None
    ) -> Iterator[T]:
        """Yield the result of `parse` for each entry of the files; see `read_each`."""
        for source in self.sources:
            yield from read_each(source.name, entries(source), parse, on_reject)


# A published format: yields the items of its files, in their order; a bad record raises `BadInputError`, or goes to
# `OnReject` if one is given.
Format: TypeAlias = Callable[[Request, OnReject | None], Iterator[Item]]
