"""What payload indexes, links for them in the graph, and ACORN bring to searches with filters, and what they cost.

    python -m scripts.measure.filters --name pubmed --snippets 100000

Snippets are synthetic, as those of `biorag bench latency --sizes`, made of an index's. Recall is of the ten best of
those that qualify, compared one by one.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import qdrant_edge as qe

from biorag.benchmarks.latency.baselines import TOP, filtered_recall
from biorag.benchmarks.latency.stages import sampled, scratch_index
from biorag.benchmarks.latency.synthetic import BATCH, COMMON, FILTER, Corpus, perturbed
from biorag.engine import encoder_files, load_encoder, open_index
from biorag.indexes import edge
from biorag.indexes.manifest import Manifest
from biorag.settings.sources import load_settings
from biorag.types import FieldFilter, Index, IndexQuery, Vectors
from biorag.utils.batched import batched

QUERIES, SOURCES = 100, 20_000
CONDITIONS: dict[str, tuple[FieldFilter, ...]] = {
    "none": (),
    "mesh, 60 %": (FieldFilter("mesh", "=", "Heading 1"),),
    "year, 36 %": COMMON,
    "mesh, 5 %": FILTER[1:],
    "year and mesh, 2 %": FILTER,
}


MADE = edge._shard_config


def linked(manifest: Manifest, form: int) -> qe.EdgeConfig:
    """Give the graph links for each payload index, as the engine does unless it is told otherwise."""
    plain = MADE(manifest, form)
    dense = plain.vectors["dense"]
    vectors = {"dense": qe.EdgeVectorParams(size=dense.size, distance=dense.distance, memory=dense.memory)}
    return qe.EdgeConfig(vectors, plain.sparse_vectors, wal_enabled=False)


VARIANTS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "no payload indexes": lambda: patch.object(edge, "payload_indexes", lambda bm25: {}),
    "links": lambda: patch.object(edge, "_shard_config", linked),
    "no links": nullcontext,
}


def written(index: Index, corpus: Corpus, size: int) -> float:
    """Write and optimize an index; return processor seconds."""
    seconds = 0.0
    for snippets, vectors in zip(batched(corpus.written(size), BATCH), corpus.vectors(size), strict=True):
        started = time.process_time()
        index.upsert(snippets, vectors)
        seconds += time.process_time() - started
    started = time.process_time()
    index.optimize()
    return round(seconds + time.process_time() - started, 1)


def searched(index: Index, queries: Vectors, where: tuple[FieldFilter, ...], selectivity: float) -> dict[str, Any]:
    """Return the recall and the median milliseconds of a search, with ACORN up to this share of qualifying snippets."""
    with patch.object(edge, "ACORN_SELECTIVITY", selectivity):
        share = filtered_recall(index, queries, where)
        clock = []
        for query in queries:
            started = time.perf_counter()
            index.search([IndexQuery(query, TOP, where)])
            clock.append(time.perf_counter() - started)
    return {"recall": share, "p50_ms": round(float(np.median(clock)) * 1000, 2)}


def main() -> None:
    """Measure each variant; one JSON line for each kind of search of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="default")
    parser.add_argument("--snippets", type=int, default=100_000)
    parser.add_argument("--encoded", type=int, default=4000)
    options = parser.parse_args()
    settings = load_settings({"name": options.name})
    with open_index(settings.replace(mode="bm25", rerank=False)) as opened:
        manifest = replace(opened.manifest, tokens=None, quantized=False)
        files = encoder_files(settings, manifest)
        encoder = load_encoder(files, manifest.similarity, settings.retrieval.precision, settings.exports)
        sources = sampled(opened.index, SOURCES, settings.seed)
    corpus = Corpus(sources, encoder, settings.seed, min(options.encoded, options.snippets), lambda count: None)
    rng = np.random.default_rng(1)
    first = next(corpus.vectors(BATCH))
    queries = perturbed(first[:QUERIES], rng)
    for name, variant in VARIANTS.items():
        with (
            variant(),
            tempfile.TemporaryDirectory() as folder,
            closing(scratch_index(Path(folder) / "index", manifest)) as index,
        ):
            seconds = written(index, corpus, options.snippets)
            for condition, where in CONDITIONS.items():
                for acorn in (0.0, 1.0) if where else (0.0,):
                    found = searched(index, queries, where, acorn)
                    line = {"variant": name, "cpu_s": seconds, "condition": condition, "acorn": bool(acorn)}
                    sys.stdout.write(json.dumps({**line, **found}) + "\n")
                    sys.stdout.flush()


if __name__ == "__main__":
    main()
