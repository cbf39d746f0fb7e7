"""The base of the stores of Qdrant points: ids, payloads, search settings, and reading an index of points."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from uuid import UUID, uuid5

import numpy as np
from pydantic import StrictInt, StrictStr

from biorag.indexes.bm25 import Bm25Encoder
from biorag.indexes.manifest import COMPACT, Manifest, TokenParameters
from biorag.types import (
    CONTAINS,
    EXISTS,
    AnyOf,
    Condition,
    FieldFilter,
    IndexQuery,
    Label,
    ScoredDoc,
    Snippet,
    SparseText,
    Vectors,
    Where,
)
from biorag.utils.parsing import typed
from biorag.utils.progress import batched
from biorag.utils.text import comparable

NAMESPACE = UUID("5f2c3a1e-9f0b-5c58-8d0e-6b1f4d7c2a90")
DENSE, SPARSE, TOKENS = "dense", "bm25", "tokens"
# Payload keys of ours that filters name directly; every other field is one of the snippet's metadata.
OWN_FIELDS = ("id", "title", "content", "pmid")
KEYWORDS = "keywords"  # the payload's key of the metadata's texts as they are compared
TEXT = "text"  # an index of words and phrases
LONGEST_KEYWORD = 256  # characters; a longer text is filtered as it stands
HNSW_EF = 128
OVERSAMPLING = 2.0
# A search with conditions looks at neighbours of neighbours too (ACORN), whatever share of the snippets qualifies: with
# the graph's own links alone, those that do not qualify cut others off. Of 100,000 snippets, of which 36 % met a
# condition, 0.64 of the best ten were found; 0.996 are (docs/experiments/performance.md#growth).
ACORN_SELECTIVITY = 1.0
SCROLL = 4096  # ids asked for at once when all are listed
LONGEST_ID = 4096  # characters
BOUNDS = {">=": "gte", ">": "gt", "<=": "lte", "<": "lt"}  # operators of conditions, as Qdrant names them
Stored = TypeVar("Stored")
Part = TypeVar("Part")  # a filter of a store
UPSERT = 128  # points handed over at once
SNIPPET_TOKENS = 256  # of a snippet, more than most have
NUMBERS = 800_000  # of token vectors handed over at once: as JSON 16 MB, half of what a server takes


def point_id(snippet_id: str) -> UUID:
    """Return the point id of a snippet: UUIDv5, so that indexing again replaces and never duplicates."""
    return uuid5(NAMESPACE, snippet_id)


# The payload's keys that are indexed, those of PubMed's fields that filters name most, and their types as Qdrant names
# them. A year is a float, for a corpus may write 2015.0, which an index of integers would leave out.
# Without an index of texts a server up to 1.19 compares `~` as a part of a text, with its case.
PAYLOAD_INDEXES = {
    "pmid": "integer",
    "metadata.year": "float",
    "metadata.retracted": "bool",
    **{f"{KEYWORDS}.{field}": "keyword" for field in ("type", "mesh", "journal")},
    **dict.fromkeys(("title", "content", "metadata.journal"), TEXT),
}


def payload(snippet: Snippet) -> dict[str, Any]:
    """Return the whole snippet as a point's payload, with its digest and the metadata's keywords as filters compare."""
    return {
        **({KEYWORDS: _keywords(dict(snippet.metadata))} if snippet.metadata else {}),
        "id": snippet.id,
        "title": snippet.title,
        "content": snippet.content,
        "pmid": snippet.pmid,
        "metadata": dict(snippet.metadata),
        "digest": snippet.digest,
    }


class StoredError(ValueError):
    """An answer of a store that biorag does not write."""


@dataclass(frozen=True, slots=True)
class _StoredDigest:
    """The id and the digest in a point's payload."""

    id: Label
    digest: Label


@dataclass(frozen=True, slots=True)
class _StoredSnippet:
    """The payload of a point, but for its digest; as `payload` writes it."""

    id: Label
    title: StrictStr
    content: StrictStr
    pmid: StrictInt | None = None
    metadata: dict[StrictStr, Any] | None = None


def ids_of(points: Iterable[Any]) -> list[str]:
    """Return the ids in the payloads of points, of hundreds for a query, and so without a model.

    Raises `StoredError` if one has none.
    """
    try:
        ids = [point.payload["id"] for point in points]
    except (TypeError, KeyError):
        raise StoredError("a payload without an id") from None
    if not all(type(id) is str and len(id) <= LONGEST_ID for id in ids):
        raise StoredError("a payload with an id that is not a short text")
    return ids


