"""Progress that is not shown, or that counts towards a stage already shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from biorag.types import OnProgress, Progress


@contextmanager
def silent(description: str, total: int | None) -> Iterator[OnProgress]:
    """Show nothing: a `Progress`."""
    yield lambda _: None


def counting(advance: OnProgress) -> Progress:
    """Return a progress whose stages all count towards a stage that is shown already."""

    @contextmanager
    def progress(description: str, total: int | None) -> Iterator[OnProgress]:
        yield advance

    return progress
