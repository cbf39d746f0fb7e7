"""Questions generated from snippets: which snippets, what the model wrote of each, and which of it are questions.

What the model writes is kept as it comes in a file of drafts, so that a killed run goes on; the rows are made of
the drafts at the end. Generating queries from documents to train on is Nogueira et al.'s docTTTTTquery and Ma et
al.'s zero-shot synthetic questions (arXiv 2004.14503).
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import BinaryIO

from biorag.errors import BadInputError, MismatchError
from biorag.evidence import sentences
from biorag.files import replacing
from biorag.resumable import NEXT_STEP, ResumableFile
from biorag.synthesis.writers import Writer
from biorag.text import whole
from biorag.train.rows import normalised
from biorag.types import Generation, OnProgress, Snippet

KIND = "generated"
LEAST_CHARACTERS = 40
LEAST_WORDS = 3


@dataclass(frozen=True, slots=True)
class Counts:
    """What a run came to.

    `snippets` were written of, `too_short` ones passed over; of the `generated` texts `rows` were kept. Left out
    were those that are `empty`, `short` of three words, `cut` by the token cap before a question mark, `copied`
    (the snippet's title or one of its sentences), or `duplicates` of a question before. The drafts of `resumed`
    snippets were there before.
    """

    snippets: int
    too_short: int
    generated: int = 0
    rows: int = 0
    empty: int = 0
    short: int = 0
    cut: int = 0
    copied: int = 0
    duplicates: int = 0
    resumed: int = 0


def draw(snippets: Iterable[Snippet], limit: int | None, seed: int) -> tuple[list[Snippet], int]:
    """Return the snippets to write of, and how many were passed over since they have too little text.

    With a limit they are those whose ids hash lowest with the seed, in that order: a larger limit adds to a
    smaller one's. Without one they are all, as they come.
    """
    too_short = 0

    def long_enough() -> Iterator[Snippet]:
        nonlocal too_short
        for snippet in snippets:
            if len(snippet.contents) >= LEAST_CHARACTERS:
                yield snippet
            else:
                too_short += 1

    chosen = list(long_enough()) if limit is None else heapq.nsmallest(limit, long_enough(), lambda s: _place(seed, s))
    return chosen, too_short


def _place(seed: int, snippet: Snippet) -> bytes:
    return hashlib.blake2b(json.dumps([seed, snippet.id]).encode(), digest_size=16).digest()


class Drafts(ResumableFile):
    """A JSONL file of what the model wrote, a line for each snippet in their order."""

    def read(self, snippets: Sequence[Snippet]) -> Iterator[tuple[list[Generation], int]]:
        """Yield each snippet's drafts and the bytes of their line, as far as the file goes.

        Raises
        ------
        BadInputError
            If a whole line is not of the snippet that comes next.
        """
        for number, (line, snippet) in enumerate(zip(self.whole_lines(), snippets, strict=False), 1):
            try:
                values = json.loads(line)
                drafts = [Generation(str(text), bool(capped)) for text, capped in values["drafts"]]
                found = values["id"]
            except (ValueError, KeyError, TypeError):
                drafts, found = [], None
            if found != snippet.id:
                raise BadInputError(
                    f"{self.path}, line {number}: not what was written of snippet {snippet.id!r}: delete the file and "
                    f"run the same again, or {NEXT_STEP}"
                )
            yield drafts, len(line)


class QuestionFile(ResumableFile):
    """A JSONL file of training rows, each a generated question and the snippet that answers it."""

    @property
    def drafts(self) -> Drafts:
        """The file of what the model wrote; it is there until the rows are."""
        return Drafts(self.path.with_name(f"{self.path.name}.drafts"), self.identity)

    def finished(self) -> Counts | None:
        """Return the counts of a file that is complete, its drafts deleted; None if there is still something to do.

        Raises
        ------
        MismatchError
            If the file, or its drafts, are of other settings, were not generated, or were changed since.
        """
        held = self.held_counts()
        if held is None:
            self.drafts.held_counts()
            return None
        self.drafts.remove()  # a kill may have left them
        try:
            return replace(Counts(**held), resumed=held["snippets"])
        except (TypeError, KeyError) as error:
            raise MismatchError(f"{self.manifest} is damaged ({error}): {NEXT_STEP}") from None

    def write(self, snippets: Sequence[Snippet], counts: Counts) -> Counts:
        """Make the rows of the drafts, at once, and delete the drafts.

        Parameters
        ----------
        counts : of the snippets
        """
        tally = asdict(counts)
        seen: set[str] = set()
        self.save(complete=False)
        with replacing(self.path) as stream:
            for snippet, (drafts, _) in zip(snippets, self.drafts.read(snippets), strict=True):
                for draft in drafts:
                    question = as_question(draft.text)
                    reason = _fault(question, draft.capped, snippet, seen)
                    tally["generated"] += 1
                    tally[reason or "rows"] += 1
                    if not reason:
                        seen.add(normalised(question))
                        stream.write(_line(question, snippet))
        self.complete({name: count for name, count in tally.items() if name != "resumed"})
        self.drafts.remove()
        return Counts(**tally)


def generate(
    file: QuestionFile, snippets: Sequence[Snippet], counts: Counts, writer: Writer, on_progress: OnProgress
) -> Counts:
    """Write the rows of all snippets, going on where a killed run stopped.

    Parameters
    ----------
    counts : of the snippets

    Raises
    ------
    ServiceError
        If another process is writing the file.
    """
    with file.drafts.appending() as stream:
        resumed = _write_drafts(file.drafts, stream, snippets, writer, on_progress)
        return replace(file.write(snippets, counts), resumed=resumed)


def _write_drafts(
    drafts: Drafts, stream: BinaryIO, snippets: Sequence[Snippet], writer: Writer, on_progress: OnProgress
) -> int:
    """Write of each snippet that is not in the file yet, in whole batches; return how many were there.

    Each batch is with the system when the next begins.
    """
    sizes = [size for _, size in drafts.read(snippets)]
    done = len(sizes) if len(sizes) == len(snippets) else len(sizes) // writer.batch * writer.batch
    on_progress(done)
    stream.truncate(sum(sizes[:done]))
    for start in range(done, len(snippets), writer.batch):
        batch = snippets[start : start + writer.batch]
        for snippet, written in zip(batch, writer(batch), strict=True):
            kept = [[whole(text), capped] for text, capped, _ in written]
            stream.write(json.dumps({"id": snippet.id, "drafts": kept}, ensure_ascii=False).encode() + b"\n")
        stream.flush()
        on_progress(len(batch))
    return done


def as_question(text: str) -> str:
    """Return what a model wrote on one line, up to its first question mark: small models write on after it."""
    line = " ".join(text.split())
    question, mark, _ = line.partition("?")
    return question + mark


def _fault(question: str, capped: bool, snippet: Snippet, seen: set[str]) -> str | None:
    """Return the name of the count of what is wrong with a question; None if it is one to keep."""
    words = normalised(question)
    if not words:
        return "empty"
    if len(words.split()) < LEAST_WORDS:
        return "short"
    if capped and not question.endswith("?"):
        return "cut"
    if words in map(normalised, (snippet.title, snippet.content, *sentences(snippet.content))):
        return "copied"
    return "duplicates" if words in seen else None


def _line(question: str, snippet: Snippet) -> bytes:
    row = {"query": question, "positive": snippet.contents, "kind": KIND, "positive_id": snippet.document}
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"
