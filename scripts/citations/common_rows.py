"""The rows that several mined files share, so that kinds of negatives can be trained on the same questions.

Usage: python -m scripts.citations.common_rows OUT_FOLDER FILE.jsonl FILE.jsonl ... [--least 2]

Writes OUT_FOLDER/FILE.jsonl for each file: its lines whose query and positive every file has with `--least` negatives
or more, in the order of the first.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

Key = tuple[str, str]


def lines_of(path: Path, least: int) -> dict[Key, str]:
    """Return the lines with enough negatives by query and positive."""
    found: dict[Key, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        row = json.loads(line)
        if len(row["negatives"]) >= least:
            found[row["query"], row["positive"]] = line
    return found


def main(arguments: Sequence[str]) -> None:
    """Write the files, and say on stdout how many rows each had and all share."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--least", type=int, default=2)
    given = parser.parse_args(arguments)
    files = {path: lines_of(path, given.least) for path in given.files}
    first = files[given.files[0]]
    shared = [key for key in first if all(key in lines for lines in files.values())]
    given.out.mkdir(parents=True, exist_ok=True)
    for path, lines in files.items():
        (given.out / path.name).write_text("".join(lines[key] for key in shared), encoding="utf-8")
    counts = {path.name: len(lines) for path, lines in files.items()}
    print(json.dumps({**counts, "shared": len(shared)}))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
