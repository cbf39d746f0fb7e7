"""Kills while `biorag embed` runs on Ray, of a worker or of the driver: all is encoded once, as without Ray.

python -m scripts.faults.stages --data DATA --kills 20 --out stages.json
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from biorag.scale.parquet import KEYS, read_table
from scripts.faults.runs import first_snippets, write_report

BATCH = 32
WORKER = b"ray::MapWorker"  # how Ray names the processes that encode
LEAST = 0.9999  # of the cosine to a vector of another run, whose threads cut the batches of a model elsewhere


class Trial:
    """An export, and the vectors that a run without Ray gave."""

    def __init__(self, work: Path, data: Path, snippets: int) -> None:
        self.work = work
        self.home = work / "home"
        first_snippets(data, snippets, work / "corpus.jsonl")
        self._run("corpus", "export", work / "corpus.jsonl", "--out", work / "snippets")
        self._run("embed", work / "snippets", "--out", work / "alone", "--batch-size", BATCH)
        self.expected = vectors_of(work / "alone")
        assert len(self.expected) == snippets
        started = time.monotonic()
        self._run(*self.command(work / "clean"))
        self.seconds = time.monotonic() - started

    def command(self, out: Path) -> list[Any]:
        """Return the command whose processes are killed."""
        return ["embed", self.work / "snippets", "--out", out, "--batch-size", BATCH, "--ray", "local", "--workers", 2]

    def _start(self, *arguments: Any) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "biorag", *map(str, arguments), "--json"]
        environment = {**os.environ, "BIORAG_HOME": str(self.home)}
        return subprocess.Popen(
            words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def _run(self, *arguments: Any) -> dict[str, Any]:
        process = self._start(*arguments)
        output, said = process.communicate(timeout=600)
        assert process.returncode == 0, said
        return dict(json.loads(output))

    def kill_workers(self, kills: int, draw: random.Random) -> dict[str, Any]:
        """Kill a worker at so many moments of one run; return what became of it."""
        out, killed = self.work / "workers", 0
        process = self._start(*self.command(out))
        before: dict[Path, int] = {}
        while process.poll() is None and killed < kills:
            time.sleep(draw.uniform(0.1, 3.0))
            before = times_of(out) | before
            if before and (pids := list(workers(process.pid))):
                with suppress(ProcessLookupError):
                    os.kill(draw.choice(pids), signal.SIGKILL)
                    killed += 1
        _, said = process.communicate(timeout=1200)
        assert process.returncode == 0, said
        return {"victim": "worker", "kills": killed, **self.ends(out, before)}

    def kill_drivers(self, kills: int, draw: random.Random) -> dict[str, Any]:
        """Kill the driver at so many moments, each time in the run that goes on from there."""
        out, killed, again = self.work / "drivers", 0, 0
        before: dict[Path, int] = {}
        while killed < kills:
            held = len(written(out))
            process = self._start(*self.command(out))
            while len(written(out)) == held and process.poll() is None:
                time.sleep(0.002)
            time.sleep(draw.uniform(0, 0.5))
            killed += process.poll() is None
            process.kill()
            process.communicate()
            again += sum(out.joinpath(name.name).stat().st_mtime_ns != at for name, at in before.items())
            before = times_of(out)
        left = len(self.expected) - sum(held_in(path) for path in before)
        encoded = self._run(*self.command(out))["encoded"]
        beyond = {"encoded beyond what was missing": max(0, encoded - left), "rewritten on the way": again}
        return {"victim": "driver", "kills": killed, **beyond, **self.ends(out, before)}

    def ends(self, out: Path, before: dict[Path, int]) -> dict[str, Any]:
        """Return what differs from a run without Ray, and which of the batches `before` were written again."""
        found, now = vectors_of(out), times_of(out)
        cosines = [cosine(row, self.expected[key][0]) for key, rows in found.items() for row in rows]
        return {
            "missing": len(self.expected.keys() - found.keys()),
            "doubled": sum(len(rows) - 1 for rows in found.values()),
            "different": sum(value < LEAST for value in cosines),
            "least cosine": min(cosines),
            "finished batches encoded again": sum(now.get(path, at) != at for path, at in before.items()),
        }


def workers(driver: int) -> Iterator[int]:
    """Yield the processes that encode for a driver, which has started the process that starts them."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (path / "cmdline").read_bytes().startswith(WORKER) and parent(parent(int(path.name))) == driver:
                yield int(path.name)
        except OSError:
            continue


def parent(process: int) -> int:
    """Return the process that started another one."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def written(out: Path) -> list[Path]:
    """Return the batches that are there."""
    return list(out.glob("batch-*.parquet"))


def times_of(out: Path) -> dict[Path, int]:
    """Return when each batch was written, in ns."""
    return {path: path.stat().st_mtime_ns for path in written(out)}


def held_in(path: Path) -> int:
    """Return how many snippets a batch has."""
    return int(read_table(path, KEYS).num_rows)


def cosine(first: np.ndarray, second: np.ndarray) -> float:
    """Return the cosine of two vectors."""
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


def vectors_of(out: Path) -> dict[tuple[str, str], list[np.ndarray]]:
    """Return the vectors of each snippet, by id and digest."""
    found: dict[tuple[str, str], list[np.ndarray]] = {}
    for path in sorted(written(out)):
        table = pq.ParquetFile(path).read()
        vectors = table.column("vector").combine_chunks().flatten().to_numpy().reshape(table.num_rows, -1)
        keys = zip(table.column("id").to_pylist(), table.column("digest").to_pylist(), strict=True)
        for key, vector in zip(keys, vectors, strict=True):
            found.setdefault(key, []).append(vector)
    return found


def main() -> None:
    """Kill workers and drivers at drawn moments and write what became of each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--snippets", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    with tempfile.TemporaryDirectory(prefix="biorag-stages-") as work:
        trial = Trial(Path(work), given.data, given.snippets)
        facts = {"snippets": given.snippets, "seconds": round(trial.seconds, 1)}
        trials = []
        for kill in (trial.kill_workers, trial.kill_drivers):
            trials.append(kill(given.kills, draw))
            write_report(given.out, {**facts, "trials": trials})


if __name__ == "__main__":
    main()
