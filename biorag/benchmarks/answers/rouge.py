"""ROUGE-2 and ROUGE-SU4 of a text against one or more references, by the definitions of ROUGE-1.5.5.

References
----------
Lin (2004), ROUGE: a package for automatic evaluation of summaries. BioASQ reports both for ideal answers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

SKIP = 4  # words that may stand between the two of a skip-bigram
_WORD = re.compile(r"[a-z0-9]+")

Units = Counter[tuple[str, ...]]


class Rouge(NamedTuple):
    """Recall, precision and their harmonic mean."""

    recall: float
    precision: float
    f1: float


def tokens(text: str) -> list[str]:
    """Return the words as ROUGE-1.5.5 splits them: runs of ASCII letters and digits in lower case; no stemming."""
    return _WORD.findall(text.lower())


def bigrams(words: Sequence[str]) -> Units:
    """Count pairs of neighbours."""
    return Counter(pairwise(words))


def skip_bigrams_and_unigrams(words: Sequence[str]) -> Units:
    """Count pairs with at most `SKIP` words in between, and words.

    As in ROUGE-1.5.5, the last word counts in pairs alone.
    """
    units: Units = Counter((word,) for word in words[:-1])
    for start, word in enumerate(words):
        units.update((word, other) for other in words[start + 1 : start + SKIP + 2])
    return units


def _rouge(text: str, references: Sequence[str], units_of: Callable[[Sequence[str]], Units]) -> Rouge:
    """Compare with all references at once: matches and counts are summed over them, as `-f A` does."""
    units = units_of(tokens(text))
    others = [units_of(tokens(reference)) for reference in references]
    matched = sum((units & other).total() for other in others)
    wanted, given = sum(other.total() for other in others), units.total() * len(others)
    recall, precision = matched / wanted if wanted else 0.0, matched / given if given else 0.0
    f1 = 2 * recall * precision / (recall + precision) if matched else 0.0
    return Rouge(recall, precision, f1)


def rouge_2(text: str, references: Sequence[str]) -> Rouge:
    """Return ROUGE-2: shared pairs of neighbours."""
    return _rouge(text, references, bigrams)


def rouge_su4(text: str, references: Sequence[str]) -> Rouge:
    """Return ROUGE-SU4: shared words and pairs with at most four words in between."""
    return _rouge(text, references, skip_bigrams_and_unigrams)
