"""What the bound of a segment costs and saves: memory of the writer, recall and time of dense search.

    python -m scripts.measure.segments --snippets 100000 --points 25600,102400

Snippets have random words and vectors between 4,000 random points of 32 dimensions, with noise, brought to 384. The
writer is a process of its own; recall is of the exact best 10 of 100 queries.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from biorag.benchmarks.latency.memory import memory_peaks, peak_bytes, reset_peak
from biorag.benchmarks.latency.synthetic import between, exact_top, perturbed, recall
from biorag.indexes import edge
from biorag.indexes.edge import EdgeIndex
from biorag.indexes.manifest import Bm25Parameters, Manifest
from biorag.types import EncoderIdentity, IndexQuery, Snippet, Vectors

DIMENSION, RANK, CENTRES, BATCH, QUERIES, TOP = 384, 32, 4000, 1024, 100, 10
WORDS = 150  # of a snippet, of a vocabulary of 20,000
WIDTHS = (64, 128, 200, 400, 800)
MANIFEST = Manifest(
    name="segments",
    encoder=EncoderIdentity("random", "", "0" * 64, DIMENSION),
    similarity="cosine",
    quantized=False,
    bm25=Bm25Parameters(0.9, 0.4, 150.0),
    store={"kind": "edge"},
    created="",
    updated="",
)


def vectors(start: int) -> Vectors:
    """Return a batch of vectors of unit length, (BATCH, DIMENSION)."""
    fixed, rng = np.random.default_rng(0), np.random.default_rng([1, start])
    centres = fixed.standard_normal((CENTRES, RANK)) @ fixed.standard_normal((RANK, DIMENSION))
    left, right = (centres[rng.integers(CENTRES, size=BATCH)].astype(np.float32) for _ in range(2))
    drawn = perturbed(between(left, right, rng), rng)
    scaled: Vectors = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return scaled


def batches(snippets: int) -> Iterator[tuple[list[Snippet], Vectors]]:
    """Yield the snippets with their vectors, in whole batches."""
    for start in range(0, snippets, BATCH):
        rng = np.random.default_rng([2, start])
        words = np.minimum((rng.pareto(1.0, (BATCH, WORDS)) * 20).astype(int), 19_999).tolist()
        texts = (" ".join(f"word{word}" for word in row) for row in words)
        yield [Snippet(str(start + row), "", text) for row, text in enumerate(texts)], vectors(start)


def write(folder: Path, snippets: int, points: int) -> dict[str, Any]:
    """Write and optimize an index whose segments take `points`; return processor seconds and the peak in bytes."""
    edge.segment_points = lambda manifest: points  # type: ignore[assignment]
    edge.segment_kilobytes = lambda manifest: 3 * points * 4 * DIMENSION // 2048  # type: ignore[assignment]
    edge.segment_number = lambda manifest, count: max(2, -(-count // points) + 1)  # type: ignore[assignment]
    reset_peak()
    started = time.process_time()
    with closing(EdgeIndex(folder, MANIFEST, writable=True)) as index:
        for batch, rows in batches(snippets):
            index.upsert(batch, rows)
        index.optimize()
    return {"cpu_s": round(time.process_time() - started, 1), "peak": peak_bytes()}


def search(folder: Path, exact: list[list[int]], queries: Vectors, width: int) -> dict[str, Any]:
    """Return the recall and the median milliseconds of processors and of the clock, with so many candidates."""
    edge.segment_width = lambda sizes, limit: width  # type: ignore[assignment]
    found, cpu, clock = [], [], []
    with closing(EdgeIndex(folder, MANIFEST)) as index:
        for query in queries:
            started = time.process_time(), time.perf_counter()
            found.append([hit.id for hit in index.search([IndexQuery(query, TOP)])[0]])
            cpu.append(time.process_time() - started[0])
            clock.append(time.perf_counter() - started[1])
    truth = [[str(row) for row in rows] for rows in exact]
    ms = {"cpu_ms": round(float(np.median(cpu)) * 1000, 2), "p50_ms": round(float(np.median(clock)) * 1000, 2)}
    return {"width": width, "recall": round(recall(found, truth), 4), **ms}


def main() -> None:
    """Measure each bound; one JSON line for it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snippets", type=int, default=100_000)
    parser.add_argument("--points", default="25600,102400")
    options = parser.parse_args()
    everything = np.concatenate([rows for _, rows in batches(options.snippets)])
    queries = vectors(-BATCH & 0xFFFFFFFF)[:QUERIES]
    exact = exact_top(everything, queries, TOP)
    for points in map(int, options.points.split(",")):
        with tempfile.TemporaryDirectory() as name, ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            folder = Path(name) / "index"
            with memory_peaks(pool.submit(os.getpid).result()) as peaks:
                written = pool.submit(write, folder, options.snippets, points).result()
            memory = {"anonymous": peaks.anonymous, "file_backed": peaks.file_backed}
            searches = [search(folder, exact, queries, width) for width in WIDTHS]
            line = json.dumps({"points": points, **written, **memory, "searches": searches})
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
