"""From the paths a user names to lines of bytes: folders, gzip, standard input, damaged files."""

from __future__ import annotations

import gzip
import io
import logging
import os
import re
import shutil
import sys
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, register_error
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import BinaryIO, NamedTuple

from biorag.errors import BadInputError, MissingError, bounded
from biorag.registries import LIBRARIES, READERS, ReaderKind, library_of
from biorag.settings.settings import UPLOADS
from biorag.utils.files import sha256_of
from biorag.utils.outputs import is_own
from biorag.utils.text import escaped

logger = logging.getLogger(__name__)

DEMO = "demo"
STDIN = "-"
PIPED = "standard input"  # as a source is called
STDIN_FILE = "standard-input"  # the name of its copy
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
# Beginnings of files that are not text, and their formats.
FOREIGN = {
    GZIP_MAGIC: "gzip inside gzip: unpack it once",
    b"PK\x03\x04": "a zip archive: unpack it",
    b"BZh": "packed by bzip2: unpack it",
    b"\x28\xb5\x2f\xfd": "packed by zstd: unpack it",
    b"\xfd7zXZ\x00": "packed by xz: unpack it",
    LFS_POINTER: "a Git-LFS pointer, not the data: run 'git lfs pull' and try again",
}
TEXTS = (".txt", ".txt.gz")  # names that other formats have too, as PubMed's own export
# What is not UTF-16 in a file that says so becomes what is not UTF-8 either, so that its record alone is refused.
REFUSED = "refused"
register_error(REFUSED, lambda error: ("\udcff", error.end))  # type: ignore[attr-defined]
# Files beside a corpus that may have its format.
ABOUT = re.compile(
    r"(readme|licen[cs]e|copying|changelog|changes|contributing|authors|notice|citation)[._-].*", re.IGNORECASE
)
OWN, BESIDE_BEIR, ABOUT_FILES, HIDDEN = "written by biorag", "beside a BEIR corpus", "READMEs and the like", "hidden"
LINKED, CLOSED = "links to folders", "not readable"
_JOINING = tuple(suffix for kind in READERS.values() if kind.joins for suffix in kind.suffixes)
# The root element, after a prologue.
_ROOT = re.compile(
    r"(?>\s+|<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>\[]*+(?:\[.*?\]\s*+)?>)*+<([A-Za-z_][\w.:-]{0,99})", re.DOTALL
)


class DamagedSourceError(BadInputError):
    """A corpus file that cannot be read beyond some line or page."""

    def __init__(self, source: str, line: int, reason: str, unit: str = "line") -> None:
        super().__init__(f"{source}, {unit} {line}: {reason}")
        self.line = line
        self.reason = bounded(reason)


class ChangedSourceError(BadInputError):
    """A corpus file that has changed since the run found it."""

    def __init__(self, source: str) -> None:
        super().__init__(f"{source} was changed during this run: run the same command again when nothing writes to it")


Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Source:
    """One corpus file under the name the user knows it by.

    A corpus is read more than once, so every reading checks that the file has not changed.
    """

    name: str
    path: Path
    # Beginning of the ids of its snippets, if the file has no ids; by default its name
    label: str = field(default="", compare=False)
    # Which column of a table is which field, as the user named them: (field, column)
    columns: Columns = field(default=(), compare=False)
    # Files of references, among which the record of its paper may be
    beside: tuple[Path, ...] = field(default=(), compare=False)
    # The record of its paper that was fetched
    record: Path | None = field(default=None, compare=False)
    # The references of the library that it is attached to
    library: Path | None = field(default=None, compare=False)
    _original: tuple[int, ...] | None = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", escaped(self.name))  # manifests and messages are UTF-8; the path is as it is
        object.__setattr__(self, "label", escaped(self.label or self.path.name))
        object.__setattr__(self, "_original", _state(self.path))

    @property
    def stem(self) -> str:
        """The last part of its label, without the suffix of its format."""
        name = self.label.rpartition("/")[2]
        suffixes = (suffix for kind in READERS.values() for suffix in kind.suffixes if name.lower().endswith(suffix))
        return name[: len(name) - max(map(len, suffixes), default=0)]

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


