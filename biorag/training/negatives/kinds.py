"""The kinds of negatives that are registered, made from what is open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from biorag.registries import NEGATIVES
from biorag.retrieval.retriever import Retriever
from biorag.training.negatives.bm25 import Bm25Negatives
from biorag.training.negatives.citation import CitationNegatives, CitedPapers
from biorag.training.negatives.mining import Kind, MiningPlan, Walk
from biorag.training.negatives.random import RandomNegatives
from biorag.training.negatives.retriever import RetrieverNegatives, parse_ranks
from biorag.types import Encoder, Index, TrainingRow


@dataclass(frozen=True, slots=True)
class Collaborators:
    """What kinds take; `papers` and `load_encoder` are the kind `citation`'s."""

    index: Index
    retriever: Retriever
    rows: Sequence[TrainingRow]
    load_encoder: Callable[[], Encoder]
    papers: CitedPapers | None = None


def bm25(plan: MiningPlan, given: Collaborators) -> Kind:
    """Return negatives of the first stage by BM25."""
    return Bm25Negatives(given.retriever)


def random(plan: MiningPlan, given: Collaborators) -> Kind:
    """Return random negatives."""
    assert plan.per_row is not None, "the number of draws"
    return RandomNegatives(given.index, plan.seed, plan.per_row)


def retriever(plan: MiningPlan, given: Collaborators) -> Kind:
    """Return negatives from the retriever's own predictions."""
    assert plan.ranks is not None, "the ranks of the kind retriever"
    return RetrieverNegatives(given.retriever, plan.ranks, plan.margin)


def citation(plan: MiningPlan, given: Collaborators) -> Kind:
    """Return negatives from the neighbourhood of citations."""
    assert plan.walk is not None, "the walk of the kind citation"
    assert given.papers is not None, "the papers of the kind citation"
    return CitationNegatives(given.index, given.load_encoder(), given.papers, given.rows, plan.seed, plan.walk)


def plan_of(kind: str, seed: int, per_row: int | None, ranks: str, margin: float | None, walk: Walk) -> MiningPlan:
    """Return the plan of a kind with those of the options that are its own.

    Raises
    ------
    UsageError
        If the ranks are not of the form FIRST-LAST.
    """
    own: dict[str, Any] = {"ranks": parse_ranks(ranks), "margin": margin, "walk": walk}
    return MiningPlan(kind, per_row, seed, **{name: own[name] for name in NEGATIVES[kind].plan})
