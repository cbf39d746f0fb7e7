"""Other packages beside biorag: BM25 by rank_bm25 and bm25s, reranking of 20 by PyLate and colbert-ai.

    python -m venv peers && peers/bin/pip install -c constraints.txt pylate
    python -m scripts.measure.peers --data DATA --pylate peers/bin/python

searches the same snippets by BM25, in one process, by turns; then reranks the same 20 candidates of each question: by
biorag, with the index's own tokens and on the fly, and by each package on the fly. A reranker's time includes encoding
the question. The packages and `biorag --reranker FOLDER` load one checkpoint, which is made from the starter encoder
with a projection that was not trained: its speed is that of any ColBERT of this size. What cannot run here is cited, in
a table of its own.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from scripts.measure import machine
from scripts.measure.checkouts import (
    NEW,
    ROOT,
    Checkout,
    Data,
    add_data,
    all_facts,
    data_of,
    index_name,
)
from scripts.measure.processes import Worker, log
from scripts.measure.summary import markdown, report
from scripts.measure.warm import PAUSE, PLAIN, WARM_UP, worker_command

CANDIDATES = 20
STAGES = ("encode", "rerank")  # of biorag's search, what the other packages' times cover
COMPACT, FLY, COLBERT = "biorag, its default index", "biorag, on the fly", "biorag, on the fly, the same ColBERT"
CITED = (
    (
        "Pyserini",
        "MS MARCO passages, 8,841,823",
        'about 13 queries/s (77 ms), 1,000 hits, one thread of a "reasonably modern CPU with an SSD"',
        "castorini/pyserini@0019be8, docs/experiments-msmarco-passage.md",
    ),
    (
        "Pyserini",
        "SciDocs, 25,657",
        "14.1 queries/s (71 ms), one core of a Xeon at 2.2 GHz; rank_bm25 there 9.01 queries/s (111 ms)",
        "xhluca/bm25-benchmarks@03a22d4, README.md",
    ),
    (
        "Pyserini",
        "SciFact, 5,183",
        "15.02 queries/s (67 ms), one core of a Xeon at 2.2 GHz; rank_bm25 there 47.6 queries/s (21 ms)",
        "xhluca/bm25-benchmarks@03a22d4, README.md",
    ),
)
Reranker = Callable[[str, Sequence[str]], Mapping[str, float]]


def bm25_rows(home: Path, name: str, questions: Sequence[str]) -> list[list[Any]]:
    """Return one row a package: the medians of its BM25 searches and of biorag's."""
    from biorag.benchmarks.latency.baselines import Collection, Terms, compare_bm25
    from biorag.benchmarks.latency.peers import BM25_PEERS
    from biorag.benchmarks.latency.stages import stored
    from biorag.benchmarks.latency.timing import Effort
    from biorag.engine import open_index
    from biorag.settings.sources import load_settings

    settings = load_settings({"home": home, "name": name, "mode": "bm25", "rerank": False})
    with open_index(settings) as ready:
        ids = list(ready.index.ids())
        collection = Collection(ids, lambda: stored(ready.index, ids), ready.index)
        effort = Effort(repetitions=len(questions), warm_up=WARM_UP, seconds=60)
        compared = list(compare_bm25(collection, questions, Terms(tuple(BM25_PEERS), effort, len(ids))))
    return [
        [row.baseline, row.snippets, row.timings["ours"].n, row.ours, row.theirs, row.ratio, row.built_s]
        for row in compared
    ]


def biorag_reranker(worker: Worker, label: str, question: str, _: Sequence[str]) -> dict[str, float]:
    """Return the milliseconds that biorag takes to encode a question and to rerank its own candidates."""
    (answer,) = worker.ask(questions=[question])["answers"]
    return {label: sum(answer["stages"].get(stage, 0.0) for stage in STAGES)}


def package_reranker(worker: Worker, label: str, question: str, texts: Sequence[str]) -> dict[str, float]:
    """Return the milliseconds that another package takes, by the way that it reranks."""
    return {f"{label}, {way}": ms for way, ms in worker.ask(question=question, texts=texts).items()}


def rerank_all(first_stage: Worker, rerankers: Sequence[Reranker], questions: Sequence[str]) -> dict[str, list[float]]:
    """Return the milliseconds of each way of reranking, of every question, in turning order; the first warm up."""
    times: dict[str, list[float]] = defaultdict(list)
    warm_up = questions[-WARM_UP:]
    for turn, question in enumerate([*warm_up, *questions]):
        (found,) = first_stage.ask(questions=[question])["answers"]
        start = turn % len(rerankers)
        for reranker in (*rerankers[start:], *rerankers[:start]):
            time.sleep(PAUSE)
            for label, ms in reranker(question, found["texts"]).items():
                if turn >= len(warm_up):
                    times[label].append(ms)
    return times


