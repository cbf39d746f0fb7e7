"""The store on a Qdrant server or cluster, through `qdrant-client`, with the same points."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from typing import TypeVar
from uuid import UUID

import httpx
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from biorag.errors import MismatchError, MissingError, ServiceError
from biorag.indexes.bm25 import Bm25Encoder
from biorag.indexes.manifest import COMPACT, FULL, Bm25Parameters, Manifest
from biorag.indexes.points import (
    DENSE,
    OVERSAMPLING,
    SCROLL,
    SPARSE,
    TOKENS,
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
    stored,
    upsert_parts,
    with_tokens,
)
from biorag.models.finding import first_line
from biorag.types import EXISTS, FieldFilter, IndexQuery, ScoredDoc, Snippet, SparseText, Vectors
from biorag.utils.locks import DirectoryLock
from biorag.utils.network import Server, is_loopback
from biorag.utils.retries import Retries, Send, heed
from biorag.utils.transport import BoundedTransport

DISTANCES = {"cosine": models.Distance.COSINE, "dot": models.Distance.DOT}
DATATYPES = {FULL: models.Datatype.FLOAT16, COMPACT: models.Datatype.TURBO4}
UPSERT_THREADS = 4
MOST = 2**40  # snippets
T = TypeVar("T")
MANIFEST_KEY = "biorag"
LARGEST_REPLY = 16 << 20  # bytes
LARGER_REPLIES = {"/points": 256 << 20}  # bytes: many long snippets
# On one machine a new connection costs nothing, and one that the server has closed meanwhile costs a retry.
LOCAL = httpx.Limits(max_keepalive_connections=0)
REMOTE = httpx.Limits(max_connections=100, max_keepalive_connections=20)


def connect(server: Server) -> QdrantClient:
    """Return a client of a server that retries transient failures; nothing is sent yet.

    All that biorag sends may be sent twice: points and collections have the same names each time.
    """
    limits = LOCAL if is_loopback(server.url) else REMOTE
    client = QdrantClient(
        url=server.url,
        api_key=server.api_key,
        timeout=math.ceil(server.timeout),
        check_compatibility=False,
        auth=server.auth,
        transport=BoundedTransport(server.url, server.timeout, LARGEST_REPLY, LARGER_REPLIES, limits=limits),
    )
    advice = "check --qdrant and that it runs, then give the same command again"
    retries = Retries(f"the Qdrant server at {server.url}", advice, server.retries)

    def again(request: httpx.Request, call_next: Send) -> httpx.Response:
        def send(request: httpx.Request) -> httpx.Response:
            try:
                return call_next(request)
            except ResponseHandlingException as error:  # around what httpx raised
                raise error.source from None

        return retries(request, send)

    client.http.client.add_middleware(again)
    return client


def read_remote_manifest(client: QdrantClient, collection: str) -> Manifest | None:
    """Return the manifest kept in the collection's metadata; None if there is no such collection.

    Raises
    ------
    MismatchError
        If the collection was not made by biorag, or by another format version.
    """
    with server_errors():
        if not client.collection_exists(collection):
            return None
        metadata = client.get_collection(collection).config.metadata or {}
    if MANIFEST_KEY not in metadata:
        raise MismatchError(f"collection {collection!r} on the server was not made by biorag: choose another --name")
    return Manifest.from_json(metadata[MANIFEST_KEY], f"the manifest of collection {collection!r}")


def write_remote_manifest(client: QdrantClient, collection: str, manifest: Manifest) -> None:
    """Keep the manifest in the collection's metadata."""
    with server_errors():
        client.update_collection(collection, metadata={MANIFEST_KEY: manifest.to_json()})


class QdrantServer:
    """The indexes on a Qdrant server; see `StoreServer`."""

    def __init__(self, server: Server) -> None:
        self._client = connect(server)

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
        return ServerIndex(self._client, manifest, writable, lock)


