"""A language model as a judge of claims: one JSON verdict a claim, whose quote must stand in the evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from biorag.answering.verification.quotes import find_quote
from biorag.prompts.fence import defused
from biorag.prompts.parse import parse_reply
from biorag.prompts.template import Template, load_template, object_schema, render_documents
from biorag.types import LABELS, ClaimLabel, GenerationRequest, Generator, Prompt, Snippet, Vectors
from biorag.utils.files import sha256_of_json
from biorag.utils.http import asking_threads

QUOTE_TOKENS = 256
SCHEMA = object_schema({"quote": {"type": "string"}, "verdict": {"enum": list(LABELS)}})


class GeneratorJudge:
    """Judges claims by a generator, which is asked `at_a_time`; its verdicts are certain: 1, or 0.

    `identity` is what determines its replies. Raises `ServiceError` if the generator fails.
    """

    def __init__(self, generator: Generator, at_a_time: int, identity: Mapping[str, Any]) -> None:
        self._generator, self._at_a_time = generator, at_a_time
        self._template = judge_template()
        self.sha256 = sha256_of_json([dict(identity), self._template.sha256])

    def judge(self, pairs: Sequence[tuple[str, str]]) -> Vectors:
        """Return 1 for the verdict on each pair of evidence and claim and 0 for the others, (pairs, 3)."""
        with asking_threads(self._at_a_time) as (pool, _):
            verdicts = list(pool.map(self._verdict, pairs))
        rows = [[verdict == label for label in LABELS] for verdict in verdicts]
        return np.array(rows, np.float32).reshape(-1, len(LABELS))

    def _verdict(self, pair: tuple[str, str]) -> ClaimLabel:
        evidence, claim = pair
        prompt = judge_prompt(self._template, evidence, claim, self._generator.controls)
        reply = self._generator.generate(GenerationRequest(prompt, SCHEMA, QUOTE_TOKENS))
        return verdict_of(reply.text, evidence) or "neither"


def judge_template() -> Template:
    """Return the template that asks what a document does to a claim."""
    return load_template("judge", needed="claim", known=("documents", "claim"))


def judge_prompt(template: Template, evidence: str, claim: str, controls: Sequence[str]) -> Prompt:
    """Return the prompt for a claim beside its evidence; `controls` are those of the `Generator`."""
    documents = render_documents([Snippet("", "", evidence)], controls)
    return template.fill(documents=documents, claim=defused(claim, tuple(controls)))


def verdict_of(reply: str, evidence: str) -> ClaimLabel | None:
    """Return the verdict of a reply; None if it has none, or decides without a quote that stands in the evidence."""
    fields = parse_reply(reply)
    verdict = next((label for label in LABELS if label == fields.text("verdict")), None)
    return verdict if verdict == "neither" or find_quote(fields.text("quote"), evidence) else None
