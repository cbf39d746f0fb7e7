"""BM25 negatives, as in ModernBERT + ColBERT for biomedical retrieval (arXiv 2510.04757)."""

from __future__ import annotations

from biorag.retrieval.retriever import Retriever
from biorag.training.negatives.mining import Gold, as_negatives, eligible, ranking
from biorag.types import Negative, TrainingRow

TOP = 42
KEPT = 32


class Bm25Negatives:
    """Of the top 42 by BM25, gold removed, the bottom 32; `retriever` ranks by BM25 alone."""

    def __init__(self, retriever: Retriever) -> None:
        self._hits = ranking(retriever, TOP)

    def window(self, row: TrainingRow, gold: Gold) -> list[Negative]:
        """Return the bottom 32, or all if a question has fewer."""
        return list(eligible(as_negatives(self._hits(row.query)), gold))[-KEPT:]
