"""The items that a published format is read as: snippets, judged questions, training rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from biorag.conversion.entries import Entry, read_each
from biorag.corpus.readers import OnReject
from biorag.corpus.sources import Source
from biorag.types import Snippet

WHOLE = "test"  # the part of a set that has no parts: the one that the commands that measure read
T = TypeVar("T")


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
    sources: tuple[Source, ...] = ()  # the files behind them; none where they are a format's folder
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
