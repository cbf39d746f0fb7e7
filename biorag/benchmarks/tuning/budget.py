"""How long GEPA looks for an instruction: budgets in metric calls, one question searched with one instruction each."""

from __future__ import annotations

import math
from dataclasses import dataclass

from biorag.errors import unknown_name

MINIBATCH = 3  # questions that the model is shown at a time, GEPA's default
CANDIDATES = {"light": 6, "medium": 12, "heavy": 18}
QUESTIONS = 200  # drawn, half of them to reflect on, half to choose by
TEMPERATURE, TOKENS = 1.0, 96  # of a reply
SAMPLE, PERIOD, TRIALS_EACH = 35, 5, 5  # dspy's minibatch, trials between full evaluations, trials a candidate


@dataclass(frozen=True, slots=True)
class Spending:
    """What a search works with.

    Attributes
    ----------
    questions : drawn, half of them to reflect on, half to choose by
    minibatch : questions that the model is shown at a time
    temperature, max_tokens : of the model's replies
    """

    questions: int = QUESTIONS
    minibatch: int = MINIBATCH
    temperature: float = TEMPERATURE
    max_tokens: int = TOKENS


# Synthesize-Train-Merge (arXiv 2602.04731), Table 8: 100, 200 or 300 training examples, and as many for validation.
STM = {
    "light": Spending(200, 3, 0.7, 1000),
    "medium": Spending(400, 5, 0.7, 1000),
    "heavy": Spending(600, 8, 0.7, 1000),
}
RECIPES = {"stm": STM}


def spending(recipe: str | None, budget: str) -> Spending:
    """Return what a recipe works with at a budget; without a recipe biorag's own settings.

    Raises
    ------
    UsageError
        If there is no such recipe or budget.
    """
    check_budget(budget)
    if recipe is None:
        return Spending()
    if recipe not in RECIPES:
        raise unknown_name("--recipe", recipe, RECIPES)
    return RECIPES[recipe][budget]


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


def most_replies(calls: int, validation: int, minibatch: int = MINIBATCH) -> int:
    """Return the most replies that the model is asked for: one for two minibatches, after the seed's validation."""
    return max(0, math.ceil((calls - validation) / (2 * minibatch)))
