"""The merging methods: a merged tensor from those of the experts and the base, all of one shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from biorag.errors import UsageError, unknown_name
from biorag.types import Vectors

LINEAR, TIES = "linear", "ties"
NEGLIGIBLE = 1e-9  # a share of the base that is only the rounding of weights that sum to 1


@dataclass(frozen=True, slots=True)
class MergeRecipe:
    """A method of `METHODS`, with one weight per expert, none negative, their sum above 0.

    `density` is the share of a task vector that TIES keeps; `scale` is its λ.
    """

    method: str
    weights: tuple[float, ...]
    density: float
    scale: float

    def merged(self, experts: Sequence[Vectors], base: Vectors | None) -> Vectors:
        """Return the merged tensor, float32."""
        return METHODS[self.method](self, experts, base)


def recipe_of(method: str, experts: int, weights: str | None, density: float, scale: float) -> MergeRecipe:
    """Return the recipe for so many experts; `weights` are numbers separated by commas, None for equal ones.

    Raises UsageError if a value is not allowed.
    """
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)
    if not 0 < density <= 1 or not math.isfinite(scale):
        raise UsageError("--density is a share above 0, up to 1, and --scale a finite number")
    return MergeRecipe(method, _parsed(weights, experts) if weights else (1 / experts,) * experts, density, scale)


def _parsed(text: str, experts: int) -> tuple[float, ...]:
    """Return the weights in a text."""
    try:
        weights = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--weights {text!r}: write numbers separated by commas, such as 0.3,0.7") from None
    if len(weights) != experts:
        raise UsageError(f"--weights gives {len(weights)} weights for {experts} experts: give one each")
    if not all(0 <= weight < math.inf for weight in weights) or not any(weights):
        raise UsageError(f"--weights {text!r}: none may be negative or infinite, and one must be above 0")
    return weights


def linear(recipe: MergeRecipe, experts: Sequence[Vectors], base: Vectors | None) -> Vectors:
    """Return Σ wᵢ θᵢ / Σ wᵢ; with a base θ₀ + Σ wᵢ (θᵢ − θ₀), the weighted task vectors added to it.

    Wortsman et al. (2022), Model soups; Ilharco et al. (2023), Editing models with task arithmetic.
    """
    total = math.fsum(recipe.weights)
    if base is None:
        return _weighted(experts, [weight / total for weight in recipe.weights])
    rest = 1 - total
    return _weighted([*experts, base], [*recipe.weights, rest if abs(rest) > NEGLIGIBLE else 0.0])


def ties(recipe: MergeRecipe, experts: Sequence[Vectors], base: Vectors | None) -> Vectors:
    """Return θ₀ + λ τ: of each task vector the largest values, and only those of the elected sign.

    Task vectors τᵢ = θᵢ − θ₀ are trimmed to `density`; the elected sign of a parameter is that of Σ wᵢ τᵢ; and τ
    is the weighted mean of the values of that sign. Where the sum is 0, the base stays.

    Yadav et al. (2023), TIES-Merging: resolving interference when merging models, algorithm 1.
    """
    assert base is not None, "TIES merges task vectors"
    trimmed = [trim(expert - base, recipe.density) for expert in experts]
    weights = np.array(recipe.weights, np.float32)
    elected = np.sign(_weighted(trimmed, recipe.weights))
    mass, share = np.zeros_like(base), np.zeros_like(base)
    for weight, vector in zip(weights, trimmed, strict=True):
        agrees = (np.sign(vector) == elected) & (elected != 0)
        mass += np.where(agrees, weight * vector, np.float32(0))
        share += np.where(agrees, weight, np.float32(0))
    share[share == 0] = 1  # where no value has the sign
    merged: Vectors = base + np.float32(recipe.scale) * mass / share
    return merged


METHODS: Mapping[str, Callable[[MergeRecipe, Sequence[Vectors], Vectors | None], Vectors]] = {
    LINEAR: linear,
    TIES: ties,
}


def trim(vector: Vectors, density: float) -> Vectors:
    """Return a task vector with zeros for all but the share `density` of largest magnitude, at least one value.

    Ties with the smallest kept value are kept too.
    """
    kept = max(1, int(density * vector.size))
    if kept >= vector.size:
        return vector
    magnitudes = np.abs(vector)
    smallest = np.partition(magnitudes, vector.size - kept, axis=None)[vector.size - kept]
    return np.where(magnitudes >= smallest, vector, np.float32(0))


def _weighted(tensors: Sequence[Vectors], weights: Sequence[float]) -> Vectors:
    """Return Σ wᵢ θᵢ; a tensor of weight 0 has no effect, not even on the sign of a zero."""
    terms = [np.float32(weight) * tensor for weight, tensor in zip(weights, tensors, strict=True) if weight]
    merged = terms[0]
    for term in terms[1:]:
        merged = merged + term
    return merged
