"""What a doubling of an index costs: ratios of successive sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from biorag.benchmarks.latency.growth import Grown


@dataclass(frozen=True, slots=True)
class Doubling:
    """By what each figure is multiplied for each doubling of the snippets, from one size to the next.

    2 is linear growth, 1 none. `factors` lacks figures that were not measured at both sizes, or were 0.
    """

    start: int
    end: int
    quantized: bool
    factors: dict[str, float]


def doublings(listed: Sequence[Grown]) -> list[Doubling]:
    """Return the cost of a doubling between each two successive sizes of each kind of vectors."""
    found = []
    for quantized in (False, True):
        kind = sorted((grown for grown in listed if grown.quantized == quantized), key=lambda grown: grown.snippets)
        for small, large in pairwise(kind):
            before, after = _figures(small), _figures(large)
            factors = {
                name: round(factor(before[name], after[name], large.snippets / small.snippets), 3)
                for name in before
                if before[name] and after.get(name)
            }
            found.append(Doubling(small.snippets, large.snippets, quantized, factors))
    return found


def factor(before: float, after: float, growth: float) -> float:
    """Return `(after / before) ** (1 / log2(growth))`."""
    return float((after / before) ** (1 / math.log2(growth)))


def _figures(grown: Grown) -> dict[str, float]:
    """Return the figures that growth is told of, without those that are unknown."""
    figures: dict[str, float | None] = {
        "write": grown.write_s,
        "optimize": grown.optimize_s,
        "CPU": grown.write_cpu_s + grown.optimize_cpu_s,
        "disk": grown.snippets * grown.bytes_per_snippet,
        "writer": grown.writing_peak,
        "writer, anonymous": grown.writing_anonymous,
        "reader": grown.memory.searched,
        "reader, anonymous": grown.memory.searched_anonymous,
        **{f"{mode} p50": timing.p50 for mode, timing in grown.search.items()},
        **{f"{mode} p99": timing.p99 for mode, timing in grown.search.items()},
    }
    return {name: value for name, value in figures.items() if value is not None}
