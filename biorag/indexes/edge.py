"""The embedded store: a Qdrant Edge shard in the index's folder.

The shard's write-ahead log stays off, because with it a second process cannot even read. The contents of files are
durable after `flush()`, which `upsert` calls; the names of new ones are not, so those are synced here. Our own lock
keeps a writer and readers apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import qdrant_edge as qe

from biorag.errors import BioragError, MismatchError, MissingError, ServiceError
from biorag.indexes.bm25 import Bm25Encoder
from biorag.indexes.checksums import SHARD, check_files, remove_scratch, shard_files, write_checksums
from biorag.indexes.edge_filters import edge_filter
from biorag.indexes.manifest import COMPACT, FULL, Bm25Parameters, Manifest
from biorag.indexes.points import (
    ACORN_SELECTIVITY,
    DENSE,
    HNSW_EF,
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
    payload,
    payload_indexes,
    point_id,
    snippets_of,
    upsert_parts,
    with_tokens,
)
from biorag.indexes.segments import (
    APPENDABLE,
    segment_kilobytes,
    segment_number,
    segment_points,
    segment_sizes,
    segment_width,
)
from biorag.indexes.view import empty, reading_view
from biorag.types import IndexQuery, ScoredDoc, Snippet, SparseText, Vectors
from biorag.utils.files import FolderTree, require_room
from biorag.utils.locks import DirectoryLock
from biorag.utils.panics import panics_raised
from biorag.utils.parsing import parsed, read_regular

DISTANCES = {"cosine": qe.Distance.Cosine, "dot": qe.Distance.Dot}
# The engine's own quantization, of four bits a number, in the place of the numbers; its stubs do not name it yet.
DATATYPES = {FULL: qe.VectorStorageDatatype.Float16, COMPACT: getattr(qe.VectorStorageDatatype, "Turbo4")}  # noqa: B009
SEGMENT_DATA = "segments"
FORM = 2  # of new shards: payload indexes, a graph without links for them, vectors that are mapped; 1 had none of it
CONFIG = "edge_config.json"
MOST_SEGMENTS = 10_000  # while a corpus is written: what is to be merged is merged at its end
VACUUMED_ALWAYS = 100_000  # snippets; vacuuming so many takes seconds
VACUUMED_SHARE = 0.01  # of a segment's points; vacuuming takes no longer than encoding so many


@dataclass(frozen=True, slots=True)
class _Graph:
    """How many links for payload indexes each point of a graph has; None for as many as others."""

    payload_m: int | None = None


@dataclass(frozen=True, slots=True)
class _Vectors:
    """The dimension and the similarity of a shard's vectors of one name, and their graph if it is not the engine's."""

    size: int
    distance: str
    hnsw_config: _Graph | None = None


@dataclass(frozen=True, slots=True)
class _Configuration:
    """What of a shard's configuration the manifest says too."""

    vectors: dict[str, _Vectors]


