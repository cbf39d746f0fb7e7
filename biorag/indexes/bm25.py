"""BM25 sparse vectors by Qdrant's own tokenizer, stop words and stemmer; the same here and on a server.

Texts are tokenized as they are compared, so that "Sjögren" is found whether it is composed or not.
"""

from __future__ import annotations

from typing import NamedTuple

from qdrant_edge import Bm25, Bm25Config

from biorag.errors import MismatchError
from biorag.indexes.manifest import Bm25Parameters
from biorag.utils.text import comparable


class SparseText(NamedTuple):
    """A sparse vector: token ids and weights."""

    indices: list[int]
    values: list[float]


class Bm25Encoder:
    """Turns texts into Qdrant's BM25 sparse vectors; the same here and on a server.

    Raises
    ------
    MismatchError
        If the engine does not take the parameters.
    """

    def __init__(self, parameters: Bm25Parameters) -> None:
        try:
            config = Bm25Config(
                language=parameters.language, k=parameters.k, b=parameters.b, avg_len=max(parameters.avg_len, 1.0)
            )
            self._bm25 = Bm25(config)
        except ValueError as error:
            fault = str(error)[:200]
            raise MismatchError(f"the index's manifest is damaged (bm25: {fault}): index the corpus again") from None
        self._spelled = parameters.spelled

    def document(self, text: str) -> SparseText:
        """Return the term-frequency weights of a passage."""
        vector = self._bm25.embed_document(self._spelled(text))
        return SparseText(vector.indices, vector.values)

    def query(self, text: str) -> SparseText:
        """Return weight 1 for each distinct term of a query."""
        vector = self._bm25.embed_query(self._spelled(text))
        return SparseText(vector.indices, vector.values)


class LengthCounter:
    """Counts a text's BM25 tokens: with b = 0 and k → ∞ a term's weight is its frequency."""

    def __init__(self, language: str = "english") -> None:
        self._bm25 = Bm25(Bm25Config(language=language, k=1e9, b=0.0))

    def __call__(self, text: str) -> int:
        """Return the length of a text, in the form in which new indexes have it."""
        return round(sum(self._bm25.embed_document(comparable(text)).values))
