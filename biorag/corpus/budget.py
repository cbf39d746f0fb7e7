"""What one document may take to be read: a budget of size and of computing time, which whatever reads it draws on.

`within` and `with Budget(name)` give a document its budget while it is read; a loop over a document calls `draw`, which
does nothing without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from time import thread_time
from typing import TypeVar

from biorag.corpus.sources import DamagedSourceError

LIMITS = {
    "bytes": 64 << 20,  # of a file that is read as a whole
    "unpacked": 128 << 20,  # bytes that an archive unpacks to
    "tags": 2_000_000,  # and attributes: each takes its parser some time and memory
    "attributes": 20_000,  # of HTML tags that have many: each is compared with each of its tag
    "characters": 16 << 20,
    "lines": 2_000_000,
    "seconds": 15,  # that the thread computes
}
_BEYOND = {
    "bytes": "has more than {:,} bytes",
    "unpacked": "unpacks to more than {:,} bytes",
    "tags": "has more than {:,} tags and attributes",
    "attributes": "has tags of more than {:,} attributes",
    "characters": "has a text of more than {:,} characters",
    "lines": "has more than {:,} lines",
    "seconds": "takes more than {:,} s to read",
}
T = TypeVar("T")


class Budget:
    """What a document may still take, while it is the context; the time that another one takes inside it is not its."""

    def __init__(self, document: str) -> None:
        self._document, self._limits, self._left = document, dict[str, float](LIMITS), dict[str, float](LIMITS)
        self._outer: Budget | None = None
        self._started = 0.0

    def __enter__(self) -> None:
        self._outer, self._started = _BUDGET.get(), thread_time()
        _BUDGET.set(self)

    def __exit__(self, *_: object) -> None:
        taken = thread_time() - self._started
        self._left["seconds"] -= taken
        if self._outer is not None:
            self._outer._started += taken
        _BUDGET.set(self._outer)

    def draw(self, amounts: dict[str, float]) -> None:
        """Take amounts; raises `DamagedSourceError` beyond a limit, of time too."""
        for name, amount in amounts.items():
            self._limits[name] -= min(amount, 0)
            self._left[name] -= amount
            if self._left[name] < 0:
                self._refuse(name)
        if thread_time() - self._started > self._left["seconds"]:
            self._refuse("seconds")

    def _refuse(self, name: str) -> None:
        raise DamagedSourceError(self._document, 1, f"{_BEYOND[name].format(self._limits[name])}: split it")


_BUDGET: ContextVar[Budget | None] = ContextVar("budget", default=None)


def draw(**amounts: float) -> None:
    """Draw amounts of what `LIMITS` names, and the time so far, on the budget of the document that is being read.

    A negative amount is granted, as time is for each page of a PDF. Raises `DamagedSourceError`, which names the
    document and the limit, if that is more than it may take.
    """
    if budget := _BUDGET.get():
        budget.draw(amounts)


def within(document: str, parts: Iterator[T]) -> Iterator[T]:
    """Yield the parts of a document, each read within its budget; what is done between two of them takes nothing."""
    budget = Budget(document)
    while True:
        with budget:
            draw()
            part = next(parts, None)
        if part is None:
            return
        yield part
