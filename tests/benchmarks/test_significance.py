"""Resampling: against all resamples where there are few enough to write down, and against SciPy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biorag.benchmarks.significance import (
    SAMPLES,
    bootstrap_interval,
    differences,
    holm,
    paired,
    paired_tasks,
    permutation_p_value,
)


def every_sign_flip(gains):
    """Return the exact two-sided p-value: the share of all 2ⁿ flips that are as far from 0."""
    total = abs(math.fsum(gains))
    flips = list(itertools.product((-1, 1), repeat=len(gains)))
    far = [flip for flip in flips if abs(math.fsum(map(math.prod, zip(flip, gains, strict=True)))) >= total - 1e-12]
    return len(far) / len(flips)


def every_resample(values):
    """Return the means of all nⁿ sets of n questions."""
    return np.array([math.fsum(drawn) / len(values) for drawn in itertools.product(values, repeat=len(values))])


def random_gains(seed, questions):
    generator = np.random.default_rng(seed)
    return np.round(generator.normal(0.1, 0.3, questions), 3).tolist()


def near(share, samples=SAMPLES):
    """Accept a sampled share within five of its standard deviations."""
    return pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / samples) + 2 / samples)


@pytest.mark.parametrize("questions", (1, 4, 9))
def test_p_values_are_those_of_all_sign_flips(questions):
    for seed in range(3):
        gains = random_gains(10 * questions + seed, questions)
        assert permutation_p_value(gains, seed) == near(every_sign_flip(gains))


@pytest.mark.parametrize("unit", [0.1, 1 / 3])
def test_a_flip_just_as_far_counts_whatever_the_order_of_the_sum(unit):
    gains = [unit] * 5 + [-unit]
    assert every_sign_flip(gains) == 14 / 64
    assert permutation_p_value(gains, 0) == near(14 / 64)


@pytest.mark.parametrize(("questions", "level"), [(2, 0.5), (6, 0.95)])
def test_intervals_are_those_of_all_resamples(questions, level):
    """The share of all means that lies below each end is the tail; at an end there may be several means."""
    values = random_gains(questions, questions)
    means = every_resample(values)
    low, high = bootstrap_interval(values, 1, samples=50_000, level=level)
    tail = (1 - level) / 2
    assert (means < low - 1e-9).mean() - 0.01 <= tail <= (means <= low + 1e-9).mean() + 0.01
    assert (means > high + 1e-9).mean() - 0.01 <= tail <= (means >= high - 1e-9).mean() + 0.01


VALUES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30)


@settings(max_examples=25, deadline=None)
@given(VALUES, st.integers(0, 2**32))
def test_what_holds_of_any_two_systems(pairs, seed):
    ours, theirs = ([pair[side] for pair in pairs] for side in (0, 1))
    found = paired(ours, theirs, seed)
    assert found.questions == len(pairs) == found.wins + found.losses + found.ties
    assert found.difference == pytest.approx(sum(ours) / len(ours) - sum(theirs) / len(theirs), abs=1e-8)
    assert min(differences(ours, theirs)) - 1e-12 <= found.low <= found.high <= max(differences(ours, theirs)) + 1e-12
    assert 1 / (SAMPLES + 1) <= found.p_value <= 1
    assert found == paired(ours, theirs, seed)
    other_way = paired(theirs, ours, seed)
    assert (other_way.wins, other_way.losses, other_way.p_value) == (found.losses, found.wins, found.p_value)
    assert (other_way.low, other_way.high) == pytest.approx((-found.high, -found.low), abs=1e-9)


def test_tasks_of_different_sizes_count_by_their_weights():
    """Two tasks against every resample of each, and against every flip of what a question adds to the mean."""
    tasks, weights = [random_gains(1, 3), random_gains(2, 5)], [0.25, 0.75]
    theirs = [[0.0] * 3, [0.0] * 5]
    compared = paired_tasks(tasks, theirs, 0, weights)
    first, second = (math.fsum(gains) / len(gains) for gains in tasks)
    assert compared.difference == pytest.approx(0.25 * first + 0.75 * second)
    resamples = [0.25 * a + 0.75 * b for a in every_resample(tasks[0]) for b in every_resample(tasks[1])]
    low, high = np.quantile(resamples, [0.025, 0.975])
    assert (compared.low, compared.high) == (pytest.approx(low, abs=0.01), pytest.approx(high, abs=0.01))
    added = [0.25 * gain / 3 for gain in tasks[0]] + [0.75 * gain / 5 for gain in tasks[1]]
    assert compared.p_value == near(every_sign_flip(added))
    assert compared.questions == 8


def rejected_step_by_step(p_values, level):
    """Holm's procedure as he states it: the smallest p against level / m, the next against level / (m − 1) …"""
    rejected, left = set(), len(p_values)
    for index in sorted(range(len(p_values)), key=lambda index: p_values[index]):
        if p_values[index] > level / left:
            break
        rejected.add(index)
        left -= 1
    return rejected


@given(st.lists(st.floats(0, 1), max_size=8), st.floats(0.001, 0.999))
def test_corrected_p_values_reject_what_holms_steps_reject(p_values, level):
    corrected = holm(p_values)
    rejected = {index for index, p_value in enumerate(corrected) if p_value <= level}
    near_level = any(abs(p_value - level) < 1e-12 for p_value in corrected)
    assert near_level or rejected == rejected_step_by_step(p_values, level)
    assert all(p_value <= after <= 1 for p_value, after in zip(p_values, corrected, strict=True))
