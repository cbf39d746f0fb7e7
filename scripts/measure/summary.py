"""Medians, ratios of medians with their intervals, and Markdown tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

RESAMPLES = 9999


@dataclass(frozen=True, slots=True)
class Ratio:
    """The ratio of two medians and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def ratio(base: Sequence[float], new: Sequence[float]) -> Ratio:
    """Return median(new) / median(base) with its percentile bootstrap interval, drawing rounds with replacement.

    Parameters
    ----------
    base, new : one value a round, (rounds,) each; those of one round were measured beside each other

    References
    ----------
    Efron and Tibshirani (1993), An Introduction to the Bootstrap, chapter 13.
    """
    import numpy as np
    from scipy import stats

    value = median(new) / median(base)
    if len(base) == 1:
        return Ratio(value, value, value)
    interval = stats.bootstrap(
        (np.asarray(base), np.asarray(new)),
        lambda base, new, axis: np.median(new, axis=axis) / np.median(base, axis=axis),
        paired=True,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Ratio(value, float(interval.low), float(interval.high))


def markdown(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; numbers get three significant digits or whole units."""
    lines = [header, ["---"] * len(header), *([_cell(value) for value in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def report(text: str, record: Mapping[str, Any], file: Path | None) -> None:
    """Print a report, and write what it is made from as JSON if a file is named."""
    sys.stdout.write(text)
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"command": sys.argv, **record}, indent=1) + "\n", encoding="utf-8")
