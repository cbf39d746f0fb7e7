"""One writer or many readers: a lock file beside the shard, held through `flock`."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from pathlib import Path

from biorag.errors import ServiceError
from biorag.utils.files import timestamp, try_lock

LOCK = "lock"


class DirectoryLock:
    """A shared (reader's) or exclusive (writer's) lock on a directory, an index's unless `what` says otherwise.

    The kernel frees it however the process ends.

    Raises
    ------
    ServiceError
        At once, naming the writer that holds the folder, or saying that readers do.
    """

    def __init__(self, folder: Path, exclusive: bool, what: str = "index") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._exclusive = exclusive
        self._file = (folder / LOCK).open("a+", encoding="utf-8")
        if not try_lock(self._file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH):
            holder = self._holder()
            self._file.close()
            raise ServiceError(f"{what} {folder.name!r} is being {holder}: wait for that to end, then try again")
        if exclusive:
            self._write(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": timestamp(" ")}))

    def release(self) -> None:
        """Release the lock; harmless if it is released already."""
        if not self._file.closed:
            if self._exclusive:
                self._write("")
            self._file.close()

    def __enter__(self) -> DirectoryLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _holder(self) -> str:
        """Say who holds the lock: if a shared one can be taken, only readers do."""
        if try_lock(self._file, fcntl.LOCK_SH):
            return "read by another biorag process"
        self._file.seek(0)
        try:
            writer = json.loads(self._file.read())
            return f"written by process {writer['pid']} on {writer['host']} since {writer['since']}"
        except (ValueError, KeyError, TypeError):
            return "written by another biorag process"

    def _write(self, text: str) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._file.write(text)
        self._file.flush()