def _stored(kind: type[Stored], payloads: Iterable[Any]) -> list[Stored]:
    """Return the payloads of points in their type."""
    try:
        values: list[Stored] = typed(list[kind], list(payloads))  # type: ignore[valid-type]
    except ValueError as error:
        raise StoredError(f"payload {error}") from None
    return values


def snippets_of(payloads: Iterable[Any]) -> dict[str, Snippet]:
    """Return the snippets of payloads by their ids; raises `StoredError`."""
    return {
        point.id: Snippet(point.id, point.title, point.content, point.pmid, point.metadata or {})
        for point in _stored(_StoredSnippet, payloads)
    }


def digests_of(payloads: Iterable[Any]) -> dict[str, str]:
    """Return the digests in payloads by the ids of their snippets; raises `StoredError`."""
    return {point.id: point.digest for point in _stored(_StoredDigest, payloads)}


def dense_by_id(records: Sequence[Any], dimension: int) -> dict[str, Vectors]:
    """Return the dense vectors of points by the ids of their snippets.

    Raises `StoredError` if a payload has no id, or a vector is not one of finite numbers in that dimension.
    """
    vectors = _vectors_by_id(records, DENSE, "no dense vector")
    for id, vector in vectors.items():
        if vector.shape != (dimension,) or not np.isfinite(vector).all():
            raise StoredError(f"no dense vector of {id!r} with {dimension} finite numbers")
    return vectors


def tokens_by_id(records: Sequence[Any], parameters: TokenParameters) -> dict[str, Vectors]:
    """Return the token vectors of points, as they were given to be stored, by the ids of their snippets.

    Four bits a number keep directions, and shorten vectors a little: they are brought back to their length, 1.

    Raises `StoredError` if a payload has no id, or vectors are not of finite numbers in their dimension.
    """
    from biorag.models.token_projection import unit

    vectors = _vectors_by_id(records, TOKENS, "no token vectors")
    for id, rows in vectors.items():
        if rows.ndim != 2 or rows.shape[1] != parameters.dimension or not np.isfinite(rows).all():
            raise StoredError(f"no token vectors of {id!r} with {parameters.dimension} finite numbers")
    return {id: unit(rows) for id, rows in vectors.items()} if parameters.kept == COMPACT else vectors


def _vectors_by_id(records: Sequence[Any], name: str, absent: str) -> dict[str, Vectors]:
    """Return the vectors of a name by the ids of their snippets; raises `StoredError`, which begins with `absent`."""
    vectors: dict[str, Vectors] = {}
    for id, record in zip(ids_of(records), records, strict=True):
        try:
            vectors[id] = np.array(record.vector[name], np.float32)
        except (TypeError, KeyError, ValueError):
            raise StoredError(f"{absent} of {id!r}") from None
    return vectors


def filter_of(
    where: Where, make: Callable[..., Part], condition: Callable[[FieldFilter], Any], among: Sequence[Any] = ()
) -> Part | None:
    """Return conditions as a filter on payloads, None if there are none.

    `make` makes the store's filter of lists named as Qdrant names them, `condition` its condition; `among` is the
    store's own condition on ids.
    """

    def stored(part: Condition) -> Any:
        if isinstance(part, AnyOf):
            return make(should=[filter_of(alternative, make, condition) for alternative in part.alternatives])
        return condition(_stored_condition(part))

    must = [*(stored(part) for part in where if not part.negated), *among]
    must_not = [stored(part) for part in where if part.negated]
    return make(must=must, must_not=must_not) if must or must_not else None


def comparisons(where: Where) -> Iterator[FieldFilter]:
    """Yield the conditions on fields, those of alternatives too."""
    for condition in where:
        if isinstance(condition, AnyOf):
            for alternative in condition.alternatives:
                yield from comparisons(alternative)
        else:
            yield condition


def text_keys(where: Where) -> Iterator[str]:
    """Yield the keys of the payload in which conditions look for words."""
    return (_stored_condition(part).field for part in comparisons(where) if part.op == CONTAINS)


