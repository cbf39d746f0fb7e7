"""The base of the stores of Qdrant points: ids, payloads, conditions, queries, and reading an index of points."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar
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
    """The payload of a point, as `payload` writes it."""

    id: Label
    title: StrictStr
    content: StrictStr
    digest: Label
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
    """Return the snippets of payloads by their ids; raises `StoredError`, also if one differs from its digest."""
    snippets: dict[str, Snippet] = {}
    for stored in _stored(_StoredSnippet, payloads):
        snippet = Snippet(stored.id, stored.title, stored.content, stored.pmid, stored.metadata or {})
        if snippet.digest != stored.digest:
            raise StoredError(f"a snippet {snippet.id!r} that differs from its digest")
        snippets[snippet.id] = snippet
    return snippets


def digests_of(payloads: Iterable[Any]) -> dict[str, str]:
    """Return the digests in payloads by the ids of their snippets; raises `StoredError`."""
    return {stored.id: stored.digest for stored in _stored(_StoredDigest, payloads)}


def vectors_by_id(records: Sequence[Any], name: str, dimension: int) -> dict[str, Vectors]:
    """Return the vectors of a name, (dimension,) or (tokens, dimension), by the ids of their snippets.

    Raises `StoredError` if a payload has no id, or vectors are not of finite numbers in that dimension.
    """
    vectors: dict[str, Vectors] = {}
    for id, record in zip(ids_of(records), records, strict=True):
        try:
            vector = np.array(record.vector[name], np.float32)
        except (TypeError, KeyError, ValueError):
            vector = np.empty(0, np.float32)
        if (
            vector.ndim != (2 if name == TOKENS else 1)
            or vector.shape[-1] != dimension
            or not np.isfinite(vector).all()
        ):
            raise StoredError(f"no {name} vectors of {id!r} with {dimension} finite numbers")
        vectors[id] = vector
    return vectors


class Dialect(NamedTuple):
    """Qdrant's models in one of its libraries, which names most of them alike, and those that it names otherwise."""

    models: Any
    range: Callable[..., Any]
    has_id: Callable[[Iterable[UUID]], Any]
    flag: Callable[[bool], Any]  # a truth value to compare with
    rows: Callable[[Vectors], Sequence[Any]]  # vectors, (vectors, dim)
    token_rows: Callable[[Vectors], Sequence[Any]]  # of one text, (tokens, dim)
    point: Callable[[UUID, dict[str, Any], dict[str, Any]], Any]  # of its vectors by name and its payload


def payload_filter(dialect: Dialect, where: Where, among: Iterable[str] | None = None) -> Any:
    """Return conditions on payloads, and on ids where they must be `among` these, as a filter; None without any."""
    must = [_payload_condition(dialect, condition) for condition in where if not condition.negated]
    must_not = [_payload_condition(dialect, condition) for condition in where if condition.negated]
    if among is not None:
        must.append(dialect.has_id(map(point_id, sorted(among))))
    return dialect.models.Filter(must=must, must_not=must_not) if must or must_not else None