class ServerIndex:
    """An index in the collection named as the manifest is; `writable` makes it if there is none.

    A writer's `lock` keeps other writers of the same home away; it is released when the index is closed.

    Raises
    ------
    MissingError
        If it is opened to be read and there is no collection.
    ServiceError
        If the server does not answer as it should.
    """

    def __init__(
        self, client: QdrantClient, manifest: Manifest, writable: bool = False, lock: DirectoryLock | None = None
    ) -> None:
        self._client = client
        self._lock = lock
        self._collection = manifest.name
        self._quantized = manifest.quantized
        self._dimension = manifest.encoder.dimension
        self._tokens = manifest.tokens
        self._parameters = manifest.bm25
        self._bm25 = Bm25Encoder.of(manifest)
        try:
            with server_errors():
                if client.collection_exists(self._collection):
                    return
                if not writable:
                    raise MissingError(
                        f"collection {self._collection!r} is not on the server: run 'biorag index' first"
                    )
                _create(client, manifest)
        except BaseException:
            self.close()
            raise

    def count(self) -> int:
        """Return the number of snippets."""
        with server_errors():
            count = self._client.count(self._collection, exact=True).count
            if not 0 <= count < MOST:
                raise StoredError(f"a count of {count} snippets")
            return count

    def search(self, probes: Sequence[IndexQuery]) -> list[list[ScoredDoc]]:
        """Answer all probes in one request, or few for token vectors; see `Index.search`."""
        requests = [self._request(probe) for probe in probes]
        sizes = [0 if isinstance(probe.query, str) else probe.query.size for probe in probes]
        responses: list[models.QueryResponse] = []
        with server_errors():
            for part in parts(sizes, len(probes)):
                responses += self._client.query_batch_points(self._collection, requests[part])
            if len(responses) != len(probes):
                raise StoredError(f"{len(responses)} answers to {len(probes)} queries")
            return [best_first(response.points, probe) for response, probe in zip(responses, probes, strict=True)]

    def fetch(self, ids: Sequence[str]) -> dict[str, Snippet]:
        """Return the stored snippets by id; unknown ids are left out."""
        with server_errors():
            records = self._client.retrieve(self._collection, _point_ids(ids), with_payload=True)
            snippets = _asked(snippets_of(record.payload for record in records), ids)
            digests = digests_of(record.payload for record in records)
            changed = [id for id, snippet in snippets.items() if snippet.digest != digests[id]]
            if changed:
                raise StoredError(f"a snippet {changed[0]!r} that differs from its digest")
        return snippets

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the stored content digests by id; unknown ids are left out."""
        with server_errors():
            records = self._client.retrieve(self._collection, _point_ids(ids), with_payload=["id", "digest"])
            return _asked(digests_of(record.payload for record in records), ids)

    def dense_vectors(self, ids: Sequence[str]) -> dict[str, Vectors]:
        """Return the stored dense vectors by snippet id; see `Index.dense_vectors`."""
        with server_errors():
            records = self._client.retrieve(
                self._collection, _point_ids(ids), with_payload=["id"], with_vectors=[DENSE]
            )
            return _asked(dense_by_id(records, self._dimension), ids)

    def ids(self) -> Iterator[str]:
        """Yield every snippet's id, in the order of the points' ids."""
        offset = None
        while True:
            with server_errors():
                records, following = self._client.scroll(
                    self._collection, limit=SCROLL, offset=offset, with_payload=["id"], with_vectors=False
                )
                ids = ids_of(records)
                if len(ids) > SCROLL or (following is not None and not (ids and str(following) > str(offset or ""))):
                    raise StoredError("a list of ids without an end")
            yield from ids
            offset = following
            if offset is None:
                return

    def upsert(
        self,
        snippets: Sequence[Snippet],
        vectors: Vectors,
        tokens: Sequence[Vectors] = (),
        terms: Sequence[SparseText] = (),
    ) -> None:
        """Add or replace snippets in parallel requests; acknowledged by the server when it returns."""

        def send(part: slice) -> None:
            points = self._points(snippets[part], vectors[part], tokens[part], terms[part])
            self._client.upsert(self._collection, points, wait=True)

        slices = upsert_parts(snippets, tokens, self._tokens)
        stop = threading.Event()
        with server_errors(), ThreadPoolExecutor(UPSERT_THREADS, initializer=heed, initargs=(stop,)) as pool:
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
        with_tokens(named, tokens, self._tokens)
        return [
            models.PointStruct(id=str(point_id(snippet.id)), vector=point, payload=payload(snippet, self._parameters))
            for snippet, point in zip(snippets, named, strict=True)
        ]

    def delete(self, ids: Sequence[str]) -> None:
        """Remove snippets; acknowledged by the server when it returns."""
        with server_errors():
            self._client.delete(self._collection, models.PointIdsList(points=_point_ids(ids)), wait=True)

    def deleted_share(self) -> None:
        """Tell nothing: a server vacuums on its own, and does not say what is left."""

    def optimize(self) -> None:
        """Do nothing: a server optimizes on its own."""

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
        return models.QueryRequest(
            query=_sparse(*self._bm25.query(probe.query)) if isinstance(probe.query, str) else probe.query.tolist(),
            using=field_of(probe),
            limit=probe.limit,
            filter=_filter(probe, self._parameters),
            params=models.SearchParams(
                hnsw_ef=search_width(self._size, probe.limit),
                exact=probe.exact or probe.among is not None,
                quantization=quantization if self._quantized else None,
            ),
            with_payload=["id"],
        )


def _create(client: QdrantClient, manifest: Manifest) -> None:
    scalar = models.ScalarQuantizationConfig(type=models.ScalarType.INT8, quantile=0.99, always_ram=True)
    dense = models.VectorParams(
        size=manifest.encoder.dimension,
        distance=DISTANCES[manifest.similarity],
        quantization_config=models.ScalarQuantization(scalar=scalar) if manifest.quantized else None,
        on_disk=manifest.quantized or None,
    )
    vectors = {DENSE: dense}
    if manifest.tokens:  # only ever compared with a few candidates, so without a graph, and read from disk
        vectors[TOKENS] = models.VectorParams(
            size=manifest.tokens.dimension,
            distance=models.Distance.DOT,
            multivector_config=models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM),
            datatype=DATATYPES[manifest.tokens.kept],
            hnsw_config=models.HnswConfigDiff(m=0),
            on_disk=True,
        )
    try:
        client.create_collection(
            manifest.name,
            vectors_config=vectors,
            sparse_vectors_config={SPARSE: models.SparseVectorParams(modifier=models.Modifier.IDF)},
            metadata={MANIFEST_KEY: manifest.to_json()},
        )
    except UnexpectedResponse:
        # It says that there is one already if it made it, and its answer to the first try was lost.
        if read_remote_manifest(client, manifest.name) != manifest:
            raise


def _asked(found: dict[str, T], ids: Sequence[str]) -> dict[str, T]:
    """Return what a server says of snippets, if it was asked for them."""
    if strange := found.keys() - set(ids):
        raise StoredError(f"a snippet {min(strange)!r} that was not asked for")
    return found


def _sparse(indices: list[int], values: list[float]) -> models.SparseVector:
    return models.SparseVector(indices=indices, values=values)


def _point_ids(ids: Sequence[str]) -> list[int | str | UUID]:
    return [str(point_id(id)) for id in ids]


def _filter(probe: IndexQuery, bm25: Bm25Parameters) -> models.Filter | None:
    conditions = [stored(condition, bm25) for condition in probe.where]
    must: list[models.Condition] = [_condition(condition) for condition in conditions if not condition.negated]
    must_not: list[models.Condition] = [_condition(condition) for condition in conditions if condition.negated]
    if probe.among is not None:
        must.append(models.HasIdCondition(has_id=_point_ids(sorted(probe.among))))
    return models.Filter(must=must, must_not=must_not) if must or must_not else None


def _condition(condition: FieldFilter) -> models.FieldCondition:
    key, value = condition.field, condition.value
    if condition.op == EXISTS:
        return models.FieldCondition(key=key, values_count=models.ValuesCount(gte=1))
    if isinstance(value, tuple):
        return models.FieldCondition(key=key, match=models.MatchAny(any=list(value)))
    bounds = {">=": "gte", ">": "gt", "<=": "lte", "<": "lt"}
    if condition.op in bounds:
        return models.FieldCondition(key=key, range=models.Range(**{bounds[condition.op]: float(value)}))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return models.FieldCondition(key=key, range=models.Range(gte=value, lte=value))
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))


@contextmanager
def server_errors() -> Iterator[None]:
    """Turn what the client raises into one sentence with the next step."""
    try:
        yield
    except StoredError as error:
        raise ServiceError(
            f"the Qdrant server answers with {error}, which biorag does not write: check --qdrant, or index again"
        ) from None
    except UnexpectedResponse as error:
        hint = ": set QDRANT_API_KEY, or BIORAG_QDRANT_LOGIN" if error.status_code in (401, 403) else ""
        raise ServiceError(f"the Qdrant server refused: {error.status_code} {error.reason_phrase}{hint}") from error
    except (ResponseHandlingException, ApiException, httpx.HTTPError, OSError, ValueError, AssertionError) as error:
        raise ServiceError(
            f"the Qdrant server does not answer ({first_line(error)}): check --qdrant and that the server runs"
        ) from error