def _stored_condition(condition: FieldFilter) -> FieldFilter:
    """Return a condition on a snippet's field as one on the payload, in whose form keywords are spelled."""
    field, value = condition.field, condition.value
    if field in OWN_FIELDS:
        return condition
    if condition.op == EXISTS and f"{KEYWORDS}.{field}" in PAYLOAD_INDEXES:
        return replace(condition, field=f"{KEYWORDS}.{field}")
    if condition.op == "=" and isinstance(value, str) and len(keyword := comparable(value)) <= LONGEST_KEYWORD:
        return replace(condition, field=f"{KEYWORDS}.{field}", value=keyword)
    return replace(condition, field=f"metadata.{field}")


def _keywords(value: Any) -> Any:
    """Return the short texts of a metadata field as they are compared; None for what is no text."""
    if isinstance(value, str):
        keyword = comparable(value)
        return keyword if len(keyword) <= LONGEST_KEYWORD else None
    if isinstance(value, Mapping):
        fields = {name: _keywords(field) for name, field in value.items()}
        return {name: field for name, field in fields.items() if field}
    return [keyword for keyword in map(_keywords, value) if keyword] if isinstance(value, list) else None


def field_of(probe: IndexQuery) -> str:
    """Return which of a point's vectors a probe asks for."""
    if isinstance(probe.query, str):
        return SPARSE
    return DENSE if probe.query.ndim == 1 else TOKENS


def parts(sizes: Sequence[int], most: int) -> Iterator[slice]:
    """Yield what is handed over at once, in order: at most `most` things, and `NUMBERS` numbers unless one has more."""
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and (index - start == most or total + size > NUMBERS):
            yield slice(start, index)
            start, total = index, 0
        total += size
    if start < len(sizes):
        yield slice(start, len(sizes))


def upsert_parts(
    snippets: Sequence[Snippet], tokens: Sequence[Vectors], parameters: TokenParameters | None
) -> list[slice]:
    """Return the parts in which snippets are written."""
    if parameters is None:
        return list(parts([0] * len(snippets), UPSERT))
    assert len(tokens) == len(snippets), "an index that keeps token vectors is given them for every snippet"
    return list(parts([rows.size for rows in tokens], UPSERT))


def search_width(snippets: int, limit: int) -> int:
    """Return how many candidates a search of the graph keeps (`hnsw_ef`) in an index of so many snippets.

    With a constant 128, recall@10 falls from 0.99 at 15,000 snippets to 0.93 at 250,000. A long list needs a wider
    search than its length: of 100 hits of 14,448 snippets a width of 240 finds 98.6 %, 500 finds 99.7 %.
    """
    return max(HNSW_EF, 5 * limit, 2 * math.isqrt(snippets))


def best_first(points: Sequence[Any], probe: IndexQuery) -> list[ScoredDoc]:
    """Return the engine's scored points with snippet ids, equal scores in the order of their ids.

    Raises `StoredError` if there are more than asked for, others than asked for, one of them twice, or a score that is
    no number.
    """
    hits = [ScoredDoc(id, float(point.score)) for id, point in zip(ids_of(points), points, strict=True)]
    ids = {hit.id for hit in hits}
    if len(hits) > probe.limit or len(ids) < len(hits) or (probe.among is not None and not ids <= probe.among):
        raise StoredError("hits that were not asked for")
    if not all(math.isfinite(hit.score) for hit in hits):
        raise StoredError("a score that is not a finite number")
    return sorted(hits, key=lambda scored: (-scored.score, scored.id))


