"""What one document may take: a budget of size and of computing time, on which whatever loops over a document draws."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from time import thread_time
from typing import TypeVar

from biorag.corpus.sources import DamagedSourceError

LIMITS = {
    "bytes": 64 << 20,  # of a file that is read as a whole
    "unpacked_bytes": 128 << 20,  # of an archive
    "tags": 2_000_000,  # and attributes: each takes its parser some time and memory
    "attributes": 20_000,  # of HTML tags that have many: each is compared with each of its tag
    "characters": 16 << 20,
    "lines": 2_000_000,
    "passages": 10_000,  # of some 300 words: each is embedded
    "citations": 2_000_000,
    "references": 10_000,  # each of which is looked up
    "seconds": 15,  # that the thread computes
}
T = TypeVar("T")


class Budget:
    """What a document may still take, for as long as it is the context; a budget within it takes none of its time."""

    def __init__(self, document: str) -> None:
        self._document, self._limits, self._left = document, dict[str, float](LIMITS), dict[str, float](LIMITS)

    def __enter__(self) -> None:
        self._outer, self._started = _BUDGET.get(), thread_time()
        _BUDGET.set(self)

    def __exit__(self, *_: object) -> None:
        taken = thread_time() - self._started
        self._left["seconds"] -= taken
        if self._outer:
            self._outer._started += taken
        _BUDGET.set(self._outer)

    def draw(self, amounts: dict[str, float]) -> None:
        """Draw amounts and the time; raises as `draw` does."""
        for name, amount in amounts.items():
            self._left[name] -= amount
            self._limits[name] -= min(amount, 0)
        is_late = thread_time() - self._started > self._left["seconds"]
        if beyond := next((name for name in amounts if self._left[name] < 0), "seconds" if is_late else ""):
            reason = f"beyond the {self._limits[beyond]:,} {beyond} that one document may take: split it"
            raise DamagedSourceError(self._document, 1, reason.replace("_", " "))


_BUDGET: ContextVar[Budget | None] = ContextVar("budget", default=None)


def draw(**amounts: float) -> None:
    """Draw amounts of what `LIMITS` names, and the time so far, on the budget of the document that is read, if any is.

    A negative amount is granted. Raises `DamagedSourceError`, which names the document and the limit, beyond one.
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
