"""The kinds of negatives by name."""

from __future__ import annotations

from collections.abc import Callable

from biorag.negatives.bm25 import Bm25Negatives
from biorag.negatives.mining import Kind, Plan
from biorag.negatives.random import RandomNegatives
from biorag.negatives.retriever import RetrieverNegatives
from biorag.pipeline import Retriever
from biorag.types import Index


def _retriever(plan: Plan, index: Index, retriever: Retriever) -> Kind:
    assert plan.ranks is not None, "the ranks of the kind retriever"
    return RetrieverNegatives(retriever, plan.ranks, plan.margin)


KINDS: dict[str, Callable[[Plan, Index, Retriever], Kind]] = {
    "bm25": lambda plan, index, retriever: Bm25Negatives(retriever),
    "random": lambda plan, index, retriever: RandomNegatives(index, plan.seed, plan.per_row),
    "retriever": _retriever,
}
