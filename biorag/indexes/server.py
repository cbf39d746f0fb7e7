"""The store on a Qdrant server or cluster, through `qdrant-client`, with the same points."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from http import HTTPStatus
from typing import Any
from uuid import UUID

import numpy as np
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import UnexpectedResponse

from biorag.errors import MissingError, ServiceError
from biorag.indexes.collection import (
    ORDERING,
    await_new_shards,
    build_graph,
    check_layout,
    collection_facts,
    create_collection,
    index_payload,
    is_loading,
    make_payload_index,
    read_remote_manifest,
    require_whole,
    wait_until_green,
    write_remote_manifest,
)
from biorag.indexes.connection import connect, fewer, needed_index, server_errors
from biorag.indexes.manifest import Manifest, SourceRecord
from biorag.indexes.points import (
    ACORN_SELECTIVITY,
    BOUNDS,
    OVERSAMPLING,
    SCROLL,
    TEXT,
    PointIndex,
    StoredError,
    field_of,
    filter_of,
    parts,
    payload,
    point_id,
    search_width,
    text_keys,
    upsert_parts,
)
from biorag.settings.settings import Settings
from biorag.types import CONTAINS, EXISTS, FieldFilter, IndexQuery, Snippet, SparseText, Vectors
from biorag.utils.http import asking_threads
from biorag.utils.locks import DirectoryLock
from biorag.utils.network import Server

logger = logging.getLogger(__name__)

LOOK = 0.25  # seconds between two looks at the shards: one for the reads of a question
STREAMS = 4  # of uploads to a single shard
MOST_STREAMS = 32
MOST = 2**40  # snippets


class QdrantServer:
    """The indexes on a Qdrant server, each with its manifest."""

    def __init__(self, server: Server, settings: Settings) -> None:
        self._client = connect(server)
        self._settings = settings

    def read_manifest(self, name: str) -> Manifest | None:
        """Return the manifest of a collection; see `read_remote_manifest`."""
        return read_remote_manifest(self._client, name)

    def write_manifest(self, manifest: Manifest, brought: Sequence[SourceRecord], gone: Sequence[SourceRecord]) -> None:
        """Keep the manifest in its collection's metadata; see `write_remote_manifest`."""
        write_remote_manifest(self._client, manifest, brought, gone)

    def remove(self, name: str) -> None:
        """Remove a collection, if biorag made it; raises as `read_remote_manifest` does."""
        if read_remote_manifest(self._client, name) is not None:
            with server_errors():
                self._client.delete_collection(name)

    def open(self, manifest: Manifest, writable: bool, lock: DirectoryLock | None) -> ServerIndex:
        """Open a collection."""
        return ServerIndex(self._client, manifest, writable, lock, self._settings)

    def check_layout(self, name: str) -> None:
        """Check that a collection is laid out as the settings ask; see `check_layout`."""
        with server_errors():
            params = self._client.get_collection(name).config.params
            check_layout(params, self._settings.index, name)

    def facts(self, name: str) -> dict[str, Any]:
        """Return where a collection lies and how far its optimizer and its replicas are; see `collection_facts`."""
        with server_errors():
            return collection_facts(self._client, name)


