"""Writers of texts: a language model with a prompt template, or a sequence-to-sequence model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from biorag.errors import UsageError
from biorag.prompts.grammar import free_text_openings
from biorag.prompts.parse import parse_reply
from biorag.prompts.template import Template, object_schema
from biorag.types import Generation, GenerationRequest, Generator, Prompt, Question, Sampling, Snippet
from biorag.utils.http import asking_threads

if TYPE_CHECKING:
    from biorag.generators.seq2seq import Seq2SeqGenerator

PROMPT_MARGIN = 64  # tokens left free for the fixed parts of a reply


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


class DraftSubject(Protocol):
    """What a text is written for; its id is the same in every run."""

    @property
    def id(self) -> str:
        """Name of the subject, unique among all."""


S = TypeVar("S", bound=DraftSubject)
Written = TypeVar("Written", bound=DraftSubject, contravariant=True)


class Writer(Protocol[Written]):
    """Writes texts for subjects: questions for snippets, negatives for rows."""

    @property
    def batch(self) -> int:
        """Return how many subjects are written for together; texts may depend on the rest of their batch."""

    def __call__(self, subjects: Sequence[Written]) -> list[list[Generation]]:
        """Return each subject's texts as the model wrote them, `Draws.each` of each."""


@dataclass(frozen=True, slots=True)
class DraftForm(Generic[S]):
    """The reply that a language model is asked for, by its JSON schema.

    `prompts` are those for a subject and a draw's number, each shorter than the one before: one must fit. The field
    `kept` of a reply is kept; None keeps the whole reply.
    """

    schema: Mapping[str, Any]
    prompts: Callable[[S, int], Iterator[Prompt]]
    kept: str | None = None

    @property
    def texts(self) -> int:
        """Free texts in a reply."""
        return len(free_text_openings(self.schema))


def free_texts(*fields: str, listed: int | None = None) -> Mapping[str, Any]:
    """Return the schema of a reply whose fields are all free texts, or lists of `listed` texts each."""
    text = {"type": "string"}
    texts = {"type": "array", "items": text, "minItems": listed, "maxItems": listed}
    return object_schema(dict.fromkeys(fields, texts if listed else text))


@dataclass(frozen=True, slots=True)
class PromptedWriter(Generic[S]):
    """Asks a language model for one reply at a time, or a server for several in parallel."""

    generator: Generator
    form: DraftForm[S]
    draws: Draws
    at_a_time: int = 1

    @property
    def batch(self) -> int:
        """Subjects written for together."""
        return 1 if self.at_a_time == 1 else 4 * self.at_a_time

    def __call__(self, subjects: Sequence[S]) -> list[list[Generation]]:
        """Return each subject's texts; see `Writer`."""
        count = self.draws.each
        requests = [(subject, number) for subject in subjects for number in range(count)]
        if self.at_a_time == 1:
            drafts = [self._ask(subject, number) for subject, number in requests]
        else:
            with asking_threads(self.at_a_time) as (pool, _):
                drafts = list(pool.map(lambda request: self._ask(*request), requests))
        return [drafts[start : start + count] for start in range(0, len(drafts), count)]

    def _ask(self, subject: S, number: int) -> Generation:
        sampling = self.draws.sampling(subject.id, number)
        prompt = self._prompt(subject, number)
        reply = self.generator.generate(GenerationRequest(prompt, self.form.schema, self.draws.max_tokens, sampling))
        kept = self.form.kept
        return reply if kept is None else reply._replace(text=parse_reply(reply.text).text(kept))

    def _prompt(self, subject: S, number: int) -> Prompt:
        """Return the longest prompt that fits the window."""
        room = self.generator.context_window - self.form.texts * self.draws.max_tokens - PROMPT_MARGIN
        for prompt in self.form.prompts(subject, number):
            if self.generator.count_tokens(prompt) <= room:
                return prompt
        raise UsageError(
            f"the prompt does not fit the generator's window of {self.generator.context_window} tokens: "
            "shorten the template, or lower --max-tokens"
        )


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
class Seq2SeqWriter:
    """Samples questions from a model such as doc2query-T5 (Nogueira & Lin 2019), a batch of snippets at a time."""

    generator: Seq2SeqGenerator
    draws: Draws
    batch: int

    def __call__(self, subjects: Sequence[Snippet]) -> list[list[Generation]]:
        """Return each snippet's questions; see `Writer`."""
        sampling = self.draws.sampling(*(snippet.id for snippet in subjects))
        texts = [snippet.contents for snippet in subjects]
        return self.generator.sample(texts, self.draws.each, self.draws.max_tokens, sampling)
