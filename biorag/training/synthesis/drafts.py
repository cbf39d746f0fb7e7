"""What a model wrote of each subject, kept as it comes, and the training rows that are made of it at the end.

A subject is what is written of: a snippet, a training row, a scenario. A killed run goes on where its drafts end.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, BinaryIO, Generic, TypeVar

from biorag.errors import BadInputError
from biorag.training.synthesis.writers import Subject, Writer
from biorag.types import Generation, OnProgress
from biorag.utils.files import replacing
from biorag.utils.runs import NEXT_STEP, ResumableFile
from biorag.utils.text import whole


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedRowCounts:
    """What a run came to: of the `generated` texts `rows` were made; what each was left out for says its own kind.

    The tokens are those of all drafts, and of whatever else the model was asked for the file; the drafts of
    `resumed` subjects were there before.
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


S = TypeVar("S", bound=Subject)
C = TypeVar("C", bound=GeneratedRowCounts)
Tally = dict[str, int]


class Drafts(ResumableFile[None]):
    """A JSONL file of what the model wrote, a line for each subject in their order."""

    def counted(self, counts: dict[str, int]) -> None:
        """Return nothing: drafts are never complete."""

    def read(self, subjects: Sequence[Subject]) -> Iterator[tuple[list[Generation], int]]:
        """Yield each subject's drafts and the bytes of their line, as far as the file goes.

        Raises
        ------
        BadInputError
            If a whole line is not of the subject that comes next.
        """
        for number, (line, subject) in enumerate(zip(self.whole_lines(), subjects, strict=False), 1):
            try:
                values = json.loads(line)
                drafts = [
                    Generation(str(text), bool(capped), prompt_tokens=int(asked), completion_tokens=int(wrote))
                    for text, capped, asked, wrote in values["drafts"]
                ]
                found = values["id"]
            except (ValueError, KeyError, TypeError):
                drafts, found = [], None
            if found != subject.id:
                raise BadInputError(
                    f"{self.path}, line {number}: not what was written of {subject.id!r}: delete the file and "
                    f"run the same again, or {NEXT_STEP}"
                )
            yield drafts, len(line)

    def fill(self, stream: BinaryIO, subjects: Sequence[S], writer: Writer[S], on_progress: OnProgress) -> int:
        """Write of each subject that is not in the file yet, in whole batches; return how many were there.

        Each batch is with the system when the next begins.
        """
        sizes = [size for _, size in self.read(subjects)]
        done = len(sizes) if len(sizes) == len(subjects) else len(sizes) // writer.batch * writer.batch
        on_progress(done)
        stream.truncate(sum(sizes[:done]))
        for start in range(done, len(subjects), writer.batch):
            batch = subjects[start : start + writer.batch]
            for subject, written in zip(batch, writer(batch), strict=True):
                kept = [[whole(one.text), one.capped, one.prompt_tokens, one.completion_tokens] for one in written]
                stream.write(_line({"id": subject.id, "drafts": kept}))
            stream.flush()
            on_progress(len(batch))
        return done


class RowFile(ResumableFile[C], Generic[S, C]):
    """A JSONL file of the training rows that are made of drafts."""

    counts: type[C]

    @property
    def drafts(self) -> Drafts:
        """The file of what the model wrote; it is there until the rows are."""
        return Drafts(self.path.with_name(f"{self.path.name}.drafts"), self.identity)

    def counted(self, counts: dict[str, int]) -> C:
        """Return the counts of a complete file."""
        return self.counts(**counts)

    @abstractmethod
    def rows(self, subject: S, drafts: Sequence[Generation], tally: Tally, seen: set[str]) -> Iterator[dict[str, Any]]:
        """Yield the rows of a subject, counting them and what is left out.

        `seen` are the texts that rows before had, in whatever form they are compared.
        """

    def finished(self) -> C | None:
        """Return the counts of a file that is complete, its drafts deleted; None if there is still something to do.

        Raises
        ------
        MismatchError
            If the file, or its drafts, are of other settings, were not generated, or were changed since.
        """
        counts = super().finished()
        if counts is None:
            self.drafts.finished()
        else:
            self.drafts.remove()  # a kill may have left them
        return counts

    def generate(self, subjects: Sequence[S], counts: C, writer: Writer[S], on_progress: OnProgress) -> C:
        """Write the rows of all subjects, going on where a killed run stopped.

        Parameters
        ----------
        counts : of the subjects

        Raises
        ------
        ServiceError
            If another process is writing the file.
        """
        with self.drafts.appending() as stream:
            resumed = self.drafts.fill(stream, subjects, writer, on_progress)
            return replace(self._write(subjects, counts), resumed=resumed)

    def _write(self, subjects: Sequence[S], counts: C) -> C:
        """Make the rows of the drafts, at once, and delete the drafts."""
        tally = asdict(counts)
        seen: set[str] = set()
        self.save(complete=False)
        with replacing(self.path) as stream:
            for subject, (drafts, _) in zip(subjects, self.drafts.read(subjects), strict=True):
                tally["generated"] += len(drafts)
                tally["prompt_tokens"] += sum(draft.prompt_tokens for draft in drafts)
                tally["completion_tokens"] += sum(draft.completion_tokens for draft in drafts)
                for row in self.rows(subject, drafts, tally, seen):
                    tally["rows"] += 1
                    stream.write(_line(row))
        self.complete({**tally, "resumed": len(subjects)})
        self.drafts.remove()
        return self.counts(**tally)


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"
