"""Stand-ins for models, used where the part under test is another one."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from biorag.types import (
    Encoded,
    EncoderIdentity,
    Generation,
    GenerationRequest,
    Prompt,
    Reading,
    Reranker,
    Sampling,
    Scores,
    Snippet,
    Trust,
    Vectors,
)


class HashEncoder:
    """Bag of words hashed into `dimension` buckets, unit length: texts that share words are near."""

    def __init__(self, dimension: int = 64, sha256: str = "f" * 64) -> None:
        self.identity = EncoderIdentity("hash-encoder", "", sha256, dimension)
        self.encoded: list[str] = []

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        return np.stack([self._vector(text) for text in texts])

    def encode_snippets(self, texts: Sequence[str]) -> Vectors:
        self.encoded.extend(texts)
        return np.stack([self._vector(text) for text in texts])

    def _vector(self, text: str) -> Vectors:
        vector = np.full(self.identity.dimension, 1e-3, dtype=np.float32)
        for word in re.findall(r"\w+", text.lower()):
            vector[int(hashlib.md5(word.encode()).hexdigest(), 16) % self.identity.dimension] += 1
        return vector / np.linalg.norm(vector)


def encoding_snippets(encoder: HashEncoder) -> Callable[[Sequence[Snippet]], Encoded]:
    """What an index is written with, by such an encoder."""
    return lambda snippets: Encoded(encoder.encode_snippets([snippet.contents for snippet in snippets]), [])


class OverlapReranker:
    """Scores a text by the share of the query's words in it."""

    def score_all(self, queries: Sequence[str], candidates: Sequence[Sequence[Snippet]]) -> list[Vectors]:
        return [
            self.score(query, [snippet.contents for snippet in found])
            for query, found in zip(queries, candidates, strict=True)
        ]

    def score(self, query: str, texts: Sequence[str]) -> Vectors:
        words = set(re.findall(r"\w+", query.lower()))
        shares = [len(words & set(re.findall(r"\w+", text.lower()))) / max(len(words), 1) for text in texts]
        return np.array(shares, dtype=np.float32)


@dataclass
class ScriptedGenerator:
    """Replies with the given texts in turn, or with the schema's first values; keeps what it was asked."""

    replies: list[str] = field(default_factory=list)
    context_window: int = 4096
    capped: bool = False
    logprobs: Mapping[str, float] = field(default_factory=dict)
    name: str = "scripted"
    prompts: list[Prompt] = field(default_factory=list)
    schemas: list[Mapping[str, Any]] = field(default_factory=list)
    samplings: list[Sampling] = field(default_factory=list)
    controls: Sequence[str] = ()

    def count_tokens(self, prompt: Prompt) -> int:
        return len((prompt.system + " " + prompt.user).split())

    def generate(self, request: GenerationRequest, on_text: Callable[[str], None] | None = None) -> Generation:
        self.prompts.append(request.prompt)
        self.samplings.append(request.sampling)
        self.schemas.append(request.schema)
        text = self.replies.pop(0) if self.replies else json.dumps(_first_values(request.schema))
        if on_text:
            on_text(text)
        return Generation(text, self.capped)

    def score(self, prompt: Prompt, choices: Sequence[str]) -> Scores:
        self.prompts.append(prompt)
        return Scores({choice: self.logprobs.get(choice, -1.0 - place) for place, choice in enumerate(choices)})


@dataclass
class ScriptedReader:
    """Says what a function of query and window says: (supports, contradicts), or (…, answers); keeps what it read."""

    says: Callable[[str, str], Sequence[float]]
    trust: Trust = field(default_factory=Trust)
    tells_answers: bool = False
    reads_questions: bool = False
    reads_whole: bool = False
    name: str = "scripted"
    sha256: str = "5" * 64
    spent: str = ""
    read_windows: list[tuple[str, list[str]]] = field(default_factory=list)

    def read(self, query: str, windows: Sequence[str]) -> Reading:
        self.read_windows.append((query, list(windows)))
        said = [self.says(query, window) for window in windows]
        stances = [[one[0], one[1], 1 - one[0] - one[1]] for one in said]
        answers = np.array([one[2] for one in said], np.float32) if self.tells_answers else None
        return Reading(np.array(stances, np.float32).reshape(-1, 3), answers)


def _first_values(schema: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, field_ in schema["properties"].items():
        if "enum" in field_:
            values[name] = field_["enum"][0]
        elif field_["type"] == "array":
            values[name] = field_["items"]["enum"][:1]
        else:
            values[name] = "text"
    return values


def scores_of(reranker: Reranker, query: str, texts: Sequence[str]) -> Vectors:
    """One query's scores of texts, as the protocol for many gives them."""
    return reranker.score_all([query], [[Snippet(str(place), "", text) for place, text in enumerate(texts)]])[0]
