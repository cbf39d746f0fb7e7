"""The store on a Qdrant server or cluster, through `qdrant-client`, with the same points."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from qdrant_client import QdrantClient, models

from biorag.errors import MissingError, ServiceError
from biorag.indexes.bm25 import Bm25Encoder
from biorag.indexes.bulk_load import build_graph, is_loading, wait_until_green
from biorag.indexes.collection import (
    ORDERING,
    CollectionLayout,
    check_layout,
    create_collection,
    index_payload,
    read_remote_manifest,
    write_remote_manifest,
)
from biorag.indexes.conditions import point_ids, query_filter
from biorag.indexes.connection import connect, server_errors
from biorag.indexes.manifest import Manifest
from biorag.indexes.points import (
    ACORN_SELECTIVITY,
    DENSE,
    OVERSAMPLING,
    SCROLL,
    SPARSE,
    StoredError,
    best_first,
    dense_by_id,
    digests_of,
    field_of,
    ids_of,
    parts,
    payload,
    point_id,
    search_width,
    snippets_of,
    upsert_parts,
    with_tokens,
)
from biorag.indexes.replicas import await_new_shards, reached_alone, require_every_shard, require_whole, sharding_of
from biorag.indexes.server_facts import collection_facts
from biorag.settings.settings import Settings
from biorag.types import IndexQuery, ScoredDoc, Snippet, SparseText, Vectors
from biorag.utils.http import heed
from biorag.utils.locks import DirectoryLock
from biorag.utils.network import Server

STREAMS = 4  # of uploads to a single shard
MOST_STREAMS = 32
MOST = 2**40  # snippets
T = TypeVar("T")


class QdrantServer:
    """The indexes on a Qdrant server; see `StoreServer`."""

    def __init__(self, server: Server, settings: Settings) -> None:
        self._client = connect(server)
        self._settings = settings

    def read_manifest(self, name: str) -> Manifest | None:
        """Return the manifest of a collection; see `read_remote_manifest`."""
        return read_remote_manifest(self._client, name)

    def write_manifest(self, manifest: Manifest) -> None:
        """Keep the manifest with its collection."""
        write_remote_manifest(self._client, manifest.name, manifest)

    def remove(self, name: str) -> None:
        """Remove a collection, if biorag made it; raises as `read_remote_manifest` does."""
        if read_remote_manifest(self._client, name) is not None:
            with server_errors():
                self._client.delete_collection(name)

    def open(self, manifest: Manifest, writable: bool, lock: DirectoryLock | None) -> ServerIndex:
        """Open a collection."""
        return ServerIndex(self._client, manifest, writable, lock, ServerOptions.of(self._settings))

    def check_layout(self, name: str) -> None:
        """Check that a collection is laid out as the settings ask; see `check_layout`."""
        with server_errors():
            params = self._client.get_collection(name).config.params
            check_layout(params, CollectionLayout.of(self._settings.index), name)

    def facts(self, name: str) -> dict[str, Any]:
        """Return where a collection lies and how far its optimizer and its replicas are; see `collection_facts`."""
        with server_errors():
            return collection_facts(self._client, name)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How a collection is made, read and waited for.

    Parameters
    ----------
    read_consistency : how many replicas of a shard a read asks, or how it joins their answers
    patience : seconds that a collection may be optimized without progress
    """

    layout: CollectionLayout = field(default_factory=CollectionLayout)
    read_consistency: models.ReadConsistency = 1
    patience: float = 3600.0

    @classmethod
    def of(cls, settings: Settings) -> ServerOptions:
        """Return the options that the settings ask for."""
        consistency = settings.services.read_consistency
        number = int(consistency) if consistency.isdigit() else models.ReadConsistencyType(consistency)
        return cls(CollectionLayout.of(settings.index), number, settings.services.optimizing_timeout)


