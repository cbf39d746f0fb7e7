"""A function run in a process of its own, so that neither a crash nor an endless loop takes this one with it."""

from __future__ import annotations

import multiprocessing
import resource
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

LONGEST_REPLY = 2000  # characters, which a pipe takes while nobody reads


class ApartError(Exception):
    """The process ended without a reply; `slow` says that it was ended for that, the text how it ended otherwise."""

    def __init__(self, text: str, slow: bool = False) -> None:
        super().__init__(text)
        self.slow = slow


def run_in_subprocess(target: Callable[..., str], arguments: tuple[Any, ...], seconds: float) -> str:
    """Return the text that a function returns in a new process, its first 2,000 characters.

    Raises `ApartError` if the process takes longer, or ends otherwise.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send, args=(target, arguments, sender), daemon=True)
    child.start()
    sender.close()
    child.join(seconds)
    if child.exitcode is None:
        child.kill()
        raise ApartError(f"more than {seconds:.0f} seconds", slow=True)
    if child.exitcode == 0 and receiver.poll():
        return str(receiver.recv())
    raise ApartError(signal.Signals(-child.exitcode).name if child.exitcode < 0 else f"exit code {child.exitcode}")


def _send(target: Callable[..., str], arguments: tuple[Any, ...], answer: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process reports the interrupt
    answer.send(target(*arguments)[:LONGEST_REPLY])


def limit_data(more: int) -> None:
    """Limit this process's own data to `more` bytes beyond what it has."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (data_bytes() + more, hard))


def data_bytes() -> int:
    """Return the size of this process's own data; 2 GiB where the system does not report it."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[5]) * resource.getpagesize() if statm.is_file() else 2**31