def _state(path: Path) -> tuple[int, ...] | None:
    """Return device, inode, size and time, which tell a file from its replacement; None if it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class FoundFiles(NamedTuple):
    """The corpus files behind names, how many files of folders were taken and left, by kind, and these folders.

    What a folder or library should hold and is `unread`, a folder, a link or a paper, is not gone.
    """

    sources: list[Source]
    taken: Mapping[str, int]
    left: Mapping[str, int]
    folders: tuple[Path, ...] = ()
    unread: tuple[Path, ...] = ()


def find_sources(names: Sequence[str], spool: Path, home: Path | None = None) -> list[Source]:
    """Return the corpus files behind the names; see `find_files`."""
    return find_files(names, spool, home).sources


def find_files(
    names: Sequence[str],
    spool: Path,
    home: Path | None = None,
    columns: Columns = (),
    may_be_empty: Callable[[Path], bool] = lambda folder: False,
) -> FoundFiles:
    """Return the files behind the names: a file, a folder's corpus files in order, `demo`, `-`, or Zotero's.

    Standard input is copied to `spool`, because a corpus is read twice. Files that biorag wrote (`home`, rejects,
    results) are left out of folders. Raises `MissingError` if a name is neither a file nor a folder, `BadInputError` if
    a folder holds no corpus file, unless it may be empty.
    """
    sources: list[Source] = []
    folders: list[Path] = []
    unread: list[Path] = []
    left: Counter[str] = Counter()
    for name in names:
        path = Path(name)
        if name == STDIN:
            sources.append(_spooled(spool, columns))
        elif kind := library_of(name):
            library = kind.load()(name, (home or spool.parent) / "zotero", may_be_empty)
            sources.extend([Source(name, library.references, columns=columns)] if library.references else [])
            sources.extend(
                Source(str(paper), paper, beside=(record,), library=library.references)
                for paper, record in library.attachments
            )
            folders.extend([library.storage] if library.storage else [])
            unread.extend(library.missing)
        elif path.is_file():
            sources.append(Source(name, path, columns=columns, beside=_own_references(path)))
        elif name and path.is_dir():
            taken, others, closed = _folder(path, home, columns, may_be_empty(path))
            sources.extend(taken)
            left.update(others)
            folders.append(path)
            unread.extend(closed)
        elif name == DEMO:
            sources.append(Source(DEMO, demo_file("snippets.jsonl")))
        elif name and path.exists():
            raise MissingError(f"corpus {name!r} is a pipe or a device, not a file: send its content to - instead")
        else:
            raise MissingError(
                f"corpus {name!r} is not there: name a file, a folder, 'demo', 'zotero:', or - for standard input"
            )
    return FoundFiles(sources, by_kind(sources), dict(sorted(left.items())), tuple(folders), tuple(unread))


def by_kind(sources: Iterable[Source]) -> dict[str, int]:
    """Return how many files there are of each kind; one that cannot be read counts by its name."""
    counts: Counter[str] = Counter()
    for source in sources:
        named = _named(source.path)
        try:
            counts[(library_of(source.name) or reader_of(source)).name] += 1
        except BadInputError:
            counts[named[0].name if named else "unknown"] += 1
    return dict(sorted(counts.items()))


def demo_file(name: str) -> Path:
    """Return the path of a file of the packaged demonstration corpus."""
    return Path(str(resources.files("biorag") / "corpus" / "demo" / name))


def _endings() -> tuple[str, ...]:
    return tuple(dict.fromkeys(suffix for kind in READERS.values() for suffix in kind.suffixes))


def _folder(
    folder: Path, home: Path | None, columns: Columns, may_be_empty: bool
) -> tuple[list[Source], Counter[str], set[Path]]:
    """Return a folder's corpus files, sub-folders' too, counts of the others, and what is not readable; logs both."""
    paths, unread = _walked(folder)
    corpus = set(_by_others(paths, _endings(), folder, home))
    beir = {path.parent for path in corpus if path.name in BEIR_CORPUS}
    references = tuple(path for path in sorted(corpus | unread) if _joins(path))  # what they said stays
    sources: list[Source] = []
    left: Counter[str] = Counter()
    for path in paths:
        if reason := CLOSED if path in unread else _left(path, folder, beir, corpus):
            left[reason] += 1
        elif path in corpus:
            sources.append(Source(str(path), path, path.relative_to(folder).as_posix(), columns, references))
    if folder in unread:
        closed = f"folder {folder} cannot be read: check its permissions, and that its disk is mounted"
        if not may_be_empty:
            raise BadInputError(closed)
        logger.warning("%s", closed)
    if not sources and not may_be_empty:
        raise BadInputError(f"folder {folder} holds no corpus file: expected names ending in {', '.join(_endings())}")
    took = f"{folder}: took {in_words(by_kind(sources))}"
    logger.info("%s", f"{took}; left {in_words(left)}" if left else took)
    return sources, left, unread


def _left(path: Path, folder: Path, beir: set[Path], corpus: set[Path]) -> str:
    """Return why a folder's file, or a folder in it, is not read; "" if it is, or if it is neither."""
    if path.is_dir():
        return LINKED if path.is_symlink() else ""
    if not path.is_file():
        return ""
    if library := next((kind for kind in LIBRARIES.values() if kind.database == path.name), None):
        return f"{library.name} ('biorag index {library.prefix}', or with its path, reads it)"
    is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
    if path not in corpus:
        is_own = path.name.lower().endswith(_endings())
        return OWN if is_own else HIDDEN if is_hidden else escaped(path.suffix.lower()) or "without a suffix"
    if path.name in BEIR_CORPUS:
        return ""
    is_common = _named(path)[0].common
    if path.parent in beir or path.name in BEIR_QUERIES or (is_common and not beir.isdisjoint(path.parents)):
        return BESIDE_BEIR
    return "" if not is_common else HIDDEN if is_hidden else ABOUT_FILES if ABOUT.fullmatch(path.name) else ""


