"""What hybrid search over two top-100 lists loses against exact search, and whether that is a full scan's result.

    python -m scripts.measure.exact_hybrid DATA/bioasq DATA/pubmedqa --home HOME --name pubmed

The full scan reads both scores of every snippet. A fusion's milliseconds are those of the first stage, one question at
a time. Writes a Markdown table.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from biorag.benchmarks.retrieval import evaluate
from biorag.benchmarks.significance import paired
from biorag.corpus.datasets import load_dataset
from biorag.engine import OpenIndex, open_index
from biorag.settings.settings import Settings
from biorag.types import IndexQuery, Vectors
from scripts.measure.summary import markdown

LIMITS = (20, 100)  # candidates: of --k-init, and of 'bench retrieval'
FUSIONS = ("linear", "exact")
SHOWN = ("nDCG@10", "R@10", "R@100")
CUTOFF = {name: int(name.partition("@")[2]) for name in SHOWN}


def full_scan(opened: OpenIndex, vector: Vectors, text: str, count: int) -> list[str]:
    """Return all ids by their fused score, equal ones by id: every snippet's two scores are read and added."""
    dense, bm25 = opened.index.search([IndexQuery(vector, count, exact=True), IndexQuery(text, count)])
    scores, by_word = dict(dense), dict(bm25)
    assert len(scores) == count, "a dense score of every snippet"
    weight = opened.settings.retrieval.lambda_
    total = {id: score + weight * by_word.get(id, 0.0) for id, score in scores.items()}
    return sorted(total, key=lambda id: (-total[id], id))


def rows_of(folder: Path, opened: OpenIndex) -> list[Sequence[object]]:
    """Return a dataset's rows of the table."""
    dataset, count = load_dataset(folder), opened.index.count()
    encoder = opened.load_encoder()
    scanned: dict[str, list[str]] = {}
    seconds = []
    for question in dataset.questions:
        (vector,) = encoder.encode_queries([question.text])  # alone, as below: in a batch its last bits may differ
        started = time.perf_counter()
        scanned[question.id] = full_scan(opened, vector, question.text, count)
        seconds.append(time.perf_counter() - started)
    rows: list[Sequence[object]] = []
    for limit in LIMITS:
        runs = {}
        for fusion in FUSIONS:
            retriever = opened.retriever.variant(fusion=fusion)
            found = {question.id: retriever.search(question.text, limit) for question in dataset.questions}
            runs[fusion] = {id: [hit.snippet.id for hit in ranking.hits] for id, ranking in found.items()}
            same = sum(runs[fusion][id] == scanned[id][:limit] for id in scanned)
            metrics, _ = evaluate(dataset.qrels, runs[fusion])
            p50, p95 = np.percentile([ranking.timings_ms["first_stage"] for ranking in found.values()], [50, 95])
            figures = [f"{metrics[name]:.4f}" if limit >= CUTOFF[name] else "" for name in SHOWN]
            times = [f"{p50:.1f}", f"{p95:.1f}"]
            rows.append((dataset.name, limit, fusion, f"{same:,} of {len(scanned):,}", *figures, *times))
        exact, linear = (evaluate(dataset.qrels, runs[fusion])[1] for fusion in ("exact", "linear"))
        test = paired([exact[id]["nDCG@10"] for id in exact], [linear[id]["nDCG@10"] for id in exact], seed=0)
        print(f"{dataset.name}, {limit}: nDCG@10, exact against linear: {test}", flush=True)  # noqa: T201
    scan = np.percentile([1000 * each for each in seconds], [50, 95])
    rows.append((dataset.name, count, "full scan", "", "", "", "", f"{scan[0]:.1f}", f"{scan[1]:.1f}"))
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", type=Path, nargs="+")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--name", default="pubmed")
    asked = parser.parse_args()
    with open_index(Settings.of(home=asked.home, name=asked.name, rerank=False)) as opened:
        rows = [row for folder in asked.datasets for row in rows_of(folder, opened)]
    head = ["questions", "candidates", "fusion", "lists as by full scan", *SHOWN, "ms, p50", "p95"]
    print(markdown(head, rows))  # noqa: T201


if __name__ == "__main__":
    main()
