"""What a model wrote for each subject, kept as it comes, and the training rows that are made of it at the end.

A subject is what is written for: a snippet, a training row, a scenario. A killed run resumes where its drafts end.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, BinaryIO, Generic, TypeVar

from typing_extensions import TypedDict

from biorag.errors import BadInputError
from biorag.training.synthesis.writers import DraftSubject, Writer
from biorag.types import Generation, OnProgress
from biorag.utils.files import json_line, replacing
from biorag.utils.parsing import parsed
from biorag.utils.runs import NEXT_STEP, Count, ResumableFile
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
    """A line of drafts: of each whether it was cut, and its tokens in the prompt and in the text."""

    id: str
    drafts: list[tuple[str, bool, Count, Count]]


class Drafts(ResumableFile[None]):
    """A JSONL file of what the model wrote, a line for each subject in their order."""

    def counted(self, counts: dict[str, int]) -> None:
        """Return nothing: drafts are never complete."""

    def read(self, subjects: Sequence[DraftSubject]) -> Iterator[tuple[list[Generation], int]]:
        """Yield each subject's drafts and the bytes of their line, as far as the file goes.

        Raises
        ------
        BadInputError
            If a whole line is not of the subject that comes next.
        """
        for number, (line, subject) in enumerate(zip(self.whole_lines(), subjects, strict=False), 1):
            try:
                values = parsed(Drafted, line)
                drafts = [
                    Generation(text, capped, prompt_tokens=prompt, completion_tokens=completion)
                    for text, capped, prompt, completion in values["drafts"]
                ]
                id = values["id"]
            except ValueError:
                drafts, id = [], None
            if id != subject.id:
                raise BadInputError(
                    f"{self.path}, line {number}: not what was written for {subject.id!r}: delete the file and "
                    f"run the command again, or {NEXT_STEP}"
                )
            yield drafts, len(line)

    def fill(self, stream: BinaryIO, subjects: Sequence[S], writer: Writer[S], on_progress: OnProgress) -> int:
        """Write for each subject that is not in the file yet, in whole batches; return how many were there.

        Each batch is flushed before the next begins.
        """
        sizes = [size for _, size in self.read(subjects)]
        done = len(sizes) if len(sizes) == len(subjects) else len(sizes) // writer.batch * writer.batch
        on_progress(done)
        stream.truncate(sum(sizes[:done]))
        for start in range(done, len(subjects), writer.batch):
            batch = subjects[start : start + writer.batch]
            for subject, texts in zip(batch, writer(batch), strict=True):
                drafts = [[whole(text.text), text.capped, text.prompt_tokens, text.completion_tokens] for text in texts]
                stream.write(json_line({"id": subject.id, "drafts": drafts}))
            stream.flush()
            on_progress(len(batch))
        return done


class RowFile(ResumableFile[C], Generic[S, C]):
    """A JSONL file of training rows made of drafts."""

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
        counts = super().finished()
        if counts is None:
            self.drafts.finished()
        else:
            self.drafts.remove()  # a kill may have left them
        return counts

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
                    stream.write(json_line(row))
        self.complete({**tally, "resumed": len(subjects)})
        self.drafts.remove()
        return self.counts(**tally)
