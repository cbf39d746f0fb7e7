"""Files: replaced atomically, hashed and measured; locks on them and room for them."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import IO, Any, BinaryIO

from biorag.errors import ServiceError, UsageError
from biorag.utils.parsing import naming, read_beginning, without_waiting
from biorag.utils.secrets import FILES, redacted
from biorag.utils.text import escaped, is_whole

BEGINNING = 64 << 10  # bytes of a file that tell its kind
PIECE = 64 << 10  # bytes read and written at once
RESERVE = 32 << 20  # bytes left free: the engine extends memory-mapped files, and a full disk then kills the process
TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}")  # names of what `replacing` and `scratch_folder` write
OLD_DAYS = 90  # without a change, after which what only saves time may go
LEFT_SECONDS = 60  # age from which such a file or folder may be one that was left; a younger one may not be locked yet

_home: tuple[Path, ...] = ()  # the configuration and the folder of indexes, which no output of a user's may touch


def json_text(values: Any, indent: int | None = None) -> str:
    """Return values as JSON that any reader takes: no NaN or infinity, which become null, and no half characters."""
    try:
        text = json.dumps(values, ensure_ascii=False, allow_nan=False, indent=indent)
    except ValueError:
        finite = json.loads(json.dumps(values), parse_constant=lambda name: None)
        text = json.dumps(finite, ensure_ascii=False, indent=indent)
    return text if is_whole(text) else escaped(text, backslash=r"\\")


def json_line(values: Any) -> bytes:
    """Return values as a line of JSON Lines; see `json_text`."""
    return json_text(values).encode() + b"\n"


def write_json(path: Path, values: Any) -> None:
    """Write indented JSON atomically and durably, without secrets; see `json_text`."""
    write_text(path, redacted(json_text(values, indent=2), FILES) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically and durably, making its folder."""
    with replacing(path) as stream:
        stream.write(text.encode("utf-8"))


@contextmanager
def replacing(path: Path, original: Path | None = None) -> Iterator[BinaryIO]:
    """Open a new file that takes the place of `path`, and its permissions, durably once it is written; make its folder.

    A copy has the permissions of its `original`. A device, and a pipe that somebody reads, is written to. Raises
    `UsageError` at a link, which is never replaced, and at a pipe that nobody reads.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        with naming(path), open(path, "wb", opener=without_waiting) as stream:
            os.set_blocking(stream.fileno(), True)
            yield stream
        return
    _refuse_link(path)
    make_folder(path.parent)
    like = original or path
    mode = like.stat().st_mode & 0o777 if like.is_file() else 0o666
    temporary = _temporary(path)
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as stream:
            _hold(stream)
            if like.is_file():
                os.fchmod(stream.fileno(), mode)  # whatever the umask
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename in (None, str(temporary)):
            error.filename = str(path)  # as the user knows it
        raise


@contextmanager
def scratch_folder(folder: Path | None = None, name: str = "biorag") -> Iterator[Path]:
    """Give a new folder, below that of the system's temporary files or another, that is removed afterwards."""
    path = _temporary((folder or Path(tempfile.gettempdir())) / name)
    path.mkdir(mode=0o700)
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _hold(handle)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(handle)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{token_hex(8)}")


def _hold(file: IO[Any] | int) -> None:
    """Lock what `left_behind` must not take; a file system without locks has the age alone."""
    with suppress(OSError):
        try_lock(file)


def left_behind(folder: Path, deep: bool = True) -> list[Path]:
    """Return what killed processes of this user left of `replacing` and `scratch_folder`: old, and locked by nobody."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        temporary = [Path(place, name) for name in (*folders, *names) if TEMPORARY.fullmatch(name)]
        found += filter(_is_left, temporary)
        folders[:] = [name for name in folders if deep and not TEMPORARY.fullmatch(name)]
    return found


def _is_left(path: Path) -> bool:
    with suppress(OSError):
        facts = path.lstat()
        if facts.st_uid == os.getuid() and time.time() - facts.st_mtime >= LEFT_SECONDS:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                return try_lock(handle)
            finally:
                os.close(handle)
    return False


def sweep(folder: Path) -> None:
    """Remove what `left_behind` finds in a folder itself."""
    for path in left_behind(folder, deep=False):
        remove_path(path)


def is_old(path: Path) -> bool:
    """Return whether a file is there, and has not changed for `OLD_DAYS`."""
    return path.exists() and time.time() - path.stat().st_mtime > OLD_DAYS * 86_400


def remove_path(path: Path) -> None:
    """Remove a file or folder; what cannot be removed, or is gone already, stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def remove_left(folder: Path, names: re.Pattern[str]) -> None:
    """Remove what killed runs left of files of these names that they were writing by `replacing`."""
    for path in folder.iterdir():
        if (left := TEMPORARY.fullmatch(path.name)) and names.fullmatch(left[1]):
            path.unlink(missing_ok=True)


