"""What both stores share: ids, payloads and BM25 vectors of points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from qdrant_edge import Bm25, Bm25Config

from biorag.types import Scored, Snippet

NAMESPACE = UUID("5f2c3a1e-9f0b-5c58-8d0e-6b1f4d7c2a90")
DENSE, SPARSE = "dense", "bm25"
# Payload keys of ours that filters name directly; every other field is one of the snippet's metadata.
OWN_FIELDS = ("id", "title", "content", "pmid")
HNSW_EF = 128
OVERSAMPLING = 2.0


def point_id(snippet_id: str) -> UUID:
    """Return the point id of a snippet: UUIDv5, so that indexing again replaces and never doubles."""
    return uuid5(NAMESPACE, snippet_id)


def payload(snippet: Snippet) -> dict[str, Any]:
    """Return the whole snippet as a point's payload, with its digest."""
    return {
        "id": snippet.id,
        "title": snippet.title,
        "content": snippet.content,
        "pmid": snippet.pmid,
        "metadata": dict(snippet.metadata),
        "digest": snippet.digest,
    }


def snippet_of(payload: Mapping[str, Any]) -> Snippet:
    """Return the snippet of a payload; the inverse of `payload`."""
    return Snippet(
        payload["id"],
        payload["title"],
        payload["content"],
        payload.get("pmid"),
        payload.get("metadata") or {},
    )


def payload_key(field: str) -> str:
    """Return where a filter's field lies in the payload."""
    return field if field in OWN_FIELDS else f"metadata.{field}"


def best_first(points: Iterable[Any]) -> list[Scored]:
    """Return the engine's scored points with snippet ids, equal scores in the order of their ids."""
    found = [Scored(point.payload["id"], float(point.score)) for point in points]
    return sorted(found, key=lambda scored: (-scored.score, scored.id))


@dataclass(frozen=True, slots=True)
class Bm25Parameters:
    """BM25 as Qdrant computes it: tokenizer, stop words and stemmer of `language`, IDF by the engine.

    `avg_len` is the mean snippet length in BM25 tokens, measured when the index was created.
    """

    k: float
    b: float
    avg_len: float
    language: str = "english"


class SparseText(NamedTuple):
    """A sparse vector: token ids and weights."""

    indices: list[int]
    values: list[float]


class Bm25Encoder:
    """Turns texts into Qdrant's BM25 sparse vectors; the same here and on a server."""

    def __init__(self, parameters: Bm25Parameters) -> None:
        config = Bm25Config(
            language=parameters.language, k=parameters.k, b=parameters.b, avg_len=max(parameters.avg_len, 1.0)
        )
        self._bm25 = Bm25(config)

    def document(self, text: str) -> SparseText:
        """Return the term-frequency weights of a passage."""
        vector = self._bm25.embed_document(text)
        return SparseText(vector.indices, vector.values)

    def query(self, text: str) -> SparseText:
        """Return weight 1 for each distinct term of a query."""
        vector = self._bm25.embed_query(text)
        return SparseText(vector.indices, vector.values)


class LengthCounter:
    """Counts a text's BM25 tokens: with b = 0 and k → ∞ a term's weight is its frequency."""

    def __init__(self, language: str = "english") -> None:
        self._bm25 = Bm25(Bm25Config(language=language, k=1e9, b=0.0))

    def __call__(self, text: str) -> int:
        """Return the length of a text."""
        return round(sum(self._bm25.embed_document(text).values))
