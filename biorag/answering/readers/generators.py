"""Language models as readers: one in this process by its log-likelihoods, another by a verdict with a quote."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from biorag.answering.guards.quotes import find_quote
from biorag.generators.server import ServerGenerator
from biorag.generators.source import cached, generator_identity, generator_source
from biorag.models.labels import read_trust
from biorag.prompts.fence import defused
from biorag.prompts.parse import parse_reply
from biorag.prompts.template import Template, load_template, object_schema, render_documents
from biorag.settings.settings import Settings
from biorag.types import LABELS, ClaimLabel, GenerationRequest, Generator, Prompt, Reading, Snippet, Trust
from biorag.utils.files import sha256_of_json
from biorag.utils.http import asking_threads

WORDS = ("yes", "no", "maybe")  # in the order of `LABELS`
MOST_TOKENS = 2048  # of a reply: a quote and a verdict, and what a model thinks before them
SCHEMA = object_schema({"quote": {"type": "string"}, "verdict": {"enum": list(LABELS)}})


class LikelihoodReader:
    """Reads by the log-likelihoods that a generator gives to three words, one window after another.

    `identity` is what determines them. It is for a model that `biorag train generator` taught these words.
    """

    reads_whole = tells_answers = False
    reads_questions = True
    spent = ""

    def __init__(self, generator: Generator, trust: Trust, identity: Mapping[str, Any]) -> None:
        self._generator, self.trust, self.name = generator, trust, generator.name
        self._template = reading_template()
        self._lock = Lock()
        self.sha256 = sha256_of_json([dict(identity), self._template.sha256])

    def read(self, query: str, windows: Sequence[str]) -> Reading:
        """Return the probabilities of the three labels for each window beside a claim or question, (windows, 3)."""
        rows = [
            self._probabilities(reading_prompt(self._template, window, query, self._generator.controls))
            for window in windows
        ]
        return Reading(np.array(rows, np.float32).reshape(-1, len(LABELS)), None)

    def _probabilities(self, prompt: Prompt) -> list[float]:
        with self._lock:
            said = self._generator.score(prompt, WORDS).logprobs
        shares = np.exp([said.get(word, -np.inf) for word in WORDS])
        total = float(shares.sum())
        return [float(share) / total for share in shares] if total > 0 else [0.0, 0.0, 1.0]


def open_likelihood_reader(folder: str, settings: Settings) -> LikelihoodReader:
    """Open a language model in this process with the adapter of a folder of `biorag train generator`."""
    source = generator_source(folder)
    generator = source.open(settings, 1)
    assert generator is not None, "a folder is a model's"
    generator = cached(generator, settings.replace(llm=folder))
    return LikelihoodReader(generator, read_trust(Path(folder)), source.identity())


def reading_template() -> Template:
    """Return the template that asks whether something is so by its evidence."""
    return load_template("read", needed="evidence", known=("evidence", "query"))


def reading_prompt(template: Template, evidence: str, query: str, controls: Sequence[str] = ()) -> Prompt:
    """Return the prompt for a claim or question beside its evidence."""
    return template.fill(evidence=defused(evidence, tuple(controls)), query=defused(query, tuple(controls)))


class GeneratorReader:
    """Reads by a generator, which is asked `at_a_time`; its verdicts are certain: 1, or 0.

    `identity` is what determines its replies. Raises `ServiceError` if the generator fails.
    """

    reads_whole = reads_questions = True
    tells_answers = False
    trust = Trust()

    def __init__(self, generator: Generator, at_a_time: int, identity: Mapping[str, Any]) -> None:
        self._generator, self._at_a_time = generator, at_a_time
        self._template = judge_template()
        self.name = generator.name
        self._asked, self._tokens, self._seconds = 0, 0, 0.0
        self.sha256 = sha256_of_json([dict(identity), self._template.sha256])

    def read(self, query: str, windows: Sequence[str]) -> Reading:
        """Return 1 for the verdict on each window beside a claim or question and 0 for the others, with its quote."""
        started = time.monotonic()
        with asking_threads(self._at_a_time) as (pool, _):
            said = list(pool.map(lambda window: self._verdict(query, window), windows))
        self._seconds += time.monotonic() - started
        rows = [[verdict == label for label in LABELS] for verdict, _ in said]
        return Reading(np.array(rows, np.float32).reshape(-1, len(LABELS)), None, [quote for _, quote in said])

    @property
    def spent(self) -> str:
        """What was asked so far: requests, tokens where the server counts them, and seconds."""
        tokens = f", {self._tokens:,} tokens" if self._tokens else ""
        return f"{self._asked} requests{tokens}, {self._seconds:.0f} s" if self._asked else ""

    def _verdict(self, query: str, window: str) -> tuple[ClaimLabel, str]:
        prompt = judge_prompt(self._template, window, query, self._generator.controls)
        reply = self._generator.generate(GenerationRequest(prompt, SCHEMA, MOST_TOKENS))
        if not reply.cached:
            self._asked += 1
            self._tokens += reply.prompt_tokens + reply.completion_tokens
        return verdict_of(reply.text, window)


def open_server_reader(url: str, settings: Settings) -> GeneratorReader:
    """Reach a server whose model reads."""
    asked = settings.replace(llm=url, llm_model=settings.generation.reader_model)
    at_a_time = settings.generation.concurrency
    server = settings.services.server(url, "reader", at_a_time)
    generator = ServerGenerator(server, asked.generation.llm_model, asked.generation.context_window, "--reader")
    return GeneratorReader(cached(generator, asked), at_a_time, generator_identity(asked, generator))


def judge_template() -> Template:
    """Return the template that asks what a document does to a claim."""
    return load_template("judge", needed="claim", known=("documents", "claim"))


def judge_prompt(template: Template, evidence: str, claim: str, controls: Sequence[str]) -> Prompt:
    """Return the prompt for a claim beside its evidence; `controls` are those of the `Generator`."""
    documents = render_documents([Snippet("", "", evidence)], controls)
    return template.fill(documents=documents, claim=defused(claim, tuple(controls)))


def verdict_of(reply: str, evidence: str) -> tuple[ClaimLabel, str]:
    """Return the verdict of a reply and its quote; "neither" where it decides without one that stands in the text."""
    fields = parse_reply(reply)
    verdict: ClaimLabel = next((label for label in LABELS if label == fields.text("verdict")), "neither")
    span = find_quote(fields.text("quote"), evidence)
    return (verdict, evidence[slice(*span)]) if span and verdict != "neither" else ("neither", "")
