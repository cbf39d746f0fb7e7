"""The embedded store: a Qdrant Edge shard in the index's folder, written in segments.

The shard's write-ahead log stays off, because with it a second process cannot even read. The contents of files are
durable after `flush()`, which `upsert` calls; the names of new ones are not, so those are synced here. Our own lock
keeps a writer and readers apart.

The engine builds the graph of a segment while its old and its new files are mapped, about 9 KB a snippet with 384
dimensions. A graph over a million snippets took 9.1 GB, so a corpus is built in segments while it is written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import qdrant_edge as qe

from biorag.errors import BioragError, MismatchError, MissingError, ServiceError
from biorag.indexes.manifest import COMPACT, FULL, Manifest
from biorag.indexes.points import (
    DENSE,
    HNSW_EF,
    PAYLOAD_INDEXES,
    SCROLL,
    SNIPPET_TOKENS,
    SPARSE,
    TEXT,
    TOKENS,
    Dialect,
    PointIndex,
    StoredError,
    payload,
    point_id,
    search_width,
    upsert_parts,
)
from biorag.indexes.shard_files import (
    SEGMENT_DATA,
    SHARD,
    FolderTree,
    check_files,
    empty,
    forget_checksums,
    reading_view,
    remove_scratch,
    shard_files,
    write_checksums,
)
from biorag.types import IndexQuery, Snippet, SparseText, Vectors
from biorag.utils.cores import check_addresses
from biorag.utils.files import disk_bytes, require_room
from biorag.utils.locks import DirectoryLock
from biorag.utils.panics import panics_raised

DISTANCES = {"cosine": qe.Distance.Cosine, "dot": qe.Distance.Dot}
# The engine's own quantization, of four bits a number, in the place of the numbers; its stubs do not name it yet.
DATATYPES = {FULL: qe.VectorStorageDatatype.Float16, COMPACT: getattr(qe.VectorStorageDatatype, "Turbo4")}  # noqa: B009
MOST_SEGMENTS = 10_000  # while a corpus is written: what is to be merged is merged at its end
VACUUMED_ALWAYS = 100_000  # snippets; vacuuming so many takes seconds
VACUUMED_SHARE = 0.01  # of a segment's points; vacuuming takes no longer than encoding so many

SEGMENT_BYTES = 192 << 20  # of dense vectors in a segment
LEAST_POINTS = 20_000  # in a segment, however long its vectors are
BYTES = 4  # of a number of a dense vector
AGAIN = "restore it by 'biorag indexes import', or index the corpus again"
MERGED = 1.5  # full segments that may become one: never two, but one and what an update adds
POINT_VERSIONS = "*id_tracker.versions"
APPENDABLE = "mutable_id_tracker.versions"  # of segments that are written to
DIALECT = Dialect(
    models=qe,
    range=qe.RangeFloat,
    has_id=lambda ids: qe.HasIdCondition(set(ids)),
    flag=np.bool_,  # the binding takes a Python bool for a whole number
    # Which the engine takes in a fourth of the time that lists need.
    rows=lambda vectors: [memoryview(row) for row in np.ascontiguousarray(vectors, np.float32)],
    token_rows=lambda tokens: [memoryview(row) for row in np.ascontiguousarray(tokens, np.float32)],
    point=qe.Point,
)


class EdgeIndex(PointIndex):
    """An index in `folder`; `writable` takes the exclusive lock and makes the shard if there is none.

    Raises `MissingError` if it is opened to be read and there is no shard, or a file of it is gone; `MismatchError` if
    a file of it is damaged; `ServiceError` if another process holds the lock, or the engine fails.
    """

    dialect = DIALECT

    def __init__(self, folder: Path, manifest: Manifest, writable: bool = False) -> None:
        check_addresses()
        super().__init__(manifest)
        self._folder = folder
        self._tree = FolderTree(folder)
        self._lock = DirectoryLock(folder, exclusive=writable)
        self._after = ExitStack()  # what is left when the shard is closed
        shard, config = folder / SHARD, _shard_config(manifest)
        try:
            with _engine_errors(folder):
                if (shard / SEGMENT_DATA).is_dir():
                    check_files(folder)
                    if writable:
                        forget_checksums(folder)
                        self._shard = _load(shard, config)
                    else:
                        self._shard = self._after.enter_context(_read(folder, config))
                elif writable:
                    self._shard = qe.EdgeShard.create(str(shard), config)
                else:
                    raise MissingError(f"index {folder.name!r} has lost its data in {shard}: index the corpus again")
                if writable:
                    self._index_payload()
                # Points since a graph was last built; who only reads need not look.
                self._appended = max(segment_sizes(shard, APPENDABLE), default=0) if writable else 0
        except BaseException:
            self._lock.release()
            raise

    def _index_payload(self) -> None:
        """Make the payload indexes that a segment lacks: without them a filter reads every payload."""
        text = qe.TextIndexParams(
            tokenizer=qe.TokenizerType.Word, lowercase=True, phrase_matching=True, memory=qe.Memory.Cold
        )
        for key, kind in PAYLOAD_INDEXES.items():
            schema = text if kind == TEXT else getattr(qe.PayloadSchemaType, kind.capitalize())
            self._shard.update(qe.UpdateOperation.create_field_index(key, schema))

    def count(self) -> int:
        """Return the number of snippets."""
        return self._shard.count(qe.CountRequest(exact=True))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with _engine_errors(self._folder), panics_raised():
            yield

    def _answers(self, probes: Sequence[IndexQuery]) -> Sequence[Sequence[Any]]:
        return self._shard.query_batch(qe.QueryBatchRequest([self._request(probe) for probe in probes]))

    def _records(self, ids: Sequence[str], fields: Sequence[str] | bool, vectors: Sequence[str] = ()) -> Sequence[Any]:
        with_payload = fields if isinstance(fields, bool) else list(fields)
        with_vector = list(vectors) if vectors else False
        return self._shard.retrieve([point_id(id) for id in ids], with_payload=with_payload, with_vector=with_vector)

    def _page(self, offset: Any) -> tuple[Sequence[Any], Any]:
        request = qe.ScrollRequest(offset=offset, limit=SCROLL, with_payload=["id"], with_vector=False)
        return self._shard.scroll(request)

    def upsert(
        self,
        snippets: Sequence[Snippet],
        vectors: Vectors,
        tokens: Sequence[Vectors] = (),
        terms: Sequence[SparseText] = (),
    ) -> None:
        """Add or replace snippets and flush; durable when it returns."""
        slices = upsert_parts(snippets, tokens, self._manifest.tokens)
        require_room(self._folder, _bytes(snippets, vectors, tokens))
        with _engine_errors(self._folder):
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
        require_room(self._folder, int(2 * share * disk_bytes(self._folder / SHARD)))
        self._optimize(MOST_SEGMENTS)

    def delete(self, ids: Sequence[str]) -> None:
        """Remove snippets and flush; durable when it returns."""
        with _engine_errors(self._folder):
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
        require_room(self._folder, 2 * disk_bytes(self._folder / SHARD))
        count = self.count()
        vacuumed = 0.0 if count <= VACUUMED_ALWAYS else VACUUMED_SHARE
        self._optimize(segment_number(self._manifest, count), vacuumed if self.deleted_share() != 0 else None)

    def _optimize(self, segments: int, deleted_threshold: float | None = None) -> None:
        """Optimize to so many segments, each above this share of deletions vacuumed.

        The shard is opened anew for it: who opens it without saying so, as readers do, keeps what it was last given.
        """
        optimizers = qe.EdgeOptimizersConfig(
            deleted_threshold=deleted_threshold,
            vacuum_min_vector_number=None if deleted_threshold is None else 1,
            default_segment_number=segments,
            max_segment_size=segment_kilobytes(self._manifest),
        )
        with _engine_errors(self._folder):
            self._shard.close()
            self._shard = _load(self._folder / SHARD, _shard_config(self._manifest, optimizers))
            self._shard.optimize()
            self._flush()
        self._appended = 0

    def _flush(self) -> None:
        self._shard.flush()
        self._tree.sync()

    def seal(self) -> str:
        """Close the shard and record its files' checksums; see `Index.seal`."""
        with _engine_errors(self._folder):
            self._shard.close()
            # What opening tidies (journals, the engine's configuration) is tidied before it is recorded.
            _load(self._folder / SHARD, _shard_config(self._manifest)).close()
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

    def _width(self, limit: int) -> int:
        return segment_width(self._segments, limit)

    def _query(self, query: Any, using: str, **options: Any) -> qe.QueryRequest:
        return qe.QueryRequest(query=qe.Query.Nearest(query, using=using), **options)


