"""How an index grows: synthetic snippets in an embedded index of each size, written, opened and searched.

    python -m scripts.measure.growth --name pubmed4k --questions DATA/bioasq --sizes 10000,100000,1000000 \
        --encoded 4000 --out growth

Snippets are sentences of the index's snippets, recombined (see `scripts/measure/synthetic.py`). Writing and reading
have a process of their own, whose memory is measured: own memory and mapped files. Recall is of the ten best by
comparison with every vector, and of those that meet a filter. OUT has growth.json, growth.md and growth.png, written
anew after each size. "Doubling" is the factor by which a figure grows with each doubling: 1 is constant, 2 linear.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from biorag.benchmarks.latency.machine import peak_bytes, resident_bytes
from biorag.benchmarks.latency.stages import KnownVectors, first_stage, sampled
from biorag.benchmarks.latency.timing import Repetition
from biorag.corpus.datasets import load_dataset
from biorag.engine import encoder_files, load_encoder, open_index
from biorag.indexes.manifest import Manifest
from biorag.indexes.store import open_embedded
from biorag.retrieval.retriever import Retriever
from biorag.settings.settings import Settings
from biorag.settings.sources import load_settings
from biorag.types import Index, IndexQuery, Vectors, Where
from biorag.utils.files import disk_bytes, write_json, write_text
from biorag.utils.plots import PlotPanel, write_plot
from biorag.utils.progress import batched
from scripts.measure.memory import anonymous_bytes, memory_peaks, reset_peak
from scripts.measure.processes import log
from scripts.measure.summary import markdown
from scripts.measure.synthetic import BATCH, COMMON, FILTER, SyntheticCorpus, exact_top, recall

TOP, JUDGED, SOURCES = 10, 200, 20_000  # hits, questions whose recall is measured, snippets that are recombined
SEARCHES: dict[str, tuple[str, Where]] = {
    **{mode: (mode, ()) for mode in ("bm25", "dense", "hybrid")},
    "filtered hybrid": ("hybrid", FILTER),
}


@dataclass(frozen=True, slots=True)
class Subject:
    """Where an index of synthetic snippets lies, as what it is made, and what is asked of it."""

    folder: Path
    manifest: Manifest
    settings: Settings
    known: KnownVectors

    @property
    def stored_vectors(self) -> Path:
        """The file that the vectors lie in."""
        return self.folder.with_name("vectors")


def measured(subject: Subject, corpus: SyntheticCorpus, size: int, repetition: Repetition) -> dict[str, Any]:
    """Write, open and search an index of the first `size` snippets; return each figure by name, bytes and seconds."""
    vectors = _stored(subject.stored_vectors, corpus, size)
    figures = {"snippets": size, **write_apart(subject, corpus, size)}
    figures["bytes_per_snippet"] = round(disk_bytes(subject.folder) / size, 1)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        figures |= pool.submit(read, subject).result()
    with closing(open_embedded(subject.folder, subject.manifest)) as index:
        for name, (mode, where) in SEARCHES.items():
            settings = subject.settings.replace(mode=mode, rerank=False)
            timing = first_stage(index, subject.known, settings, [1], repetition, where)[1]
            figures |= {f"{name}_p50_ms": timing.p50, f"{name}_p99_ms": timing.p99}
        queries = subject.known.encode_queries(subject.known.questions[:JUDGED])
        exact = [[str(row) for row in rows] for rows in exact_top(vectors, queries, TOP)]
        figures["recall"] = recall(_ids(index, queries), exact)
        figures["filtered_recall"] = filtered_recall(index, queries, COMMON)
    return figures


def _ids(index: Index, queries: Vectors, where: Where = (), exact: bool = False) -> list[list[str]]:
    hits = index.search([IndexQuery(query, TOP, where, exact=exact) for query in queries])
    return [[scored.id for scored in of_query] for of_query in hits]


def filtered_recall(index: Index, queries: Vectors, where: Where) -> float | None:
    """Return the recall of a filtered search against one without the graph; None if nothing qualifies."""
    exact = _ids(index, queries, where, exact=True)
    return recall(_ids(index, queries, where), exact) if all(exact) else None


def _stored(path: Path, corpus: SyntheticCorpus, size: int) -> Vectors:
    """Return the corpus's vectors, (size, dimension), mapped from a file, so that they do not fill the memory."""
    dimension = 0
    with path.open("wb") as stream:
        for batch in corpus.vectors(size):
            batch.tofile(stream)
            dimension = batch.shape[1]
    return np.memmap(path, np.float32, "r", shape=(size, dimension))


def write_apart(subject: Subject, corpus: SyntheticCorpus, size: int) -> dict[str, Any]:
    """Write the index in a fresh process, whose memory is that of writing and nothing else."""
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        memory_peaks(pool.submit(os.getpid).result()) as peaks,
    ):
        figures = pool.submit(write, subject, corpus, size).result()
    return {**figures, "writer_own": peaks.anonymous, "writer_mapped": peaks.file_backed}


