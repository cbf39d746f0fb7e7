"""The methods value by value against loops over single numbers, and TIES against mergekit's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from biorag.lab.merging.weights import MergeRecipe, linear, ties

numbers = st.floats(-8, 8, width=16)


@st.composite
def cases(draw):
    """A base and experts of one shape, weights, and a density."""
    shape = draw(st.sampled_from([(), (1,), (5,), (3, 4), (2, 1, 3)]))
    tensors = draw(st.lists(arrays(np.float32, shape, elements=numbers), min_size=2, max_size=5))
    count = len(tensors) - 1
    weights = draw(st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0, 2.0]), min_size=count, max_size=count))
    weights[draw(st.integers(0, count - 1))] = 1.0
    return tensors[0], tensors[1:], tuple(weights), draw(st.sampled_from([0.1, 0.3, 0.5, 1.0]))


def slow_trim(values: list[float], density: float) -> list[float]:
    kept = max(1, int(density * len(values)))
    smallest = sorted((abs(value) for value in values), reverse=True)[:kept][-1]
    return [value if abs(value) >= smallest else 0.0 for value in values]


def slow_ties(base: list[float], experts: list[list[float]], weights, density: float, scale: float) -> list[float]:
    trimmed = [slow_trim([new - old for new, old in zip(expert, base, strict=True)], density) for expert in experts]
    merged = []
    for place, old in enumerate(base):
        changes = [vector[place] for vector in trimmed]
        heavier = sum(weight * change for weight, change in zip(weights, changes, strict=True))
        chosen = [(w, c) for w, c in zip(weights, changes, strict=True) if c * heavier > 0]
        total = sum(w for w, _ in chosen)
        merged.append(old + scale * sum(w * c for w, c in chosen) / total if total else old)
    return merged


def of(tensor) -> list[float]:
    return [float(value) for value in np.ravel(tensor)]


@given(cases())
def test_linear_is_the_weighted_mean(case):
    _, experts, weights, _ = case
    merged = linear(MergeRecipe("linear", weights, 0.5, 1.0), experts, None)
    assert (merged.dtype, merged.shape) == (np.float32, experts[0].shape)
    slow = [
        math.fsum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)
        for values in zip(*map(of, experts), strict=True)
    ]
    np.testing.assert_allclose(of(merged), slow, atol=1e-5)


@given(cases())
def test_linear_with_a_base_adds_weighted_task_vectors(case):
    base, experts, weights, _ = case
    merged = linear(MergeRecipe("linear", weights, 0.5, 1.0), experts, base)
    slow = [
        old + sum(weight * (value - old) for weight, value in zip(weights, values, strict=True))
        for old, *values in zip(of(base), *map(of, experts), strict=True)
    ]
    np.testing.assert_allclose(of(merged), slow, atol=1e-4)


@given(cases(), st.sampled_from([0.5, 1.0, 1.5]))
def test_ties_is_the_slow_algorithm(case, scale):
    base, experts, weights, density = case
    # In steps of 1/8, so that sums are exact and no sign hangs on their rounding.
    base, *experts = (np.round(np.asarray(tensor) * 8) / np.float32(8) for tensor in (base, *experts))
    weights = tuple(round(weight * 8) / 8 for weight in weights)
    merged = ties(MergeRecipe("ties", weights, density, scale), experts, base)
    assert (merged.dtype, merged.shape) == (np.float32, base.shape)
    np.testing.assert_allclose(
        of(merged), slow_ties(of(base), list(map(of, experts)), weights, density, scale), atol=1e-5
    )


def test_ties_of_the_papers_kind():
    """Signs differ, agree, cancel out, and one change is trimmed."""
    base = np.zeros(4, np.float32)
    experts = [np.array(values, np.float32) for values in ([4, 2, 3, 0.1], [-1, 4, -3, 5])]
    merged = ties(MergeRecipe("ties", (0.5, 0.5), 0.75, 1.0), experts, base)
    # The second's −1 is trimmed, as is the first's 0.1; 3 and −3 weigh the same.
    assert merged.tolist() == [4, 3, 0, 5]
    assert ties(MergeRecipe("ties", (0.5, 0.5), 0.75, 0.5), experts, base).tolist() == [2, 1.5, 0, 2.5]
    assert ties(MergeRecipe("ties", (0.8, 0.2), 0.75, 1.0), experts, base).tolist() == pytest.approx([4, 2.4, 3, 5])


@given(arrays(np.float32, (3, 3), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_one_expert_of_weight_1_keeps_its_bits(expert):
    other = np.full_like(expert, 3)
    for experts, weights in (([expert], (1.0,)), ([expert, other], (1.0, 0.0)), ([expert, other], (2.0, 0.0))):
        assert linear(MergeRecipe("linear", weights, 0.5, 1.0), experts, None).tobytes() == expert.tobytes()
    assert linear(MergeRecipe("linear", (0.0, 1.0), 0.5, 1.0), [other, expert], other).tobytes() == expert.tobytes()


@pytest.mark.parametrize("method", ["linear", "ties", "task_arithmetic"])
def test_mergekit_merges_the_same(method):
    merge_methods = pytest.importorskip("mergekit.merge_methods", reason="mergekit is not installed")
    import torch

    random = np.random.default_rng(7)
    base, *experts = random.normal(size=(4, 20, 10)).astype(np.float32)
    weights, with_base = (0.5, 0.3, 0.4), method != "linear"
    states = {place: {"w": torch.from_numpy(tensor)} for place, tensor in enumerate([*experts, base][: 3 + with_base])}
    parameters = {"weight": dict(enumerate(weights))} | ({"density": 0.4} if method == "ties" else {})
    found = merge_methods.merge_state_dicts(
        states, merge_methods.get(method), base=3 if with_base else None, parameters=parameters
    )["w"].numpy()
    recipe = MergeRecipe("ties" if method == "ties" else "linear", weights, 0.4, 1.0)
    np.testing.assert_allclose(recipe.merged(experts, base if with_base else None), found, atol=1e-6)
