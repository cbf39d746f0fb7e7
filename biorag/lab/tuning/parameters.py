"""The settings that can be tuned, and the values to try of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from biorag.errors import UsageError
from biorag.registries import FUSIONS
from biorag.settings.retrieval import DEEPEST
from biorag.settings.settings import Settings
from biorag.utils.registry import or_list


@dataclass(frozen=True, slots=True)
class Parameter:
    """A setting, and the values to try by default; `logarithmic` if they rise by a ratio.

    `needs` says why the setting changes nothing in a configuration; empty if it does.
    """

    name: str
    values: tuple[float, ...]
    logarithmic: bool
    needs: Callable[[Settings], str]

    def parse(self, text: str) -> list[float]:
        """Return the values of a list such as "0.01,0.03,0.1", rising, each once.

        Raises UsageError if one is not a number, or not a whole one where it must be.
        """
        try:
            values = [float(part) for part in text.split(",")]
        except ValueError:
            raise UsageError(f"--values {text!r}: write numbers with commas between them, such as 0.01,0.03") from None
        whole = isinstance(self.values[0], int)
        for value in values:
            if not math.isfinite(value) or (whole and value != int(value)):
                raise UsageError(f"--values has {value:g}: {self.name} takes {'whole' if whole else 'finite'} numbers")
        return sorted({int(value) if whole else value for value in values})


def _lambda(settings: Settings) -> str:
    if settings.retrieval.mode == "hybrid" and "lambda_" in FUSIONS[settings.retrieval.fusion].parameters:
        return ""
    fusions = or_list(kind.name for kind in FUSIONS.values() if "lambda_" in kind.parameters)
    return f"λ weighs BM25 in the {fusions} fusion: give --mode hybrid --fusion {fusions}"


def _depth(settings: Settings) -> str:
    if not settings.retrieval.rerank:
        return "it is the depth of reranking: leave --no-rerank out"
    depth = settings.replace(k_init=DEEPEST).retrieval.stages[0].depth
    return "" if depth == DEEPEST else f"the first reranker's depth is @{depth}: leave that out"


def _weight_of(weight: str, reranker: str) -> Callable[[Settings], str]:
    """Return a check that a stage of reranking has this weight."""

    def needs(settings: Settings) -> str:
        weighed = any(stage.kind.weight == weight for stage in settings.retrieval.stages)
        return "" if settings.retrieval.rerank and weighed else f"it weighs {reranker}, and leave --no-rerank out"

    return needs


_late = _weight_of("interpolation", "late interaction: give --reranker one")
_cross = _weight_of("cross_interpolation", "a cross-encoder: give --reranker cross:ID")

PARAMETERS: Mapping[str, Parameter] = {
    parameter.name: parameter
    for parameter in (
        Parameter("lambda", (0.003, 0.005335, 0.009487, 0.01687, 0.03, 0.05335, 0.09487, 0.1687, 0.3), True, _lambda),
        Parameter("k_init", (5, 7, 11, 15, 22, 33, 47, 69, 100), True, _depth),
        Parameter("interpolation", (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0), False, _late),
        Parameter("cross_interpolation", (0.0, 4.0, 8.0, 12.0, 16.0, 20.0, 24.0, 28.0, 32.0), False, _cross),
    )
}
