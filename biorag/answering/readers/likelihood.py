"""A language model in this process as a reader: how likely it says yes, no or maybe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from biorag.generators.source import cached, generator_source
from biorag.models.labels import read_trust
from biorag.prompts.fence import defused
from biorag.prompts.template import Template, load_template
from biorag.settings.settings import Settings
from biorag.types import LABELS, Generator, Prompt, Reading, Trust
from biorag.utils.files import sha256_of_json

WORDS = ("yes", "no", "maybe")  # in the order of `LABELS`


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
