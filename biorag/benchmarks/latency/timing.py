"""Milliseconds of repeated calls, warmed up and capped in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

LEAST = 3  # calls that are timed however long they take

Sample = Callable[[int], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds of `n` calls; percentiles are interpolated linearly, as NumPy does by default."""

    n: int
    mean: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Repetition:
    """How often to call: `warm_up` untimed calls, then `repetitions` timed ones, both cut short after `seconds`."""

    repetitions: int
    warm_up: int
    seconds: float


def summary(milliseconds: Sequence[float]) -> Timing:
    """Return the mean and percentiles of at least one call."""
    p50, p95, p99 = (round(float(value), 4) for value in np.percentile(milliseconds, [50, 95, 99]))
    return Timing(len(milliseconds), round(float(np.mean(milliseconds)), 4), p50, p95, p99)


def collect(sample: Sample, repetition: Repetition) -> dict[str, Timing]:
    """Call `sample` repeatedly and summarise each of the times that it returns.

    `sample` takes the number of the call, from 0, and returns milliseconds by name. One call warms up and `LEAST` are
    timed (if as many are asked for), however long they take.
    """
    for turn in _turns(repetition.warm_up, 1, repetition.seconds):
        sample(turn)
    samples: dict[str, list[float]] = {}
    for turn in _turns(repetition.repetitions, LEAST, repetition.seconds):
        for name, milliseconds in sample(repetition.warm_up + turn).items():
            samples.setdefault(name, []).append(milliseconds)
    return {name: summary(milliseconds) for name, milliseconds in samples.items()}


def _turns(most: int, least: int, seconds: float) -> Iterator[int]:
    """Yield the numbers of at most `most` calls, no more than `least` once the seconds are over."""
    started = time.perf_counter()
    for turn in range(most):
        if turn >= least and time.perf_counter() - started > seconds:
            return
        yield turn


def elapsed_ms(function: Callable[[], object]) -> float:
    """Return the milliseconds that one call takes."""
    started = time.perf_counter()
    function()
    return (time.perf_counter() - started) * 1000


def batch_of(items: Sequence[str], size: int, turn: int) -> list[str]:
    """Return the batch of `size` items for this turn, repeating items if there are fewer.

    An encoder may cache its last batch, so each batch differs from the one before it.
    """
    start = turn * (size % len(items) or 1)
    return [items[(start + offset) % len(items)] for offset in range(size)]
