"""BioASQ's measures of exact answers (task B, phase B). Pure functions.

References
----------
Balikas et al. (2013), BioASQ deliverable D4.1: evaluation framework specifications, section 3.2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

LONGEST_FACTOID = 5  # names of a factoid answer that count
_APART = re.compile(r"[^\w]+")

Synonyms = Sequence[str]  # names of one thing, any of which is right


def same_name(name: str, synonyms: Synonyms) -> bool:
    """Return whether a name is one of these, up to case, punctuation and white space."""
    return _plain(name) in {_plain(synonym) for synonym in synonyms}


def _plain(name: str) -> str:
    return " ".join(_APART.split(name.lower())).strip()


class YesNoScore(NamedTuple):
    """Accuracy, F1 of each answer and their mean."""

    accuracy: float
    f1_yes: float
    f1_no: float
    macro_f1: float


def yes_no(predicted: Sequence[str | None], expected: Sequence[str]) -> YesNoScore:
    """Score "yes" and "no", (questions,) each; None, for no answer, is wrong."""
    pairs = list(zip(predicted, expected, strict=True))
    accuracy = sum(left == right for left, right in pairs) / len(pairs)
    f1 = {}
    for label in ("yes", "no"):
        hits = sum(left == right == label for left, right in pairs)
        total = sum(left == label for left, _ in pairs) + sum(right == label for _, right in pairs)
        f1[label] = 2 * hits / total if total else 0.0
    return YesNoScore(accuracy, f1["yes"], f1["no"], (f1["yes"] + f1["no"]) / 2)


class FactoidScore(NamedTuple):
    """Whether the first name is right, whether one of the first five is, and 1 / the rank of the first that is."""

    strict: float
    lenient: float
    reciprocal_rank: float


def factoid(names: Sequence[str], expected: Sequence[Synonyms]) -> FactoidScore:
    """Score the names of one factoid answer, best first; any of the expected things is right."""
    rights = [any(same_name(name, synonyms) for synonyms in expected) for name in names[:LONGEST_FACTOID]]
    rank = rights.index(True) + 1 if True in rights else 0
    return FactoidScore(float(rank == 1), float(rank > 0), 1 / rank if rank else 0.0)


class ListScore(NamedTuple):
    """Precision, recall and F1 of a list of things."""

    precision: float
    recall: float
    f1: float


def listed(names: Sequence[str], expected: Sequence[Synonyms]) -> ListScore:
    """Score the names of one list answer; a thing that is named twice is found once."""
    found = {place for place, synonyms in enumerate(expected) for name in names if same_name(name, synonyms)}
    precision = len(found) / len(names) if names else 0.0
    recall = len(found) / len(expected) if expected else 0.0
    return ListScore(precision, recall, 2 * precision * recall / (precision + recall) if found else 0.0)
