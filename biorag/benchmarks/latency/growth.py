"""How an index grows: synthetic snippets in an embedded index of each size, written, opened and searched."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np

from biorag.benchmarks.latency.baselines import (
    JUDGED,
    Asked,
    Collection,
    Compared,
    Terms,
    compare_bm25,
    compare_dense,
    dense_recall,
    exact_ids,
    filtered_recall,
)
from biorag.benchmarks.latency.memory import anonymous_bytes, memory_peaks, peak_bytes, reset_peak, resident_bytes
from biorag.benchmarks.latency.stages import MODES, Known, Subject, first_stage, scratch_index
from biorag.benchmarks.latency.synthetic import BATCH, COMMON, FILTER, Corpus
from biorag.benchmarks.latency.timing import Timing
from biorag.indexes.manifest import Manifest
from biorag.indexes.store import open_embedded
from biorag.retrieval.retriever import Retriever, Stopwatch
from biorag.settings.settings import Settings
from biorag.types import EncoderIdentity, FieldFilter, Index, OnProgress, Vectors
from biorag.utils.batched import batched
from biorag.utils.files import disk_bytes

logger = logging.getLogger(__name__)

VECTORS = "vectors"  # the file that a size's vectors lie in
COMPARED = 1_000_000  # snippets at most beside other packages, which keep them in memory
FILTERED = "filtered hybrid"
SEARCHES: dict[str, tuple[str, tuple[FieldFilter, ...]]] = {
    **{mode: (mode, ()) for mode in MODES},
    FILTERED: ("hybrid", FILTER),
}


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that a fresh process has in use: before it opens an index, after, after searches, and at most.

    The index's mapped files count as far as they were read, but for the `anonymous` bytes. None where the system does
    not say.
    """

    before: int | None
    opened: int | None
    searched: int | None
    peak: int
    opened_anonymous: int | None = None
    searched_anonymous: int | None = None


@dataclass(frozen=True, slots=True)
class Grown:
    """An index of one size: what writing it took, what it takes, how it is searched.

    `writing_peak` is the most bytes in use in the process that wrote and optimized it; `writing_anonymous` the most of
    its own, `writing_file_backed` the most of mapped files, which the system may reclaim. The `_cpu_s` are processor
    seconds, of all threads. `search` is of the first stage of each mode, one question at a time; `recall` of the exact
    top 10 by vectors, `filtered_recall` of these among the snippets with `COMMON`; None without such snippets.
    """

    snippets: int
    quantized: bool
    write_s: float
    optimize_s: float
    snippets_per_s: float
    bytes_per_snippet: float
    memory: Memory
    writing_peak: int
    search: dict[str, Timing]
    recall: float
    baselines: tuple[Compared, ...] = ()
    write_cpu_s: float = 0.0
    optimize_cpu_s: float = 0.0
    writing_anonymous: int | None = None
    writing_file_backed: int | None = None
    filtered_recall: float | None = None


def grow(
    subject: Subject, corpus: Corpus, asked: Asked, size: int, terms: Terms, quantize: bool, on_progress: OnProgress
) -> Iterator[Grown]:
    """Measure an index of the first `size` snippets of a corpus, and with `quantize` one with int8 copies too.

    Everything lies in a temporary folder that is removed: 4 bytes a dimension and snippet for the vectors, and one
    index at a time. The baselines are compared with the first index, of up to `COMPARED` snippets.
    """
    if size > COMPARED and terms.names:
        logger.warning("baselines are left out at %s snippets: they keep all of them in memory", f"{size:,}")
        terms = replace(terms, names=())
    with tempfile.TemporaryDirectory(prefix="biorag-latency-") as name:
        folder = Path(name)
        vectors = _stored_vectors(folder / VECTORS, corpus, size)
        for quantized in (False, True) if quantize else (False,):
            manifest = replace(subject.manifest, quantized=quantized, tokens=None)
            making = Making(folder / f"index-{quantized}", folder / VECTORS, manifest, subject.settings)
            written = write_apart(making, corpus, size, on_progress)
            yield _grown(making, written, corpus, vectors, asked, terms)
            terms = replace(terms, names=())


@dataclass(frozen=True, slots=True)
class Making:
    """Where an index is made, of which file of vectors, as what, and how it is searched."""

    folder: Path
    vectors: Path
    manifest: Manifest
    settings: Settings


class Written(NamedTuple):
    """What "write" (BM25 included) and "optimize" took, and the most bytes the process had in use.

    `ms` are milliseconds, `cpu_s` seconds of processors.
    """

    ms: dict[str, float]
    peak: int
    cpu_s: dict[str, float]
    anonymous: int | None = None
    file_backed: int | None = None


