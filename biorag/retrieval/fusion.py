"""Joining the two sides of first-stage retrieval. Pure functions on `{id: score}` mappings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from biorag.types import ScoredDoc


def ranked(scores: Mapping[str, float] | Iterable[ScoredDoc], limit: int | None = None) -> list[ScoredDoc]:
    """Return scores best first; equal scores in the order of their ids, so that runs repeat exactly."""
    pairs = scores.items() if isinstance(scores, Mapping) else scores
    return [ScoredDoc(*pair) for pair in sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:limit]]


def linear(dense: Sequence[ScoredDoc], bm25: Sequence[ScoredDoc], lambda_: float) -> dict[str, float]:
    """Return `⟨q_nn,p_nn⟩ + λ⟨q_bm25,p_bm25⟩` for every id of either side.

    Both sides must hold true scores of all ids; an id absent from `bm25` shares no term with the query,
    so its true score is 0. Source: the BioASQ 8 hybrid first-stage system.
    """
    fused = dict(dense)
    for id, score in bm25:
        fused[id] = fused.get(id, 0.0) + lambda_ * score
    return fused


def reciprocal_rank(dense: Sequence[ScoredDoc], bm25: Sequence[ScoredDoc], rrf_k: int) -> dict[str, float]:
    """Return `Σ 1 / (k + rank)` over the sides that hold the id, rank from 1 (Cormack et al., 2009)."""
    fused: dict[str, float] = {}
    for side in (dense, bm25):
        for rank, scored in enumerate(side, 1):
            fused[scored.id] = fused.get(scored.id, 0.0) + 1.0 / (rrf_k + rank)
    return fused


def min_max(scores: Sequence[float]) -> list[float]:
    """Return scores stretched to 0..1; all 0 where they are equal."""
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    return [(score - low) / (high - low) if high > low else 0.0 for score in scores]
