"""From the paths a user names to lines of bytes: folders, gzip, standard input, damaged files."""

from __future__ import annotations

import gzip
import shutil
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import BinaryIO

from biorag.errors import BadInputError, MissingError
from biorag.files import sha256_of

DEMO = "demo"
STDIN = "-"
SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".ndjson", ".ndjson.gz")
BEIR_CORPUS = ("corpus.jsonl", "corpus.jsonl.gz")
BEIR_QUERIES = ("queries.jsonl", "queries.jsonl.gz")
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
GZIP_MAGIC = b"\x1f\x8b"
MAX_LINE = 16 * 2**20


class DamagedSourceError(BadInputError):
    """A corpus file that cannot be read on from some line."""

    def __init__(self, source: str, line: int, reason: str) -> None:
        super().__init__(f"{source}, line {line}: {reason}")
        self.line = line
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Source:
    """One corpus file under the name the user knows it by."""

    name: str
    path: Path

    @property
    def bytes(self) -> int:
        """Size on disk."""
        return self.path.stat().st_size

    def sha256(self) -> str:
        """Hash of the file as it lies on disk."""
        return sha256_of(self.path)


def find_sources(names: Sequence[str], spool: Path) -> list[Source]:
    """Return the files behind the names: a file, a folder's corpus files in order, `demo`, or `-`.

    Standard input is copied to `spool` first, because a corpus is read twice: checked, then indexed.

    Raises
    ------
    MissingError
        If a name is no file or folder.
    BadInputError
        If a folder holds no corpus file.
    """
    sources: list[Source] = []
    for name in names:
        path = Path(name)
        if name == STDIN:
            sources.append(_spooled(spool))
        elif path.is_file():
            sources.append(Source(name, path))
        elif name and path.is_dir():
            sources.extend(_folder(path))
        elif name == DEMO:
            sources.append(Source(DEMO, demo_file("snippets.jsonl")))
        else:
            raise MissingError(f"corpus {name!r} is not there: name a file, a folder, 'demo', or - for standard input")
    return sources


def demo_file(name: str) -> Path:
    """Return the path of a file of the packaged demonstration corpus."""
    return Path(str(resources.files("biorag") / "demo" / name))


def _folder(folder: Path) -> list[Source]:
    """Return a folder's corpus files, sub-folders too; beside a BEIR `corpus.jsonl` no other file counts."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name.endswith(SUFFIXES))
    beir = {path.parent for path in files if path.name in BEIR_CORPUS}
    chosen = [
        path
        for path in files
        if path.name in BEIR_CORPUS or (path.parent not in beir and path.name not in BEIR_QUERIES)
    ]
    if not chosen:
        raise BadInputError(f"folder {folder} holds no corpus file: expected names ending in {', '.join(SUFFIXES)}")
    return [Source(str(path), path) for path in chosen]


def _spooled(spool: Path) -> Source:
    spool.parent.mkdir(parents=True, exist_ok=True)
    with spool.open("wb") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy, 2**20)
    return Source("standard input", spool)


def read_lines(source: Source) -> Iterator[tuple[int, bytes]]:
    """Yield `(line number from 1, line)` without line ends; blank lines are passed over.

    Raises
    ------
    DamagedSourceError
        If the file is a Git-LFS pointer, a damaged or truncated gzip, has a line over 16 MiB, or cannot be read.
    """
    number = 0
    try:
        with _opened(source.path) as stream:
            while line := stream.readline(MAX_LINE + 1):
                number += 1
                if len(line) > MAX_LINE:
                    raise DamagedSourceError(source.name, number, f"longer than {MAX_LINE >> 20} MiB")
                if number == 1 and line.startswith(LFS_POINTER):
                    reason = "a Git-LFS pointer, not the data: run 'git lfs pull' and try again"
                    raise DamagedSourceError(source.name, 1, reason)
                if line.strip():
                    yield number, line.rstrip(b"\r\n")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        reason = f"damaged or truncated gzip ({error}): fetch the file again"
        raise DamagedSourceError(source.name, number + 1, reason) from None
    except OSError as error:
        raise DamagedSourceError(source.name, number + 1, f"cannot be read: {error.strerror or error}") from None


def _opened(path: Path) -> BinaryIO:
    with path.open("rb") as stream:
        zipped = stream.read(2) == GZIP_MAGIC
    return gzip.open(path, "rb") if zipped else path.open("rb")  # type: ignore[return-value]
