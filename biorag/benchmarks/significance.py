"""Intervals by resampling questions, and tests by swapping two systems question by question."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

SAMPLES = 10_000
# Values of a measure closer than this differ by the order of floating-point sums alone.
TIE = 1e-9
# Numbers drawn at a time, so that thousands of questions take megabytes.
CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Paired:
    """Two systems on the same questions: mean difference, its 95 % interval, and how many questions each won.

    `p_value` is that of the two-sided permutation test; `wins` are questions on which ours is better.
    """

    questions: int
    difference: float
    low: float
    high: float
    p_value: float
    wins: int
    losses: int
    ties: int


def wilson(count: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's interval of a share `count` of `total`; `z`, the normal quantile, is that of 95 % by default.

    Wilson (1927), Probable Inference, the Law of Succession, and Statistical Inference.
    """
    share = count / total
    middle = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def bootstrap_interval(
    values: Sequence[float], seed: int, samples: int = SAMPLES, level: float = 0.95
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean, by drawing as many questions with replacement.

    `values`: of one measure, (questions,), at least one; `seed`: of the drawing; `samples`: number of redrawn sets of
    questions; `level`: share of their means that lies within the interval.

    Efron and Tibshirani (1993), An Introduction to the Bootstrap, chapter 13.
    """
    low, high = np.quantile(bootstrap_means([values], seed, samples), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def bootstrap_means(
    tasks: Sequence[ArrayLike], seed: int, samples: int = SAMPLES, weights: Sequence[float] | None = None
) -> NDArray[np.float64]:
    """Return weighted means of the tasks' means, (samples,), questions being redrawn within each task.

    `tasks`: values of one measure, (questions,) each, at least one; `weights`: of the tasks, equal ones by default.
    """
    from scipy import stats

    values = [np.asarray(task, dtype=float) for task in tasks]
    assert values and all(map(len, values)), "no question has no mean"
    shares = _shares(len(values), weights)
    drawn = stats.bootstrap(
        [np.repeat(task, 2) if len(task) == 1 else task for task in values],  # SciPy takes no single value
        lambda *redrawn, axis: sum(share * task.mean(axis=axis) for share, task in zip(shares, redrawn, strict=True)),
        n_resamples=samples,
        batch=max(1, CHUNK // max(map(len, values))),
        vectorized=True,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return np.asarray(drawn.bootstrap_distribution)


def _shares(tasks: int, weights: Sequence[float] | None) -> NDArray[np.float64]:
    """Return the share of each task in the mean."""
    relative = np.ones(tasks) if weights is None else np.asarray(weights, dtype=float)
    shares: NDArray[np.float64] = relative / relative.sum()
    return shares


def permutation_p_value(gains: Sequence[float], seed: int, samples: int = SAMPLES) -> float:
    """Return the two-sided p-value of the paired permutation test (Fisher's randomisation test).

    If both systems were the same, each question's difference could as well have the other sign. The value
    is the share of random sign flips whose mean is at least as far from 0 as the one observed; that one is
    counted in, (hits + 1) / (samples + 1), so that it is never 0 (Phipson and Smyth 2010).
    `scipy.stats.permutation_test` shuffles pair by pair, which takes 10 to 25 times as long.

    `gains`: ours − theirs, (questions,); `seed`: of the flips; `samples`: number of flips.

    Smucker, Allan and Carterette (2007), A comparison of statistical significance tests for information retrieval
    evaluation, CIKM.
    """
    moved = np.asarray(gains, dtype=float)
    moved = moved[moved != 0]  # a tie is the same with either sign
    total = moved.sum()
    least = abs(total) - TIE * np.abs(moved).sum()
    generator = np.random.default_rng(seed)
    hits, most = 0, max(1, CHUNK // max(1, len(moved)))
    for start in range(0, samples, most):
        flipped = generator.integers(0, 2, (min(most, samples - start), len(moved)), dtype=np.int8)
        hits += int(np.count_nonzero(np.abs(total - 2 * (flipped @ moved)) >= least))
    return (hits + 1) / (samples + 1)


def differences(ours: Sequence[float], theirs: Sequence[float]) -> NDArray[np.float64]:
    """Return ours − theirs, (questions,), exactly 0 where only floating-point sums differ."""
    assert len(ours) == len(theirs), "both systems answer the same questions"
    gains: NDArray[np.float64] = np.asarray(ours, dtype=float) - np.asarray(theirs, dtype=float)
    gains[np.abs(gains) < TIE] = 0.0
    return gains


def paired(ours: Sequence[float], theirs: Sequence[float], seed: int) -> Paired:
    """Compare two systems by the values of one measure on the same questions, as `paired_tasks` does."""
    return paired_tasks([ours], [theirs], seed)


def paired_tasks(
    ours: Sequence[Sequence[float]],
    theirs: Sequence[Sequence[float]],
    seed: int,
    weights: Sequence[float] | None = None,
) -> Paired:
    """Compare two systems by the weighted mean of the tasks' means, on the same questions.

    The interval is a bootstrap of the questions within each task, the same ones for both systems; the p-value that of
    the permutation test, which Smucker, Allan and Carterette (2007) recommend for differences of means.

    `ours` and `theirs`: (questions,) of each task, in the same order, at least one; `seed`: of both resamplings;
    `weights`: of the tasks, equal ones by default.
    """
    gains = [differences(mine, other) for mine, other in zip(ours, theirs, strict=True)]
    low, high = np.quantile(bootstrap_means(gains, seed, weights=weights), [0.025, 0.975])
    shares, every = _shares(len(gains), weights), np.concatenate(gains)
    # What a question adds to the mean, times the number of questions: its own gain where there is one task.
    added = [gain * (share * len(every) / len(gain)) for share, gain in zip(shares, gains, strict=True)]
    wins, losses = int((every > 0).sum()), int((every < 0).sum())
    return Paired(
        questions=len(every),
        difference=float(sum(share * gain.mean() for share, gain in zip(shares, gains, strict=True))),
        low=float(low),
        high=float(high),
        p_value=permutation_p_value(np.concatenate(added).tolist(), seed),
        wins=wins,
        losses=losses,
        ties=len(every) - wins - losses,
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for being several: the probability of one false finding among all stays below α.

    The i-th smallest of m, from 0, is multiplied by m − i; none falls below a smaller one's, none exceeds 1.

    Holm (1979), A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6.
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected
