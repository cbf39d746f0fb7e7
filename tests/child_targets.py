"""Functions to run in a process of its own, in place of a conversion; this module loads nothing heavy."""

from __future__ import annotations

import os
import time

from biorag.utils.apart import limit_data


def unpacking(source: str, target: str, seconds: int) -> str:
    """Take memory beyond the limit."""
    limit_data(64 << 20)
    return str(len(bytearray(1 << 30)))


def endless(source: str, target: str, seconds: int) -> str:
    """Never return."""
    while True:
        time.sleep(0.01)


def aborting(source: str, target: str, seconds: int) -> str:
    """Crash."""
    os.abort()
