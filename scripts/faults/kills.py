"""`kill -9` of `biorag index` at random moments: nothing acknowledged is lost, and the end is that of a clean run.

python -m scripts.faults.kills --data DATA --kills 200 --out kills.json
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

from scripts.faults.runs import (
    apart,
    copy_index,
    digest,
    first_snippets,
    held,
    load_libraries,
    small_encoder,
    start,
    write_report,
)

BATCH = 50


class Trial:
    """A corpus that is indexed and killed in a home of its own, and the points that a clean run gave."""

    def __init__(self, work: Path, data: Path, snippets: int) -> None:
        self.home, self.copy = work / "home", work / "copy"
        self.folder = self.home / "indexes" / "killed"
        self.said = work / "said.txt"
        self.ids = first_snippets(data, snippets, work / "corpus.jsonl")
        encoder = apart(lambda: str(small_encoder(work / "model")))
        self.arguments = ["index", str(work / "corpus.jsonl"), "--encoder", encoder, "--batch-size", str(BATCH)]
        started = time.monotonic()
        process = start([*self.arguments, "--name", "clean"], self.home, self.said, fresh=False)
        while not (self.home / "indexes" / "clean" / "progress.json").exists():
            assert process.poll() is None, self.said.read_text()
            time.sleep(0.01)
        self.before = time.monotonic() - started
        assert process.wait() == 0, self.said.read_text()
        self.seconds = time.monotonic() - started
        self.clean: dict[str, str] = apart(held, self.home / "indexes" / "clean")

    def kill_once(self, draw: random.Random, fresh: bool) -> tuple[str, int]:
        """Start the command and kill it; return how far it was, or "ended", and its acknowledged snippets.

        The moment is drawn over what is left of the run, or in one of ten over all of it.
        """
        before = self.acknowledged()
        left = (self.seconds - self.before) * (1.02 - 0.9 * before / len(self.ids))
        process = start([*self.arguments, "--name", "killed"], self.home, self.said, fresh)
        if draw.random() < 0.9:
            while process.poll() is None and not self._holds_lock(process.pid):
                time.sleep(0.002)
            moment = draw.uniform(0, left)
        else:
            moment = draw.uniform(0, self.seconds)
        end = time.monotonic() + moment
        while process.poll() is None and time.monotonic() < end:
            time.sleep(0.002)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        code = process.wait()
        if code == 0:
            return "ended", len(self.ids)
        assert code == -signal.SIGKILL, (code, self.said.read_text())
        acknowledged = max(before, self.acknowledged())
        return self._stage(acknowledged), acknowledged

    def _holds_lock(self, pid: int) -> bool:
        try:
            return bool(json.loads((self.folder / "lock").read_text())["pid"] == pid)
        except (OSError, ValueError):
            return False

    def acknowledged(self) -> int:
        """Return how many of the corpus's snippets are durable by the manifest of an ended run or the record."""
        try:
            if json.loads((self.folder / "manifest.json").read_text())["complete"]:
                return len(self.ids)
            return int(json.loads((self.folder / "progress.json").read_text())["done"])
        except FileNotFoundError:
            return 0

    def _stage(self, acknowledged: int) -> str:
        if not (self.folder / "progress.json").exists():
            return "after the end" if acknowledged else "before the first batch"
        return "after the last batch" if acknowledged == len(self.ids) else "while batches are written"

    def is_whole(self) -> bool:
        """Return whether the index holds exactly what the clean run gave, ids, payloads and vectors."""
        return digest(apart(held, self.folder)) == digest(self.clean)

    def check(self, acknowledged: int) -> dict[str, int]:
        """Hold what a copy of the killed index has against the clean run's points."""
        shutil.rmtree(self.copy, ignore_errors=True)
        if not (self.folder / "shard" / "segments").is_dir():
            return {"lost": acknowledged, "other": 0, "ahead": 0}
        copy_index(self.folder, self.copy)
        points = apart(held, self.copy)
        return compared(points, self.clean, self.ids[:acknowledged], len(points) - acknowledged)


def compared(points: dict[str, str], clean: dict[str, str], acknowledged: list[str], ahead: int) -> dict[str, int]:
    """Count acknowledged snippets that are missing or not as they should be, other points, and those ahead."""
    from biorag.indexes.points import point_id

    lost = sum(points.get(str(point_id(id))) != clean[str(point_id(id))] for id in acknowledged)
    other = sum(clean.get(point) != found for point, found in points.items())
    return {"lost": lost, "other": other, "ahead": ahead}


def measure(trial: Trial, kills: int, fresh: int, seed: int, out: Path) -> dict[str, Any]:
    """Kill until there were enough kills, then go on to the end."""
    draw = random.Random(seed)
    counts: Counter[str] = Counter()
    report: dict[str, Any] = {
        "snippets": len(trial.ids),
        "batch": BATCH,
        "seed": seed,
        "clean_seconds": round(trial.seconds, 2),
        "kills": 0,
        "of_fresh_processes": 0,
        "runs_to_the_end": 0,
        "acknowledged_lost": 0,
        "points_not_as_in_the_clean_run": 0,
        "most_points_ahead_of_the_record": 0,
        "ends_equal_to_the_clean_run": 0,
    }
    while report["kills"] < kills:
        _kill(trial, report, counts, draw, report["kills"] < fresh)
        write_report(out, {**report, "killed": dict(counts)})
    assert start([*trial.arguments, "--name", "killed"], trial.home, trial.said, fresh=False).wait() == 0
    _ended(trial, report)
    write_report(out, {**report, "killed": dict(counts)})
    return report


def _kill(trial: Trial, report: dict[str, Any], counts: Counter[str], draw: random.Random, fresh: bool) -> None:
    """Kill once, check what is left, and count it."""
    stage, acknowledged = trial.kill_once(draw, fresh)
    if stage == "ended":
        _ended(trial, report)
        return
    found = apart(trial.check, acknowledged)
    counts[stage] += 1
    report["kills"] += 1
    report["of_fresh_processes"] += fresh
    report["acknowledged_lost"] += found["lost"]
    report["points_not_as_in_the_clean_run"] += found["other"]
    report["most_points_ahead_of_the_record"] = max(report["most_points_ahead_of_the_record"], found["ahead"])


def _ended(trial: Trial, report: dict[str, Any]) -> None:
    """Compare a run that came to its end with the clean one, and begin anew."""
    report["runs_to_the_end"] += 1
    report["ends_equal_to_the_clean_run"] += trial.is_whole()
    shutil.rmtree(trial.folder)


def main() -> None:
    """Measure, and fail if anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with pubmed/snippets.jsonl.gz")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--fresh", type=int, default=20, help="kills of new processes; the others are forked")
    parser.add_argument("--snippets", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("kills.json"))
    options = parser.parse_args()
    load_libraries()
    with tempfile.TemporaryDirectory(prefix="biorag-kills-") as work:
        trial = Trial(Path(work), options.data, options.snippets)
        report = measure(trial, options.kills, options.fresh, options.seed, options.out)
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    failed = report["acknowledged_lost"] or report["points_not_as_in_the_clean_run"]
    raise SystemExit(bool(failed or report["ends_equal_to_the_clean_run"] < report["runs_to_the_end"]))


if __name__ == "__main__":
    main()
