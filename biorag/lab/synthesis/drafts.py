"""Texts that a model drafts for subjects, and runs that make training rows of them.

A subject is a snippet, a training row, a scenario. Drafts are kept as they come: a killed run resumes where they end.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from typing_extensions import TypedDict

from biorag.errors import UsageError
from biorag.prompts.grammar import free_text_openings
from biorag.prompts.parse import parse_reply
from biorag.prompts.template import Template, object_schema
from biorag.settings.settings import Settings
from biorag.training.contamination import jaccard
from biorag.training.rows import normalised
from biorag.types import Generation, GenerationRequest, Generator, Progress, Prompt, Question, Sampling, Snippet
from biorag.utils.files import json_line
from biorag.utils.http import asking_threads
from biorag.utils.progress import batched
from biorag.utils.runs import Rows
from biorag.utils.text import whole

if TYPE_CHECKING:
    from biorag.generators.seq2seq import Seq2SeqGenerator

PROMPT_MARGIN = 64  # tokens left free for the fixed parts of a reply
LEAST_WORDS = 8  # of a passage
NEAR = 0.9  # Jaccard index of the words above which two passages are near-copies
# Every run counts the `generated` texts and the `rows` made of them, the texts that were dropped by their faults (see
# docs/synthetic.md), and the tokens of all requests.
COUNTS = ("generated", "rows", "empty", "short", "cut", "copied", "duplicates", "prompt_tokens", "completion_tokens")

Tally = dict[str, int]


class DraftSubject(Protocol):
    """What a text is written for; its id, unique among all, is the same in every run."""

    @property
    def id(self) -> str:
        """Name of the subject."""


# --- writers ---


@dataclass(frozen=True, slots=True)
class Draws:
    """How many texts are drawn for a subject, and how."""

    each: int  # a key of the identities of runs
    max_tokens: int
    temperature: float
    seed: int

    def sampling(self, *key: str | int) -> Sampling:
        """Return the sampling of one draw, whose seed depends on the key alone."""
        digest = hashlib.blake2b(json.dumps([self.seed, *key]).encode(), digest_size=4).digest()
        return Sampling(self.temperature, int.from_bytes(digest, "big") >> 1)


@dataclass(frozen=True, slots=True)
class DraftForm:
    """The reply that a language model is asked for, by its JSON schema.

    `prompts` are those for a subject and a draw's number, each shorter than the one before: one must fit. The field
    `kept` of a reply is kept; None keeps the whole reply.
    """

    schema: Mapping[str, Any]
    prompts: Callable[[Any, int], Iterator[Prompt]]
    kept: str | None = None


def free_texts(*fields: str, listed: int | None = None) -> Mapping[str, Any]:
    """Return the schema of a reply whose fields are all free texts, or lists of `listed` texts each."""
    text = {"type": "string"}
    texts = {"type": "array", "items": text, "minItems": listed, "maxItems": listed}
    return object_schema(dict.fromkeys(fields, texts if listed else text))


def about(template: Template, question: str, snippets: Sequence[Snippet]) -> Iterator[Prompt]:
    """Yield the prompt with the snippets, then with each cut by half again; at last without their texts."""
    parsed = Question("", question)
    yield template.render(parsed, snippets)
    while any(snippet.contents for snippet in snippets):
        snippets = [_halved(snippet) for snippet in snippets]
        yield template.render(parsed, snippets)


def _halved(snippet: Snippet) -> Snippet:
    half = len(snippet.content) // 2
    return replace(snippet, content=snippet.content[:half], title=snippet.title if half else "")


@dataclass(frozen=True, slots=True)
class PromptedWriter:
    """Asks a language model for one reply at a time, or a server for several in parallel."""

    generator: Generator
    form: DraftForm
    draws: Draws
    at_a_time: int = 1

    @property
    def batch(self) -> int:
        """Subjects written for together."""
        return 1 if self.at_a_time == 1 else 4 * self.at_a_time

    def __call__(self, subjects: Sequence[DraftSubject]) -> list[list[Generation]]:
        """Return each subject's texts as the model wrote them, `Draws.each` of each."""
        count = self.draws.each
        requests = [(subject, number) for subject in subjects for number in range(count)]
        if self.at_a_time == 1:
            drafts = [self._ask(subject, number) for subject, number in requests]
        else:
            with asking_threads(self.at_a_time) as (pool, _):
                drafts = list(pool.map(lambda request: self._ask(*request), requests))
        return [drafts[start : start + count] for start in range(0, len(drafts), count)]

    def _ask(self, subject: DraftSubject, number: int) -> Generation:
        sampling = self.draws.sampling(subject.id, number)
        prompt = self._prompt(subject, number)
        reply = self.generator.generate(GenerationRequest(prompt, self.form.schema, self.draws.max_tokens, sampling))
        kept = self.form.kept
        return reply if kept is None else reply._replace(text=parse_reply(reply.text).text(kept))

    def _prompt(self, subject: DraftSubject, number: int) -> Prompt:
        """Return the longest prompt that fits the window."""
        texts = len(free_text_openings(self.form.schema))
        room = self.generator.context_window - texts * self.draws.max_tokens - PROMPT_MARGIN
        for prompt in self.form.prompts(subject, number):
            if self.generator.count_tokens(prompt) <= room:
                return prompt
        raise UsageError(
            f"the prompt does not fit the generator's window of {self.generator.context_window} tokens: "
            "shorten the template, or lower --max-tokens"
        )