class ServerIndex(PointIndex):
    """An index in the collection named as the manifest is; `writable` makes it if there is none.

    A writer's `lock` keeps other writers of the same home away; it is released when the index is closed. Where several
    nodes hold the collection, reads are followed by a look at its shards, one for those of a question: one without a
    readable replica is an error, never a part missing from an answer.

    Raises `MissingError` if it is opened to be read and there is no collection; `ServiceError` if the server does not
    answer as it should, or a shard cannot be read.
    """

    def __init__(
        self,
        client: QdrantClient,
        manifest: Manifest,
        writable: bool = False,
        lock: DirectoryLock | None = None,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(manifest)
        self._client = client
        self._lock = lock
        self._settings = settings or Settings()
        self._collection = manifest.name
        self._writable = writable
        self._acknowledgements = 1  # of a write
        self._most = MOST  # things in a request
        self._indexed: set[str] | None = None  # keys of the payload with an index of texts, once they were looked at
        try:
            with server_errors():
                if writable:
                    self._prepare()
                elif not client.collection_exists(self._collection):
                    raise MissingError(
                        f"collection {self._collection!r} is not on the server: run 'biorag index' first"
                    )
            sharding = require_whole(client, self._collection)
            self._distributed, self._looked = sharding.distributed, time.monotonic()
            self._streams = min(len(sharding.shards), MOST_STREAMS) if len(sharding.shards) > 1 else STREAMS
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        """Make the collection if there is none, and the payload indexes that one that is being loaded lacks."""
        layout = self._settings.index
        if not self._client.collection_exists(self._collection):
            create_collection(self._client, self._manifest, layout)
            await_new_shards(self._client, self._collection, layout.replicas)
        info = self._client.get_collection(self._collection)
        self._acknowledgements = info.config.params.write_consistency_factor or 1
        if is_loading(info):
            index_payload(self._client, self._collection, info.payload_schema)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with server_errors():
            yield
        if self._distributed and time.monotonic() - self._looked > LOOK:
            require_whole(self._client, self._collection)
            self._looked = time.monotonic()

    def count(self) -> int:
        """Return the number of snippets."""
        with self._reading():
            count = self._client.count(self._collection, exact=True).count
            if not 0 <= count < MOST:
                raise StoredError(f"a count of {count} snippets")
            return count

    def _answers(self, probes: Sequence[IndexQuery]) -> Sequence[Sequence[Any]]:
        """Ask in one request, or few for token vectors."""
        requests = [self._request(probe) for probe in probes]
        sizes = [0 if isinstance(probe.query, str) else probe.query.size for probe in probes]
        for key in dict.fromkeys(key for probe in probes for key in text_keys(probe.where)):
            self._require_text_index(key)
        answers: list[models.QueryResponse] = []
        for part in parts(sizes, len(probes)):
            answers += self._filtered(requests[part])
        return [answer.points for answer in answers]

    def _filtered(self, requests: list[models.QueryRequest]) -> list[models.QueryResponse]:
        """Ask, and make the indexes of the payload without which the server does not filter."""
        made: set[str] = set()
        while True:
            try:
                return self._client.query_batch_points(self._collection, requests)
            except UnexpectedResponse as error:
                needed = needed_index(error)
                if needed is None or needed[0] in made:
                    raise
                made.add(needed[0])
                self._make_payload_index(needed[0], self._kind_of(*needed))

    def _require_text_index(self, key: str) -> None:
        """Make the index of a text unless there is one: without it some servers compare phrases otherwise."""
        if self._indexed is None:
            schema = self._client.get_collection(self._collection).payload_schema
            self._indexed = {name for name, index in schema.items() if index.data_type == TEXT}
        if key not in self._indexed:
            self._make_payload_index(key, TEXT)
            self._indexed.add(key)

    def _make_payload_index(self, key: str, kind: str) -> None:
        """Make an index of the payload, and say how long it took; raises `ServiceError` if the key may not."""
        started = time.perf_counter()
        try:
            make_payload_index(self._client, self._collection, key, kind)
        except UnexpectedResponse as error:
            if error.status_code != HTTPStatus.FORBIDDEN:
                raise
            raise ServiceError(
                f"the Qdrant server needs an index of {key!r} for this filter, and the key may not make it: search so "
                "once with a key that may write"
            ) from None
        logger.info("the server made an index of %r for this filter in %.1f s", key, time.perf_counter() - started)

    def _kind_of(self, key: str, kinds: Sequence[str]) -> str:
        """Return the kind of index, of those that would do, that suits the values of a key of the payload."""
        if all(kind.startswith(TEXT) for kind in kinds):
            return TEXT
        values = (self._manifest.fields or {}).get(key.partition(".")[2], "")
        wanted = "float" if "number" in values else "bool" if values == "bool" else "keyword"
        return wanted if wanted in kinds else kinds[0]

    def _records(self, ids: Sequence[str], fields: Sequence[str] | bool, vectors: Sequence[str] = ()) -> Sequence[Any]:
        """Ask for points; a writer for their digests from as many replicas as acknowledge a write.

        So what reached fewer replicas, when a run was interrupted, is not stored, and is written again.
        """
        compares = self._writable and fields == ["id", "digest"]
        ask = partial(
            self._client.retrieve,
            self._collection,
            with_payload=fields if isinstance(fields, bool) else list(fields),
            with_vectors=list(vectors) if vectors else False,
            consistency=self._acknowledgements if compares else None,
        )
        return self._in_parts(_point_ids(ids), lambda part: ask(ids=list(part)))

    def _page(self, offset: Any) -> tuple[Sequence[Any], Any]:
        return self._client.scroll(
            self._collection, limit=SCROLL, offset=offset, with_payload=["id"], with_vectors=False
        )

    def upsert(
        self,
        snippets: Sequence[Snippet],
        vectors: Vectors,
        tokens: Sequence[Vectors] = (),
        terms: Sequence[SparseText] = (),
    ) -> None:
        """Add or replace snippets in a stream of requests a shard; acknowledged by the server when it returns.

        Each request is retried alone: what was acknowledged is not sent again.
        """

        def send(part: slice) -> None:
            self._in_parts(self._points(snippets[part], vectors[part], tokens[part], terms[part]), self._put)

        slices = upsert_parts(snippets, tokens, self._manifest.tokens)
        with server_errors(), asking_threads(self._streams) as (pool, _):
            list(pool.map(send, slices))

    def _put(self, points: Sequence[Any]) -> Sequence[Any]:
        self._client.upsert(self._collection, list(points), wait=True, ordering=ORDERING)
        return ()

    def _in_parts(self, things: Sequence[Any], ask: Callable[[Sequence[Any]], Sequence[Any]]) -> Sequence[Any]:
        """Ask for things in one request, or in as many as a server, its limits or a proxy before it want."""
        most = min(len(things), self._most)
        answers: list[Any] = []
        while things:
            try:
                answers += ask(things[:most])
            except UnexpectedResponse as error:
                most = fewer(error, most) or 0
                if not most:
                    raise
                self._most = most
                continue
            things = things[most:]
        return answers

    def _dense(self, vectors: Vectors) -> Sequence[Any]:
        rows: list[list[float]] = vectors.tolist()
        return rows

    def _token_rows(self, tokens: Vectors) -> Sequence[Any]:
        """Return token vectors to six places, more than half precision keeps: as JSON they are half as long."""
        rows: list[list[float]] = np.round(tokens.astype(np.float64), 6).tolist()
        return rows

    def _sparse(self, terms: SparseText) -> models.SparseVector:
        return models.SparseVector(indices=terms.indices, values=terms.values)

    def _point(self, snippet: Snippet, vectors: dict[str, Any]) -> models.PointStruct:
        # Not validated: with 30,000 numbers a snippet that took half the time, and the server validates them.
        return models.PointStruct.model_construct(
            id=str(point_id(snippet.id)), vector=vectors, payload=payload(snippet)
        )

    def delete(self, ids: Sequence[str]) -> None:
        """Remove snippets; acknowledged by the server when it returns."""
        with server_errors():
            selector = models.PointIdsList(points=_point_ids(ids))
            self._client.delete(self._collection, selector, wait=True, ordering=ORDERING)

    def deleted_share(self) -> None:
        """Tell nothing: a server vacuums on its own, and does not say what is left."""

    def optimize(self) -> None:
        """Build the graph of a collection that was loaded without one, and wait until it is built.

        A server optimizes on its own what is changed in a finished collection; that is not waited for.
        """
        with server_errors():
            loading = is_loading(self._client.get_collection(self._collection))
            if loading:
                build_graph(self._client, self._collection)
        if loading or not self._manifest.complete:
            wait_until_green(self._client, self._collection, self._settings.services.optimizing_timeout)

    def seal(self) -> None:
        """End the writing; a server looks after its own files."""

    def close(self) -> None:
        """Close the connection, and release the lock if one was given."""
        self._client.close()
        if self._lock:
            self._lock.release()

    @cached_property
    def _size(self) -> int:
        return self.count()

    def _request(self, probe: IndexQuery) -> models.QueryRequest:
        quantization = models.QuantizationSearchParams(rescore=True, oversampling=OVERSAMPLING)
        acorn = models.AcornSearchParams(enable=True, max_selectivity=ACORN_SELECTIVITY)
        return models.QueryRequest(
            query=self._sparse(self._bm25.query(probe.query)) if isinstance(probe.query, str) else probe.query.tolist(),
            using=field_of(probe),
            limit=probe.limit,
            filter=_filter(probe),
            params=models.SearchParams(
                hnsw_ef=search_width(self._size, probe.limit),
                exact=probe.exact or probe.among is not None,
                quantization=quantization if self._manifest.quantized else None,
                acorn=acorn if probe.where else None,
            ),
            with_payload=["id"],
        )


def _point_ids(ids: Sequence[str]) -> list[int | str | UUID]:
    return [str(point_id(id)) for id in ids]


def _filter(probe: IndexQuery) -> models.Filter | None:
    """Return the filter of a probe; None if it has no condition."""
    among = [] if probe.among is None else [models.HasIdCondition(has_id=_point_ids(sorted(probe.among)))]
    return filter_of(probe.where, models.Filter, _condition, among)


def _condition(condition: FieldFilter) -> models.FieldCondition:
    key, value = condition.field, condition.value
    if condition.op == EXISTS:
        return models.FieldCondition(key=key, values_count=models.ValuesCount(gte=1))
    if condition.op == CONTAINS:
        return models.FieldCondition(key=key, match=models.MatchPhrase(phrase=str(value)))
    if isinstance(value, tuple):
        return models.FieldCondition(key=key, match=models.MatchAny(any=list(value)))
    if condition.op in BOUNDS:
        return models.FieldCondition(key=key, range=models.Range(**{BOUNDS[condition.op]: float(value)}))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return models.FieldCondition(key=key, range=models.Range(gte=value, lte=value))
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))