def _grown(making: Making, written: Written, corpus: Corpus, vectors: Vectors, asked: Asked, terms: Terms) -> Grown:
    size, ms = len(vectors), written.ms
    taken = disk_bytes(making.folder)
    searches = SEARCHES if corpus.texts else {"dense": SEARCHES["dense"]}
    memory = memory_of_opening(making.folder, making.manifest, making.settings, asked, tuple(searches))
    known = Known(making.manifest.encoder, asked.questions, asked.vectors)
    with closing(open_embedded(making.folder, making.manifest)) as index:
        collection = Collection([str(row) for row in range(size)], lambda: corpus.written(size), index, vectors)
        search = {
            name: first_stage(
                index, known, _searching(making.settings, mode), asked.questions, [1], terms.effort, where
            )[1]
            for name, (mode, where) in searches.items()
        }
        judged = asked.vectors[:JUDGED]
        found = dense_recall(index, judged, exact_ids(collection, judged))
        filtered = filtered_recall(index, judged, COMMON) if corpus.texts else None
        dense = compare_dense(collection, asked, terms, making.manifest.similarity)
        baselines = (*compare_bm25(collection, asked.questions, terms), *dense)
    return Grown(
        snippets=size,
        quantized=making.manifest.quantized,
        write_s=round(ms["write"] / 1000, 3),
        optimize_s=round(ms["optimize"] / 1000, 3),
        snippets_per_s=round(size / sum(ms.values()) * 1000, 1),
        bytes_per_snippet=round(taken / size, 1),
        memory=memory,
        writing_peak=written.peak,
        search=search,
        recall=found,
        baselines=baselines,
        write_cpu_s=round(written.cpu_s["write"], 3),
        optimize_cpu_s=round(written.cpu_s["optimize"], 3),
        writing_anonymous=written.anonymous,
        writing_file_backed=written.file_backed,
        filtered_recall=filtered,
    )


def _stored_vectors(path: Path, corpus: Corpus, size: int) -> Vectors:
    """Return the corpus's vectors, (size, dimension), from a file, so that they do not fill the memory."""
    place, found = 0, None
    for batch in corpus.vectors(size):
        if found is None:
            found = np.memmap(path, np.float32, "w+", shape=(size, batch.shape[1]))
        found[place : place + len(batch)] = batch
        place += len(batch)
    assert found is not None, "a corpus has snippets"
    return found


def write_apart(making: Making, corpus: Corpus, size: int, on_progress: OnProgress) -> Written:
    """Write the index in a fresh process, whose memory is what writing takes and nothing else."""
    context = get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(1, mp_context=context) as pool:
        steps = manager.Queue()
        with memory_peaks(pool.submit(os.getpid).result()) as peaks:
            writing = pool.submit(_write, making, corpus, size, steps.put)
            writing.add_done_callback(lambda _: steps.put(None))
            for step in iter(steps.get, None):
                on_progress(step)
            done = writing.result()
        return done._replace(anonymous=peaks.anonymous, file_backed=peaks.file_backed)


def _write(making: Making, corpus: Corpus, size: int, on_progress: OnProgress) -> Written:
    reset_peak()
    watch, dimension = Stopwatch(), making.manifest.encoder.dimension
    cpu_s = dict.fromkeys(("write", "optimize"), 0.0)

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        started = time.process_time()
        with watch.stage(name):
            yield
        cpu_s[name] += time.process_time() - started

    with making.vectors.open("rb") as stored, closing(scratch_index(making.folder, making.manifest)) as index:
        for batch in batched(corpus.written(size), BATCH):
            vectors = np.fromfile(stored, np.float32, len(batch) * dimension).reshape(-1, dimension)
            with stage("write"):
                index.upsert(batch, vectors)
            on_progress(len(batch))
        with stage("optimize"):
            index.optimize()
        return Written(watch.ms, peak_bytes(), cpu_s)


def memory_of_opening(
    folder: Path, manifest: Manifest, settings: Settings, asked: Asked, searches: Sequence[str] = MODES
) -> Memory:
    """Open an index in a fresh process, ask every question in each of `SEARCHES`, and return the memory that took."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_opened, folder, manifest, settings, asked, searches).result()


def _opened(folder: Path, manifest: Manifest, settings: Settings, asked: Asked, searches: Sequence[str]) -> Memory:
    reset_peak()
    before = resident_bytes()
    with closing(open_embedded(folder, manifest)) as index:
        opened, anonymous = resident_bytes(), anonymous_bytes()
        search_all(index, manifest.encoder, settings, asked, searches)
        return Memory(before, opened, resident_bytes(), peak_bytes(), anonymous, anonymous_bytes())


def search_all(
    index: Index, identity: EncoderIdentity, settings: Settings, asked: Asked, searches: Sequence[str]
) -> None:
    """Ask every question in each of these `SEARCHES`, one at a time."""
    known = Known(identity, asked.questions, asked.vectors)
    for mode, where in map(SEARCHES.__getitem__, searches):
        retriever = Retriever(index, known, None, _searching(settings, mode).retrieval)
        for question in asked.questions:
            retriever.search(question, settings.retrieval.k_init, where)


def _searching(settings: Settings, mode: str) -> Settings:
    return settings.replace(mode=mode, rerank=False)


def written(sizes: Sequence[int], quantize: bool) -> int:
    """Return how many snippets `grow` writes for these sizes."""
    return sum(sizes) * (2 if quantize else 1)
