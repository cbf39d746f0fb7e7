"""An index or a citation graph with files made to do harm: manifest, checksums, progress, lock, the shard's own files.

    python -m scripts.attacks.manifests --cases 300 --out manifests.json

Checksums are made to fit again in half of the cases, so that the engine meets the damage.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from biorag.indexes.shard_files import CHECKSUMS, write_checksums
from scripts.attacks.harness import Case, clean, copy_home, damaged, draws, index_of, main, mutated

CORPUS = "../clean/corpus.jsonl"
COMMANDS = (
    ("info", "default", "--json"),
    ("info", "--json"),
    ("search", "asthma drug", "--json", "--mode", "bm25", "--no-rerank"),
    ("search", "asthma drug", "--json", "--mode", "dense", "--no-rerank"),
    ("index", CORPUS, "--json"),
    ("snapshot", "save", "saved.tar.gz"),
)


def cases(count: int, seed: int, work: Path) -> Iterator[Case]:
    """Yield cases: mostly manifests, some of each other file."""
    index_of(work)
    (work / "citations.csv").write_text("citing,referenced\n1,2\n1,3\n2,3\n")
    clean(["graph", "build", "citations.csv"], work)
    for number, draw in draws(count, seed, "manifests"):
        kind = draw.choice(
            ("manifest", "manifest", "manifest", "checksums", "progress", "lock", "shard", "graph", "kind")
        )
        yield Case(f"{number} {kind}", partial(KINDS[kind], random.Random(draw.getrandbits(64)), work))


def manifest(draw: random.Random, work: Path, folder: Path) -> Sequence[str]:
    """Change the manifest of an index."""
    path = copy_home(work, folder) / "manifest.json"
    path.write_bytes(mutated(draw, json.loads(path.read_bytes())))
    return draw.choice(COMMANDS)


def checksums(draw: random.Random, work: Path, folder: Path) -> Sequence[str]:
    """Change the record of checksums, and make the manifest name it."""
    index = copy_home(work, folder)
    path = index / CHECKSUMS
    path.write_bytes(mutated(draw, json.loads(path.read_bytes())))
    _named(index, draw)
    return draw.choice(COMMANDS)


def progress(draw: random.Random, work: Path, folder: Path) -> Sequence[str]:
    """Leave a record of progress, as an interrupted run does."""
    index = copy_home(work, folder)
    (index / "progress.json").write_bytes(mutated(draw, {"done": 3, "batch": ["s1", "s2"]}))
    return COMMANDS[4]


def lock(draw: random.Random, work: Path, folder: Path) -> Sequence[str]:
    """Put something else where the lock file is."""
    path = copy_home(work, folder) / "lock"
    path.unlink()
    kind = draw.choice(("bytes", "link", "pipe", "folder", "none"))
    if kind == "bytes":
        path.write_bytes(mutated(draw, {"pid": 1, "host": "a", "since": "b"}))
    elif kind == "link":
        path.symlink_to(draw.choice(("/dev/zero", "/etc/hostname", "lock", "manifest.json")))
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    return draw.choice(COMMANDS)


def shard(draw: random.Random, work: Path, folder: Path) -> Sequence[str]:
    """Damage a file that the engine reads as text or numbers."""
    index = copy_home(work, folder)
    files = sorted(path for path in (index / "shard").rglob("*") if path.is_file() and path.stat().st_size < 1 << 20)
    path = draw.choice(files)
    content = path.read_bytes()
    path.write_bytes(mutated(draw, json.loads(content)) if path.suffix == ".json" else damaged(draw, content))
    if draw.random() < 0.5:
        write_checksums(index)
        _named(index, draw)
    return draw.choice(COMMANDS)


def graph(draw: random.Random, work: Path, folder: Path) -> Sequence[str]:
    """Damage the file of a citation graph."""
    copy_home(work, folder)
    path = draw.choice(sorted((folder / "home" / "graphs").rglob("graph.sqlite")))
    path.write_bytes(damaged(draw, path.read_bytes()))
    return draw.choice((("graph", "info", "--json"), ("graph", "build", "../clean/citations.csv", "--json")))


def other_kind(draw: random.Random, work: Path, folder: Path) -> Sequence[str]:
    """Put a pipe, a device or a link where a file of the index is."""
    index = copy_home(work, folder)
    names = [
        "manifest.json",
        CHECKSUMS,
        *(str(path.relative_to(index)) for path in sorted((index / "shard").rglob("*"))),
    ]
    path = index / draw.choice(names)
    if path.is_dir():
        path = path / "more"
    path.unlink(missing_ok=True)
    if draw.random() < 0.5:
        os.mkfifo(path)
    else:
        path.symlink_to(draw.choice(("/dev/zero", "/etc/hostname", "/", str(path))))
    return draw.choice(COMMANDS)


def _named(index: Path, draw: random.Random) -> None:
    """Make the manifest name the record of checksums as it is, most of the time."""
    import hashlib

    path = index / "manifest.json"
    values = json.loads(path.read_bytes())
    if draw.random() < 0.8:
        values["checksums"] = hashlib.sha256((index / CHECKSUMS).read_bytes()).hexdigest()
    path.write_text(json.dumps(values))


KINDS: dict[str, Callable[[random.Random, Path, Path], Sequence[str]]] = {
    "manifest": manifest,
    "checksums": checksums,
    "progress": progress,
    "lock": lock,
    "shard": shard,
    "graph": graph,
    "kind": other_kind,
}

if __name__ == "__main__":
    main("manifests", cases)
