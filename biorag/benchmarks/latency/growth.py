"""How an index grows: synthetic snippets in an embedded index of each size, written, opened and searched."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
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
)
from biorag.benchmarks.latency.memory import peak_bytes, reset_peak, resident_bytes
from biorag.benchmarks.latency.stages import MODES, Known, Subject, first_stage, scratch_index
from biorag.benchmarks.latency.synthetic import BATCH, Corpus
from biorag.benchmarks.latency.timing import Timing
from biorag.indexes.manifest import Manifest
from biorag.indexes.store import open_embedded
from biorag.retrieval.retriever import Retriever, Stopwatch
from biorag.settings.settings import Settings
from biorag.types import EncoderIdentity, Index, OnProgress, Vectors
from biorag.utils.batched import batched
from biorag.utils.files import disk_bytes

VECTORS = "vectors"  # the file that a size's vectors lie in


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that a fresh process has in use: before it opens an index, after, after searches, and at most.

    The index's mapped files count as far as they were read. None where the system does not say.
    """

    before: int | None
    opened: int | None
    searched: int | None
    peak: int


@dataclass(frozen=True, slots=True)
class Grown:
    """An index of one size: what writing it took, what it takes, how it is searched.

    `writing_peak` is the most bytes in use in the process that wrote and optimized it. `search` is of the first stage
    of each mode, one question at a time; `recall` of the exact top 10 by vectors.
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


def grow(
    subject: Subject, corpus: Corpus, asked: Asked, size: int, terms: Terms, quantize: bool, on_progress: OnProgress
) -> Iterator[Grown]:
    """Measure an index of the first `size` snippets of a corpus, and with `quantize` one with int8 copies too.

    Everything lies in a temporary folder that is removed: 4 bytes a dimension and snippet for the vectors, and one
    index at a time. The baselines are compared with the first index.
    """
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
    """Milliseconds of "write" (BM25 included) and "optimize", and the most bytes the process had in use."""

    ms: dict[str, float]
    peak: int


def _grown(making: Making, written: Written, corpus: Corpus, vectors: Vectors, asked: Asked, terms: Terms) -> Grown:
    size, ms = len(vectors), written.ms
    taken = disk_bytes(making.folder)
    memory = memory_of_opening(making.folder, making.manifest, making.settings, asked)
    known = Known(making.manifest.encoder, asked.questions, asked.vectors)
    with closing(open_embedded(making.folder, making.manifest)) as index:
        collection = Collection([str(row) for row in range(size)], lambda: corpus.snippets(size), index, vectors)
        search = {
            mode: first_stage(index, known, _searching(making.settings, mode), asked.questions, [1], terms.effort)[1]
            for mode in MODES
        }
        judged = asked.vectors[:JUDGED]
        found = dense_recall(index, judged, exact_ids(collection, judged))
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
        writing = pool.submit(_write, making, corpus, size, steps.put)
        writing.add_done_callback(lambda _: steps.put(None))
        for step in iter(steps.get, None):
            on_progress(step)
        return writing.result()


def _write(making: Making, corpus: Corpus, size: int, on_progress: OnProgress) -> Written:
    reset_peak()
    watch, dimension = Stopwatch(), making.manifest.encoder.dimension
    with making.vectors.open("rb") as stored, closing(scratch_index(making.folder, making.manifest)) as index:
        for batch in batched(corpus.snippets(size), BATCH):
            vectors = np.fromfile(stored, np.float32, len(batch) * dimension).reshape(-1, dimension)
            with watch.stage("write"):
                index.upsert(batch, vectors)
            on_progress(len(batch))
        with watch.stage("optimize"):
            index.optimize()
        return Written(watch.ms, peak_bytes())


def memory_of_opening(folder: Path, manifest: Manifest, settings: Settings, asked: Asked) -> Memory:
    """Open an index in a fresh process, ask every question in every mode, and return the memory that took."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_opened, folder, manifest, settings, asked).result()


def _opened(folder: Path, manifest: Manifest, settings: Settings, asked: Asked) -> Memory:
    reset_peak()
    before = resident_bytes()
    with closing(open_embedded(folder, manifest)) as index:
        opened = resident_bytes()
        search_all(index, manifest.encoder, settings, asked)
        return Memory(before, opened, resident_bytes(), peak_bytes())


def search_all(index: Index, identity: EncoderIdentity, settings: Settings, asked: Asked) -> None:
    """Ask every question in every mode, one at a time."""
    known = Known(identity, asked.questions, asked.vectors)
    for mode in MODES:
        retriever = Retriever(index, known, None, _searching(settings, mode).retrieval)
        for question in asked.questions:
            retriever.search(question, settings.retrieval.k_init)


def _searching(settings: Settings, mode: str) -> Settings:
    return settings.replace(mode=mode, rerank=False)


def written(sizes: Sequence[int], quantize: bool) -> int:
    """Return how many snippets `grow` writes for these sizes."""
    return sum(sizes) * (2 if quantize else 1)
