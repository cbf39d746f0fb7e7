"""One writer or many readers: a lock file beside the shard, held through `flock`; and turns among threads."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from pathlib import Path
from threading import BoundedSemaphore, Lock

from biorag.errors import ServiceError
from biorag.utils.files import timestamp, try_lock

LOCK = "lock"
LONGEST = 4096  # bytes of a lock file
TRIES = 10  # to lock a file that stays where it is
begun: set[str] = set()  # kinds of what this process has begun to write, which the same command resumes
_NO_WRITING = (errno.EROFS, errno.EACCES, errno.EPERM)


class DirectoryLock:
    """A shared (reader's) or exclusive (writer's) lock on a directory, which the kernel frees however the process ends.

    A reader needs no right to write: where no lock file can be made, no writer can be either. Raises `ServiceError` at
    once, naming the writer that holds the folder, or if its lock file keeps vanishing; `OSError` if that is a link.
    """

    def __init__(self, folder: Path, exclusive: bool, what: str = "index") -> None:
        self._exclusive = exclusive
        self._handle: int | None = None
        try:
            self._take(folder, what)
        except BaseException:
            self._close()
            raise
        if exclusive:
            begun.add(what)
            self._write(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": timestamp(" ")}))

    def _take(self, folder: Path, what: str) -> None:
        for _ in range(TRIES):
            self._handle = _opened(folder, self._exclusive)
            if self._handle is None:
                return
            if not try_lock(self._handle, fcntl.LOCK_EX if self._exclusive else fcntl.LOCK_SH):
                holder = self._holder()
                raise ServiceError(f"{what} {folder.name!r} is being {holder}: wait for that to end, then try again")
            if _is_at(self._handle, folder / LOCK):
                return
            self._close()  # a writer removed it as it ended: a lock on it keeps nobody out
            if not folder.is_dir():
                break
        raise ServiceError(f"{what} {folder.name!r} was removed, or its lock file {folder / LOCK} was: try again")

    def release(self) -> None:
        """Release the lock; harmless if it is released already."""
        if self._handle is not None:
            if self._exclusive:
                self._write("")
            self._close()

    def __enter__(self) -> DirectoryLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _holder(self) -> str:
        """Say who holds the lock: if a shared one can be taken, only readers do."""
        assert self._handle is not None
        if try_lock(self._handle, fcntl.LOCK_SH):
            return "read by another biorag process (stop a chat or a server, close a session in Python)"
        try:
            writer = dict(json.loads(os.pread(self._handle, LONGEST, 0)))
            return f"written by process {writer['pid']} on {writer['host']} since {writer['since']}"
        except (ValueError, TypeError, KeyError, RecursionError):
            return "written by another biorag process"

    def _write(self, text: str) -> None:
        assert self._handle is not None
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, text.encode(), 0)

    def _close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
        self._handle = None


def is_written(folder: Path) -> bool:
    """Return whether a process holds a folder's exclusive lock; nothing is written or waited for."""
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not try_lock(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    """Return whether an open file is the one at a path."""
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False


def _opened(folder: Path, exclusive: bool) -> int | None:
    """Open a folder's lock file, read-only for a reader who may not write; None if such a reader finds none."""
    path, safely = folder / LOCK, os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | safely, 0o666)
    except OSError as error:
        if exclusive or error.errno not in _NO_WRITING:
            raise
    try:
        return os.open(path, os.O_RDONLY | safely)
    except FileNotFoundError:
        return None


class Turns:
    """Lets so many threads in at a time; `waiting` is how many others want to come in."""

    def __init__(self, at_a_time: int) -> None:
        self._free, self._counting = BoundedSemaphore(at_a_time), Lock()
        self.waiting = 0

    def __enter__(self) -> None:
        self._count(1)
        try:
            self._free.acquire()
        finally:
            self._count(-1)

    def __exit__(self, *_: object) -> None:
        self._free.release()

    def _count(self, change: int) -> None:
        with self._counting:
            self.waiting += change
