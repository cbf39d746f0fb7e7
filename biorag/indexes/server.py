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
from qdrant_client import models
from qdrant_client.http.exceptions import UnexpectedResponse

from biorag.errors import MissingError, ServiceError
from biorag.indexes.collection import ORDERING, Collection
from biorag.indexes.connection import connect, fewer, needed_index, server_errors
from biorag.indexes.manifest import Manifest
from biorag.indexes.points import (
    SCROLL,
    TEXT,
    Dialect,
    PointIndex,
    StoredError,
    parts,
    point_id,
    search_width,
    text_keys,
    upsert_parts,
)
from biorag.settings.settings import Settings
from biorag.types import IndexQuery, Snippet, SparseText, Vectors
from biorag.utils.http import asking_threads
from biorag.utils.locks import DirectoryLock
from biorag.utils.network import Server

logger = logging.getLogger(__name__)

LOOK = 0.25  # seconds between two looks at the shards: one for the reads of a question
STREAMS = 4  # of uploads to a single shard
MOST_STREAMS = 32
MOST = 2**40  # snippets
DIALECT = Dialect(
    models=models,
    range=models.Range,
    has_id=lambda ids: models.HasIdCondition(has_id=list(map(str, ids))),
    flag=bool,
    rows=lambda vectors: vectors.tolist(),
    # To six places, more than half precision keeps: as JSON they are half as long.
    token_rows=lambda tokens: np.round(tokens.astype(np.float64), 6).tolist(),
    # Not validated: with 30,000 numbers a snippet that took half the time, and the server validates them.
    point=lambda id, vectors, payload: models.PointStruct.model_construct(id=str(id), vector=vectors, payload=payload),
)


class ServerCollection(Collection):
    """The collection of the configured index, on a server that is reached so, which can be opened."""

    def __init__(self, server: Server, settings: Settings) -> None:
        super().__init__(connect(server), settings.index.name, settings)

    def open(self, manifest: Manifest, writable: bool, lock: DirectoryLock | None) -> ServerIndex:
        """Open the index in it."""
        return ServerIndex(self, manifest, writable, lock)


class ServerIndex(PointIndex):
    """An index in the collection named as the manifest is; `writable` makes it if there is none.

    A writer's `lock` keeps other writers of the same home away; it is released when the index is closed. Where several
    nodes hold the collection, reads are followed by a look at its shards, one for those of a question: one without a
    readable replica is an error, never a part missing from an answer.

    Raises `MissingError` if it is opened to be read and there is no collection; `ServiceError` if the server does not
    answer as it should, or a shard cannot be read.
    """

    dialect = DIALECT

    def __init__(
        self, collection: Collection, manifest: Manifest, writable: bool = False, lock: DirectoryLock | None = None
    ) -> None:
        super().__init__(manifest)
        self._collection, self._client, self._name = collection, collection.client, collection.name
        self._lock = lock
        self._writable = writable
        self._acknowledgements = 1  # of a write
        self._most = MOST  # things in a request
        self._indexed: set[str] | None = None  # keys of the payload with an index of texts, once they were looked at
        try:
            with server_errors():
                if writable:
                    self._acknowledgements = collection.prepare(manifest)
                elif not self._client.collection_exists(self._name):
                    raise MissingError(f"collection {self._name!r} is not on the server: run 'biorag index' first")
            sharding = collection.require_whole()
            self._distributed, self._looked = sharding.distributed, time.monotonic()
            self._streams = min(len(sharding.shards), MOST_STREAMS) if len(sharding.shards) > 1 else STREAMS
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with server_errors():
            yield
        if self._distributed and time.monotonic() - self._looked > LOOK:
            self._collection.require_whole()
            self._looked = time.monotonic()

    def count(self) -> int:
        """Return the number of snippets."""
        with self._reading():
            count = self._client.count(self._name, exact=True).count
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
                return self._client.query_batch_points(self._name, requests)
            except UnexpectedResponse as error:
                needed = needed_index(error)
                if needed is None or needed[0] in made:
                    raise
                made.add(needed[0])
                self._make_payload_index(needed[0], self._kind_of(*needed))

    def _require_text_index(self, key: str) -> None:
        """Make the index of a text unless there is one: without it some servers compare phrases otherwise."""
        if self._indexed is None:
            schema = self._collection.info().payload_schema
            self._indexed = {name for name, index in schema.items() if index.data_type == TEXT}
        if key not in self._indexed:
            self._make_payload_index(key, TEXT)
            self._indexed.add(key)

    def _make_payload_index(self, key: str, kind: str) -> None:
        """Make an index of the payload, and say how long it took; raises `ServiceError` if the key may not."""
        started = time.perf_counter()
        try:
            self._collection.index_payload(key, kind)
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
            self._name,
            with_payload=fields if isinstance(fields, bool) else list(fields),
            with_vectors=list(vectors) if vectors else False,
            consistency=self._acknowledgements if compares else None,
        )
        return self._in_parts(_point_ids(ids), lambda part: ask(ids=list(part)))

    def _page(self, offset: Any) -> tuple[Sequence[Any], Any]:
        return self._client.scroll(self._name, limit=SCROLL, offset=offset, with_payload=["id"], with_vectors=False)

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
        self._client.upsert(self._name, list(points), wait=True, ordering=ORDERING)
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

    def delete(self, ids: Sequence[str]) -> None:
        """Remove snippets; acknowledged by the server when it returns."""
        with server_errors():
            selector = models.PointIdsList(points=_point_ids(ids))
            self._client.delete(self._name, selector, wait=True, ordering=ORDERING)

    def deleted_share(self) -> None:
        """Tell nothing: a server vacuums on its own, and does not say what is left."""

    def optimize(self) -> None:
        """Build the graph of a collection that was loaded without one, and wait until it is built."""
        self._collection.build_graph(self._manifest.complete)

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

    def _width(self, limit: int) -> int:
        return search_width(self._size, limit)

    def _query(self, query: Any, using: str, **options: Any) -> models.QueryRequest:
        return models.QueryRequest(query=query, using=using, **options)


def _point_ids(ids: Sequence[str]) -> list[int | str | UUID]:
    return [str(point_id(id)) for id in ids]
