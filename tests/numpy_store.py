"""A store of one file of vectors and snippets in the index's folder, searched exactly: NumPy in Edge's place."""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Iterator, Sequence
from operator import ge, gt, le, lt
from pathlib import Path

import numpy as np

from biorag.indexes.bm25 import Bm25Encoder
from biorag.indexes.manifest import Manifest
from biorag.indexes.points import OWN_FIELDS, payload, point_id
from biorag.types import EXISTS, FieldFilter, IndexQuery, ScoredDoc, Snippet, Vectors

BOUNDS = {">=": ge, ">": gt, "<=": le, "<": lt}


class NumpyIndex:
    """Every search looks at all snippets."""

    def __init__(self, folder: Path, manifest: Manifest, writable: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file, self._cosine = folder / "index.pickle", manifest.similarity == "cosine"
        self._bm25, self._keeps_tokens = Bm25Encoder.of(manifest), manifest.tokens is not None
        self._spelled = manifest.bm25.spelled
        rows = pickle.loads(self._file.read_bytes()) if self._file.is_file() else {}
        self._rows: dict[str, tuple[Snippet, Vectors, Vectors | None]] = rows

    def count(self) -> int:
        return len(self._rows)

    def search(self, queries: Sequence[IndexQuery]) -> list[list[ScoredDoc]]:
        return [self._one(query) for query in queries]

    def _one(self, query: IndexQuery) -> list[ScoredDoc]:
        scores = self._by_words(query.query) if isinstance(query.query, str) else self._by_vectors(query.query)
        found = [
            ScoredDoc(id, score)
            for id, score in scores.items()
            if (query.among is None or id in query.among)
            and all(
                _holds(self._rows[id][0], condition, self._spelled) != condition.negated for condition in query.where
            )
        ]
        return sorted(found, key=lambda scored: (-scored.score, scored.id))[: query.limit]

    def _by_vectors(self, query: Vectors) -> dict[str, float]:
        if query.ndim == 2:
            return {id: float((query @ tokens.T).max(axis=1).sum()) for id, (_, _, tokens) in self._rows.items()}
        query = _unit(query) if self._cosine else query
        return {id: float(vector @ query) for id, (_, vector, _) in self._rows.items()}

    def _by_words(self, text: str) -> dict[str, float]:
        documents = {id: dict(zip(*self._bm25.document(s.contents), strict=True)) for id, (s, *_) in self._rows.items()}
        scores: dict[str, float] = {}
        for term in self._bm25.query(text).indices:
            having = [id for id, weights in documents.items() if term in weights]
            idf = math.log(1 + (len(documents) - len(having) + 0.5) / (len(having) + 0.5))
            for id in having:
                scores[id] = scores.get(id, 0.0) + idf * documents[id][term]
        return scores

    def fetch(self, ids: Sequence[str]) -> dict[str, Snippet]:
        return {id: self._rows[id][0] for id in ids if id in self._rows}

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        return {id: snippet.digest for id, snippet in self.fetch(ids).items()}

    def dense_vectors(self, ids: Sequence[str]) -> dict[str, Vectors]:
        return {id: self._rows[id][1] for id in ids if id in self._rows}

    def ids(self) -> Iterator[str]:
        yield from sorted(self._rows, key=point_id)

    def upsert(self, snippets: Sequence[Snippet], vectors: Vectors, tokens: Sequence[Vectors] = (), terms=()) -> None:
        if self._keeps_tokens:
            assert len(tokens) == len(snippets), "an index that keeps token vectors is given them for every snippet"
        for place, snippet in enumerate(snippets):
            vector = _unit(vectors[place]) if self._cosine else vectors[place].astype(np.float32)
            rows = tokens[place].astype(np.float16).astype(np.float32) if self._keeps_tokens else None
            if rows is not None and not len(rows):
                rows = np.zeros((1, rows.shape[1]), np.float32)
            self._rows[snippet.id] = snippet, vector, rows
        self._save()

    def delete(self, ids: Sequence[str]) -> None:
        for id in ids:
            self._rows.pop(id, None)
        self._save()

    def _save(self) -> None:
        self._file.write_bytes(pickle.dumps(self._rows))

    def deleted_share(self) -> float:
        return 0.0

    def optimize(self) -> None:
        pass

    def seal(self) -> None:
        return None

    def close(self) -> None:
        pass


def _unit(vector: Vectors) -> Vectors:
    return np.asarray(vector / max(float(np.linalg.norm(vector)), 1e-12), np.float32)


def _holds(snippet: Snippet, condition: FieldFilter, spelled) -> bool:
    """As Qdrant has it: one value of a list suffices, and numbers equal numbers alone."""
    value = payload(snippet) if condition.field in OWN_FIELDS else dict(snippet.metadata)
    for key in [condition.field] if condition.field in OWN_FIELDS else re.findall(r'"[^"]+"|[^.]+', condition.field):
        value = value.get(key.strip('"')) if isinstance(value, dict) else None
    spelled = str if condition.field in OWN_FIELDS else spelled
    return any(
        _is(one, condition.op, condition.value, spelled) for one in (value if isinstance(value, list) else [value])
    )


def _is(value, op, wanted, spelled) -> bool:
    if op == EXISTS:
        return value is not None
    if isinstance(wanted, tuple):
        return value in wanted and not isinstance(value, bool)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if op in BOUNDS:
        return number and BOUNDS[op](value, wanted)
    if isinstance(wanted, int | float) and not isinstance(wanted, bool):
        return number and value == wanted
    if isinstance(value, str) and isinstance(wanted, str):
        return spelled(value) == spelled(wanted)
    return type(value) is type(wanted) and value == wanted