class EdgeIndex:
    """An index in `folder`; `writable` takes the exclusive lock and makes the shard if there is none.

    Raises
    ------
    MissingError
        If it is opened to be read and there is no shard, or a file of it is gone.
    MismatchError
        If a file of it is damaged.
    ServiceError
        If another process holds the lock, or the engine fails.
    """

    def __init__(self, folder: Path, manifest: Manifest, writable: bool = False) -> None:
        self._parameters = manifest.bm25
        self._bm25 = Bm25Encoder.of(manifest)
        self._quantized = manifest.quantized
        self._tokens = manifest.tokens
        self._folder = folder
        self._tree = FolderTree(folder)
        self._manifest = manifest
        self._form = FORM
        self._lock = DirectoryLock(folder, exclusive=writable)
        self._after = ExitStack()  # what is left when the shard is closed
        shard = folder / SHARD
        try:
            with _engine_errors():
                if (shard / SEGMENT_DATA).is_dir():
                    check_files(folder)
                    self._form = _form(folder, manifest)
                    self._shard = (
                        _load(folder, self._config())
                        if writable
                        else self._after.enter_context(_read(folder, self._config()))
                    )
                elif writable:
                    self._shard = qe.EdgeShard.create(str(shard), self._config())
                else:
                    raise MissingError(f"index {folder.name!r} has lost its data in {shard}: index the corpus again")
                if writable and self._form == FORM:
                    self._index_payload()
                # Points since a graph was last built; who only reads need not look.
                self._appended = max(segment_sizes(shard, APPENDABLE), default=0) if writable else 0
        except BaseException:
            self._lock.release()
            raise

    def _index_payload(self) -> None:
        """Make the payload indexes that a segment lacks: without them a filter reads every payload."""
        for key, kind in payload_indexes(self._parameters).items():
            schema = getattr(qe.PayloadSchemaType, kind.capitalize())
            self._shard.update(qe.UpdateOperation.create_field_index(key, schema))

    def count(self) -> int:
        """Return the number of snippets."""
        return self._shard.count(qe.CountRequest(exact=True))

    def search(self, probes: Sequence[IndexQuery]) -> list[list[ScoredDoc]]:
        """Answer all probes in one batch; see `Index.search`."""
        with _engine_errors():
            results = self._shard.query_batch(qe.QueryBatchRequest([self._request(probe) for probe in probes]))
            return [best_first(points, probe) for points, probe in zip(results, probes, strict=True)]

    def fetch(self, ids: Sequence[str]) -> dict[str, Snippet]:
        """Return the stored snippets by id; unknown ids are left out."""
        with _engine_errors():
            records = self._shard.retrieve([point_id(id) for id in ids], with_payload=True, with_vector=False)
            return snippets_of(record.payload for record in records)

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the stored content digests by id; unknown ids are left out."""
        with _engine_errors():
            records = self._shard.retrieve(
                [point_id(id) for id in ids], with_payload=["id", "digest"], with_vector=False
            )
            return digests_of(record.payload for record in records)

    def dense_vectors(self, ids: Sequence[str]) -> dict[str, Vectors]:
        """Return the stored dense vectors by snippet id; see `Index.dense_vectors`."""
        with _engine_errors():
            records = self._shard.retrieve([point_id(id) for id in ids], with_payload=["id"], with_vector=[DENSE])
            return dense_by_id(records, self._manifest.encoder.dimension)

    def ids(self) -> Iterator[str]:
        """Yield every snippet's id, in the order of the points' ids."""
        offset = None
        while True:
            request = qe.ScrollRequest(offset=offset, limit=SCROLL, with_payload=["id"], with_vector=False)
            with _engine_errors():
                records, offset = self._shard.scroll(request)
                ids = ids_of(records)
            yield from ids
            if offset is None:
                return

    def upsert(
        self,
        snippets: Sequence[Snippet],
        vectors: Vectors,
        tokens: Sequence[Vectors] = (),
        terms: Sequence[SparseText] = (),
    ) -> None:
        """Add or replace snippets and flush; durable when it returns."""
        slices = upsert_parts(snippets, tokens, self._tokens)
        require_room(self._folder, _bytes(snippets, vectors, tokens, self._parameters))
        with _engine_errors():
            for part in slices:
                points = self._points(snippets[part], vectors[part], tokens[part], terms[part])
                self._shard.update(qe.UpdateOperation.upsert_points(points))
            self._flush()
        self._appended += len(snippets)
        if self._appended >= segment_points(self._manifest):
            self._build_segment()

    def _build_segment(self) -> None:
        """Build the graph of what was written since the last one, so that no build takes more memory than this one."""
        share = self._appended / max(sum(segment_sizes(self._folder / SHARD)), 1)
        require_room(self._folder, int(2 * share * self._bytes_on_disk()))
        with _engine_errors():
            self._reopen(self._optimizers(MOST_SEGMENTS))
            self._shard.optimize()
            self._flush()
        self._appended = 0

    def _points(
        self,
        snippets: Sequence[Snippet],
        vectors: Vectors,
        tokens: Sequence[Vectors],
        terms: Sequence[SparseText],
    ) -> list[qe.Point]:
        terms = terms or [self._bm25.document(snippet.contents) for snippet in snippets]
        named: list[dict[str, Any]] = [
            {DENSE: vector, SPARSE: qe.SparseVector(*sparse)}
            for sparse, vector in zip(terms, _rows(vectors), strict=True)
        ]
        with_tokens(named, tokens, self._tokens, _rows)
        return [
            qe.Point(point_id(snippet.id), point, payload(snippet, self._parameters))
            for snippet, point in zip(snippets, named, strict=True)
        ]

    def delete(self, ids: Sequence[str]) -> None:
        """Remove snippets and flush; durable when it returns."""
        with _engine_errors():
            self._shard.update(qe.UpdateOperation.delete_points([point_id(id) for id in ids]))
            self._flush()

    def deleted_share(self) -> float | None:
        """Return the share of the points kept that are deleted or replaced; see `Index.deleted_share`."""
        count = self.count()
        kept = sum(segment_sizes(self._folder / SHARD))
        if kept < count:
            return None
        return 1 - count / kept if kept else 0.0

    def optimize(self) -> None:
        """Build the HNSW graph, merge segments and vacuum them; blocks.

        The engine asks for room for all of it twice more.
        """
        require_room(self._folder, 2 * self._bytes_on_disk())
        with _engine_errors():
            count = self.count()
            share = 0.0 if count <= VACUUMED_ALWAYS else VACUUMED_SHARE
            deleted_threshold = share if self.deleted_share() != 0 else None
            self._reopen(self._optimizers(segment_number(self._manifest, count), deleted_threshold))
            self._shard.optimize()
            self._flush()
        self._appended = 0

    def _bytes_on_disk(self) -> int:
        return sum(path.stat().st_blocks * 512 for path in shard_files(self._folder))

    def _optimizers(self, segments: int, deleted_threshold: float | None = None) -> qe.EdgeOptimizersConfig:
        """Return how many segments there may be, and above which share of deletions each is vacuumed."""
        return qe.EdgeOptimizersConfig(
            deleted_threshold=deleted_threshold,
            vacuum_min_vector_number=None if deleted_threshold is None else 1,
            default_segment_number=segments,
            max_segment_size=segment_kilobytes(self._manifest),
        )

    def _reopen(self, optimizers: qe.EdgeOptimizersConfig) -> None:
        """Open the shard anew such that optimizing does as these say.

        Whoever opens the shard without any, as readers do, keeps what it was last given.
        """
        self._shard.close()
        made = self._config()
        config = qe.EdgeConfig(made.vectors, made.sparse_vectors, optimizers=optimizers, wal_enabled=False)
        with panics_raised():
            self._shard = qe.EdgeShard.load(str(self._folder / SHARD), config)

    def _config(self) -> qe.EdgeConfig:
        return _shard_config(self._manifest, self._form)

    def _flush(self) -> None:
        self._shard.flush()
        self._tree.sync()

    def seal(self) -> str:
        """Close the shard and record its files' checksums; see `Index.seal`."""
        with _engine_errors():
            self._shard.close()
            # What opening tidies (journals, the engine's configuration) is tidied before it is recorded.
            _load(self._folder, self._config()).close()
        remove_scratch(self._folder)
        self._tree.sync()
        return write_checksums(self._folder)

    def close(self) -> None:
        """Close the shard and release the lock."""
        self._shard.close()
        self._after.close()
        self._lock.release()

    @cached_property
    def _segments(self) -> list[int]:
        return segment_sizes(self._folder / SHARD)

    def _request(self, probe: IndexQuery) -> qe.QueryRequest:
        if isinstance(probe.query, str):
            query = qe.Query.Nearest(qe.SparseVector(*self._bm25.query(probe.query)), using=SPARSE)
        else:
            query = qe.Query.Nearest(probe.query.tolist(), using=field_of(probe))
        quantization = qe.QuantizationSearchParams(rescore=True, oversampling=OVERSAMPLING)
        return qe.QueryRequest(
            limit=probe.limit,
            query=query,
            filter=edge_filter(probe, self._parameters),
            params=qe.SearchParams(
                hnsw_ef=segment_width(self._segments, probe.limit),
                exact=probe.exact or probe.among is not None,
                quantization=quantization if self._quantized else None,
                acorn=qe.AcornSearchParams(enable=True, max_selectivity=ACORN_SELECTIVITY) if probe.where else None,
            ),
            with_payload=["id"],
        )