def copy_with_holes(
    stream: BinaryIO, size: int, copy: BinaryIO, seen: Callable[[bytes], None] = lambda _: None
) -> None:
    """Write the next `size` bytes of a stream to a new file, zeros as holes, and pass them to `seen`.

    The caller truncates the file to its size. Raises `EOFError` if there are fewer bytes.
    """
    zeros = bytes(PIECE)
    for start in range(0, size, PIECE):
        length = min(PIECE, size - start)
        piece = stream.read(length)
        if len(piece) < length:
            raise EOFError("it ends too early")
        seen(piece)
        if piece == zeros[:length]:
            copy.seek(length, os.SEEK_CUR)
        else:
            copy.write(piece)


def copy_sparse(source: Path, target: Path) -> None:
    """Copy a file into a new one, zeros as holes."""
    with source.open("rb") as stream, target.open("xb") as copy:
        size = os.fstat(stream.fileno()).st_size
        copy_with_holes(stream, size, copy)
        copy.truncate(size)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_of_json(values: Any) -> str:
    """Return the SHA-256, hex, of values as JSON; the order of keys does not count."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def keep_home(*paths: Path) -> None:
    """From now on let no output of a user's take the place of these files, or lie in these folders."""
    global _home
    _home = paths


def check_output(path: Path | None, inputs: Iterable[Path] = (), is_folder: bool = False) -> None:
    """Raise `UsageError` if an output that a user names is `-`, a link, an input by any name, or part of the home.

    What lies in a folder of inputs is one.
    """
    if path is None:
        return
    if str(path) == "-":
        raise UsageError(f"no output goes to '-', standard output: name a {'folder' if is_folder else 'file'} to write")
    if path.is_dir() and not is_folder:
        raise UsageError(f"{path} is a folder: name a file to write")
    own = any(_real(path).is_relative_to(_real(kept)) or _is_within(path, kept) for kept in _home)
    if own or any(_is_within(path, kept) for kept in inputs):
        why = "is biorag's own" if own else "is read by this command"
        raise UsageError(f"{path} {why}: name another {'folder' if is_folder else 'file'} to write")
    if is_folder and path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file: name a folder to write into")
    _refuse_link(path)


def check_place(path: Path) -> None:
    """Raise `OSError`, naming the path, if no file or folder can be made there."""
    folder = next(parent for parent in path.parents if parent.exists())
    fault = errno.ENOTDIR if not folder.is_dir() else 0 if os.access(folder, os.W_OK | os.X_OK) else errno.EACCES
    if fault:
        raise OSError(fault, os.strerror(fault), str(path))


def _is_within(path: Path, kept: Path) -> bool:
    """Return whether a path is another by any name, or a file that is there in that folder."""
    if not (path.exists() and kept.exists()):
        return False
    if path.samefile(kept) or not (path.is_file() and kept.is_dir()):
        return path.samefile(kept)
    linked = kept.rglob("*") if path.stat().st_nlink > 1 else ()
    return _real(path).is_relative_to(_real(kept)) or any(other.exists() and path.samefile(other) for other in linked)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # `Path.resolve` fails at a link to itself


def check_replaceable(
    path: Path,
    kind: str,
    is_ours: Callable[[bytes], bool],
    inputs: Iterable[Path] = (),
    force: bool | None = None,
    most: int = BEGINNING,
) -> None:
    """Raise `UsageError` if an output of a kind would replace another's file; see `check_output`.

    `is_ours` tells an earlier output by its first `most` bytes; an empty file may always go. `force` replaces any file;
    it is None where a command has no option of that name.
    """
    check_output(path, inputs)
    if not force and path.is_file() and (beginning := read_beginning(path, most)) and not is_ours(beginning):
        advice = "name another file or folder" + ("" if force is None else ", or replace it with --force")
        raise UsageError(f"{path} is there, and no {kind} that biorag wrote: {advice}")


def _refuse_link(path: Path) -> None:
    """Raise `UsageError` at a link to a file or to nothing."""
    if path.is_symlink() and (path.is_file() or not path.exists()):
        raise UsageError(f"{path} is a link: name the file that it leads to")


def timestamp(separator: str = "T") -> str:
    """Return the time in UTC, to the second, with the separator between date and time."""
    return f"{datetime.now(UTC):%Y-%m-%d{separator}%H:%M:%SZ}"


def disk_bytes(path: Path) -> int:
    """Return the bytes that a file, or all files of a folder, take on disk, where the engine's are sparse.

    A file that goes meanwhile counts for nothing.
    """
    size = 0
    for file in (path, *path.rglob("*")):
        with suppress(OSError):
            facts = file.stat()
            size += facts.st_blocks * 512 if stat.S_ISREG(facts.st_mode) else 0
    return size


def make_folder(path: Path) -> None:
    """Make a folder and those above it, durably."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a network file system without this operation
            raise
    finally:
        os.close(handle)


def try_lock(file: IO[Any] | int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file until it is closed; return False if another process holds it."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def require_room(folder: Path, needed: int) -> None:
    """Raise `ServiceError` unless the disk of a folder has `needed` bytes and the reserve."""
    free = shutil.disk_usage(folder).free
    if free < needed + RESERVE:
        raise ServiceError(
            f"the disk of {folder} is full: {free / 1e6:,.0f} MB are free and {(needed + RESERVE) / 1e6:,.0f} MB are "
            "needed: free some space, then run the same command again, which resumes from here"
        )
