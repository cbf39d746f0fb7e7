"""A disk that is full at twenty points of an indexing run: a clear error each time, and the old index answers.

The disk is a small tmpfs, or a file system in a file, so this needs root. Run as
`python -m scripts.faults.full_disk --data DATA [--file-system ext4]`.
"""

from __future__ import annotations

import argparse
import errno
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

from scripts.faults.runs import apart, copy_index, first_snippets, load_libraries, small_encoder, start

SIZE = 512 << 20
FIRST, ALL, BATCH = 500, 4000, 200
TMPFS = "tmpfs"


@contextmanager
def small_disk(place: Path, kind: str) -> Iterator[Path]:
    """Mount a file system of `SIZE` bytes: in memory for tmpfs, else in a file."""
    place.mkdir()
    if kind == TMPFS:
        how = ["-t", TMPFS, "-o", f"size={SIZE}", TMPFS]
    else:
        image = place.with_name("image")
        with image.open("wb") as stream:
            stream.truncate(SIZE)
        subprocess.run([f"mkfs.{kind}", "-q", "-m", "0", str(image)], check=True)
        how = ["-o", "loop", str(image)]
    subprocess.run(["mount", *how, str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(disk: Path, left: int) -> None:
    """Fill the disk but for `left` bytes."""
    with (disk / "filler").open("wb", buffering=0) as stream:
        try:
            os.posix_fallocate(stream.fileno(), 0, shutil.disk_usage(disk).free - left)
            if left == 0:  # ext4 keeps a few blocks for itself
                while True:
                    stream.write(bytes(4096))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


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
        """Put the index of the first snippets back, and search it: on a tmpfs its holes take room from then on."""
        self.unfill()
        shutil.rmtree(self.home / "indexes")
        copy_index(self.spare, self.home / "indexes")
        assert self.hits() == self.before

    def unfill(self) -> None:
        """Free what `fill` took."""
        (self.home.parent / "filler").unlink(missing_ok=True)

    def at(self, left: int) -> dict[str, Any]:
        """Run with `left` bytes free and say how it ended, and whether the index answers on the same full disk."""
        self.restore()
        fill(self.home.parent, left)
        code = start(self.more, self.home, self.said, fresh=False).wait()
        error = next((line for line in reversed(self.said.read_text().splitlines()) if line.startswith("error")), "")
        clear = code == 6 and ("free some space" in error or "No space left" in error)
        found = self.hits()
        self.unfill()
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
    parser.add_argument("--file-system", default=TMPFS)
    parser.add_argument("--points", type=int, default=20)
    options = parser.parse_args()
    load_libraries()
    rows: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory(prefix="biorag-full-") as work,
        small_disk(Path(work) / "disk", options.file_system) as disk,
    ):
        trial = Trial(Path(work), disk, options.data)
        most = needed(trial)
        for point in range(options.points):
            rows.append(trial.at(most * point // (options.points - 1)))
    counts = Counter(key for row in rows for key in ("clear", "answers", "as_before", "goes_on") if row[key])
    report = {"file_system": options.file_system, "points": len(rows), "bytes_needed": most, **counts, "rows": rows}
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    raise SystemExit(counts["clear"] < len(rows) or counts["answers"] < len(rows))


if __name__ == "__main__":
    main()
