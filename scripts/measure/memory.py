"""Memory of a process by kind, as Linux counts it; imports nothing heavy, for a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread

from biorag.benchmarks.latency.machine import PROC, kilobytes

INTERVAL = 0.05  # seconds between two samples of a process's memory


@dataclass(slots=True)
class MemoryPeaks:
    """The most bytes that a process had of its own and of mapped files, each at its own time; None if unknown."""

    anonymous: int | None = None
    file_backed: int | None = None

    def update(self, pid: int) -> None:
        """Take the process's memory of this moment into account."""
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
    """Return the memory of this process that belongs to no file."""
    return kilobytes(PROC / "self" / "status", "RssAnon")


def reset_peak() -> None:
    """Start the peak again from the memory in use now (proc(5): writing 5 to `/proc/self/clear_refs`)."""
    (PROC / "self" / "clear_refs").write_text("5", encoding="ascii")