def _load(folder: Path, config: qe.EdgeConfig) -> qe.EdgeShard:
    """Load a shard to write to it; raises `PanicError` if the engine panics."""
    with panics_raised():
        return qe.EdgeShard.load(str(folder / SHARD), config)


@contextmanager
def _read(folder: Path, config: qe.EdgeConfig) -> Iterator[qe.EdgeShard]:
    """Load a shard to read it, and leave every file of it as it is; close it before this is left. Raises as `_load`."""
    shard = folder / SHARD
    with reading_view(shard, list(shard_files(folder))) as view:
        with panics_raised():
            loaded = qe.EdgeShard.load(str(view), config)
        empty(view)
        yield loaded


def _form(folder: Path, manifest: Manifest) -> int:
    """Return the form of a shard, whose configuration is held against the index's manifest.

    Raises
    ------
    MismatchError
        If the manifest is another shard's.
    """
    path = folder / SHARD / CONFIG
    wanted: dict[str, _Vectors] = {DENSE: _Vectors(manifest.encoder.dimension, manifest.similarity)}
    if manifest.tokens:
        wanted[TOKENS] = _Vectors(manifest.tokens.dimension, "dot")
    try:
        config: _Configuration = parsed(_Configuration, read_regular(path), extra="ignore")
    except FileNotFoundError:  # of a shard whose making was killed, or that checksums have missed already
        return FORM
    except ValueError as error:
        raise MismatchError(f"{path} is damaged ({error}): index the corpus again") from None
    held = {name: _Vectors(vectors.size, vectors.distance.lower()) for name, vectors in config.vectors.items()}
    if held != wanted:
        raise MismatchError(
            f"index {manifest.name!r} is damaged: its manifest speaks of {_words(wanted)}, its data of {_words(held)}: "
            "load a snapshot, or index the corpus again"
        )
    graph = config.vectors[DENSE].hnsw_config
    return FORM if graph and graph.payload_m == 0 else 1


