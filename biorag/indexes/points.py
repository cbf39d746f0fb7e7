"""What both stores share: ids, payloads and search settings of points."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from uuid import UUID, uuid5

import numpy as np
from pydantic import StrictInt, StrictStr

from biorag.indexes.manifest import COMPARABLE, Bm25Parameters, TokenParameters
from biorag.types import EXISTS, FieldFilter, IndexQuery, Label, ScoredDoc, Snippet, Vectors
from biorag.utils.parsing import typed
from biorag.utils.text import comparable

NAMESPACE = UUID("5f2c3a1e-9f0b-5c58-8d0e-6b1f4d7c2a90")
DENSE, SPARSE, TOKENS = "dense", "bm25", "tokens"
# Payload keys of ours that filters name directly; every other field is one of the snippet's metadata.
OWN_FIELDS = ("id", "title", "content", "pmid")
KEYWORDS = "keywords"  # the payload's key of the metadata's texts as they are compared
LONGEST_KEYWORD = 256  # characters; a longer text is filtered as it stands
HNSW_EF = 128
OVERSAMPLING = 2.0
# A search with conditions looks at neighbours of neighbours too (ACORN), whatever share of the snippets qualifies: with
# the graph's own links alone, those that do not qualify cut others off. Of 100,000 snippets, of which 36 % met a
# condition, 0.64 of the best ten were found; 0.996 are (docs/results/growth.md).
ACORN_SELECTIVITY = 1.0
SCROLL = 4096  # ids asked for at once when all are listed
LONGEST_ID = 4096  # characters
Stored = TypeVar("Stored")
UPSERT = 128  # points handed over at once
NUMBERS = 800_000  # of token vectors handed over at once: as JSON 16 MB, half of what a server takes


def point_id(snippet_id: str) -> UUID:
    """Return the point id of a snippet: UUIDv5, so that indexing again replaces and never duplicates."""
    return uuid5(NAMESPACE, snippet_id)


def payload(snippet: Snippet, bm25: Bm25Parameters | None = None) -> dict[str, Any]:
    """Return the whole snippet as a point's payload, with its digest.

    An index that has texts in the form in which they are compared also keeps the metadata's keywords so.
    """
    compared = bm25 is not None and bm25.text == COMPARABLE and snippet.metadata
    return {
        **({KEYWORDS: _keywords(dict(snippet.metadata))} if compared else {}),
        "id": snippet.id,
        "title": snippet.title,
        "content": snippet.content,
        "pmid": snippet.pmid,
        "metadata": dict(snippet.metadata),
        "digest": snippet.digest,
    }


def payload_indexes(bm25: Bm25Parameters) -> dict[str, str]:
    """Return the payload's keys that are indexed, and their types as Qdrant names them.

    They are PubMed's fields that filters name most. A year is indexed as a float, which takes whole numbers too: a
    corpus may write 2015.0, which an index of integers would leave out. PMIDs are integers, matched by lists.
    """
    texts = KEYWORDS if bm25.text == COMPARABLE else "metadata"
    return {
        "pmid": "integer",
        "metadata.year": "float",
        "metadata.retracted": "bool",
        **{f"{texts}.{field}": "keyword" for field in ("type", "mesh", "journal")},
    }


class StoredError(ValueError):
    """What a store answers that biorag does not write."""


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

    Raises
    ------
    StoredError
        If one has none.
    """
    try:
        ids = [point.payload["id"] for point in points]
    except (TypeError, KeyError):
        raise StoredError("a payload without an id") from None
    if not all(type(id) is str and len(id) <= LONGEST_ID for id in ids):
        raise StoredError("a payload with an id that is not a short text")
    return ids


def _stored(kind: type[Stored], payloads: Iterable[Any]) -> list[Stored]:
    """Return the payloads of points in their type.

    Raises
    ------
    StoredError
        If one does not have it.
    """
    try:
        values: list[Stored] = typed(list[kind], list(payloads))  # type: ignore[valid-type]
    except ValueError as error:
        raise StoredError(f"payload {error}") from None
    return values


