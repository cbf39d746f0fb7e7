"""Negatives from a retriever's own predictions: passages ranked high that do not answer."""

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
from biorag.utils.progress import batched

DEEPEST = 10_000
BATCH = 1024


class RetrieverNegatives:
    """The passages at the ranks `first` to `last` (from 1, gold counted), gold removed.

    With `margin` those that score near the row's positive or above it are dropped too, as likely false negatives: see
    `highest_score`. A positive below the last rank has every candidate above it, so none is kept.
    """

    def __init__(self, retriever: Retriever, ranks: tuple[int, int], margin: float | None) -> None:
        self._first, last = ranks
        self._hits = ranking(retriever, last)
        self._margin = margin

    def window(self, row: TrainingRow, gold: Gold) -> list[Negative]:
        """Return the hits at the ranks that qualify."""
        hits = self._hits(row.query)
        candidates = eligible(as_negatives(hits[self._first - 1 :]), gold)
        if self._margin is None:
            return list(candidates)
        limit = highest_score(score_of_positive(row, hits), self._margin)
        return [negative for negative in candidates if negative.score is not None and negative.score <= limit]


def score_of_positive(row: TrainingRow, hits: Iterable[Hit]) -> float | None:
    """Return the score of the row's positive, by its id or its text; None if it is not among the hits."""
    text = normalised(row.positive)
    for hit in hits:
        if hit.snippet.id == row.positive_id or normalised(hit.snippet.contents) == text:
            return hit.score
    return None


def highest_score(positive: float | None, margin: float) -> float:
    """Return the highest score of a negative: `(1 − margin) · positive`, and `(1 + margin) · positive` below 0.

    Source: TopK-PercPos of NV-Retriever (Moreira et al., 2024, arXiv 2407.15831), where 95 % is margin 0.05.
    """
    return -math.inf if positive is None else positive - margin * abs(positive)


def parse_ranks(text: str) -> tuple[int, int]:
    """Return the first and the last rank of `FIRST-LAST`.

    Raises UsageError if it is not of this form, or the ranks are out of range.
    """
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text.strip())
    first, last = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= first <= last <= DEEPEST:
        raise UsageError(f"--ranks {text!r}: give FIRST-LAST, such as 1-50, with ranks from 1 to {DEEPEST:,}")
    return first, last


def require_positives(index: Index, rows: Sequence[TrainingRow]) -> None:
    """Check that every positive is in the index, by its id or its text: otherwise it has no score to compare with.

    Raises BadInputError naming how many are missing, and the query of the first.
    """
    indexed: set[str] = set()
    for ids in batched({row.positive_id for row in rows} - {""}, BATCH):
        digests = index.digests([*ids, *(block_id(id, 0) for id in ids)])
        indexed.update(id for id in ids if id in digests or block_id(id, 0) in digests)
    missing = [row for row in rows if row.positive_id not in indexed]
    texts = {normalised(row.positive) for row in missing}
    if texts:
        texts.difference_update(normalised(snippet.contents) for snippet in stored_snippets(index))
    missing = [row for row in missing if normalised(row.positive) in texts]
    if missing:
        raise BadInputError(
            f"--margin compares negatives with the positive's score, but {len(missing)} positives are not indexed, "
            f"the first that of the query {missing[0].query!r}: index them, or leave --margin out"
        )
