"""Exported snippets encoded batch by batch; a snippet with a vector by the same encoder is not encoded again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from biorag.errors import ServiceError
from biorag.indexes.bm25 import Bm25Encoder
from biorag.indexes.manifest import Manifest
from biorag.indexes.writing import SnippetEncoding
from biorag.lab.scale.parquet import KEY, SNIPPETS, read_table, snippets_of
from biorag.lab.scale.snippet_folder import Export, SnippetFolder
from biorag.lab.scale.vector_folder import BATCHES, VectorFolder, among, batch_path, write_batch
from biorag.types import Progress
from biorag.utils.files import remove_left

NONE = np.empty(0, np.uint64)
Load = Callable[[Manifest], SnippetEncoding]  # loads the models; called once in each worker


class SnippetBatch(NamedTuple):
    """Rows of a part that are encoded together, and so come out the same wherever that is done."""

    part: str
    rows: np.ndarray


@dataclass(frozen=True, slots=True)
class EncodingJob:
    """Encoding of batches of `snippets` into `out`, for an index of this manifest; travels to other machines."""

    snippets: Path
    out: Path
    manifest: Manifest
    load: Load


class BatchEncoder:
    """Encodes batches, each into a file of its own; see `EncodingJob`.

    A batch that is there already, since its worker was lost before it could say so, is left as it is.
    """

    def __init__(self, job: EncodingJob) -> None:
        self._job = job
        self._encode = job.load(job.manifest)
        self._bm25 = Bm25Encoder.of(job.manifest)
        self._part = lru_cache(1)(lambda name: read_table(job.snippets / name, SNIPPETS))

    def __call__(self, batch: SnippetBatch) -> int:
        """Encode a batch; return how many snippets it has."""
        rows: pa.Table = self._part(batch.part).take(pa.array(batch.rows))
        path = batch_path(self._job.out, rows.column(KEY).to_numpy())
        if not path.is_file():
            snippets = snippets_of(rows)
            terms = [self._bm25.document(snippet.contents) for snippet in snippets]
            write_batch(path, rows, self._encode(snippets)._replace(terms=terms), self._job.manifest)
        return len(batch.rows)


# Encodes batches, and gives the size of each that is done.
Encode = Callable[[EncodingJob, Sequence[SnippetBatch]], Iterator[int]]


def encode_here(job: EncodingJob, batches: Sequence[SnippetBatch]) -> Iterator[int]:
    """Encode in this process, on its best device."""
    return map(BatchEncoder(job), batches)


@dataclass(frozen=True, slots=True)
class EmbedReport:
    """Counts of `biorag embed`: all snippets, those encoded now, and those encoded before."""

    out: str
    snippets: int
    encoded: int
    unchanged: int
    seconds: float


def embed_snippets(
    snippets: SnippetFolder,
    folder: VectorFolder,
    job: EncodingJob,
    batch_size: int,
    encode: Encode,
    progress: Progress,
    known: np.ndarray = NONE,
) -> EmbedReport:
    """Encode the snippets of a folder that have no vector in the other folder yet.

    Raises `ServiceError` if another process writes into the folder, or workers were lost with their batches.

    `known`: keys of snippets that need none, sorted.
    """
    started = time.perf_counter()
    with snippets.reading(), folder.locked():
        export = snippets.export()
        folder.check(job.manifest)
        folder.describe(job.manifest, snippets.path, complete=False)
        remove_left(folder.path, BATCHES)  # of killed workers
        batches = _batches(snippets, export, folder, batch_size, known)
        total = sum(len(batch.rows) for batch in batches)
        with progress("Encoding", total) as advance:
            for count in encode(job, batches) if batches else ():
                advance(count)
        if missing := sum(len(batch.rows) for batch in _batches(snippets, export, folder, batch_size, known)):
            raise ServiceError(f"{missing:,} snippets were not encoded: run the same command again")
        folder.describe(job.manifest, snippets.path, complete=True)
    seconds = round(time.perf_counter() - started, 3)
    return EmbedReport(str(folder.path), export.rows, total, export.rows - total, seconds)


def _batches(
    snippets: SnippetFolder, export: Export, folder: VectorFolder, size: int, known: np.ndarray
) -> list[SnippetBatch]:
    """Return the snippets without vectors in batches, none of more than one part."""
    done = np.union1d(folder.done(), known)
    batches: list[SnippetBatch] = []
    for part in export.parts:
        rows = np.flatnonzero(~among(snippets.keys(part), done))
        batches += [SnippetBatch(part.name, rows[start:][:size]) for start in range(0, len(rows), size)]
    return batches
