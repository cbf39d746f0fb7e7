"""From the paths a user names to lines of bytes: folders, gzip, standard input, damaged files."""

from __future__ import annotations

import gzip
import io
import logging
import shutil
import sys
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import BinaryIO, NamedTuple

from biorag.errors import BadInputError, MissingError
from biorag.registries import READERS, ReaderKind, suffixes
from biorag.utils.files import sha256_of
from biorag.utils.outputs import is_own
from biorag.utils.text import escaped

logger = logging.getLogger(__name__)

DEMO = "demo"
STDIN = "-"
BEIR_CORPUS = ("corpus.jsonl", "corpus.jsonl.gz")
BEIR_QUERIES = ("queries.jsonl", "queries.jsonl.gz")
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
GZIP_MAGIC = b"\x1f\x8b"
MAX_LINE = 16 * 2**20
CHUNK = 2**16
# A gzip bomb: JSON Lines and PubMed's XML shrink to a fifth to a twentieth, and a plain file has no such bounds.
MAX_RATIO = 200
RATIO_FROM = 4 * 2**20
MAX_UNPACKED = 2**38
# How files that are not text begin, and what they are.
FOREIGN = {
    GZIP_MAGIC: "gzip inside gzip: unpack it once",
    b"PK\x03\x04": "a zip archive: unpack it",
    b"BZh": "packed by bzip2: unpack it",
    b"\x28\xb5\x2f\xfd": "packed by zstd: unpack it",
    b"\xfd7zXZ\x00": "packed by xz: unpack it",
    LFS_POINTER: "a Git-LFS pointer, not the data: run 'git lfs pull' and try again",
}


class DamagedSourceError(BadInputError):
    """A corpus file that cannot be read beyond some line."""

    def __init__(self, source: str, line: int, reason: str) -> None:
        super().__init__(f"{source}, line {line}: {reason}")
        self.line = line
        self.reason = reason


class ChangedSourceError(BadInputError):
    """A corpus file that has changed since the run found it."""

    def __init__(self, source: str) -> None:
        super().__init__(f"{source} was changed during this run: run the same command again when nothing writes to it")


class FileState(NamedTuple):
    """What changes when a file is written to or replaced."""

    device: int
    inode: int
    size: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class Source:
    """One corpus file under the name the user knows it by.

    A corpus is read more than once, so every reading checks that the file has not changed.
    """

    name: str
    path: Path
    _original: FileState | None = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", escaped(self.name))  # manifests and messages are UTF-8; the path is as it is
        object.__setattr__(self, "_original", _state(self.path))

    @property
    def bytes(self) -> int:
        """Size on disk."""
        return self.path.stat().st_size

    def sha256(self) -> str:
        """Hash of the file as it lies on disk."""
        return sha256_of(self.path)

    def check_unchanged(self) -> None:
        """Raise `ChangedSourceError` if the file was written to, replaced or removed since it was found."""
        if self._original is None or _state(self.path) != self._original:
            raise ChangedSourceError(self.name)


def _state(path: Path) -> FileState | None:
    """Return a file's state; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return FileState(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def find_sources(names: Sequence[str], spool: Path, home: Path | None = None) -> list[Source]:
    """Return the files behind the names: a file, a folder's corpus files in order, `demo`, or `-`.

    Standard input is copied to `spool` first, because a corpus is read twice: checked, then indexed. Of a folder's
    files those that biorag wrote are left out: what lies in `home`, rejects, results.

    Raises
    ------
    MissingError
        If a name is neither a file nor a folder.
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
            sources.extend(_folder(path, home))
        elif name == DEMO:
            sources.append(Source(DEMO, demo_file("snippets.jsonl")))
        elif name and path.exists():
            raise MissingError(f"corpus {name!r} is a pipe or a device, not a file: send its content to - instead")
        else:
            raise MissingError(f"corpus {name!r} is not there: name a file, a folder, 'demo', or - for standard input")
    return sources


def demo_file(name: str) -> Path:
    """Return the path of a file of the packaged demonstration corpus."""
    return Path(str(resources.files("biorag") / "corpus" / "demo" / name))


def _folder(folder: Path, home: Path | None) -> list[Source]:
    """Return a folder's corpus files, sub-folders too; beside a BEIR `corpus.jsonl` no other file counts."""
    endings = suffixes(READERS)
    files = files_of(folder, endings, home)
    beir = {path.parent for path in files if path.name in BEIR_CORPUS}
    chosen = [
        path
        for path in files
        if path.name in BEIR_CORPUS or (path.parent not in beir and path.name not in BEIR_QUERIES)
    ]
    if not chosen:
        raise BadInputError(f"folder {folder} holds no corpus file: expected names ending in {', '.join(endings)}")
    return [Source(str(path), path) for path in chosen]


