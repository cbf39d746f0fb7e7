"""Runs that generate training rows: a model's drafts for each subject, kept as they come, and the rows made of them.

Texts are written for a subject: a snippet, a training row, a scenario. A killed run resumes where its drafts end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from typing_extensions import TypedDict

from biorag.errors import UsageError
from biorag.lab.synthesis.writers import DraftSubject, Draws, Writer
from biorag.settings.settings import Settings
from biorag.training.contamination import jaccard
from biorag.training.rows import normalised
from biorag.types import Generation, OnProgress, Progress
from biorag.utils.files import check_output, json_line
from biorag.utils.progress import batched
from biorag.utils.runs import Rows
from biorag.utils.text import whole

LEAST_WORDS = 8  # of a passage
NEAR = 0.9  # Jaccard index of the words above which two passages are near-copies


# Every run counts the `generated` texts and the `rows` made of them, the texts that were dropped by their faults (see
# docs/synthetic.md), and the tokens of all requests.
FAULTS = ("empty", "short", "cut", "copied", "duplicates")
COUNTS = ("generated", "rows", *FAULTS, "prompt_tokens", "completion_tokens")

S = TypeVar("S", bound=DraftSubject)
Tally = dict[str, int]
# Makes the rows of a subject of its drafts, counts what it drops, and keeps the texts of earlier rows for comparison.
MakeRows = Callable[[S, Sequence[Generation], Tally, set[str]], Iterator[dict[str, Any]]]


class Drafted(TypedDict):
    """A line of drafts: a subject's id, and the model's replies."""

    id: str
    drafts: list[Generation]


@dataclass(frozen=True)
class GeneratedFile(Generic[S]):
    """A JSONL file of training rows; the drafts they are made of lie beside it until all rows are there."""

    path: Path
    identity: Mapping[str, Any]
    make_rows: MakeRows[S]

    @property
    def rows(self) -> Rows:
        """The file of training rows."""
        return Rows(self.path, self.identity)

    @property
    def drafts(self) -> Rows:
        """The file of the model's replies, deleted once the rows are written."""
        return Rows(self.path.with_name(f"{self.path.name}.drafts"), self.identity, Drafted)

    def finished(self) -> Tally | None:
        """Return the counts of a file that is complete, its drafts deleted; None if there is work left.

        Raises `MismatchError` if the file or its drafts are of other settings, were not generated, or were changed.
        """
        counts = self.rows.counts()
        if counts is None:
            self.drafts.counts()
        else:
            self.drafts.remove()  # a kill may have left them
        return counts

    def generate(self, subjects: Sequence[S], counts: Tally, writer: Writer[S], on_progress: OnProgress) -> Tally:
        """Write the rows of all subjects, resuming where a killed run stopped, and return all counts.

        `counts` are those of the subjects, and of faults that `make_rows` counts beside `COUNTS`.
        Raises `ServiceError` if another process is writing the file.
        """

        def written(left: Sequence[S]) -> Iterator[dict[str, Any]]:
            for batch in batched(left, writer.batch):
                for subject, drafts in zip(batch, writer(batch), strict=True):
                    yield {"id": subject.id, "drafts": [draft._replace(text=whole(draft.text)) for draft in drafts]}

        resumed = self.drafts.fill(subjects, written, on_progress, writer.batch).resumed
        tally = dict.fromkeys(COUNTS, 0) | counts | {"resumed": len(subjects)}
        self.rows.publish(map(json_line, self._made(subjects, tally)), tally)
        self.drafts.remove()
        return {**tally, "resumed": resumed}

    def _made(self, subjects: Sequence[S], tally: Tally) -> Iterator[dict[str, Any]]:
        """Yield the rows made of the drafts."""
        seen: set[str] = set()
        for subject, drafted in zip(subjects, self.drafts.read(), strict=True):
            drafts = drafted["drafts"]
            tally["generated"] += len(drafts)
            tally["prompt_tokens"] += sum(draft.prompt_tokens for draft in drafts)
            tally["completion_tokens"] += sum(draft.completion_tokens for draft in drafts)
            for row in self.make_rows(subject, drafts, tally, seen):
                tally["rows"] += 1
                yield row


@dataclass(frozen=True, slots=True)
class GenerationJob:
    """Where generated rows go, how their texts are drawn, and the template in place of the built-in one."""

    settings: Settings
    out: Path
    draws: Draws
    template: Path | None
    progress: Progress

    def check(self, option: str) -> None:
        """Refuse an output that is a folder, and several texts that would all be the same.

        The flag `option` says how many texts of a subject there are.
        """
        check_output(self.out)
        if self.draws.each > 1 and self.draws.temperature == 0:
            raise UsageError(f"--temperature 0 writes the same every time: give {option} 1")

    def generate(
        self,
        title: str,
        identity: Mapping[str, Any],
        make_rows: MakeRows[S],
        begin: Callable[[], tuple[Sequence[S], Tally, Writer[S]]],
    ) -> Tally:
        """Write the rows and return their counts; `begin` gives subjects, their counts and a writer if work is left."""
        file = GeneratedFile(self.out, {**asdict(self.draws), **identity}, make_rows)
        if counts := file.finished():
            return counts
        subjects, counts, writer = begin()
        with self.progress(title, len(subjects)) as advance:
            return file.generate(subjects, counts, writer, advance)


def passage_fault(passage: str, capped: bool, others: Iterable[str]) -> str | None:
    """Return the name of the count of a passage's fault; None if it has none.

    It must not be part of one of the `others`, nor contain a long one, nor share nearly all words with one.
    """
    words = normalised(passage)
    if not words:
        return "empty"
    if capped:
        return "cut"
    if len(words.split()) < LEAST_WORDS:
        return "short"
    texts = [normalised(other) for other in others]
    if any(holds(other, words) or (len(other.split()) >= LEAST_WORDS and holds(words, other)) for other in texts):
        return "copied"
    return "near_copies" if any(word_overlap(words, other) > NEAR for other in texts) else None


def holds(text: str, part: str) -> bool:
    """Return whether a normalised text contains another's words in sequence."""
    return f" {part} " in f" {text} "


def word_overlap(text: str, other: str) -> float:
    """Return the Jaccard index of two normalised texts' words; 0 for two empty ones."""
    words, other_words = set(text.split()), set(other.split())
    return jaccard(words, other_words) if words or other_words else 0.0


def on_one_line(text: str) -> str:
    """Return a text with all white space as single spaces."""
    return " ".join(text.split())
