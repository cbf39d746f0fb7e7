"""Interruptions of `biorag bench mirage` at random moments: the result files are those of an uninterrupted run.

Run as `python -m scripts.faults.interruptions --interruptions 100 --out interruptions.json`; it uses the
demonstration corpus and questions, and asks the starter generator for the likeliest option.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from scripts.faults.runs import load_libraries, start, turn, write_report

LIMIT = "2"  # questions of each of the five tasks
ENDS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -signal.SIGKILL}


class Trial:
    """A MIRAGE run that is interrupted, and the files that an uninterrupted one gave."""

    def __init__(self, work: Path) -> None:
        self.home, self.said, self.out = work / "home", work / "said.txt", work / "out"
        self.arguments = ["bench", "mirage", "--benchmark", "demo", "--answer", "score", "--no-cache", "--json"]
        self.arguments += ["--mode", "bm25", "--no-rerank", "-k", "1", "--limit", LIMIT]
        assert start(["index", "demo"], self.home, self.said, fresh=False).wait() == 0, self.said.read_text()
        started = time.monotonic()
        process = start([*self.arguments, "--out", str(work / "whole")], self.home, self.said, fresh=False)
        assert process.wait() == 0, self.said.read_text()
        self.seconds = time.monotonic() - started
        self.whole = result_files(work / "whole")

    def interrupt_once(self, draw: random.Random, sent: signal.Signals, fresh: bool) -> dict[str, Any]:
        """Start the run, send a signal at a moment drawn over what is left of it; say how it ended."""
        left = self.seconds * (1.05 - 0.9 * len(result_files(self.out)) / len(self.whole))
        process = start([*self.arguments, "--out", str(self.out)], self.home, self.said, fresh)
        end = time.monotonic() + draw.uniform(0, left) + (self.loading if fresh else 0)
        while process.poll() is None and time.monotonic() < end:
            time.sleep(0.002)
        if process.poll() is None:
            process.send_signal(sent)
        code = process.wait()
        said = self.said.read_text(errors="replace")
        other = None if code in (0, ENDS[sent]) else f"{sent.name}: {code}: {said[-200:]}"
        return {"ended": code == 0, "other": other, "traceback": "Traceback" in said}

    loading = 1.0  # seconds that a new process takes before it can be asked to end politely

    def equal_so_far(self) -> bool:
        """Return whether every result file there is has the bytes of the uninterrupted run's."""
        return result_files(self.out).items() <= self.whole.items()


def result_files(out: Path) -> dict[str, bytes]:
    """Return the result files below a folder."""
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.glob("*/**/[!.]*_*.json"))}


def measure(trial: Trial, count: int, fresh: int, seed: int, lock: Path | None, out: Path) -> dict[str, Any]:
    """Interrupt until it was often enough; each run that comes to its end is compared and begun anew."""
    draw = random.Random(seed)
    sent: Counter[str] = Counter()
    report: dict[str, Any] = {
        "questions": len(trial.whole),
        "seed": seed,
        "whole_seconds": round(trial.seconds, 2),
        "interruptions": 0,
        "of_fresh_processes": 0,
        "other_exit_codes": [],
        "tracebacks": 0,
        "moments_with_other_bytes": 0,
        "runs_to_the_end": 0,
        "byte_equal_to_the_uninterrupted": 0,
    }
    while report["interruptions"] < count or not report["runs_to_the_end"]:
        with turn(lock) as lasts:
            while lasts() and (report["interruptions"] < count or not report["runs_to_the_end"]):
                is_fresh = report["interruptions"] < fresh
                chosen = draw.choice(list(ENDS))
                found = trial.interrupt_once(draw, chosen, is_fresh)
                if found["ended"]:
                    report["runs_to_the_end"] += 1
                    report["byte_equal_to_the_uninterrupted"] += result_files(trial.out) == trial.whole
                    shutil.rmtree(trial.out)
                    continue
                sent[chosen.name] += 1
                report["interruptions"] += 1
                report["of_fresh_processes"] += is_fresh
                report["other_exit_codes"] += [found["other"]] if found["other"] else []
                report["tracebacks"] += found["traceback"]
                report["moments_with_other_bytes"] += not trial.equal_so_far()
        write_report(out, {**report, "sent": dict(sent)})
    return report


def main() -> None:
    """Measure, and fail if a file differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--interruptions", type=int, default=100)
    parser.add_argument("--fresh", type=int, default=10, help="interruptions of new processes; the others are forked")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lock", type=Path, help="lock file to hold for a minute at a time")
    parser.add_argument("--out", type=Path, default=Path("interruptions.json"))
    options = parser.parse_args()
    load_libraries()
    with tempfile.TemporaryDirectory(prefix="biorag-interruptions-") as work:
        with turn(options.lock):
            trial = Trial(Path(work))
        report = measure(trial, options.interruptions, options.fresh, options.seed, options.lock, options.out)
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    equal = report["byte_equal_to_the_uninterrupted"] == report["runs_to_the_end"]
    raise SystemExit(not equal or bool(report["moments_with_other_bytes"]))


if __name__ == "__main__":
    main()
