"""The rates of this machine, measured in a few seconds on a sample of a corpus."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, cycle, islice
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from biorag.corpus.readers import read_snippets, refuse
from biorag.corpus.sources import Source, find_sources
from biorag.engine import encoder_files, snippet_encoders, token_files
from biorag.errors import BadInputError
from biorag.indexes.bm25 import Bm25Encoder
from biorag.indexes.manifest import COMPARABLE, Bm25Parameters, Manifest
from biorag.indexes.store import Store, open_embedded
from biorag.models.finding import ModelFiles, find_encoder
from biorag.models.tokens import token_spans
from biorag.scale.machine import GIGABYTE, Machine, Measured
from biorag.scale.parquet import snippet_table, write_table
from biorag.scale.sizes import encoder_size
from biorag.settings.settings import Settings
from biorag.types import Encoded, Progress, Snippet
from biorag.utils.batched import batched
from biorag.utils.cores import usable_cores
from biorag.utils.progress import silent

PART = 1024  # snippets written as Parquet at once
AVERAGE = 86.0  # BM25 terms of a passage, for vectors that nothing searches
NOISE = 0.5  # length of the noise beside a vector's own, as in `biorag bench latency --sizes`


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured: seconds of reading and of tokenizing; snippets encoded, loaded and in the graph."""

    seconds: float = 2.0
    encoded: int = 256
    loaded: int = 2048
    built: int = 16_384
    batch: int = 256


class _Stopwatch:
    """Seconds by the clock, or of CPU time of all threads if they are fewer: other programs stretch only the former."""

    def __init__(self) -> None:
        self._clock, self._cpu = time.perf_counter(), time.process_time()

    def seconds(self) -> float:
        """Return the seconds since it was made."""
        return min(time.perf_counter() - self._clock, self.cpu_seconds())

    def cpu_seconds(self) -> float:
        """Return the seconds of CPU time since it was made."""
        return time.process_time() - self._cpu


def measure(
    settings: Settings, corpus: Sequence[str], effort: Effort = Effort(), progress: Progress = silent
) -> Machine:
    """Return this machine with its rates, on the first snippets of a corpus.

    Exporting and tokenizing run in a process for each core, as the stages do. The graph is that of an index of the
    sample's vectors with noise, without token vectors, which have none.

    Raises
    ------
    BadInputError
        If the corpus has no snippet, or a bad line.
    """
    from biorag.benchmarks.latency.machine import describe

    files, cores, machine = encoder_files(settings, None), usable_cores(), describe()
    with tempfile.TemporaryDirectory(prefix="biorag-plan-") as name, progress("Measuring", 5) as advance:
        folder = Path(name)
        sources = find_sources(corpus, folder / "standard-input", settings.home)
        sample = _sample(sources, effort.encoded)
        exported = _on_all_cores(cores, _exporting, (sources, folder, effort.seconds))
        advance(1)
        prepared = _on_all_cores(cores, _preparing, (files.path, sample, effort.seconds))
        advance(1)
        manifest, encoded, encoding = _encode(settings, files, sample, effort.batch, cores, bool(machine.gpus))
        advance(1)
        loading, _ = _write(folder / "loaded", manifest, sample, encoded, effort.loaded)
        advance(1)
        without = encoded._replace(tokens=[])
        plain, building = _write(folder / "built", replace(manifest, tokens=None), sample, without, effort.built)
        advance(1)
    size = encoder_size(files)
    spans = token_spans(files)
    measured = Measured(
        processor=machine.cpu,
        cores=cores,
        gpus=min(1, len(machine.gpus)),
        multiplied=size.multiplied,
        tokens=round(float(np.mean([min(size.window, len(spans(snippet.contents))) for snippet in sample])), 1),
        store_tokens=manifest.tokens is not None,
        built=effort.built,
        load=machine.load,
        export_snippets_per_second=exported,
        prepare_snippets_per_second=prepared,
        encode_snippets_per_second=encoding,
        load_snippets_per_second=loading,
        load_without_tokens_snippets_per_second=plain,
        build_snippets_per_second=building,
    )
    memory = machine.memory_bytes or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(
        name="this machine",
        cores=cores,
        memory_gb=round(memory / GIGABYTE, 1),
        disk_gb=max(0.1, round(shutil.disk_usage(Path.cwd()).free / GIGABYTE, 1)),
        gpus=len(machine.gpus),
        measured=measured,
    )


