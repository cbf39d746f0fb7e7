"""Encoders and rerankers with a cache, for many searches of the same questions with other settings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import numpy as np

from biorag.types import Encoder, Reranker, Snippet, Vectors


class CachedEncoder:
    """An encoder that keeps the vectors of questions."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._vectors: dict[str, Vectors] = {}
        self.identity = encoder.identity

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Encode the questions that are new; shape (texts, dimension)."""
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if new:
            self._vectors.update(zip(new, self._encoder.encode_queries(new), strict=True))
        return np.stack([self._vectors[text] for text in texts])

    def encode_snippets(self, texts: Sequence[str]) -> Vectors:
        """Encode passages, as the encoder does."""
        return self._encoder.encode_snippets(texts)


class CachedReranker:
    """A reranker that keeps its scores by query and snippet id."""

    def __init__(self, reranker: Reranker) -> None:
        self._reranker = reranker
        self._scores: dict[tuple[str, str], float] = {}

    def score_all(self, queries: Sequence[str], candidates: Sequence[Sequence[Snippet]]) -> list[Vectors]:
        """Return each query's scores of its candidates, shape (candidates,)."""
        new = [
            [snippet for snippet in snippets if (query, snippet.id) not in self._scores]
            for query, snippets in zip(queries, candidates, strict=True)
        ]
        if any(new):
            asking, unscored = list(compress(queries, new)), list(compress(new, new))
            for query, snippets, scores in zip(
                asking, unscored, self._reranker.score_all(asking, unscored), strict=True
            ):
                keys = ((query, snippet.id) for snippet in snippets)
                self._scores.update(zip(keys, map(float, scores), strict=True))
        return [
            np.array([self._scores[query, snippet.id] for snippet in snippets], np.float32)
            for query, snippets in zip(queries, candidates, strict=True)
        ]