def files_of(folder: Path, endings: tuple[str, ...], home: Path | None = None) -> list[Path]:
    """Return a folder's files with these endings, in order, sub-folders' too, but for those that biorag wrote."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name.endswith(endings))
    own = home.resolve() if home else None
    others = [path for path in files if not (own and path.resolve().is_relative_to(own)) and not is_own(path, folder)]
    if len(others) < len(files):
        logger.info("%s: %d files that biorag wrote are left out", folder, len(files) - len(others))
    return others


def _spooled(spool: Path) -> Source:
    spool.parent.mkdir(parents=True, exist_ok=True)
    with spool.open("wb") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy, 2**20)
    return Source("standard input", spool)


def read_lines(source: Source) -> Iterator[tuple[int, bytes]]:
    """Yield `(line number from 1, line)` without line ends and byte order mark; blank lines are skipped.

    Raises
    ------
    DamagedSourceError
        If the file is a Git-LFS pointer or another format, a damaged or truncated gzip or a gzip bomb, has a line
        over 16 MiB, or cannot be read.
    ChangedSourceError
        If it has changed since it was found.
    """
    number = 0
    with _faults_named(source, lambda: number + 1), opened(source) as stream:
        while line := stream.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                raise DamagedSourceError(source.name, number, f"longer than {MAX_LINE >> 20} MiB")
            if number == 1:
                line = _beginning(source, line)
                if line.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
                    raise DamagedSourceError(source.name, 1, "UTF-16: convert it to UTF-8")
            if line.strip():
                yield number, line.rstrip(b"\r\n")


def reader_of(source: Source) -> ReaderKind:
    """Return the format of a file, by its name, else by its first bytes.

    Raises
    ------
    DamagedSourceError
        If it cannot be read.
    """
    for kind in READERS.values():
        if source.path.name.endswith(kind.suffixes):
            return kind
    beginning = next(read_chunks(source), b"").lstrip()
    sniffed = (kind for kind in READERS.values() if beginning.startswith(kind.beginnings))
    return next(sniffed, next(kind for kind in READERS.values() if not kind.beginnings))


def read_chunks(source: Source) -> Iterator[bytes]:
    """Yield the bytes of a file, unzipped, in order, without a byte order mark.

    Raises
    ------
    DamagedSourceError, ChangedSourceError
        As `read_lines` does, but for long lines.
    """
    line, started = 1, False
    with _faults_named(source, lambda: line), opened(source) as stream:
        while chunk := stream.read1(CHUNK):  # what precedes damage, in one read
            yield chunk if started else _beginning(source, chunk)
            line, started = line + chunk.count(b"\n"), True


@contextmanager
def _faults_named(source: Source, line: Callable[[], int]) -> Iterator[None]:
    """Turn what reading a file raises into the error that names it and the line reached."""
    try:
        yield
    except UnpackedTooFarError as error:
        raise DamagedSourceError(source.name, line(), str(error)) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        reason = f"damaged or truncated gzip ({error}): fetch the file again"
        raise DamagedSourceError(source.name, line(), reason) from None
    except OSError as error:
        raise DamagedSourceError(source.name, line(), f"cannot be read: {error.strerror or error}") from None


def _beginning(source: Source, content: bytes) -> bytes:
    """Return a file's first bytes without a byte order mark, if they are those of text."""
    for beginning, reason in FOREIGN.items():
        if content.startswith(beginning):
            raise DamagedSourceError(source.name, 1, reason)
    return content.removeprefix(BOM_UTF8)


@contextmanager
def opened(source: Source) -> Iterator[io.BufferedReader]:
    """Open a source's bytes, unpacked within bounds if it is gzip; it must be unchanged before and after.

    Raises
    ------
    ChangedSourceError
        If it is not.
    UnpackedTooFarError
        From reading, at a gzip bomb.
    """
    source.check_unchanged()
    try:
        with source.path.open("rb") as stream:
            zipped = stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC
            stream.seek(0)
            yield io.BufferedReader(_Unpacked(stream), 2**20) if zipped else stream
    except Exception:
        source.check_unchanged()  # what looks damaged may be half of another file
        raise
    source.check_unchanged()


class UnpackedTooFarError(Exception):
    """A gzip whose content is larger, or grows faster, than any corpus does."""


class _Unpacked(io.RawIOBase):
    """The content of a gzip, up to `MAX_UNPACKED` bytes and, from `RATIO_FROM` on, `MAX_RATIO` times what was read."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        self._gzip = gzip.GzipFile(fileobj=packed)
        self._bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        content = self._gzip.read1(len(buffer))  # one step, so that what precedes a damaged place is not lost
        buffer[: len(content)] = content
        self._bytes += len(content)
        if self._bytes > MAX_UNPACKED:
            raise UnpackedTooFarError(f"a gzip of more than {MAX_UNPACKED >> 30} GiB: unpack it, or split it")
        if self._bytes > max(RATIO_FROM, MAX_RATIO * self._packed.tell()):
            raise UnpackedTooFarError(
                f"a gzip that unpacks to over {MAX_RATIO} times its size, as a bomb does: unpack it if it is meant"
            )
        return len(content)