def _own_references(path: Path) -> tuple[Path, ...]:
    """Return the files of references beside a file that have its name."""
    named = (path.with_suffix(suffix) for suffix in _JOINING)
    return tuple(other for other in named if other != path and other.is_file() and _joins(other))


def _joins(path: Path) -> bool:
    """Return whether a file is one of references, whose records are of papers beside it, or may be a damaged one."""
    named = _named(path)
    if all(kind.joins == named[0].joins for kind in named):
        return bool(named) and named[0].joins
    with suppress(BadInputError):
        return all(kind.joins for kind in _begun(_beginning_of(Source(path.name, path)))[0] if kind in named)
    return True


def in_words(counts: Mapping[str, int]) -> str:
    """Return counts as a message has them: `3 PDF, 1 RIS`."""
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))


def files_of(folder: Path, endings: tuple[str, ...], home: Path | None = None) -> list[Path]:
    """Return a folder's files with these endings, in order, sub-folders' too, but for those that biorag wrote.

    All of the home are such, but for papers that were sent to a server where their folder is named.
    """
    return _by_others(_walked(folder)[0], endings, folder, home)


def _walked(folder: Path) -> tuple[list[Path], set[Path]]:
    """Return what a folder and its sub-folders hold, in order, and what cannot be read: folders, links to nothing."""
    faults: list[OSError] = []
    walk = os.walk(folder, onerror=faults.append)
    paths = sorted(Path(parent, name) for parent, folders, files in walk for name in (*folders, *files))
    unread = {path for path in paths if not os.path.exists(path)}  # noqa: PTH110 - False where it may not be asked
    return paths, unread | {Path(fault.filename) for fault in faults}