def _load(shard: Path, config: qe.EdgeConfig) -> qe.EdgeShard:
    """Load a shard to write to it; raises `PanicError` if the engine panics."""
    with panics_raised():
        return qe.EdgeShard.load(str(shard), config)


@contextmanager
def _read(folder: Path, config: qe.EdgeConfig) -> Iterator[qe.EdgeShard]:
    """Load a shard to read it, and leave every file of it as it is; close it before this is left. Raises as `_load`."""
    with reading_view(folder / SHARD, list(shard_files(folder))) as view:
        loaded = _load(view, config)
        empty(view)
        yield loaded


def _bytes(snippets: Sequence[Snippet], vectors: Vectors, tokens: Sequence[Vectors]) -> int:
    """Return no less than what these take on disk: payload, BM25 terms (8 bytes each) and vectors."""
    texts = sum(len(json.dumps(payload(snippet))) for snippet in snippets)
    return 5 * texts + 4 * vectors.size + 2 * sum(rows.size for rows in tokens) + 1024 * len(snippets)


def _shard_config(manifest: Manifest, optimizers: qe.EdgeOptimizersConfig | None = None) -> qe.EdgeConfig:
    """Return what a shard is made and opened as.

    The graph has no links of its own for payload indexes: they took writing 100,000 snippets from 60 to 147 CPU
    seconds and each search from 1.5 to 4.4 ms, and what they find, searches with conditions find with ACORN too.
    Vectors are mapped; else those of all segments are read whenever the shard is opened, by its writer too.
    """
    quantization = qe.ScalarQuantizationConfig(qe.ScalarType.Int8, quantile=0.99, memory=qe.Memory.Pinned)
    vectors = {
        DENSE: qe.EdgeVectorParams(
            size=manifest.encoder.dimension,
            distance=DISTANCES[manifest.similarity],
            hnsw_config=qe.HnswIndexConfig(m=16, ef_construct=100, full_scan_threshold=10_000, payload_m=0),
            quantization_config=quantization if manifest.quantized else None,
            memory=qe.Memory.Cold,
        )
    }
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
        optimizers=optimizers,
        wal_enabled=False,
    )