def snippets_of(payloads: Iterable[Any]) -> dict[str, Snippet]:
    """Return the snippets of payloads by their ids; raises `StoredError`."""
    return {
        found.id: Snippet(found.id, found.title, found.content, found.pmid, found.metadata or {})
        for found in _stored(_StoredSnippet, payloads)
    }


def digests_of(payloads: Iterable[Any]) -> dict[str, str]:
    """Return the digests in payloads by the ids of their snippets; raises `StoredError`."""
    return {found.id: found.digest for found in _stored(_StoredDigest, payloads)}


def dense_by_id(records: Sequence[Any], dimension: int) -> dict[str, Vectors]:
    """Return the dense vectors of points by the ids of their snippets.

    Raises
    ------
    StoredError
        If a payload has no id, or a vector is not one of finite numbers in that dimension.
    """
    vectors: dict[str, Vectors] = {}
    for id, record in zip(ids_of(records), records, strict=True):
        try:
            vector = np.array(record.vector[DENSE], np.float32)
        except (TypeError, KeyError, ValueError):
            raise StoredError(f"no dense vector of {id!r}") from None
        if vector.shape != (dimension,) or not np.isfinite(vector).all():
            raise StoredError(f"no dense vector of {id!r} with {dimension} finite numbers")
        vectors[id] = vector
    return vectors


def stored(condition: FieldFilter, bm25: Bm25Parameters) -> FieldFilter:
    """Return a condition on a snippet's field as one on the payload, in whose form keywords are spelled."""
    field, value = condition.field, condition.value
    if field in OWN_FIELDS:
        return condition
    if condition.op == EXISTS:
        return replace(condition, field=f"metadata.{field}")
    if isinstance(value, str) and bm25.text == COMPARABLE and len(keyword := comparable(value)) <= LONGEST_KEYWORD:
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


def with_tokens(
    named: Sequence[dict[str, Any]],
    tokens: Sequence[Vectors],
    parameters: TokenParameters | None,
    convert: Callable[[Vectors], Any],
) -> None:
    """Add each point's token vectors, where the index keeps any, to its other vectors.

    A text without tokens gets a vector of zeros, whose MaxSim is 0.

    Parameters
    ----------
    convert : makes of vectors, (tokens, dimension), what the store takes
    """
    if parameters is None:
        return
    zeros = np.zeros((1, parameters.dimension), np.float32)
    for point, rows in zip(named, tokens, strict=True):
        point[TOKENS] = convert(rows if len(rows) else zeros)


def search_width(snippets: int, limit: int) -> int:
    """Return how many candidates a search of the graph keeps (`hnsw_ef`) in an index of so many snippets.

    With a constant 128, recall@10 falls from 0.99 at 15,000 snippets to 0.93 at 250,000. A long list needs a wider
    search than its length: of 100 hits of 14,448 snippets a width of 240 finds 98.6 %, 500 finds 99.7 %.
    """
    return max(HNSW_EF, 5 * limit, 2 * math.isqrt(snippets))


def best_first(points: Sequence[Any], probe: IndexQuery) -> list[ScoredDoc]:
    """Return the engine's scored points with snippet ids, equal scores in the order of their ids.

    Raises
    ------
    StoredError
        If there are more than asked for, others than asked for, one of them twice, or a score that is no number.
    """
    hits = [ScoredDoc(id, float(point.score)) for id, point in zip(ids_of(points), points, strict=True)]
    ids = {hit.id for hit in hits}
    if len(hits) > probe.limit or len(ids) < len(hits) or (probe.among is not None and not ids <= probe.among):
        raise StoredError("hits that were not asked for")
    if not all(math.isfinite(hit.score) for hit in hits):
        raise StoredError("a score that is not a finite number")
    return sorted(hits, key=lambda scored: (-scored.score, scored.id))
