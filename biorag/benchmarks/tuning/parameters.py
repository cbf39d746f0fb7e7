"""The settings that can be tuned, and where each is looked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from biorag.errors import UsageError
from biorag.registries import FUSIONS
from biorag.settings.retrieval import DEEPEST
from biorag.settings.settings import Settings
from biorag.utils.registry import or_list

POINTS = 9  # values that are measured unless told
DIGITS = 4  # significant ones of a value, so that a file can say it


@dataclass(frozen=True, slots=True)
class Parameter:
    """A setting with the range it is looked for in.

    `needs` says what a configuration lacks for the setting to change anything; empty if nothing.
    """

    name: str
    setting: str
    low: float
    high: float
    logarithmic: bool
    whole: bool
    needs: Callable[[Settings], str]

    def within(self, low: float | None, high: float | None) -> Parameter:
        """Return the parameter with another range.

        Raises UsageError if the range is empty, or begins at 0 where values are spaced by their ratio.
        """
        changed = replace(self, low=self.low if low is None else low, high=self.high if high is None else high)
        if not changed.low < changed.high < math.inf:
            raise UsageError(f"--from {changed.low:g} must be below --to {changed.high:g}")
        if self.logarithmic and changed.low <= 0:
            raise UsageError(f"{self.name} is spaced by ratio: give --from above 0, or name 0 among --values")
        return changed

    def grid(self, points: int) -> list[float]:
        """Return evenly spaced values of the range, rising, each once: whole numbers, or four significant digits."""
        spaced = np.geomspace if self.logarithmic else np.linspace
        values = spaced(self.low, self.high, points).tolist()
        return sorted({round(value) if self.whole else float(f"{value:.{DIGITS}g}") for value in values})

    def parse(self, text: str) -> list[float]:
        """Return the values of a list such as "0.01,0.03,0.1", rising, each once.

        Raises UsageError if one is not a number, or not a whole one where it must be.
        """
        try:
            values = [float(part) for part in text.split(",")]
        except ValueError:
            raise UsageError(f"--values {text!r}: write numbers with commas between them, such as 0.01,0.03") from None
        for value in values:
            if not math.isfinite(value) or (self.whole and value != int(value)):
                raise UsageError(
                    f"--values has {value:g}: {self.name} takes {'whole' if self.whole else 'finite'} numbers"
                )
        return sorted({int(value) if self.whole else value for value in values})


def _lambda(settings: Settings) -> str:
    if settings.retrieval.mode == "hybrid" and "lambda_" in FUSIONS[settings.retrieval.fusion].parameters:
        return ""
    fusions = or_list(kind.name for kind in FUSIONS.values() if "lambda_" in kind.parameters)
    return f"λ weighs BM25 in the {fusions} fusion: give --mode hybrid --fusion {fusions}"


def _reranked(settings: Settings) -> str:
    return "" if settings.retrieval.rerank else "it acts in reranking alone: leave --no-rerank out"


def _depth(settings: Settings) -> str:
    if fault := _reranked(settings):
        return fault
    named = settings.replace(k_init=DEEPEST).retrieval.stages[0].depth
    return "" if named == DEEPEST else f"the first reranker's depth is @{named}: leave that out"


def _weighing(weight: str, lacking: str) -> Callable[[Settings], str]:
    """Return a check that a stage of reranking has this weight."""

    def needs(settings: Settings) -> str:
        weighed = any(stage.kind.weight == weight for stage in settings.retrieval.stages)
        return _reranked(settings) or ("" if weighed else lacking)

    return needs


_late = _weighing("interpolation", "it weighs late interaction: --reranker has none")
_cross = _weighing("cross_interpolation", "it weighs a cross-encoder: give --reranker cross:ID")

PARAMETERS: Mapping[str, Parameter] = {
    parameter.name: parameter
    for parameter in (
        Parameter("lambda", "lambda_", 0.003, 0.3, logarithmic=True, whole=False, needs=_lambda),
        Parameter("k_init", "k_init", 5, 100, logarithmic=True, whole=True, needs=_depth),
        Parameter("interpolation", "interpolation", 0.0, 2.0, logarithmic=False, whole=False, needs=_late),
        Parameter(
            "cross_interpolation", "cross_interpolation", 0.0, 32.0, logarithmic=False, whole=False, needs=_cross
        ),
    )
}
