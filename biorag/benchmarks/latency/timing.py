"""Milliseconds of repeated calls: warmed up, capped in time, and of several functions in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
class Effort:
    """How long to measure: `warm_up` calls that do not count, then `repetitions`, of each as many as fit `seconds`."""

    repetitions: int
    warm_up: int
    seconds: float


def summary(milliseconds: Sequence[float]) -> Timing:
    """Return the mean and percentiles of at least one call."""
    p50, p95, p99 = (round(float(value), 4) for value in np.percentile(milliseconds, [50, 95, 99]))
    return Timing(len(milliseconds), round(float(np.mean(milliseconds)), 4), p50, p95, p99)


def collect(sample: Sample, effort: Effort) -> dict[str, Timing]:
    """Call `sample` again and again and sum up each of the named times that it returns.

    Parameters
    ----------
    sample : given the number of the call, from 0, returns milliseconds by name
    effort : at least one call warms up and `LEAST` are timed (if so many are asked for), however long they take
    """
    for turn in _turns(effort.warm_up, 1, effort.seconds):
        sample(turn)
    kept: dict[str, list[float]] = {}
    for turn in _turns(effort.repetitions, LEAST, effort.seconds):
        for name, milliseconds in sample(effort.warm_up + turn).items():
            kept.setdefault(name, []).append(milliseconds)
    return {name: summary(found) for name, found in kept.items()}


def _turns(most: int, least: int, seconds: float) -> Iterator[int]:
    """Yield the numbers of at most `most` calls, no more than `least` once the seconds are over."""
    started = time.perf_counter()
    for turn in range(most):
        if turn >= least and time.perf_counter() - started > seconds:
            return
        yield turn


def alternating(functions: Mapping[str, Callable[[int], object]]) -> Sample:
    """Return a sample that times each function once, in turn first and last, so that noise hits all alike."""

    def sample(turn: int) -> dict[str, float]:
        return {name: elapsed_ms(functions[name], turn) for name in in_turn(functions, turn)}

    return sample


def in_turn(names: Iterable[str], turn: int) -> list[str]:
    """Return the names in their order, and every other turn in the opposite one."""
    return list(names)[:: 1 if turn % 2 == 0 else -1]


def elapsed_ms(function: Callable[[int], object], turn: int) -> float:
    """Return the milliseconds that one call takes."""
    started = time.perf_counter()
    function(turn)
    return (time.perf_counter() - started) * 1000


def places(count: int, size: int, turn: int) -> list[int]:
    """Return which `size` of `count` things make up a batch: another one each turn, repeating them if it must.

    An encoder may keep what it encoded last, so no batch of more than one thing is that of the turn before.
    """
    start = turn * (size % count or 1)
    return [(start + place) % count for place in range(size)]
