"""Citation recall and precision of an answer, as ALCE defines them, with a judge of one's own.

References
----------
Gao et al. (2023), Enabling large language models to generate text with citations, EMNLP, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

Supports = Callable[[str, Sequence[int]], bool]  # whether the cited snippets, by number, support a sentence


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
