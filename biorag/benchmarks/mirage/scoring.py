"""Scoring by MIRAGE's own rules, and what they hide: forced answers, intervals, comparisons."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from biorag.benchmarks.significance import Paired, paired_tasks, wilson
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


Scorings = Mapping[str, Sequence[Scoring]]  # by task, in the order of its questions


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
        std=math.sqrt(accuracy * (1 - accuracy) / n),
        interval=wilson(right, n),
        chance=sum(1 / scoring.options for scoring in scorings) / n,
        strict_accuracy=sum(scoring.correct and scoring.strict for scoring in scorings) / n,
        parsed=sum(scoring.strict for scoring in scorings) / n,
        malformed=sum(not scoring.strict for scoring in scorings),
        retries=retries,
        forced_A=sum(scoring.forced for scoring in scorings),
        letters=dict(sorted(Counter(scoring.letter for scoring in scorings).items())),
    )


def average(scores: Mapping[str, TaskScore], figure: str = "accuracy") -> float:
    """Return the unweighted mean of a figure of the tasks."""
    return sum(float(getattr(score, figure)) for score in scores.values()) / len(scores)


def compared(ours: Scorings, theirs: Scorings, seed: int) -> Paired:
    """Compare the task-averaged accuracies of two runs of the same questions, in the same order."""
    asked = [task for task, scored in ours.items() if scored]
    right, others = ([[float(scoring.correct) for scoring in run[task]] for task in asked] for run in (ours, theirs))
    return paired_tasks(right, others, seed)


def stored_reply(choice: str | None, reply: str) -> str:
    """Return the string of a result file.

    It is the reply rewritten as plain JSON that MIRAGE's scorer reads, or unchanged if no option could be read.
    """
    fields = parse_reply(reply)
    if choice is None or not fields.strict:
        return reply
    others = {key: value for key, value in fields.fields.items() if key != "answer_choice"}
    return json.dumps({**others, "answer_choice": choice}, ensure_ascii=False)
