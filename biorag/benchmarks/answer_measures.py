"""Measures of answers: BioASQ's of yes and no, ROUGE of ideal answers, ALCE's of citations. Pure functions.

References
----------
Balikas et al. (2013), BioASQ deliverable D4.1: evaluation framework specifications, section 3.2.
Lin (2004), ROUGE: a package for automatic evaluation of summaries; the definitions of ROUGE-1.5.5.
Gao et al. (2023), Enabling large language models to generate text with citations (ALCE), EMNLP, section 3.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

SKIP = 4  # words that may stand between the two of a skip-bigram
_TOKEN = re.compile(r"[a-z0-9]+")
Units = Counter[tuple[str, ...]]
Supports = Callable[[str, Sequence[int]], bool]  # whether the cited snippets, by number, support a sentence


class YesNoScore(NamedTuple):
    """Accuracy, F1 of each answer and their mean."""

    accuracy: float
    f1_yes: float
    f1_no: float
    macro_f1: float


def yes_no(predicted: Sequence[str | None], expected: Sequence[str]) -> YesNoScore:
    """Score "yes" and "no", (questions,) each; None, for no answer, is wrong."""
    from sklearn.metrics import accuracy_score, f1_score

    said = [answer or "" for answer in predicted]
    f1 = f1_score(expected, said, labels=["yes", "no"], average=None, zero_division=0)
    return YesNoScore(float(accuracy_score(expected, said)), float(f1[0]), float(f1[1]), float(f1.mean()))


class Overlap(NamedTuple):
    """Recall, precision and their harmonic mean."""

    recall: float
    precision: float
    f1: float

    @classmethod
    def of(cls, matched: int, wanted: int, offered: int) -> Overlap:
        """Return the shares of `matched` in `wanted` and in `offered`; 0 of nothing."""
        recall, precision = matched / wanted if wanted else 0.0, matched / offered if offered else 0.0
        return cls(recall, precision, 2 * recall * precision / (precision + recall) if matched else 0.0)


def tokens(text: str) -> list[str]:
    """Return the words as ROUGE-1.5.5 splits them: runs of ASCII letters and digits in lower case; no stemming."""
    return _TOKEN.findall(text.lower())


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


def _rouge(text: str, references: Sequence[str], units_of: Callable[[Sequence[str]], Units]) -> Overlap:
    """Compare with all references at once: matches and counts are summed over them, as `-f A` does."""
    units = units_of(tokens(text))
    others = [units_of(tokens(reference)) for reference in references]
    matched = sum((units & other).total() for other in others)
    return Overlap.of(matched, sum(other.total() for other in others), units.total() * len(others))


def rouge_2(text: str, references: Sequence[str]) -> Overlap:
    """Return ROUGE-2: shared pairs of neighbours."""
    return _rouge(text, references, bigrams)


def rouge_su4(text: str, references: Sequence[str]) -> Overlap:
    """Return ROUGE-SU4: shared words and pairs with at most four words in between."""
    return _rouge(text, references, skip_bigrams_and_unigrams)


class CitationScore(NamedTuple):
    """Shares of sentences that their citations support, and of citations that are relevant; None without any."""

    recall: float | None
    precision: float | None


def citation_score(sentences: Sequence[tuple[str, Sequence[int]]], supports: Supports) -> CitationScore:
    """Score an answer's sentences with the numbers of the snippets that each cites.

    A sentence is recalled if its citations together support it. A citation is irrelevant if its sentence is not
    recalled, or if it does not support the sentence alone and the others support it without it.
    """
    recalled, relevant = [], []
    for text, cited in sentences:
        is_recalled = bool(cited) and supports(text, cited)
        recalled.append(is_recalled)
        for n in cited:
            others = [other for other in cited if other != n]
            needless = not supports(text, [n]) and bool(others) and supports(text, others)
            relevant.append(is_recalled and not needless)
    return CitationScore(_mean(recalled), _mean(relevant))


def _mean(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None