def _payload_condition(dialect: Dialect, condition: Condition) -> Any:
    models = dialect.models
    if isinstance(condition, AnyOf):
        return models.Filter(should=[payload_filter(dialect, alternative) for alternative in condition.alternatives])
    stored = _stored_condition(condition)
    value = stored.value
    if stored.op == EXISTS:
        return models.FieldCondition(key=stored.field, values_count=models.ValuesCount(gte=1))
    if stored.op == CONTAINS:
        return models.FieldCondition(key=stored.field, match=models.MatchPhrase(phrase=str(value)))
    if isinstance(value, tuple):
        return models.FieldCondition(key=stored.field, match=models.MatchAny(any=list(value)))
    if stored.op in BOUNDS:
        return models.FieldCondition(key=stored.field, range=dialect.range(**{BOUNDS[stored.op]: float(value)}))
    if isinstance(value, bool | str):
        exact = dialect.flag(value) if isinstance(value, bool) else value
        return models.FieldCondition(key=stored.field, match=models.MatchValue(value=exact))
    return models.FieldCondition(key=stored.field, range=dialect.range(gte=float(value), lte=float(value)))


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
    """An index of points, the same in every store; see `Index`. A store says how it asks for them and writes them."""

    dialect: Dialect

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._bm25 = Bm25Encoder.of(manifest)

    @property
    def dimension(self) -> int:
        """The length of dense vectors."""
        return self._manifest.encoder.dimension

    @abstractmethod
    def count(self) -> int:
        """Return the number of snippets."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[None]:
        """Turn the faults of a read into errors of ours."""

    @abstractmethod
    def _answers(self, probes: Sequence[IndexQuery]) -> Sequence[Sequence[Any]]:
        """Return the scored points of each probe."""

    @abstractmethod
    def _query(self, query: Any, using: str, **options: Any) -> Any:
        """Return a request for the points nearest to a vector, among those of this name."""

    @abstractmethod
    def _width(self, limit: int) -> int:
        """Return how many candidates a search of the graph keeps."""

    @abstractmethod
    def _records(self, ids: Sequence[str], fields: Sequence[str] | bool, vectors: Sequence[str] = ()) -> Sequence[Any]:
        """Return the points of snippets with these fields of the payload and these vectors."""

    @abstractmethod
    def _page(self, offset: Any) -> tuple[Sequence[Any], Any]:
        """Return some points with their ids from an offset on, and the next offset; None after the last."""

    def _request(self, probe: IndexQuery) -> Any:
        """Return a probe as the store takes it."""
        models = self.dialect.models
        if isinstance(probe.query, str):
            query, using = self._sparse(self._bm25.query(probe.query)), SPARSE
        else:
            query, using = probe.query.tolist(), DENSE if probe.query.ndim == 1 else TOKENS
        quantization = models.QuantizationSearchParams(rescore=True, oversampling=OVERSAMPLING)
        acorn = models.AcornSearchParams(enable=True, max_selectivity=ACORN_SELECTIVITY)
        return self._query(
            query,
            using,
            limit=probe.limit,
            filter=payload_filter(self.dialect, probe.where, probe.among),
            params=models.SearchParams(
                hnsw_ef=self._width(probe.limit),
                exact=probe.exact or probe.among is not None,
                quantization=quantization if self._manifest.quantized else None,
                acorn=acorn if probe.where else None,
            ),
            with_payload=["id"],
        )

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
            return _asked(snippets_of(record.payload for record in self._records(ids, True)), ids)

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the stored content digests by id; unknown ids are left out."""
        with self._reading():
            return _asked(digests_of(record.payload for record in self._records(ids, ["id", "digest"])), ids)

    def dense_vectors(self, ids: Sequence[str]) -> dict[str, Vectors]:
        """Return the stored dense vectors by snippet id; see `Index.dense_vectors`."""
        with self._reading():
            records = self._records(ids, ["id"], [DENSE])
            return _asked(vectors_by_id(records, DENSE, self.dimension), ids)

    def vectors(self, ids: Sequence[str]) -> dict[str, tuple[Vectors, Vectors | None]]:
        """Return the stored dense and token vectors by snippet id; see `Index.vectors`.

        Four bits a number keep directions, and shorten vectors a little: they are brought back to their length, 1.
        """
        from biorag.models.token_projection import unit

        parameters = self._manifest.tokens
        if parameters is None:
            return {id: (vector, None) for id, vector in self.dense_vectors(ids).items()}
        vectors: dict[str, tuple[Vectors, Vectors | None]] = {}
        for batch in batched(ids, max(1, NUMBERS // (SNIPPET_TOKENS * parameters.dimension))):
            with self._reading():
                records = self._records(batch, ["id"], [DENSE, TOKENS])
                dense = vectors_by_id(records, DENSE, self.dimension)
                tokens = vectors_by_id(records, TOKENS, parameters.dimension)
                if parameters.kept == COMPACT:
                    tokens = {id: unit(rows) for id, rows in tokens.items()}
                vectors |= _asked({id: (vector, tokens[id]) for id, vector in dense.items()}, batch)
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

    def _sparse(self, terms: SparseText) -> Any:
        return self.dialect.models.SparseVector(indices=terms.indices, values=terms.values)

    def _points(
        self, snippets: Sequence[Snippet], vectors: Vectors, tokens: Sequence[Vectors], terms: Sequence[SparseText]
    ) -> list[Any]:
        """Return the points of snippets. A text without tokens gets a vector of zeros, whose MaxSim is 0."""
        terms = terms or [self._bm25.document(snippet.contents) for snippet in snippets]
        named: list[dict[str, Any]] = [
            {DENSE: dense, SPARSE: self._sparse(sparse)}
            for dense, sparse in zip(self.dialect.rows(vectors), terms, strict=True)
        ]
        if self._manifest.tokens:
            zeros = np.zeros((1, self._manifest.tokens.dimension), np.float32)
            for point, rows in zip(named, tokens, strict=True):
                point[TOKENS] = self.dialect.token_rows(rows if len(rows) else zeros)
        pairs = zip(snippets, named, strict=True)
        return [self.dialect.point(point_id(snippet.id), point, payload(snippet)) for snippet, point in pairs]


def _asked(known: dict[str, Stored], ids: Sequence[str]) -> dict[str, Stored]:
    """Return what a store says of snippets, if it was asked for them."""
    if strange := known.keys() - set(ids):
        raise StoredError(f"a snippet {min(strange)!r} that was not asked for")
    return known