def rerank_rows(times: Mapping[str, Sequence[float]]) -> list[list[Any]]:
    """Return one row a way of reranking, the fastest first: percentiles, and p50 as a multiple of biorag's default."""
    import numpy as np

    reference = median(times[COMPACT])
    rows: list[list[Any]] = []
    for label, milliseconds in sorted(times.items(), key=lambda item: median(item[1])):
        p50, p99 = (float(value) for value in np.percentile(milliseconds, [50, 99]))
        rows.append([label, len(milliseconds), p50, p99, p50 / reference])
    return rows


def open_rerankers(
    stack: ExitStack, checkout: Checkout, indexes: tuple[str, str], checkpoint: Path, pylate: Path | None
) -> list[Reranker]:
    """Start a worker for every way of reranking; PyLate's needs the Python of its environment."""

    def started(command: Sequence[str], environment: Mapping[str, str]) -> Worker:
        log(f"opening: {shlex.join(command[1:])}")
        return stack.enter_context(Worker(command, environment))

    compact, plain = indexes
    environment = checkout.environment()
    of_biorag = {
        COMPACT: {"name": compact},
        FLY: {"name": plain},
        COLBERT: {"name": plain, "reranker": str(checkpoint)},
    }
    rerankers: list[Reranker] = [
        partial(biorag_reranker, started(worker_command(**settings, k_init=CANDIDATES), environment), label)
        for label, settings in of_biorag.items()
    ]
    colbert = [sys.executable, "-m", "scripts.measure.colbert_worker", str(checkpoint)]
    rerankers.append(partial(package_reranker, started(colbert, environment), "colbert-ai"))
    if pylate:
        command = [str(pylate), "-m", "scripts.measure.pylate_worker", str(checkpoint)]
        worker = started(command, {**environment, "PYTHONPATH": str(ROOT)})
        rerankers.append(partial(package_reranker, worker, "PyLate"))
    return rerankers


def require_checkpoint(checkout: Checkout, data: Data) -> Path:
    """Return the folder of the ColBERT checkpoint, written if it is not there yet."""
    folder = checkout.home / "colbert"
    if not (folder / "artifact.metadata").is_file():
        checkout.run(["python", "-m", "scripts.measure.checkpoint", str(data.corpus(300)), str(folder)])
    return folder


def parsed() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser, questions=100)
    parser.add_argument("--work", type=Path, default=ROOT / "bench-results" / "measure", help="homes and indexes")
    parser.add_argument("--plain", default=PLAIN, help=f"flags of the index without tokens (default: {PLAIN})")
    parser.add_argument("--compact", default="", help="flags of the index with tokens (default: none)")
    parser.add_argument("--pylate", type=Path, help="Python of an environment that has PyLate")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured to FILE too")
    return parser.parse_args()


def main() -> None:
    """Print the tables."""
    options = parsed()
    checkout, data = Checkout.of(NEW, ROOT, options.work.resolve()), data_of(options)
    described = machine.described(checkout)
    name = index_name(options.snippets)
    indexes = (name, f"{name}-plain")
    for index, flags in zip(indexes, (options.compact, options.plain), strict=True):
        checkout.require_index(index, data.corpus(options.snippets), shlex.split(flags))
    checkpoint, questions = require_checkpoint(checkout, data), data.questions(options.questions)
    with ExitStack() as stack:
        settings = {"name": indexes[1], "rerank": False, "k": CANDIDATES}
        first_stage = stack.enter_context(Worker(worker_command(**settings), checkout.environment()))
        rerankers = open_rerankers(stack, checkout, indexes, checkpoint, options.pylate)
        times = rerank_all(first_stage, rerankers, questions)
    bm25 = bm25_rows(checkout.home, indexes[1], questions)
    tables = (
        markdown(
            ["BM25 search", "snippets", "questions", "biorag, p50 ms", "package, p50 ms", "ratio", "built in, s"], bm25
        ),
        markdown(
            [f"reranking of {CANDIDATES}", "questions", "p50, ms", "p99, ms", "p50 / biorag's"], rerank_rows(times)
        ),
        markdown(["cited, not measured", "corpus", "BM25 search", "source"], CITED),
    )
    record = {"machine": described, "checkouts": all_facts([checkout]), "bm25": bm25, "rerank_ms": times}
    report(machine.heading(described, [checkout]) + "\n".join(tables), record, options.json)


if __name__ == "__main__":
    main()