def _sample(sources: Sequence[Source], size: int) -> list[Snippet]:
    """Return the first snippets, again and again where there are fewer, with numbers as ids."""
    read = list(islice(_snippets(sources), size))
    if not read:
        raise BadInputError("the corpus has no snippet to measure with: name another, or leave CORPUS out")
    return [replace(snippet, id=str(place)) for place, snippet in enumerate(islice(cycle(read), size))]


def _snippets(sources: Sequence[Source]) -> Iterator[Snippet]:
    for source in sources:
        yield from read_snippets(source, refuse)


def _on_all_cores(cores: int, work: Callable[..., float], arguments: tuple[object, ...]) -> float:
    """Return the snippets a second of a process on each core."""
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(work, *arguments) for _ in range(cores)]
        return _rounded(sum(process.result() for process in running))


def _exporting(sources: Sequence[Source], folder: Path, seconds: float) -> float:
    """Return the snippets a second of which files are read and Parquet is written."""
    again = (snippet for _ in count() for snippet in _snippets(sources))
    path = folder / f"{os.getpid()}.parquet"
    return PART * _rate(map(partial(write_table, path), map(snippet_table, batched(again, PART))), seconds)


def _preparing(encoder: Path, sample: Sequence[Snippet], seconds: float) -> float:
    """Return the snippets a second that are tokenized and whose BM25 terms are counted."""
    spans = token_spans(find_encoder(str(encoder)))
    bm25 = Bm25Encoder(Bm25Parameters(0.9, 0.4, AVERAGE, text=COMPARABLE))
    texts = (snippet.contents for snippet in cycle(sample))
    return _rate(((spans(text), bm25.document(text)) for text in texts), seconds)


def _rate(steps: Iterator[object], seconds: float) -> float:
    """Return how many steps of an endless iterator a second takes."""
    next(steps)
    watch = _Stopwatch()
    for done, _ in enumerate(steps, start=1):
        if (taken := watch.seconds()) >= seconds:
            return done / taken
    raise AssertionError("the steps do not end")


def _encode(
    settings: Settings, files: ModelFiles, sample: Sequence[Snippet], batch: int, cores: int, gpu: bool
) -> tuple[Manifest, Encoded, float]:
    """Return the manifest of an index of the sample, the sample encoded, and how many snippets a second that took.

    Without a GPU that is the rate of a worker on each core, by the CPU time of a snippet.
    """
    settings = settings.replace(similarity=settings.index.similarity or files.similarity() or "cosine")
    tokens = token_files(settings, None, files)
    encode = snippet_encoders(settings, files, tokens, settings.index.similarity or "", None, None, sample)
    manifest = Store(settings).new_manifest(encode.encoder.identity, AVERAGE, encode.parameters)
    bm25 = Bm25Encoder.of(manifest)
    encode(sample[:8])  # what is loaded and compiled at the first call does not belong to the rate
    parts, terms, watch = [], [], _Stopwatch()
    for place in range(0, len(sample), batch):
        snippets = sample[place : place + batch]
        parts.append(encode(snippets))
        terms += [bm25.document(snippet.contents) for snippet in snippets]
    rate = _rounded(len(sample) / watch.seconds() if gpu else cores * len(sample) / watch.cpu_seconds())
    vectors = np.concatenate([part.vectors for part in parts])
    return manifest, Encoded(vectors, [rows for part in parts for rows in part.tokens], terms), rate


def _write(
    folder: Path, manifest: Manifest, sample: Sequence[Snippet], encoded: Encoded, size: int
) -> tuple[float, float]:
    """Return how many snippets a second are written to an index of the sample's copies, and how many are optimized."""
    from biorag.benchmarks.latency.synthetic import perturbed

    rng = np.random.default_rng(0)
    writing = 0.0
    with closing(open_embedded(folder, manifest, writable=True)) as index:
        for start in range(0, size, len(sample)):
            part = slice(0, min(len(sample), size - start))
            snippets = [replace(snippet, id=str(start + place)) for place, snippet in enumerate(sample[part])]
            vectors = perturbed(encoded.vectors[part], rng, NOISE)
            watch = _Stopwatch()
            index.upsert(snippets, vectors, encoded.tokens[part], encoded.terms[part])
            writing += watch.seconds()
        watch = _Stopwatch()
        index.optimize()
        return _rounded(size / writing), _rounded(size / watch.seconds())


def _rounded(rate: float) -> float:
    """Return a rate in four digits."""
    return float(f"{rate:.4g}")
