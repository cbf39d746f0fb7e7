"""Work in batches, and progress that is not shown, or told now and then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

from biorag.types import OnProgress

STEP = 256  # items between two reports: to show one takes longer than to read a line
T = TypeVar("T")


@contextmanager
def silent(description: str, total: int | None) -> Iterator[OnProgress]:
    """Show nothing: a `Progress`."""
    yield lambda _: None


def reported(items: Iterable[T], advance: OnProgress) -> Iterator[T]:
    """Yield the items; `advance` is told of them in steps, so that many small ones cost no time."""
    number = 0
    for number, item in enumerate(items, 1):
        yield item
        if number % STEP == 0:
            advance(STEP)
    advance(number % STEP)


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of at most `size`, in order: `itertools.batched`, which Python has from 3.12 on."""
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch


def duration(seconds: float) -> str:
    """Return a time in words."""
    for unit, length in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:,.0f} seconds" if seconds >= 2 else f"{seconds:.2g} seconds"
