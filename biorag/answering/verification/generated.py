"""A language model as a judge of claims: one JSON verdict a claim, whose quote must stand in the evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from biorag.answering.verification.quotes import find_quote
from biorag.prompts.fence import defused
from biorag.prompts.parse import parse_reply
from biorag.prompts.template import load_template, render_documents
from biorag.types import LABELS, ClaimLabel, GenerationRequest, Generator, Snippet, Vectors
from biorag.utils.files import sha256_of_json

QUOTE_TOKENS = 256
SCHEMA = {
    "type": "object",
    "properties": {"quote": {"type": "string"}, "verdict": {"enum": list(LABELS)}},
    "required": ["quote", "verdict"],
    "additionalProperties": False,
}


class GeneratorJudge:
    """Judges claims by a generator, which is asked `at_a_time`; its verdicts are certain: 1, or 0.

    `identity` is what determines its replies. Raises `ServiceError` if the generator fails.
    """

    def __init__(self, generator: Generator, at_a_time: int, identity: Mapping[str, Any]) -> None:
        self._generator, self._at_a_time = generator, at_a_time
        self._template = load_template("judge", needed="claim", known=("documents", "claim"))
        self.sha256 = sha256_of_json([dict(identity), self._template.sha256])

    def judge(self, pairs: Sequence[tuple[str, str]]) -> Vectors:
        """Return 1 for the verdict on each pair of evidence and claim and 0 for the others, (pairs, 3)."""
        with ThreadPoolExecutor(self._at_a_time) as pool:
            verdicts = list(pool.map(self._verdict, pairs))
        rows = [[verdict == label for label in LABELS] for verdict in verdicts]
        return np.array(rows, np.float32).reshape(-1, len(LABELS))

    def _verdict(self, pair: tuple[str, str]) -> ClaimLabel:
        evidence, claim = pair
        controls = tuple(self._generator.controls)
        documents = render_documents([Snippet("", "", evidence)], controls)
        prompt = self._template.fill(documents=documents, claim=defused(claim, controls))
        reply = parse_reply(self._generator.generate(GenerationRequest(prompt, SCHEMA, QUOTE_TOKENS)).text)
        verdict = next((label for label in LABELS if label == reply.text("verdict")), LABELS[-1])
        return verdict if find_quote(reply.text("quote"), evidence) else LABELS[-1]