def _words(vectors: Mapping[str, _Vectors]) -> str:
    return ", ".join(f"{name} vectors ({vectors.size}, {vectors.distance})" for name, vectors in vectors.items())


def _rows(vectors: Vectors) -> list[memoryview]:
    """Return vectors, (vectors, dimension), as the engine takes them in a fourth of the time that lists need."""
    return [memoryview(row) for row in np.ascontiguousarray(vectors, np.float32)]


def _bytes(snippets: Sequence[Snippet], vectors: Vectors, tokens: Sequence[Vectors], bm25: Bm25Parameters) -> int:
    """Return no less than what these take on disk: payload, BM25 terms (8 bytes each) and vectors."""
    texts = sum(len(json.dumps(payload(snippet, bm25))) for snippet in snippets)
    return 5 * texts + 4 * vectors.size + 2 * sum(rows.size for rows in tokens) + 1024 * len(snippets)


def _shard_config(manifest: Manifest, form: int) -> qe.EdgeConfig:
    """Return what a shard is made and opened as.

    The graph has no links of its own for payload indexes: they took writing 100,000 snippets from 60 to 147 CPU
    seconds and each search from 1.5 to 4.4 ms, and what they find, searches with conditions find with ACORN too.
    Vectors are mapped; else those of all segments are read whenever the shard is opened, by its writer too. A shard of
    the form before keeps it: with another configuration the engine would build its graphs again at the next change.
    """
    mapped = manifest.quantized or form == FORM
    unlinked = qe.HnswIndexConfig(m=16, ef_construct=100, full_scan_threshold=10_000, payload_m=0)
    quantization = qe.ScalarQuantizationConfig(qe.ScalarType.Int8, quantile=0.99, memory=qe.Memory.Pinned)
    dense = qe.EdgeVectorParams(
        size=manifest.encoder.dimension,
        distance=DISTANCES[manifest.similarity],
        hnsw_config=unlinked if form == FORM else None,
        quantization_config=quantization if manifest.quantized else None,
        memory=qe.Memory.Cold if mapped else None,
    )
    vectors = {DENSE: dense}
    if manifest.tokens:  # only ever compared with a few candidates, so without a graph, and read from disk
        vectors[TOKENS] = qe.EdgeVectorParams(
            size=manifest.tokens.dimension,
            distance=qe.Distance.Dot,
            multivector_config=qe.MultiVectorConfig(qe.MultiVectorComparator.MaxSim),
            datatype=DATATYPES[manifest.tokens.kept],
            hnsw_config=qe.HnswIndexConfig(m=0, ef_construct=HNSW_EF, full_scan_threshold=0),
            memory=qe.Memory.Cold,
        )
    return qe.EdgeConfig(
        vectors=vectors,
        sparse_vectors={SPARSE: qe.EdgeSparseVectorParams(modifier=qe.Modifier.Idf)},
        wal_enabled=False,
    )


@contextmanager
def _engine_errors() -> Iterator[None]:
    """Turn the bare exceptions of several kinds that the engine raises into one of ours."""
    try:
        yield
    except BioragError:
        raise
    except StoredError as error:
        raise MismatchError(f"the index is damaged, it holds {error}: load a snapshot, or index it again") from None
    except Exception as error:  # a bare Exception is among the kinds
        raise ServiceError(f"the Qdrant Edge engine failed: {error}") from error