class PointIndex(ABC):
    """Reading an index of points, the same in every store; see `Index`. A store says how it asks for them."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._bm25 = Bm25Encoder.of(manifest)

    @abstractmethod
    def _reading(self) -> AbstractContextManager[None]:
        """Turn the faults of a read into errors of ours."""

    @abstractmethod
    def _answers(self, probes: Sequence[IndexQuery]) -> Sequence[Sequence[Any]]:
        """Return the scored points of each probe."""

    @abstractmethod
    def _records(self, ids: Sequence[str], fields: Sequence[str] | bool, vectors: Sequence[str] = ()) -> Sequence[Any]:
        """Return the points of snippets with these fields of the payload and these vectors."""

    @abstractmethod
    def _page(self, offset: Any) -> tuple[Sequence[Any], Any]:
        """Return some points with their ids from an offset on, and the next offset; None after the last."""

    def search(self, probes: Sequence[IndexQuery]) -> list[list[ScoredDoc]]:
        """Answer all probes in one batch; see `Index.search`."""
        with self._reading():
            answers = self._answers(probes)
            if len(answers) != len(probes):
                raise StoredError(f"{len(answers)} answers to {len(probes)} queries")
            return [best_first(points, probe) for points, probe in zip(answers, probes, strict=True)]

    def fetch(self, ids: Sequence[str]) -> dict[str, Snippet]:
        """Return the stored snippets by id; unknown ids are left out."""
        with self._reading():
            records = self._records(ids, True)
            snippets = snippets_of(record.payload for record in records)
            digests = digests_of(record.payload for record in records)
            if changed := [id for id, snippet in snippets.items() if snippet.digest != digests[id]]:
                raise StoredError(f"a snippet {changed[0]!r} that differs from its digest")
            return _asked(snippets, ids)

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the stored content digests by id; unknown ids are left out."""
        with self._reading():
            return _asked(digests_of(record.payload for record in self._records(ids, ["id", "digest"])), ids)

    def dense_vectors(self, ids: Sequence[str]) -> dict[str, Vectors]:
        """Return the stored dense vectors by snippet id; see `Index.dense_vectors`."""
        with self._reading():
            records = self._records(ids, ["id"], [DENSE])
            return _asked(dense_by_id(records, self._manifest.encoder.dimension), ids)

    def vectors(self, ids: Sequence[str]) -> dict[str, tuple[Vectors, Vectors | None]]:
        """Return the stored dense and token vectors by snippet id; see `Index.vectors`."""
        vectors: dict[str, tuple[Vectors, Vectors | None]] = {}
        parameters = self._manifest.tokens
        at_once = max(1, NUMBERS // (SNIPPET_TOKENS * parameters.dimension)) if parameters else UPSERT
        for batch in batched(ids, at_once):
            with self._reading():
                records = self._records(batch, ["id"], [DENSE, TOKENS] if parameters else [DENSE])
                dense = dense_by_id(records, self._manifest.encoder.dimension)
                tokens = tokens_by_id(records, parameters) if parameters else {}
                vectors |= _asked({id: (vector, tokens.get(id)) for id, vector in dense.items()}, batch)
        return vectors

    def ids(self) -> Iterator[str]:
        """Yield every snippet's id, in the order of the points' ids."""
        offset = None
        while True:
            with self._reading():
                records, following = self._page(offset)
                ids = ids_of(records)
                if len(ids) > SCROLL or (following is not None and not (ids and str(following) > str(offset or ""))):
                    raise StoredError("a list of ids without an end")
            yield from ids
            if (offset := following) is None:
                return

    @abstractmethod
    def _dense(self, vectors: Vectors) -> Sequence[Any]:
        """Return vectors, (vectors, dim), as the store takes each."""

    def _token_rows(self, tokens: Vectors) -> Sequence[Any]:
        """Return token vectors, (tokens, dim), as the store takes them."""
        return self._dense(tokens)

    @abstractmethod
    def _sparse(self, terms: SparseText) -> Any:
        """Return a BM25 vector as the store takes it."""

    @abstractmethod
    def _point(self, snippet: Snippet, vectors: dict[str, Any]) -> Any:
        """Return a point of the store."""

    def _points(
        self, snippets: Sequence[Snippet], vectors: Vectors, tokens: Sequence[Vectors], terms: Sequence[SparseText]
    ) -> list[Any]:
        """Return the points of snippets. A text without tokens gets a vector of zeros, whose MaxSim is 0."""
        terms = terms or [self._bm25.document(snippet.contents) for snippet in snippets]
        named: list[dict[str, Any]] = [
            {DENSE: dense, SPARSE: self._sparse(sparse)}
            for dense, sparse in zip(self._dense(vectors), terms, strict=True)
        ]
        if self._manifest.tokens:
            zeros = np.zeros((1, self._manifest.tokens.dimension), np.float32)
            for point, rows in zip(named, tokens, strict=True):
                point[TOKENS] = self._token_rows(rows if len(rows) else zeros)
        return [self._point(snippet, point) for snippet, point in zip(snippets, named, strict=True)]


def _asked(known: dict[str, Stored], ids: Sequence[str]) -> dict[str, Stored]:
    """Return what a store says of snippets, if it was asked for them."""
    if strange := known.keys() - set(ids):
        raise StoredError(f"a snippet {min(strange)!r} that was not asked for")
    return known
