"""The base of bi-encoders, torch's and exported: cached vectors, prompts, and the spans of tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from biorag.errors import UsageError
from biorag.models.batches import Task
from biorag.models.finding import ModelFiles
from biorag.models.tokens import token_spans
from biorag.types import Encoded, EncoderIdentity, LocatedTokens, Vectors

KEPT_PASSAGES = 128  # of the last call for token vectors: a few dozen candidates of one question, never a whole batch


class TextEncoder(ABC):
    """A bi-encoder; its token vectors, if it has any, have unit length. `prompts` are the texts before its inputs."""

    def __init__(self, files: ModelFiles, dimension: int, has_tokens: bool, prompts: dict[str, str]) -> None:
        self.identity = EncoderIdentity(files.id, files.revision, files.sha256, dimension, files.configuration())
        self.has_tokens = has_tokens
        self._prompts = prompts
        self._files = files
        self._last_queries: tuple[list[str], Encoded] = ([], Encoded(np.empty((0, 0), np.float32), []))
        self._last_passages: dict[str, Vectors] = {}

    @abstractmethod
    def encode(self, texts: Sequence[str], task: Task, with_tokens: bool) -> Encoded:
        """Encode texts, keeping nothing; without `with_tokens` the token vectors are missing."""

    @property
    def query_prompt(self) -> str:
        """The prompt of questions; it may be set, until the model is loaded again."""
        return self._prompts["query"]

    @query_prompt.setter
    def query_prompt(self, prompt: str) -> None:
        self._prompts["query"] = prompt
        self._last_queries = [], self._last_queries[1]

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Encode questions, shape (texts, dimension)."""
        return self._queries(texts).vectors

    def encode_snippets(self, texts: Sequence[str]) -> Vectors:
        """Encode passages, shape (texts, dimension)."""
        return self.encode(texts, "document", with_tokens=False).vectors

    def encode_snippets_with_tokens(self, texts: Sequence[str]) -> Encoded:
        """Encode passages and their tokens in one pass."""
        return self.encode(texts, "document", with_tokens=True)

    def query_tokens(self, texts: Sequence[str]) -> list[Vectors]:
        """Return the token vectors of questions; those of the last questions encoded are kept."""
        self._require_tokens()
        return self._queries(texts).tokens

    def snippet_tokens(self, texts: Sequence[str]) -> list[Vectors]:
        """Return the token vectors of passages."""
        return self._kept(texts, self)

    def _kept(self, texts: Sequence[str], encoder: TextEncoder) -> list[Vectors]:
        """Return the token vectors of passages by an encoder, those of a few kept for `located_tokens`."""
        self._require_tokens()
        tokens = encoder.encode(texts, "document", with_tokens=True).tokens
        self._last_passages = dict(zip(texts, tokens, strict=True)) if len(texts) <= KEPT_PASSAGES else {}
        return tokens

    def located_tokens(self, texts: Sequence[str]) -> list[LocatedTokens]:
        """Return the token vectors of passages, and where each token stands in its passage.

        Those of a passage among the last, which a reranker had encoded or which were located, are not computed again.
        """
        self._require_tokens()
        kept = self._last_passages  # which another thread may replace meanwhile
        missing = [text for text in dict.fromkeys(texts) if text not in kept]
        encoded = self.encode(missing, "document", with_tokens=True).tokens if missing else []
        tokens = {**kept, **dict(zip(missing, encoded, strict=True))}
        if missing:
            self._last_passages = dict(list(tokens.items())[-KEPT_PASSAGES:])
        return [LocatedTokens(tokens[text], self._spans(text)) for text in texts]

    def _spans(self, text: str) -> list[tuple[int, int]]:
        prompt = self._prompts["document"]
        spans = self._token_spans(prompt + text)
        return [(max(0, start - len(prompt)), max(0, end - len(prompt))) for start, end in spans]

    @cached_property
    def _token_spans(self) -> Callable[[str], list[tuple[int, int]]]:
        return token_spans(self._files)

    def _require_tokens(self) -> None:
        if not self.has_tokens:
            raise UsageError(
                f"encoder {self.identity.id!r} has no token vectors to rerank by: give --no-rerank, or a --reranker"
            )

    def _queries(self, texts: Sequence[str]) -> Encoded:
        last_texts, encoded = self._last_queries
        if list(texts) != last_texts:
            encoded = self.encode(texts, "query", with_tokens=self.has_tokens)
            self._last_queries = list(texts), encoded
        return encoded
