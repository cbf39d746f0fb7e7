"""Processes that train one model, one per device, as accelerate or torchrun starts them; the first one writes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def count() -> int:
    """Return how many processes train together; 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE", 1)) if "LOCAL_RANK" in os.environ else 1


def is_first() -> bool:
    """Return whether this process is the one that locks, writes and prints."""
    return count() == 1 or int(os.environ.get("RANK", 0)) == 0


def share(rows: Sequence[T]) -> Sequence[T]:
    """Return one process's share of the rows."""
    return rows[:: count()]


def wait() -> None:
    """Wait until every process is here; the first call joins the others and takes this process's device."""
    if count() == 1:
        return
    from accelerate import PartialState

    from biorag.models.loading import best_device

    PartialState(cpu=best_device() == "cpu").wait_for_everyone()
