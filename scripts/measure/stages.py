"""Three stages against a direct run: throughput with and without Ray, and whether the two indexes hold the same.

python -m scripts.measure.stages CORPUS --out stages.json [--workers 2] [--rounds 2]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

import numpy as np

from biorag.indexes.store import Store
from biorag.settings.settings import Settings
from scripts.faults.runs import write_report

PAGE = 2048  # snippets compared at once


class Bench:
    """Commands of biorag in a home of their own, each with its seconds and CPU seconds."""

    def __init__(self, work: Path) -> None:
        self.work, self.home = work, work / "home"

    def run(self, *words: Any) -> dict[str, Any]:
        """Run a command to its end; return what it printed as JSON, with seconds and CPU seconds."""
        started, cpu = time.perf_counter(), _cpu()
        done = subprocess.run(
            [sys.executable, "-m", "biorag", *map(str, words), "--json"],
            env={**os.environ, "BIORAG_HOME": str(self.home)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        wall = round(time.perf_counter() - started, 2)
        return {**json.loads(done.stdout), "wall_s": wall, "cpu_s": round(_cpu() - cpu, 2)}

    def held(self, name: str) -> tuple[list[str], dict[str, str], dict[str, np.ndarray], dict[str, Any]]:
        """Return the ids of an index in their order, digests, vectors, and its manifest but for times and name."""
        store = Store(Settings.of(home=self.home, name=name))
        manifest = store.require_manifest()
        with closing(store.open(manifest)) as index:
            ids = list(index.ids())
            digests: dict[str, str] = {}
            vectors: dict[str, np.ndarray] = {}
            for start in range(0, len(ids), PAGE):
                page = ids[start : start + PAGE]
                digests |= index.digests(page)
                vectors |= index.dense_vectors(page)
        left_out = ("name", "created", "updated", "seconds", "checksums")
        return ids, digests, vectors, {k: v for k, v in manifest.to_json().items() if k not in left_out}


def _cpu() -> float:
    usage = getrusage(RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Measure, compare and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="biorag-stages-") as folder:
        work = Path(folder)
        bench = Bench(work)
        direct = bench.run("index", given.corpus, "--no-store-tokens", "--name", "direct")
        exported = bench.run("corpus", "export", given.corpus, "--out", work / "snippets")
        alone, by_ray = [], []
        for turn in range(given.rounds):
            alone.append(bench.run("embed", work / "snippets", "--out", work / f"alone-{turn}"))
            ray = ["--ray", "local", "--workers", given.workers]
            by_ray.append(bench.run("embed", work / "snippets", "--out", work / f"ray-{turn}", *ray))
        loaded = bench.run("index", "--vectors", work / "ray-0", "--name", "staged")
        first, second = bench.held("direct"), bench.held("staged")
        pairs = [(first[2][id], second[2][id]) for id in first[0]]
        cosines = [float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)) for a, b in pairs]
        rates = {name: [run["encoded"] / run["seconds"] for run in runs] for name, runs in
                 (("alone", alone), ("ray", by_ray))}  # fmt: skip
        medians = {name: round(statistics.median(values), 1) for name, values in rates.items()}
        report = {
            "direct": direct,
            "export": exported,
            "alone": alone,
            "ray": by_ray,
            "load": loaded,
            "snippets_per_s": medians,
            "share": round(medians["ray"] / medians["alone"], 3),
            "same_ids_in_order": first[0] == second[0],
            "same_digests": first[1] == second[1],
            "same_manifest": first[3] == second[3],
            "least_cosine": min(cosines),
        }
        write_report(given.out, report)


if __name__ == "__main__":
    main()
