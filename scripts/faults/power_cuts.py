"""A power cut at random moments of indexing: writes that were not synced are gone, acknowledged ones are not.

The home lies on a file system in a file. When the process is killed, that file is copied as it is: what was still
in the page cache is not in it. The copy is mounted, and the index must open and hold all that was acknowledged.
Needs root. Run as `python -m scripts.faults.power_cuts --data DATA --cuts 40`.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path

from scripts.faults.kills import Trial
from scripts.faults.runs import apart, load_libraries, start

SIZE = 768 << 20


@contextmanager
def mounted(image: Path, place: Path) -> Iterator[Path]:
    """Mount a file system in a file; where it was not unmounted, its journal is replayed."""
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def cut(trial: Trial, image: Path, work: Path, draw: random.Random) -> tuple[str, dict[str, int]]:
    """Kill a run, keep only what had reached the disk, and go on from there.

    Returns
    -------
    How far the run was, and what was lost, was otherwise, and was equal at the end.
    """
    stage, acknowledged = trial.kill_once(draw, fresh=False)
    if stage == "ended":
        shutil.rmtree(trial.folder)
        return stage, {}
    subprocess.run(["cp", "--sparse=always", str(image), str(work / "after")], check=True)
    with mounted(work / "after", work / "mounted") as disk:
        there = copy(trial)
        there.folder, there.copy = disk / "home" / "indexes" / "killed", disk / "copy"
        found = apart(there.check, acknowledged)
        said = work / "said.txt"
        assert start([*trial.arguments, "--name", "killed"], disk / "home", said, fresh=False).wait() == 0, (
            said.read_text()
        )
        found["equal_at_the_end"] = there.is_whole()
    return stage, found


def main() -> None:
    """Measure, and fail if anything acknowledged was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with pubmed/snippets.jsonl.gz")
    parser.add_argument("--cuts", type=int, default=40)
    parser.add_argument("--snippets", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--file-system", default="ext4")
    options = parser.parse_args()
    load_libraries()
    draw, stages, gone = random.Random(options.seed), Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="biorag-power-") as name:
        work = Path(name)
        image = work / "image"
        with image.open("wb") as stream:
            stream.truncate(SIZE)
        subprocess.run([f"mkfs.{options.file_system}", "-q", str(image)], check=True)
        with mounted(image, work / "disk") as disk:
            trial = Trial(disk, options.data, options.snippets)
            while stages.total() - stages["ended"] < options.cuts:
                stage, differences = cut(trial, image, work, draw)
                stages[stage] += 1
                gone.update(differences)
    report = {"cuts": stages.total() - stages["ended"], "file_system": options.file_system, "stages": dict(stages)}
    report |= {"acknowledged_lost": gone["lost"], "points_not_as_in_the_clean_run": gone["other"]}
    report["ends_equal_to_the_clean_run"] = gone["equal_at_the_end"]
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    raise SystemExit(bool(gone["lost"] or gone["other"]))


if __name__ == "__main__":
    main()