def _by_others(paths: Iterable[Path], endings: tuple[str, ...], folder: Path, home: Path | None) -> list[Path]:
    named = (path for path in paths if path.name.lower().endswith(endings))
    files = [path for path in named if os.path.isfile(path)]  # noqa: PTH113
    own = home.resolve() if home and not folder.resolve().is_relative_to((home / UPLOADS).resolve()) else None
    others = [path for path in files if not (own and path.resolve().is_relative_to(own)) and not is_own(path, folder)]
    if len(others) < len(files):
        logger.debug("%s: %d files that biorag wrote are left out", folder, len(files) - len(others))
    return others


def _spooled(spool: Path, columns: Columns) -> Source:
    spool.parent.mkdir(parents=True, exist_ok=True)
    with spool.open("wb") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy, 2**20)
    return Source(PIPED, spool, columns=columns)


def read_lines(source: Source, blank: bool = False) -> Iterator[tuple[int, bytes]]:
    """Yield `(line number from 1, line)` without line ends and byte order mark; blank lines only if asked for.

    Raises `DamagedSourceError` at another format, a damaged gzip, a gzip bomb, a line over 16 MiB, or an unreadable
    file, and `ChangedSourceError` if the file has changed since it was found.
    """
    number = 0
    with faults_named(source, lambda: number + 1), opened(source) as stream:
        recoded = io.TextIOWrapper(stream, "utf-16", REFUSED, newline="\n") if is_utf16(stream.peek(2)) else None
        while line := _bytes(recoded.readline(MAX_LINE + 1)) if recoded else stream.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                raise DamagedSourceError(source.name, number, f"longer than {MAX_LINE >> 20} MiB")
            if number == 1:
                line = _beginning(source, line)
            if blank or line.strip():
                yield number, line.rstrip(b"\r\n")


def utf8_of(content: bytes) -> bytes:
    """Return a text as UTF-8, from UTF-16 if its byte order mark says so, and what is neither as no UTF-8."""
    return _bytes(content.decode("utf-16", REFUSED)) if is_utf16(content) else content


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def is_utf16(content: bytes) -> bool:
    """Return whether a file that begins so is UTF-16, by its byte order mark."""
    return content.startswith((BOM_UTF16_LE, BOM_UTF16_BE))


def reader_of(source: Source) -> ReaderKind:
    """Return the format of a file, by its name, of XML by its root element too, else by its first bytes.

    Raises `BadInputError`, naming the formats, if it has none.
    """
    named = _named(source.path)
    by_content = source.path.name.lower().endswith(TEXTS)
    if len(named) == 1 and not by_content:
        return named[0]
    content = _beginning_of(source)
    first, begun, root = _begun(content)
    kinds = first + named if by_content else [kind for kind in first if kind in named] + named or begun
    if kind := next((kind for kind in kinds if root in kind.roots), next(iter(kinds), None)):
        return kind
    if not content.removeprefix(BOM_UTF8).strip():
        return next(iter(READERS.values()))
    because = next((f" ({why})" for mark, why in FOREIGN.items() if content.startswith(mark)), "")
    plain = {kind.name: [name for name in kind.suffixes if not name.endswith(".gz")] for kind in READERS.values()}
    known = "; ".join(f"{name} ({', '.join(suffixes) or '.txt'})" for name, suffixes in plain.items())
    raise BadInputError(f"{source.name} is of no kind that biorag reads{because}: name files of {known}")


def _beginning_of(source: Source) -> bytes:
    with faults_named(source, lambda: 1), opened(source) as stream:
        return stream.read1(CHUNK)


def _begun(content: bytes) -> tuple[list[ReaderKind], list[ReaderKind], str]:
    """Return the formats of a file that begins so, those that its root element leaves first, and this element."""
    beginning, root = utf8_of(content).removeprefix(BOM_UTF8).lstrip(), _root_of(content)
    begun = [kind for kind in READERS.values() if kind.beginning and re.match(kind.beginning, beginning)]
    return [kind for kind in begun if not kind.roots or root in kind.roots], begun, root


