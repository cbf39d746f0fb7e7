"""Which values of a parameter are measured: a grid's, or those that close in on a peak."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from biorag.benchmarks.tuning.parameters import Parameter
from biorag.benchmarks.tuning.study import Study

GRID, GOLDEN = METHODS = ("grid", "golden")


@dataclass(frozen=True, slots=True)
class TuningPlan:
    """How the value of a parameter is looked for that has the highest `measure`.

    `current` is the value in use. `values` are a grid's; a golden-section search takes `evaluations` in their range.
    """

    parameter: Parameter
    measure: str
    current: float
    values: Sequence[float]
    evaluations: int | None

    @property
    def method(self) -> str:
        """Which of `METHODS` it is."""
        return GOLDEN if self.evaluations else GRID

    def best(self, study: Study[float]) -> float:
        """Measure the values and the current one; return the best of all in the study, see `best_of`."""
        study.at(self.current)
        if self.evaluations:
            golden_section(self.parameter, lambda value: study.at(value).mean(self.measure), self.evaluations)
        else:
            for value in self.values:
                study.at(value)
        return best_of({value: point.mean(self.measure) for value, point in study.points.items()}, self.current)


def best_of(means: Mapping[float, float], current: float) -> float:
    """Return the value with the highest mean; of equal ones the current, else the lowest."""
    return min(means, key=lambda value: (-means[value], value != current, value))


def golden_section(parameter: Parameter, score: Callable[[float], float], evaluations: int) -> None:
    """Ask for the scores of values that close in on the highest one, if there is but one (a unimodal curve).

    Each round keeps 0.618 of the interval and asks for one value more, `evaluations` (at least 2) in all; with
    several peaks it may end at a lower one. Of equal scores the lower side is kept.

    References
    ----------
    Kiefer (1953), Sequential minimax search for a maximum.
    """
    ratio = (math.sqrt(5) - 1) / 2
    low, high = 0.0, 1.0
    places = [high - ratio * (high - low), low + ratio * (high - low)]
    scores = [score(parameter.at(place)) for place in places]
    for _ in range(evaluations - 2):
        if scores[0] >= scores[1]:
            high = places[1]
            places, scores = [high - ratio * (high - low), places[0]], [math.nan, scores[0]]
        else:
            low = places[0]
            places, scores = [places[1], low + ratio * (high - low)], [scores[1], math.nan]
        scores = [
            score(parameter.at(place)) if math.isnan(known) else known
            for place, known in zip(places, scores, strict=True)
        ]
