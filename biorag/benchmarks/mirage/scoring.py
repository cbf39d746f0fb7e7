"""Scoring by MIRAGE's own rules, and what they hide: forced answers, intervals, comparisons."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from biorag.benchmarks.significance import bootstrap_means, wilson
from biorag.prompts.parse import parse_reply
from biorag.types import Question

MARKER = '"answer_choice": "'
# MIRAGE tries these on the text after the last marker, in this order, and takes "A" if none fits.
_RULES = tuple(
    re.compile(pattern)
    for pattern in (
        r"^\s*([ABCD])$",
        r"^\s*([ABCD]) or",
        r"^\s*([ABCD]) and",
        r"^\s*([ABCD])/",
        r"^\s*([ABCD]),",
        r"[Oo]ption ([ABCD])",
        r":\s*([ABCD])",
        r"^\s*([ABCD])\.",
        r'^\s*([ABCD])"',
        r"^\s*([ABCD]):",
    )
)


class Located(NamedTuple):
    """The letter MIRAGE's scorer gives a reply, and whether it could find none and took "A"."""

    letter: str
    forced: bool


def locate(reply: str) -> Located:
    """Return the letter that MIRAGE's scorer reads from the first string of a result file."""
    text = reply.split(MARKER)[-1].strip()
    for rule in _RULES:
        if match := rule.search(text):
            return Located(match[1], False)
    return Located("A", True)


class Scoring(NamedTuple):
    """One question scored by MIRAGE's rules, and strictly."""

    correct: bool
    strict: bool
    forced: bool
    letter: str
    options: int  # among which it was chosen


def score_reply(question: Question, reply: str) -> Scoring:
    """Score one stored reply; `strict` if it is the requested JSON with one of the options."""
    located = locate(reply)
    parsed = parse_reply(reply)
    strict = parsed.strict and parsed.fields.get("answer_choice") in list(question.options)
    return Scoring(located.letter == question.answer, strict, located.forced, located.letter, len(question.options))


@dataclass(frozen=True, slots=True)
class TaskScore:
    """One task's figures.

    `accuracy` is MIRAGE's, forced "A" answers included; `strict_accuracy` counts only strictly parsed
    replies as answers. `std` is sqrt(p(1−p)/n), `interval` Wilson's of 95 %, `chance` the accuracy that guessing has,
    `parsed` the share of strictly parsed replies, `malformed` the number of the others, `retries` how often free
    replies were asked for again, and `letters` how often each was chosen.
    """

    n: int
    accuracy: float
    std: float
    interval: tuple[float, float]
    chance: float
    strict_accuracy: float
    parsed: float
    malformed: int
    retries: int
    forced_A: int  # noqa: N815  the report's key
    letters: dict[str, int]


def task_score(scorings: Sequence[Scoring], retries: int = 0) -> TaskScore:
    """Return one task's figures from its scored questions, at least one, and the retries of their replies."""
    n = len(scorings)
    right = sum(scoring.correct for scoring in scorings)
    accuracy = right / n
    return TaskScore(
        n=n,
        accuracy=accuracy,
        std=float(np.sqrt(accuracy * (1 - accuracy) / n)),
        interval=wilson(right, n),
        chance=sum(1 / scoring.options for scoring in scorings) / n,
        strict_accuracy=sum(scoring.correct and scoring.strict for scoring in scorings) / n,
        parsed=sum(scoring.strict for scoring in scorings) / n,
        malformed=sum(not scoring.strict for scoring in scorings),
        retries=retries,
        forced_A=sum(scoring.forced for scoring in scorings),
        letters=dict(sorted(Counter(scoring.letter for scoring in scorings).items())),
    )


def average(scores: Mapping[str, TaskScore]) -> float:
    """Return the unweighted mean accuracy of the tasks."""
    return sum(score.accuracy for score in scores.values()) / len(scores)


@dataclass(frozen=True, slots=True)
class AccuracyComparison:
    """The difference of two runs' average accuracies on the same questions, with a 95 % interval."""

    questions: int
    difference: float
    low: float
    high: float
    p_value: float


def paired_bootstrap(
    ours: Mapping[str, Sequence[bool]], theirs: Mapping[str, Sequence[bool]], seed: int
) -> AccuracyComparison:
    """Return the difference ours − theirs of the task-averaged accuracies, by resampling questions within each task.

    `ours` and `theirs`: task -> whether each question was answered right, in the same order. `p_value` is two-sided.
    """
    gains = [np.subtract(right, theirs[task], dtype=float) for task, right in ours.items() if right]
    means = bootstrap_means(gains, seed)
    low, high = np.quantile(means, [0.025, 0.975])
    tail = min(float((means <= 0).mean()), float((means >= 0).mean()))
    observed = float(np.mean([gain.mean() for gain in gains]))
    return AccuracyComparison(sum(map(len, gains)), observed, float(low), float(high), min(1.0, 2 * tail))


def stored_reply(choice: str | None, reply: str) -> str:
    """Return the string of a result file.

    It is the reply rewritten as plain JSON that MIRAGE's scorer reads, or unchanged if no option could be read.
    """
    fields = parse_reply(reply)
    if choice is None or not fields.strict:
        return reply
    others = {key: value for key, value in fields.fields.items() if key != "answer_choice"}
    return json.dumps({**others, "answer_choice": choice}, ensure_ascii=False)