def segment_points(manifest: Manifest) -> int:
    """Return how many points a segment takes."""
    return max(SEGMENT_BYTES // (BYTES * manifest.encoder.dimension), LEAST_POINTS)


def segment_kilobytes(manifest: Manifest) -> int:
    """Return the size of a segment's largest vectors, in KB, up to which the engine merges segments."""
    numbers = max(manifest.encoder.dimension, SNIPPET_TOKENS * manifest.tokens.dimension if manifest.tokens else 0)
    return int(MERGED * segment_points(manifest) * BYTES * numbers / 1024)


def segment_number(manifest: Manifest, points: int) -> int:
    """Return how many segments an index may have before the engine merges the smallest.

    These are the full ones, one that is not, and one that is written to.
    """
    return max(2, math.ceil(points / segment_points(manifest)) + 1)


def segment_sizes(shard: Path, files: str = POINT_VERSIONS) -> list[int]:
    """Return how many points each segment of a shard has ever had; the engine keeps 8 bytes for each."""
    return [path.stat().st_size // 8 for path in shard.rglob(files)]


def segment_width(sizes: Sequence[int], limit: int) -> int:
    """Return how many candidates a search keeps (`hnsw_ef`) in each segment: the largest one's part of them.

    Each segment has only some of the nearest points. Of 160,000 snippets 200 candidates in each of four segments find
    99 % of the best 10 and of the best 100; 800 in a single one find 96 % and 92 %.

    `sizes`: points of each segment.
    """
    total = max(sum(sizes), 1)
    return max(HNSW_EF, search_width(total, limit) * max(sizes, default=0) // total)


@contextmanager
def _engine_errors(folder: Path) -> Iterator[None]:
    """Turn the bare exceptions of several kinds that the engine raises into one of ours, which names the index."""
    try:
        yield
    except BioragError:
        raise
    except StoredError as error:
        raise MismatchError(f"index {folder.name!r} is damaged (it holds {error}): {AGAIN}") from None
    except Exception as error:  # a bare Exception is among the kinds
        raise ServiceError(f"index {folder.name!r}: Qdrant Edge failed ({error}): if it does again, {AGAIN}") from error
