"""A disk that is full at twenty points of an indexing run: a clear error each time, and the old index answers.

The disk is a small tmpfs, so this needs root. Run as `python -m benchmarks.faults.full_disk --data DATA`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.faults.runs import apart, copy_index, first_snippets, load_libraries, small_encoder, start, turn

SIZE = 512 << 20
FIRST, ALL, BATCH = 500, 4000, 200


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """Mount a tmpfs of `SIZE` bytes."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(disk: Path, left: int) -> None:
    """Fill the disk but for `left` bytes."""
    with (disk / "filler").open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, shutil.disk_usage(disk).free - left)


class Trial:
    """An index of some snippets on a small disk, to which more are to be added."""

    def __init__(self, work: Path, disk: Path, data: Path) -> None:
        self.home, self.said, self.spare = disk / "home", work / "said.txt", work / "spare"
        encoder = apart(lambda: str(small_encoder(work / "model")))
        first_snippets(data, FIRST, work / "first.jsonl")
        first_snippets(data, ALL, work / "all.jsonl")
        self.more = ["index", str(work / "all.jsonl"), "--encoder", encoder, "--batch-size", str(BATCH)]
        self.search = ["search", "asthma in children", "--no-rerank", "--json"]
        made = start(["index", str(work / "first.jsonl"), "--encoder", encoder], self.home, self.said, fresh=False)
        assert made.wait() == 0, self.said.read_text()
        copy_index(self.home / "indexes", self.spare)
        self.before = self.hits()

    def hits(self) -> list[str] | None:
        """Return the ids that a search gives; None if it fails."""
        if start(self.search, self.home, self.said, fresh=False).wait():
            return None
        text = self.said.read_text()
        return [hit["id"] for hit in json.loads(text[text.index("{") :])["hits"]]

    def restore(self) -> None:
        """Put the index of the first snippets back."""
        (self.home.parent / "filler").unlink(missing_ok=True)
        shutil.rmtree(self.home / "indexes")
        copy_index(self.spare, self.home / "indexes")

    def at(self, left: int) -> dict[str, Any]:
        """Run with `left` bytes free and say how it ended, and whether the index answers on the same full disk."""
        self.restore()
        fill(self.home.parent, left)
        code = start(self.more, self.home, self.said, fresh=False).wait()
        error = next((line for line in reversed(self.said.read_text().splitlines()) if line.startswith("error")), "")
        clear = code == 6 and ("free some space" in error or "No space left" in error)
        found = self.hits()
        (self.home.parent / "filler").unlink()
        went_on = start(self.more, self.home, self.said, fresh=False).wait() == 0
        return {
            "left": left,
            "code": code,
            "clear": clear and "Traceback" not in self.said.read_text(),
            "error": error,
            "answers": bool(found),
            "as_before": found == self.before,
            "goes_on": went_on,
        }


def needed(trial: Trial) -> int:
    """Return the bytes that a run needs free at its start, by halving."""
    low, high = 0, SIZE // 2
    while high - low > 4 << 20:
        middle = (low + high) // 2
        trial.restore()
        fill(trial.home.parent, middle)
        ended = start(trial.more, trial.home, trial.said, fresh=False).wait() == 0
        low, high = (low, middle) if ended else (middle, high)
    return low


def main() -> None:
    """Measure, and fail where an error was not clear or the index did not answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with pubmed/snippets.jsonl.gz")
    parser.add_argument("--points", type=int, default=20)
    parser.add_argument("--lock", type=Path, help="lock file to hold")
    options = parser.parse_args()
    load_libraries()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="biorag-full-") as work, small_disk(Path(work) / "disk") as disk:
        with turn(options.lock):
            trial = Trial(Path(work), disk, options.data)
            most = needed(trial)
        while len(rows) < options.points:
            with turn(options.lock) as lasts:
                while lasts() and len(rows) < options.points:
                    rows.append(trial.at(most * len(rows) // (options.points - 1)))
    counts = Counter(key for row in rows for key in ("clear", "answers", "as_before", "goes_on") if row[key])
    report = {"points": len(rows), "bytes_needed": most, **counts, "rows": rows}
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    raise SystemExit(counts["clear"] < len(rows) or counts["answers"] < len(rows))


if __name__ == "__main__":
    main()
