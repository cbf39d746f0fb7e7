"""The registered kinds of negatives, built from open objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from biorag.registries import NEGATIVES
from biorag.retrieval.retriever import Retriever
from biorag.training.negatives.bm25 import Bm25Negatives
from biorag.training.negatives.bm25_hits import Bm25Hits
from biorag.training.negatives.citation import CitationNegatives, CitedPapers
from biorag.training.negatives.mining import Miner, MiningPlan, Walk
from biorag.training.negatives.random import RandomNegatives
from biorag.training.negatives.retriever import RetrieverNegatives, parse_ranks
from biorag.types import Encoder, Index, TrainingRow


@dataclass(frozen=True, slots=True)
class Collaborators:
    """What the kinds are built from; `papers` and `load_encoder` are for the kind `citation`."""

    index: Index
    retriever: Retriever
    rows: Sequence[TrainingRow]
    load_encoder: Callable[[], Encoder]
    papers: CitedPapers | None = None


def bm25(plan: MiningPlan, inputs: Collaborators) -> Miner:
    """Return negatives of the first stage by BM25."""
    return Bm25Negatives(inputs.retriever)


def bm25_hits(plan: MiningPlan, inputs: Collaborators) -> Miner:
    """Return the hits of BM25."""
    return Bm25Hits(inputs.retriever)


def random(plan: MiningPlan, inputs: Collaborators) -> Miner:
    """Return random negatives."""
    assert plan.per_row is not None, "the number of draws"
    return RandomNegatives(inputs.index, plan.seed, plan.per_row)


def retriever(plan: MiningPlan, inputs: Collaborators) -> Miner:
    """Return negatives from the retriever's own predictions."""
    assert plan.ranks is not None, "the ranks of the kind retriever"
    return RetrieverNegatives(inputs.retriever, plan.ranks, plan.margin)


def citation(plan: MiningPlan, inputs: Collaborators) -> Miner:
    """Return negatives from the neighbourhood of citations."""
    assert plan.walk is not None, "the walk of the kind citation"
    assert inputs.papers is not None, "the papers of the kind citation"
    return CitationNegatives(inputs.index, inputs.load_encoder(), inputs.papers, inputs.rows, plan.seed, plan.walk)


def plan_of(kind: str, seed: int, per_row: int | None, ranks: str, margin: float | None, walk: Walk) -> MiningPlan:
    """Return the plan of a kind with the options that it takes.

    Raises
    ------
    UsageError
        If the ranks are not of the form FIRST-LAST.
    """
    options: dict[str, Any] = {"ranks": parse_ranks(ranks), "margin": margin, "walk": walk}
    return MiningPlan(kind, per_row, seed, **{name: options[name] for name in NEGATIVES[kind].plan})
