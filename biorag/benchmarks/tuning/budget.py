"""How long GEPA looks for an instruction: budgets in metric calls, one question searched with one instruction each."""

from __future__ import annotations

import math

from biorag.errors import unknown_name

MINIBATCH = 3  # questions that the model is shown at a time, GEPA's default
CANDIDATES = {"light": 6, "medium": 12, "heavy": 18}
SAMPLE, PERIOD, TRIALS_EACH = 35, 5, 5  # dspy's minibatch, trials between full evaluations, trials a candidate


def check_budget(budget: str) -> None:
    """Refuse a budget that is not among `CANDIDATES`."""
    if budget not in CANDIDATES:
        raise unknown_name("--budget", budget, CANDIDATES)


def metric_calls(budget: str, validation: int) -> int:
    """Return the metric calls of a budget, by the number of validation questions.

    This is `GEPA.auto_budget` of dspy 3 for one prompt: V + 5n + 35N + FV, for n candidates and V questions, with
    N = max(4 log2 n, 1.5 n) trials and F = ⌊(N + 1) / 5⌋ + 1 evaluations of all questions.
    """
    candidates = CANDIDATES[budget]
    trials = int(max(4 * math.log2(candidates), 1.5 * candidates))
    evaluations = (trials + 1) // PERIOD + 1
    return validation + candidates * TRIALS_EACH + trials * SAMPLE + evaluations * validation


def most_replies(calls: int, validation: int) -> int:
    """Return the most replies that the model is asked for: one for two minibatches, after the seed's validation."""
    return max(0, math.ceil((calls - validation) / (2 * MINIBATCH)))
