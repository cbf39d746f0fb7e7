"""The device's speed of matrix products, which bounds the time of a model's work from below."""

from __future__ import annotations

import time

import torch

SIDE = 1024  # of the square matrices that are multiplied
TRIES = 5


def operations(device: str, kind: torch.dtype) -> float:
    """Return the operations in a second of a device's matrix products, the best of a few tries."""
    matrix = torch.ones((SIDE, SIDE), device=device, dtype=kind)
    return max(_once(matrix) for _ in range(TRIES))


def _once(matrix: torch.Tensor) -> float:
    started = time.perf_counter()
    float((matrix @ matrix)[0, 0])  # reading a value waits for a GPU
    return 2 * len(matrix) ** 3 / (time.perf_counter() - started)