def check_kinds(sources: Iterable[Source]) -> None:
    """Refuse a file of an unknown format before any is read; raises as `reader_of` does."""
    for source in sources:
        if not _named(source.path):
            with suppress(DamagedSourceError):  # its reading names the fault
                reader_of(source)


def _named(path: Path) -> list[ReaderKind]:
    """Return the formats that a file's name says."""
    return [kind for kind in READERS.values() if path.name.lower().endswith(kind.suffixes)]


def _root_of(content: bytes) -> str:
    """Return the name of the root element in the first bytes of a file; "" if they hold none."""
    root = _ROOT.match(utf8_of(content).removeprefix(BOM_UTF8).decode("utf-8", "replace"))
    return root[1] if root else ""


def read_chunks(source: Source) -> Iterator[bytes]:
    """Yield the bytes of a file, unzipped, in order, without a byte order mark; raises as `read_lines` does."""
    line, started = 1, False
    with faults_named(source, lambda: line), opened(source) as stream:
        while chunk := stream.read1(CHUNK):  # in one read, so that everything before damage is read
            yield chunk if started else _beginning(source, chunk)
            line, started = line + chunk.count(b"\n"), True


@contextmanager
def faults_named(source: Source, line: Callable[[], int], unit: str = "line") -> Iterator[None]:
    """Turn an error of reading a file into the one that names the file and the line reached."""
    try:
        yield
    except UnpackedTooFarError as error:
        raise DamagedSourceError(source.name, line(), str(error), unit) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        fault = "its end is missing" if isinstance(error, EOFError) else error
        reason = f"damaged or truncated gzip ({fault}): fetch the file again"
        raise DamagedSourceError(source.name, line(), reason, unit) from None
    except OSError as error:
        raise DamagedSourceError(source.name, line(), f"cannot be read: {error.strerror or error}", unit) from None


def _beginning(source: Source, content: bytes) -> bytes:
    """Return a file's first bytes without a byte order mark, if they are those of text."""
    for beginning, reason in FOREIGN.items():
        if content.startswith(beginning):
            raise DamagedSourceError(source.name, 1, reason)
    if b"\0" in content[:2] and b"<" not in content[:2]:  # XML says what it is without a mark, too
        raise DamagedSourceError(source.name, 1, "UTF-16 without its byte order mark, or no text: save it as UTF-8")
    return content.removeprefix(BOM_UTF8)


@contextmanager
def opened(source: Source) -> Iterator[io.BufferedReader]:
    """Open a source's bytes, unpacked within bounds if it is gzip; raises `ChangedSourceError` if it has changed."""
    source.check_unchanged()
    try:
        with source.path.open("rb") as stream:
            zipped = stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC
            stream.seek(0)
            yield io.BufferedReader(_Unpacked(stream), 2**20) if zipped else stream
    except Exception:
        source.check_unchanged()  # a file that looks damaged may be half of another one
        raise
    source.check_unchanged()


class UnpackedTooFarError(Exception):
    """A gzip whose content is larger, or grows faster, than any corpus does."""


class _Unpacked(io.RawIOBase):
    """The content of a gzip, up to `MAX_UNPACKED` bytes and, from `RATIO_FROM` on, `MAX_RATIO` times the bytes read."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        self._gzip = gzip.GzipFile(fileobj=packed)
        self._bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        content = self._gzip.read1(len(buffer))  # one step, so that nothing before damage is lost
        buffer[: len(content)] = content
        self._bytes += len(content)
        if self._bytes > MAX_UNPACKED:
            raise UnpackedTooFarError(f"a gzip of more than {MAX_UNPACKED >> 30} GiB: unpack it, or split it")
        if self._bytes > max(RATIO_FROM, MAX_RATIO * self._packed.tell()):
            raise UnpackedTooFarError(
                f"a gzip that unpacks to over {MAX_RATIO} times its size, as a bomb does: unpack it if it is meant"
            )
        return len(content)
