"""Work that is begun before its result is wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Result = TypeVar("Result")


@contextmanager
def in_background(work: Callable[[], Result]) -> Iterator[Callable[[], Result]]:
    """Begin work in a thread and give what waits for its result, or raises what it raised; end with the work's end.

    An error that nobody waits for is not raised: another one came before it.
    """
    with ThreadPoolExecutor(1, "background") as thread:
        yield thread.submit(work).result