@dataclass(frozen=True, slots=True)
class Seq2SeqWriter:
    """Samples questions from a model such as doc2query-T5 (Nogueira & Lin 2019), a batch of snippets at a time."""

    generator: Seq2SeqGenerator
    draws: Draws
    batch: int

    def __call__(self, subjects: Sequence[Snippet]) -> list[list[Generation]]:
        """Return each snippet's questions, which depend on the rest of the batch."""
        sampling = self.draws.sampling(*(snippet.id for snippet in subjects))
        texts = [snippet.contents for snippet in subjects]
        return self.generator.sample(texts, self.draws.each, self.draws.max_tokens, sampling)


Writer: TypeAlias = PromptedWriter | Seq2SeqWriter


# --- rows ---


class Drafted(TypedDict):
    """A line of drafts: a subject's id, and the model's replies."""

    id: str
    drafts: list[Generation]


class DraftFilter:
    """Drops texts, counts them by their faults in `tally`, and keeps those of earlier rows for comparison."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self._seen: set[str] = set()

    def accepts(self, fault: str | None, *texts: str) -> bool:
        """Return whether texts have no fault and none of them occurred before."""
        words = list(map(normalised, texts))
        if not fault and not self._seen.isdisjoint(words):
            fault = "duplicates"
        if fault:
            self.tally[fault] += 1
            return False
        self._seen.update(words)
        return True


# Makes the rows of a subject of its drafts.
MakeRows: TypeAlias = Callable[[Any, Sequence[Generation], DraftFilter], Iterator[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class GenerationJob:
    """Where generated rows go, how their texts are drawn, and the template in place of the built-in one."""

    settings: Settings
    out: Path
    draws: Draws
    template: Path | None
    progress: Progress

    def check(self, option: str) -> None:
        """Refuse several texts that would all be the same.

        The flag `option` says how many texts of a subject there are.
        """
        if self.draws.each > 1 and self.draws.temperature == 0:
            raise UsageError(f"--temperature 0 writes the same every time: give {option} 1")

    def generate(
        self,
        title: str,
        identity: Mapping[str, Any],
        make_rows: MakeRows,
        begin: Callable[[], tuple[Sequence[DraftSubject], Tally, Writer]],
    ) -> Tally:
        """Write the rows of all subjects, resuming where a killed run stopped, and return all counts.

        `begin`, called if work is left, gives the subjects, their counts, and those of faults beside `COUNTS`, and a
        writer. The drafts lie beside the rows until these are complete.

        Raises `MismatchError` if the file or its drafts are of other settings, were not generated, or were changed;
        `ServiceError` if another process is writing the file.
        """
        identity = {**asdict(self.draws), **identity}
        rows = Rows(self.out, identity)
        drafts = Rows(self.out.with_name(f"{self.out.name}.drafts"), identity, Drafted)
        if (counts := rows.counts()) is not None:
            drafts.remove()  # a kill may have left them
            return counts
        drafts.counts()
        subjects, counts, writer = begin()
        with self.progress(title, len(subjects)) as advance:
            resumed = drafts.fill(subjects, partial(_drafted, writer), advance, writer.batch).resumed
        tally = dict.fromkeys(COUNTS, 0) | counts | {"resumed": len(subjects)}
        rows.publish(map(json_line, _made(make_rows, subjects, drafts.read(), tally)), tally)
        drafts.remove()
        return {**tally, "resumed": resumed}


def _drafted(writer: Writer, subjects: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield the lines of drafts."""
    for batch in batched(subjects, writer.batch):
        for subject, drafts in zip(batch, writer(batch), strict=True):
            yield {"id": subject.id, "drafts": [draft._replace(text=whole(draft.text)) for draft in drafts]}


def _made(
    make_rows: MakeRows, subjects: Sequence[DraftSubject], lines: Iterator[Drafted], tally: Tally
) -> Iterator[dict[str, Any]]:
    """Yield the rows made of the drafts."""
    draft_filter = DraftFilter(tally)
    for subject, line in zip(subjects, lines, strict=True):
        drafts = line["drafts"]
        tally["generated"] += len(drafts)
        tally["prompt_tokens"] += sum(draft.prompt_tokens for draft in drafts)
        tally["completion_tokens"] += sum(draft.completion_tokens for draft in drafts)
        for row in make_rows(subject, drafts, draft_filter):
            tally["rows"] += 1
            yield row


# --- faults of texts ---


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
    word_set = set(words.split())
    return "near_copies" if any(jaccard(word_set, set(other.split())) > NEAR for other in texts) else None


def holds(text: str, words: str) -> bool:
    """Return whether a normalised text contains another's words in sequence."""
    return f" {words} " in f" {text} "


def on_one_line(text: str) -> str:
    """Return a text with all white space as single spaces."""
    return " ".join(text.split())
