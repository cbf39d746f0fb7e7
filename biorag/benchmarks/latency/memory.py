"""Memory in use, as the kernel counts it; imports nothing heavy, for a process of its own."""

from __future__ import annotations

import re
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

PROC = Path("/proc")
INTERVAL = 0.05  # seconds between two samples of a process's memory


@dataclass(slots=True)
class MemoryPeaks:
    """The most bytes that a process had of its own and of mapped files, each at its own time; None if unknown."""

    anonymous: int | None = None
    file_backed: int | None = None

    def update(self, pid: int) -> None:
        """Take what the process has now into account."""
        status = PROC / str(pid) / "status"
        try:
            anonymous, file_backed = kilobytes(status, "RssAnon"), kilobytes(status, "RssFile")
        except OSError:  # it has just ended
            return
        if anonymous is not None and file_backed is not None:
            self.anonymous = max(self.anonymous or 0, anonymous)
            self.file_backed = max(self.file_backed or 0, file_backed)


@contextmanager
def memory_peaks(pid: int) -> Iterator[MemoryPeaks]:
    """Sample another process's memory meanwhile; the kernel keeps no peak of each kind."""
    peaks, ended = MemoryPeaks(), Event()

    def sample() -> None:
        while not ended.wait(INTERVAL):
            peaks.update(pid)

    thread = Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        ended.set()
        thread.join()


def anonymous_bytes() -> int | None:
    """Return the memory of this process that is no file's; None where the system does not say."""
    return kilobytes(PROC / "self" / "status", "RssAnon")


def resident_bytes() -> int | None:
    """Return the memory that this process has in use now; None where the system does not say."""
    path = PROC / "self" / "statm"
    if not path.is_file():
        return None
    return int(path.read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def peak_bytes() -> int:
    """Return the most memory that this process has had in use, since `reset_peak` where that works."""
    peak = kilobytes(PROC / "self" / "status", "VmHWM")
    if peak is not None:
        return peak
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def reset_peak() -> bool:
    """Let the peak start again from what is in use now; return whether the system let us.

    Source: proc(5), writing 5 to `/proc/self/clear_refs`.
    """
    try:
        (PROC / "self" / "clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def kilobytes(path: Path, field: str) -> int | None:
    """Return a field of a file of /proc that is given in kB, in bytes."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = re.search(rf"^{field}:\s*(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else None
