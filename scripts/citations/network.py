"""A citation network of a million papers, built with the real command: time, disk, memory, and how fast it is asked.

A paper cites older ones, its references' number geometrically distributed. A reference of the i-th paper is the one
at place i · u², u uniform: the papers at place t then have in-degrees ∝ √(n / t), as under preferential attachment
(Barabási & Albert 1999, mean field). Both are seeded.

Usage: python -m scripts.citations.network FOLDER [--papers 1000000] [--references 20] [--gzip]
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from biorag.citation_graph.graph import Graph

FIRST, STEP = 10_000_000, 3  # PMIDs have eight digits
PIECE = 100_000
ASKED = 20_000


def write_network(path: Path, papers: int, references: int, seed: int = 0) -> int:
    """Write the CSV and return its rows; some repeat."""
    random = np.random.default_rng(seed)
    rows = 0
    with gzip.open(path, "wb", 1) if path.suffix == ".gz" else path.open("wb") as stream:
        stream.write(b"citing,referenced\n")
        for first in range(1, papers, PIECE):
            places = np.arange(first, min(first + PIECE, papers))
            citing = np.repeat(places, random.geometric(1 / references, places.size))
            cited = (citing * random.random(citing.size) ** 2).astype(np.int64)
            pairs = zip((FIRST + STEP * citing).tolist(), (FIRST + STEP * cited).tolist(), strict=True)
            stream.write("".join(f"{one},{other}\n" for one, other in pairs).encode())
            rows += citing.size
    return rows


def built(source: Path, home: Path) -> tuple[dict[str, Any], float]:
    """Build the graph in a process of its own; return its report and the most memory it held, bytes."""
    process = subprocess.Popen(
        [sys.executable, "-m", "biorag", "graph", "build", str(source), "--json"],
        stdout=subprocess.PIPE,
        env={**os.environ, "BIORAG_HOME": str(home)},
    )
    assert process.stdout is not None
    report = json.loads(process.stdout.read())
    _, _, usage = os.wait4(process.pid, 0)
    return report, usage.ru_maxrss * 1024


def neighbourhoods(graph: Graph, count: int, seed: int = 1) -> dict[str, float]:
    """Return the two-hop neighbourhoods of random papers in a second, one thread, and their mean sizes."""
    pmids = np.random.default_rng(seed).choice(graph.pmids(), count).tolist()
    one = two = 0
    started = time.perf_counter()
    for pmid in pmids:
        hops = graph.neighbourhood(pmid)
        one += hops.one_hop.size
        two += hops.two_hop.size
    seconds = time.perf_counter() - started
    return {"per_second": round(count / seconds), "one_hop": round(one / count, 1), "two_hop": round(two / count, 1)}


def main(arguments: Sequence[str]) -> None:
    """Make the network, build it, ask it, and print all figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--papers", type=int, default=1_000_000)
    parser.add_argument("--references", type=int, default=20)
    parser.add_argument("--gzip", action="store_true")
    asked = parser.parse_args(arguments)
    asked.folder.mkdir(parents=True, exist_ok=True)
    source = asked.folder / ("network.csv.gz" if asked.gzip else "network.csv")
    rows = write_network(source, asked.papers, asked.references)
    report, memory = built(source, asked.folder / "home")
    graph = Graph(asked.folder / "home" / "graphs" / "default")
    figures = {
        "rows": rows,
        "source_mb": round(source.stat().st_size / 1e6, 1),
        "citing_papers": report["papers"],
        "edges": report["edges"],
        "build_seconds": report["seconds"],
        "graph_mb": round(report["bytes"] / 1e6, 1),
        "build_peak_mb": round(memory / 1e6, 1),
        "neighbourhoods": neighbourhoods(graph, ASKED),
    }
    print(json.dumps(figures, indent=2))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
