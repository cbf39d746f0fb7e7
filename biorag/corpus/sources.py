"""From the paths a user names to lines of bytes: folders, gzip, standard input, damaged files."""

from __future__ import annotations

import gzip
import shutil
import sys
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from io import BufferedReader
from pathlib import Path

from biorag.errors import BadInputError, MissingError
from biorag.files import sha256_of

DEMO = "demo"
STDIN = "-"
XML_SUFFIXES = (".xml", ".xml.gz")
SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".ndjson", ".ndjson.gz", *XML_SUFFIXES)
BEIR_CORPUS = ("corpus.jsonl", "corpus.jsonl.gz")
BEIR_QUERIES = ("queries.jsonl", "queries.jsonl.gz")
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
LFS_REASON = "a Git-LFS pointer, not the data: run 'git lfs pull' and try again"
GZIP_MAGIC = b"\x1f\x8b"
MAX_LINE = 16 * 2**20
CHUNK = 2**16


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
    with _faults_named(source, lambda: number + 1), _opened(source.path) as stream:
        while line := stream.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                raise DamagedSourceError(source.name, number, f"longer than {MAX_LINE >> 20} MiB")
            if number == 1 and line.startswith(LFS_POINTER):
                raise DamagedSourceError(source.name, 1, LFS_REASON)
            if line.strip():
                yield number, line.rstrip(b"\r\n")


def is_xml(source: Source) -> bool:
    """Return whether a file is to be read as XML, by its name or its first character.

    Raises
    ------
    DamagedSourceError
        If it cannot be read.
    """
    first = next(read_chunks(source), b"").removeprefix(BOM_UTF8).lstrip()
    return first.startswith(b"<") or source.path.name.endswith(XML_SUFFIXES)


def read_chunks(source: Source) -> Iterator[bytes]:
    """Yield the bytes of a file, unzipped, in order.

    Raises
    ------
    DamagedSourceError
        If the file is a Git-LFS pointer, a damaged or truncated gzip, or cannot be read.
    """
    line = 1
    with _faults_named(source, lambda: line), _opened(source.path) as stream:
        while chunk := stream.read1(CHUNK):  # what comes before a damage in one read
            if line == 1 and chunk.startswith(LFS_POINTER):
                raise DamagedSourceError(source.name, 1, LFS_REASON)
            yield chunk
            line += chunk.count(b"\n")


@contextmanager
def _faults_named(source: Source, line: Callable[[], int]) -> Iterator[None]:
    """Turn what reading a file raises into the error that names it and the line reached."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        reason = f"damaged or truncated gzip ({error}): fetch the file again"
        raise DamagedSourceError(source.name, line(), reason) from None
    except OSError as error:
        raise DamagedSourceError(source.name, line(), f"cannot be read: {error.strerror or error}") from None


def _opened(path: Path) -> BufferedReader | gzip.GzipFile:
    with path.open("rb") as stream:
        zipped = stream.read(2) == GZIP_MAGIC
    return gzip.open(path, "rb") if zipped else path.open("rb")
