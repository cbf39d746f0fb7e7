"""Other packages doing what biorag does: BM25 in Python, the encoder in fp32, vectors in Qdrant's local mode."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from biorag.errors import MissingError, unknown_name
from biorag.indexes.points import payload
from biorag.types import Snippet, Vectors

RANK_BM25, BM25S, SENTENCE_TRANSFORMERS, QDRANT_LOCAL = "rank_bm25", "bm25s", "sentence-transformers", "qdrant-local"
# Name -> module that must be there.
PEERS = {
    RANK_BM25: "rank_bm25",
    BM25S: "bm25s",
    SENTENCE_TRANSFORMERS: "sentence_transformers",
    QDRANT_LOCAL: "qdrant_client",
}
UPSERT = 256  # points handed to Qdrant's local mode at once
_WORD = re.compile(r"\w+")


def require_peers(names: Iterable[str]) -> None:
    """Refuse names that are none of the peers, and peers that are not installed.

    Raises
    ------
    UsageError
        For an unknown name, listing those there are.
    MissingError
        Naming the extra that brings the package.
    """
    for name in names:
        if name not in PEERS:
            raise unknown_name("baseline", name, PEERS)
        if find_spec(PEERS[name]) is None:
            raise MissingError(f"baseline {name!r} is not installed: run pip install 'biorag[bench]'")


class RankBm25:
    """BM25 by `rank_bm25`, over lower-cased words, scoring every snippet for every question."""

    def __init__(self, ids: Sequence[str], texts: Sequence[str]) -> None:
        from rank_bm25 import BM25Okapi

        self._ids = ids
        self._bm25 = BM25Okapi([_words(text) for text in texts])

    def search(self, question: str, limit: int) -> list[str]:
        """Return the best ids."""
        found: list[str] = self._bm25.get_top_n(_words(question), self._ids, n=limit)
        return found


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


class Bm25s:
    """BM25 by `bm25s`: its tokenizer, English stop words, and PyStemmer's stemmer where that is installed."""

    def __init__(self, ids: Sequence[str], texts: Sequence[str]) -> None:
        import bm25s

        logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets itself to debug when it is imported
        self._ids = ids
        self._stemmer = _stemmer()
        self._tokenize = bm25s.tokenize
        self._bm25 = bm25s.BM25()
        self._bm25.index(self._tokens(texts), show_progress=False)

    def search(self, question: str, limit: int) -> list[str]:
        """Return the best ids."""
        most = min(limit, len(self._ids))
        found = self._bm25.retrieve(self._tokens([question]), k=most, show_progress=False)
        return [self._ids[place] for place in found.documents[0]]

    def _tokens(self, texts: Sequence[str]) -> Any:
        return self._tokenize(list(texts), stopwords="en", stemmer=self._stemmer, show_progress=False)


def _stemmer() -> Any:
    if find_spec("Stemmer") is None:
        return None
    import Stemmer

    return Stemmer.Stemmer("english")


BM25_PEERS: dict[str, type[RankBm25] | type[Bm25s]] = {RANK_BM25: RankBm25, BM25S: Bm25s}


class SentenceTransformers:
    """The index's encoder as `SentenceTransformer` runs it by default, in fp32."""

    def __init__(self, folder: Path) -> None:
        from sentence_transformers import SentenceTransformer

        self._model = SentenceTransformer(str(folder), local_files_only=True, model_kwargs={"dtype": "float32"})

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Return the questions' vectors, (texts, dimension)."""
        return np.asarray(self._model.encode_query(list(texts), show_progress_bar=False))

    def encode_snippets(self, texts: Sequence[str]) -> Vectors:
        """Return the passages' vectors, (texts, dimension)."""
        return np.asarray(self._model.encode_document(list(texts), show_progress_bar=False))


class QdrantLocal:
    """Vectors in `QdrantClient(path=folder)`, which compares a question with every one of them.

    They are searched in memory, with a folder and without; it only takes longer to write to one.
    """

    def __init__(self, folder: Path | None, dimension: int, similarity: str) -> None:
        from qdrant_client import QdrantClient, models

        distance = {"cosine": models.Distance.COSINE, "dot": models.Distance.DOT}[similarity]
        self._point = models.PointStruct
        self._client = QdrantClient(path=str(folder)) if folder else QdrantClient(":memory:")
        self._client.create_collection("peer", models.VectorParams(size=dimension, distance=distance))
        self._ids: list[str] = []

    def upsert(self, snippets: Sequence[Snippet], vectors: Vectors) -> None:
        """Write snippets that are not there yet."""
        for start in range(0, len(snippets), UPSERT):
            part = snippets[start : start + UPSERT]
            points = [
                self._point(id=len(self._ids) + place, vector=vector.tolist(), payload=payload(snippet))
                for place, (snippet, vector) in enumerate(zip(part, vectors[start : start + UPSERT], strict=True))
            ]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that it is meant for less than 20,000 points
                self._client.upsert("peer", points)
            self._ids += [snippet.id for snippet in part]

    def search(self, vector: Vectors, limit: int) -> list[str]:
        """Return the best ids; vector of shape (dimension,)."""
        found = self._client.query_points("peer", vector.tolist(), limit=limit, with_payload=False)
        return [self._ids[int(point.id)] for point in found.points]

    def close(self) -> None:
        """Close the client."""
        self._client.close()
