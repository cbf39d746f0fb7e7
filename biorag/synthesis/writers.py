"""What writes questions: a language model under a prompt template, or a sequence-to-sequence model."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from biorag.errors import UsageError
from biorag.prompts.parse import parse_reply
from biorag.prompts.template import Template
from biorag.retries import heed
from biorag.types import Generation, Generator, Prompt, Question, Sampling, Snippet

if TYPE_CHECKING:
    from biorag.generators.seq2seq import Seq2SeqGenerator

SCHEMA = {
    "type": "object",
    "properties": {"question": {"type": "string"}},
    "required": ["question"],
    "additionalProperties": False,
}
PROMPT_MARGIN = 64  # tokens left free for what opens and closes a reply


@dataclass(frozen=True, slots=True)
class Draws:
    """How many questions of a snippet are drawn, and how."""

    per_snippet: int
    max_tokens: int
    temperature: float
    seed: int

    def sampling(self, *place: str | int) -> Sampling:
        """Return the draw at a place, its seed the same whatever is drawn elsewhere."""
        digest = hashlib.blake2b(json.dumps([self.seed, *place]).encode(), digest_size=4).digest()
        return Sampling(self.temperature, int.from_bytes(digest, "big") >> 1)


class Writer(Protocol):
    """Writes questions that snippets answer."""

    @property
    def batch(self) -> int:
        """Return how many snippets are written of together; the texts may depend on what else is in a batch."""

    def __call__(self, snippets: Sequence[Snippet]) -> list[list[Generation]]:
        """Return each snippet's questions as the model gave them, `Draws.per_snippet` of each."""


@dataclass(frozen=True, slots=True)
class PromptedWriter:
    """Asks a language model for one question at a time; a server for several side by side."""

    generator: Generator
    template: Template
    draws: Draws
    at_a_time: int = 1

    @property
    def batch(self) -> int:
        """Snippets written of together."""
        return 1 if self.at_a_time == 1 else 4 * self.at_a_time

    def __call__(self, snippets: Sequence[Snippet]) -> list[list[Generation]]:
        """Return each snippet's questions; see `Writer`."""
        count = self.draws.per_snippet
        asked = [(snippet, number) for snippet in snippets for number in range(count)]
        if self.at_a_time == 1:
            drafts = [self._ask(snippet, number) for snippet, number in asked]
        else:
            drafts = self._ask_together(asked)
        return [drafts[start : start + count] for start in range(0, len(drafts), count)]

    def _ask_together(self, asked: Sequence[tuple[Snippet, int]]) -> list[Generation]:
        stop = threading.Event()  # of waits for a server that fails
        with ThreadPoolExecutor(self.at_a_time, initializer=heed, initargs=(stop,)) as pool:
            try:
                return list(pool.map(lambda one: self._ask(*one), asked))
            except BaseException:
                stop.set()
                raise

    def _ask(self, snippet: Snippet, number: int) -> Generation:
        sampling = self.draws.sampling(snippet.id, number)
        reply = self.generator.generate(self._prompt(snippet), SCHEMA, self.draws.max_tokens, sampling=sampling)
        return reply._replace(text=parse_reply(reply.text).text("question"))

    def _prompt(self, snippet: Snippet) -> Prompt:
        """Return the prompt with as much of the snippet's beginning as the window takes."""
        room = self.generator.context_window - self.draws.max_tokens - PROMPT_MARGIN
        while True:
            prompt = self.template.render(Question(snippet.id, ""), [snippet])
            if self.generator.count_tokens(prompt) <= room:
                return prompt
            if not snippet.contents:
                raise UsageError(
                    f"the prompt does not fit the generator's window of {self.generator.context_window} tokens: "
                    "shorten the template, or lower --max-tokens"
                )
            half = len(snippet.content) // 2
            snippet = replace(snippet, content=snippet.content[:half], title=snippet.title if half else "")


@dataclass(frozen=True, slots=True)
class Seq2SeqWriter:
    """Samples questions from a model such as doc2query-T5 (Nogueira & Lin 2019), a batch of snippets at a time."""

    generator: Seq2SeqGenerator
    draws: Draws
    batch: int

    def __call__(self, snippets: Sequence[Snippet]) -> list[list[Generation]]:
        """Return each snippet's questions; see `Writer`."""
        sampling = self.draws.sampling(*(snippet.id for snippet in snippets))
        texts = [snippet.contents for snippet in snippets]
        return self.generator.sample(texts, self.draws.per_snippet, self.draws.max_tokens, sampling)