def write(subject: Subject, corpus: SyntheticCorpus, size: int) -> dict[str, Any]:
    """Write and optimize the index; return seconds, those of all processors, and the peak in bytes."""
    reset_peak()
    dimension = subject.manifest.encoder.dimension
    seconds = dict.fromkeys(("write_s", "write_cpu_s", "optimize_s", "optimize_cpu_s"), 0.0)

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        started, cpu = time.perf_counter(), time.process_time()
        yield
        seconds[f"{name}_s"] += time.perf_counter() - started
        seconds[f"{name}_cpu_s"] += time.process_time() - cpu

    with (
        subject.stored_vectors.open("rb") as stored,
        closing(open_embedded(subject.folder, subject.manifest, writable=True)) as index,
    ):
        for batch in batched(corpus.snippets(size), BATCH):
            vectors = np.fromfile(stored, np.float32, len(batch) * dimension).reshape(-1, dimension)
            with stage("write"):
                index.upsert(batch, vectors)
        with stage("optimize"):
            index.optimize()
        return {**{name: round(value, 3) for name, value in seconds.items()}, "writer_peak": peak_bytes()}


def read(subject: Subject) -> dict[str, Any]:
    """Open the index, ask every question in each of `SEARCHES`, and return the memory before, opened and after."""
    reset_peak()
    before, retrieval = resident_bytes(), subject.settings.retrieval
    with closing(open_embedded(subject.folder, subject.manifest)) as index:
        opened, own = resident_bytes(), anonymous_bytes()
        for mode, where in SEARCHES.values():
            settings = subject.settings.replace(mode=mode, rerank=False)
            retriever = Retriever(index, subject.known, None, settings.retrieval)
            for question in subject.known.questions:
                retriever.search(question, retrieval.k_init, where)
        return {
            "reader_before": before,
            "reader_opened": opened,
            "reader_opened_own": own,
            "reader": resident_bytes(),
            "reader_own": anonymous_bytes(),
        }


def doublings(sizes: Sequence[dict[str, Any]]) -> list[list[object]]:
    """Return one row a figure: its factor for each doubling of the snippets, from each size to the next."""
    figures = [name for name in sizes[0] if name != "snippets" and "recall" not in name]
    rows: list[list[object]] = []
    for name in figures:
        factors: list[object] = []
        for small, large in pairwise(sizes):
            known = small[name] and large[name]
            factors.append(factor(small[name], large[name], large["snippets"] / small["snippets"]) if known else "")
        rows.append([name, *factors])
    return rows


def factor(before: float, after: float, growth: float) -> float:
    """Return `(after / before) ** (1 / log2(growth))`."""
    return float((after / before) ** (1 / math.log2(growth)))


def write_report(out: Path, sizes: Sequence[dict[str, Any]]) -> None:
    """Write the figures as JSON, as tables and as a plot."""
    write_json(out / "growth.json", {"sizes": list(sizes)})
    names = [f"{size['snippets']:,}" for size in sizes]
    rows = [[name, *(_shown(name, size[name]) for size in sizes)] for name in sizes[0] if name != "snippets"]
    steps = [f"{small} to {large}" for small, large in pairwise(names)]
    tables = [markdown(["MB, seconds, ms", *names], rows), markdown(["doubling", *steps], doublings(sizes))]
    write_text(out / "growth.md", "\n".join(tables))

    def line(name: str, scale: float = 1) -> list[tuple[float, float]]:
        return [(size["snippets"], size[name] / scale) for size in sizes]

    memory = {name.replace("_", ", "): line(name, 1 << 20) for name in ("writer_peak", "writer_own", "reader")}
    panels = {
        ("Search", "ms a question (median)"): {name: line(f"{name}_p50_ms") for name in SEARCHES},
        ("Indexing without encoding", "seconds"): {name: line(f"{name}_s") for name in ("write", "optimize")},
        ("Memory of a process", "MB"): memory,
    }
    plots = [
        PlotPanel(title, "snippets", unit, lines, log_x=True, log_y=True) for (title, unit), lines in panels.items()
    ]
    write_plot(out / "growth.png", plots)


def _shown(name: str, value: Any) -> object:
    in_bytes = name.startswith(("writer", "reader"))
    return value / (1 << 20) if in_bytes and value is not None else value


def main() -> None:
    """Measure each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="default", help="index whose snippets are recombined")
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=100, help="questions")
    parser.add_argument("--sizes", required=True)
    parser.add_argument("--encoded", type=int, default=40_000)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each search")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    settings = load_settings({"name": options.name})
    numbers = sorted(map(int, options.sizes.split(",")))
    with open_index(settings.replace(mode="bm25", rerank=False)) as opened:
        manifest = replace(opened.manifest, tokens=None, quantized=False)
        files = encoder_files(settings, manifest)
        encoder = load_encoder(files, manifest.similarity, settings.retrieval.precision, settings.exports)
        sources = sampled(opened.index, SOURCES, settings.seed)
    questions = [question.text for question in load_dataset(options.questions).questions][: options.limit]
    corpus = SyntheticCorpus(sources, encoder, settings.seed, min(options.encoded, numbers[-1]))
    known, sizes = KnownVectors(encoder, questions), []
    options.out.mkdir(parents=True, exist_ok=True)
    for size in numbers:
        log(f"{size:,} snippets")
        with tempfile.TemporaryDirectory(prefix="biorag-growth-") as folder:
            subject = Subject(Path(folder) / "index", manifest, settings, known)
            sizes.append(measured(subject, corpus, size, Repetition(100, 3, options.seconds)))
        write_report(options.out, sizes)


if __name__ == "__main__":
    main()
