"""The hits of BM25 as negatives, as in the BioASQ 8 hybrid system."""

from __future__ import annotations

from biorag.retrieval.retriever import Retriever
from biorag.training.negatives.mining import Gold, as_negatives, eligible, ranking
from biorag.types import Negative, TrainingRow

TOP = 10


class Bm25Hits:
    """The passages that a BM25 system returns for a question, gold removed; `retriever` ranks by BM25 alone.

    The paper (section 5.1) trains its reranker on them, and says that its systems return ten. Of what it does with
    relevant ones among them it says nothing.
    """

    def __init__(self, retriever: Retriever) -> None:
        self._hits = ranking(retriever, TOP)

    def window(self, row: TrainingRow, gold: Gold) -> list[Negative]:
        """Return what qualifies of the best 10."""
        return list(eligible(as_negatives(self._hits(row.query)), gold))
