"""Standard input that a signal ends, as its other end does by closing it.

The SDK reads standard input in a thread, which a signal does not reach: the server would stop only once its host has
closed the input too.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

STDIN = 0  # file descriptor
CHUNK = 1 << 16
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGINT and SIGTERM end standard input, and handle them as before once what reads it is done.

    Raises
    ------
    KeyboardInterrupt
        At the end, after a signal, where that is what handles it.
    """
    received: list[int] = []
    source = os.dup(STDIN)
    reading, writing = os.pipe()
    woken, waking = os.pipe()

    def stop(number: int, frame: object) -> None:
        received.append(number)
        os.write(waking, b".")

    handlers = {number: signal.signal(number, stop) for number in SIGNALS}
    pump = Thread(target=_pump, args=(source, writing, woken), name="standard input", daemon=True)
    os.dup2(reading, STDIN)
    os.close(reading)
    pump.start()
    try:
        yield
    finally:
        os.write(waking, b".")
        pump.join()
        os.dup2(source, STDIN)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for descriptor in (source, woken, waking):
            os.close(descriptor)
    if received:
        signal.raise_signal(received[0])


def _pump(source: int, writing: int, woken: int) -> None:
    """Copy what is read to the pipe until the end, or until it is woken; then the pipe ends too."""
    os.set_blocking(writing, False)
    with suppress(BrokenPipeError), open(writing, "wb", buffering=0):
        while _ready(source, None, woken) and (chunk := os.read(source, CHUNK)):
            while chunk and _ready(None, writing, woken):
                chunk = chunk[os.write(writing, chunk) :]


def _ready(reading: int | None, writing: int | None, woken: int) -> bool:
    """Wait until one can read or write; return False where it is woken instead."""
    readers = [woken] if reading is None else [reading, woken]
    writers = [] if writing is None else [writing]
    return woken not in select.select(readers, writers, [])[0]