class ServerIndex:
    """An index in the collection named as the manifest is; `writable` makes it if there is none.

    A writer's `lock` keeps other writers of the same home away; it is released when the index is closed. Where several
    nodes hold the collection, each read is followed by a look at its replicas, so that what a shard without one could
    not add to an answer is an error.

    Raises
    ------
    MissingError
        If it is opened to be read and there is no collection.
    ServiceError
        If the server does not answer as it should, or a shard cannot be read.
    """

    def __init__(
        self,
        client: QdrantClient,
        manifest: Manifest,
        writable: bool = False,
        lock: DirectoryLock | None = None,
        options: ServerOptions | None = None,
    ) -> None:
        self._client = client
        self._lock = lock
        self._options = options or ServerOptions()
        self._collection = manifest.name
        self._quantized = manifest.quantized
        self._dimension = manifest.encoder.dimension
        self._tokens = manifest.tokens
        self._parameters = manifest.bm25
        self._bm25 = Bm25Encoder.of(manifest)
        self._writable = writable
        self._unfinished = not manifest.complete
        self._acknowledgements = 1  # of a write
        try:
            with server_errors():
                if writable:
                    self._prepare(manifest)
                elif not client.collection_exists(self._collection):
                    raise MissingError(
                        f"collection {self._collection!r} is not on the server: run 'biorag index' first"
                    )
            sharding = require_whole(client, self._collection)
            self._distributed = sharding.distributed
            self._streams = min(len(sharding.shards), MOST_STREAMS) if len(sharding.shards) > 1 else STREAMS
        except BaseException:
            self.close()
            raise

    def _prepare(self, manifest: Manifest) -> None:
        """Make the collection if there is none, and what one that is being loaded lacks of its payload indexes."""
        layout = self._options.layout
        if not self._client.collection_exists(self._collection):
            create_collection(self._client, manifest, layout)
            await_new_shards(self._client, self._collection, layout.replicas)
        info = self._client.get_collection(self._collection)
        self._acknowledgements = info.config.params.write_consistency_factor or 1
        if is_loading(info):
            index_payload(self._client, manifest, info.payload_schema)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Turn faults into one sentence, which names a shard that has no replica to write to."""
        try:
            with server_errors():
                yield
        except ServiceError:
            self._name_missing_shards()
            raise

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Do the same, and look at the replicas after a read; see the class."""
        with self._asking():
            yield
        if self._distributed:
            require_whole(self._client, self._collection)

    def _name_missing_shards(self) -> None:
        """Raise as `require_every_shard` does, while a request fails; nothing if the node does not say."""
        if not self._distributed:
            return
        try:
            with server_errors():
                sharding = reached_alone(self._client, sharding_of(self._client, self._collection))
        except ServiceError:
            return  # the first fault is the one to tell
        require_every_shard(sharding, self._collection)

    def count(self) -> int:
        """Return the number of snippets."""
        with self._reading():
            count = self._client.count(self._collection, exact=True).count
            if not 0 <= count < MOST:
                raise StoredError(f"a count of {count} snippets")
            return count

    def search(self, probes: Sequence[IndexQuery]) -> list[list[ScoredDoc]]:
        """Answer all probes in one request, or few for token vectors; see `Index.search`."""
        requests = [self._request(probe) for probe in probes]
        sizes = [0 if isinstance(probe.query, str) else probe.query.size for probe in probes]
        responses: list[models.QueryResponse] = []
        with self._reading():
            for part in parts(sizes, len(probes)):
                responses += self._client.query_batch_points(
                    self._collection, requests[part], consistency=self._options.read_consistency
                )
            if len(responses) != len(probes):
                raise StoredError(f"{len(responses)} answers to {len(probes)} queries")
            return [best_first(response.points, probe) for response, probe in zip(responses, probes, strict=True)]

    def fetch(self, ids: Sequence[str]) -> dict[str, Snippet]:
        """Return the stored snippets by id; unknown ids are left out."""
        with self._reading():
            records = self._retrieve(ids, self._options.read_consistency, with_payload=True)
            snippets = _asked(snippets_of(record.payload for record in records), ids)
            digests = digests_of(record.payload for record in records)
            changed = [id for id, snippet in snippets.items() if snippet.digest != digests[id]]
            if changed:
                raise StoredError(f"a snippet {changed[0]!r} that differs from its digest")
        return snippets

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the stored content digests by id; unknown ids are left out.

        For a writer a snippet is stored if as many replicas hold it as acknowledge a write: what reached fewer, when a
        run was interrupted, is written again.
        """
        consistency = self._acknowledgements if self._writable else self._options.read_consistency
        with self._reading():
            records = self._retrieve(ids, consistency, with_payload=["id", "digest"])
            return _asked(digests_of(record.payload for record in records), ids)

    def dense_vectors(self, ids: Sequence[str]) -> dict[str, Vectors]:
        """Return the stored dense vectors by snippet id; see `Index.dense_vectors`."""
        with self._reading():
            consistency = self._options.read_consistency
            records = self._retrieve(ids, consistency, with_payload=["id"], with_vectors=[DENSE])
            return _asked(dense_by_id(records, self._dimension), ids)

    def ids(self) -> Iterator[str]:
        """Yield every snippet's id, in the order of the points' ids."""
        offset = None
        while True:
            with self._reading():
                records, following = self._client.scroll(
                    self._collection,
                    limit=SCROLL,
                    offset=offset,
                    with_payload=["id"],
                    with_vectors=False,
                    consistency=self._options.read_consistency,
                )
                ids = ids_of(records)
                if len(ids) > SCROLL or (following is not None and not (ids and str(following) > str(offset or ""))):
                    raise StoredError("a list of ids without an end")
            yield from ids
            offset = following
            if offset is None:
                return

    def _retrieve(self, ids: Sequence[str], consistency: models.ReadConsistency, **options: Any) -> list[models.Record]:
        return self._client.retrieve(self._collection, point_ids(ids), consistency=consistency, **options)

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
            points = self._points(snippets[part], vectors[part], tokens[part], terms[part])
            self._client.upsert(self._collection, points, wait=True, ordering=ORDERING)

        slices = upsert_parts(snippets, tokens, self._tokens)
        stop = threading.Event()
        with self._asking(), ThreadPoolExecutor(self._streams, initializer=heed, initargs=(stop,)) as pool:
            try:
                list(pool.map(send, slices))
            except BaseException:
                stop.set()
                raise

    def _points(
        self,
        snippets: Sequence[Snippet],
        vectors: Vectors,
        tokens: Sequence[Vectors],
        terms: Sequence[SparseText],
    ) -> list[models.PointStruct]:
        terms = terms or [self._bm25.document(snippet.contents) for snippet in snippets]
        named: list[dict[str, models.Vector]] = [
            {DENSE: vector.tolist(), SPARSE: _sparse(*sparse)} for sparse, vector in zip(terms, vectors, strict=True)
        ]
        with_tokens(named, tokens, self._tokens, _rounded)
        # Not validated: with 30,000 numbers a snippet that took half the time, and the server validates them.
        made = models.PointStruct.model_construct
        return [
            made(id=str(point_id(snippet.id)), vector=point, payload=payload(snippet, self._parameters))
            for snippet, point in zip(snippets, named, strict=True)
        ]

    def delete(self, ids: Sequence[str]) -> None:
        """Remove snippets; acknowledged by the server when it returns."""
        with self._asking():
            selector = models.PointIdsList(points=point_ids(ids))
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
        if loading or self._unfinished:
            wait_until_green(self._client, self._collection, self._options.patience)

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
            query=_sparse(*self._bm25.query(probe.query)) if isinstance(probe.query, str) else probe.query.tolist(),
            using=field_of(probe),
            limit=probe.limit,
            filter=query_filter(probe, self._parameters),
            params=models.SearchParams(
                hnsw_ef=search_width(self._size, probe.limit),
                exact=probe.exact or probe.among is not None,
                quantization=quantization if self._quantized else None,
                acorn=acorn if probe.where else None,
            ),
            with_payload=["id"],
        )


def _asked(found: dict[str, T], ids: Sequence[str]) -> dict[str, T]:
    """Return what a server says of snippets, if it was asked for them."""
    if strange := found.keys() - set(ids):
        raise StoredError(f"a snippet {min(strange)!r} that was not asked for")
    return found


def _rounded(tokens: Vectors) -> list[list[float]]:
    """Return token vectors to six places, more than half precision keeps: as JSON they are half as long."""
    rows: list[list[float]] = np.round(tokens.astype(np.float64), 6).tolist()
    return rows


def _sparse(indices: list[int], values: list[float]) -> models.SparseVector:
    return models.SparseVector(indices=indices, values=values)
