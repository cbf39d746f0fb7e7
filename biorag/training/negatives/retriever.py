"""Negatives from a retriever's own predictions: what it ranks high though it answers nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from biorag.errors import BadInputError, UsageError
from biorag.indexes.reading import stored_snippets
from biorag.retrieval.retriever import Retriever
from biorag.training.negatives.mining import Gold, as_negatives, eligible, ranking
from biorag.training.rows import normalised
from biorag.types import Hit, Index, Negative, TrainingRow, block_id
from biorag.utils.batched import batched

DEEPEST = 10_000
BATCH = 1024


class RetrieverNegatives:
    """The passages at the ranks `first` to `last` (from 1, gold counted), gold removed.

    With `margin` those that score near the row's positive or above it are dropped too, as likely false
    negatives: see `most`. A positive below the last rank has every candidate above it, so none is kept.
    """

    def __init__(self, retriever: Retriever, ranks: tuple[int, int], margin: float | None) -> None:
        self._first, last = ranks
        self._hits = ranking(retriever, last)
        self._margin = margin

    def window(self, row: TrainingRow, gold: Gold) -> list[Negative]:
        """Return what is left of the ranks."""
        hits = self._hits(row.query)
        others = eligible(as_negatives(hits[self._first - 1 :]), gold)
        if self._margin is None:
            return list(others)
        limit = most(score_of_positive(row, hits), self._margin)
        return [other for other in others if other.score is not None and other.score <= limit]


def score_of_positive(row: TrainingRow, hits: Iterable[Hit]) -> float | None:
    """Return the score of the row's positive, known by its id or its text; None if it is not among the hits."""
    text = normalised(row.positive)
    for hit in hits:
        if hit.snippet.id == row.positive_id or normalised(hit.snippet.contents) == text:
            return hit.score
    return None


def most(positive: float | None, margin: float) -> float:
    """Return the most that a negative may score: `(1 − margin) · positive`, and so less where that is negative.

    Source: TopK-PercPos of NV-Retriever (Moreira et al., 2024, arXiv 2407.15831), where 95 % is margin 0.05.
    """
    return -math.inf if positive is None else positive - margin * abs(positive)


def parse_ranks(text: str) -> tuple[int, int]:
    """Return the first and the last rank of `FIRST-LAST`.

    Raises
    ------
    UsageError
        If it is not of this form, or the ranks are out of range.
    """
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text.strip())
    first, last = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= first <= last <= DEEPEST:
        raise UsageError(f"--ranks {text!r}: give FIRST-LAST, such as 1-50, with ranks from 1 to {DEEPEST:,}")
    return first, last


def require_positives(index: Index, rows: Sequence[TrainingRow]) -> None:
    """Hold that every positive is in the index, by its id or its text; else it has no score to hold others to.

    Raises
    ------
    BadInputError
        Naming how many are not, and the first one's query.
    """
    known: set[str] = set()
    for ids in batched({row.positive_id for row in rows} - {""}, BATCH):
        found = index.digests([*ids, *(block_id(id, 0) for id in ids)])
        known.update(id for id in ids if id in found or block_id(id, 0) in found)
    lost = [row for row in rows if row.positive_id not in known]
    texts = {normalised(row.positive) for row in lost}
    if texts:
        texts.difference_update(normalised(snippet.contents) for snippet in stored_snippets(index))
    lost = [row for row in lost if normalised(row.positive) in texts]
    if lost:
        raise BadInputError(
            f"--margin holds negatives to the positive's score, but {len(lost)} positives are not in the index, the "
            f"first that of the query {lost[0].query!r}: index them too, or leave --margin out"
        )
