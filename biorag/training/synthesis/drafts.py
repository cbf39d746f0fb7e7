"""What a model wrote for each subject, kept as it comes, and the training rows that are made of it at the end.

A subject is what is written for: a snippet, a training row, a scenario. A killed run resumes where its drafts end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from typing_extensions import TypedDict

from biorag.training.synthesis.writers import DraftSubject, Writer
from biorag.types import Generation, OnProgress
from biorag.utils.batched import batched
from biorag.utils.files import json_line
from biorag.utils.runs import Rows
from biorag.utils.text import whole


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedRowCounts:
    """The counts of a run: `rows` were made of the `generated` texts; subclasses say why texts were dropped.

    The tokens are those of all drafts and of the other requests for the file; `resumed` subjects had drafts before.
    """

    generated: int = 0
    rows: int = 0
    empty: int = 0
    short: int = 0
    cut: int = 0
    copied: int = 0
    duplicates: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    resumed: int = 0


S = TypeVar("S", bound=DraftSubject)
C = TypeVar("C", bound=GeneratedRowCounts)
Tally = dict[str, int]


class Drafted(TypedDict):
    """A line of drafts: a subject's id, and what the model wrote for it."""

    id: str
    drafts: list[Generation]


@dataclass(frozen=True)
class RowFile(ABC, Generic[S, C]):
    """A JSONL file of training rows made of drafts, which lie beside it until they all are there."""

    path: Path
    identity: Mapping[str, Any]

    counts: ClassVar[type[Any]]

    @property
    def file(self) -> Rows:
        """The file of training rows."""
        return Rows(self.path, self.identity)

    @property
    def drafts(self) -> Rows:
        """The file of what the model wrote; it is there until the rows are."""
        return Rows(self.path.with_name(f"{self.path.name}.drafts"), self.identity, Drafted)

    @abstractmethod
    def rows(self, subject: S, drafts: Sequence[Generation], tally: Tally, seen: set[str]) -> Iterator[dict[str, Any]]:
        """Yield the rows of a subject, counting what is dropped.

        `seen` are the texts of earlier rows, as they are compared.
        """

    def finished(self) -> C | None:
        """Return the counts of a file that is complete, its drafts deleted; None if there is work left.

        Raises
        ------
        MismatchError
            If the file, or its drafts, are of other settings, were not generated, or were changed since.
        """
        counts = self.file.finished()
        if counts is None:
            self.drafts.finished()
            return None
        self.drafts.remove()  # a kill may have left them
        complete: C = self.counts(**counts)
        return complete

    def generate(self, subjects: Sequence[S], counts: C, writer: Writer[S], on_progress: OnProgress) -> C:
        """Write the rows of all subjects, resuming where a killed run stopped.

        Parameters
        ----------
        counts : of the subjects

        Raises
        ------
        ServiceError
            If another process is writing the file.
        """

        def written(left: Sequence[S]) -> Iterator[dict[str, Any]]:
            for batch in batched(left, writer.batch):
                for subject, drafts in zip(batch, writer(batch), strict=True):
                    yield {"id": subject.id, "drafts": [draft._replace(text=whole(draft.text)) for draft in drafts]}

        resumed = self.drafts.fill(subjects, written, on_progress, writer.batch).resumed
        tally = asdict(counts) | {"resumed": len(subjects)}
        self.file.publish(map(json_line, self._rows(subjects, tally)), tally)
        self.drafts.remove()
        complete: C = self.counts(**{**tally, "resumed": resumed})
        return complete

    def _rows(self, subjects: Sequence[S], tally: Tally) -> Iterator[dict[str, Any]]:
        """Yield the rows made of the drafts."""
        seen: set[str] = set()
        for subject, drafted in zip(subjects, self.drafts.read(), strict=True):
            drafts = drafted["drafts"]
            tally["generated"] += len(drafts)
            tally["prompt_tokens"] += sum(draft.prompt_tokens for draft in drafts)
            tally["completion_tokens"] += sum(draft.completion_tokens for draft in drafts)
            for row in self.rows(subject, drafts, tally, seen):
                tally["rows"] += 1
                yield row
