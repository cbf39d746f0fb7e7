"""Joining the two sides of first-stage retrieval by pure functions on their scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from biorag.types import Index, IndexQuery, ScoredDoc, Snippet

Fuse = Callable[[Sequence[ScoredDoc], Sequence[ScoredDoc]], Mapping[str, float]]
ANY = ""  # the id of a snippet that stands for all unseen ones


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


class Sides(NamedTuple):
    """The hits of each side of hybrid retrieval for one query before fusion, best first, with its own scores."""

    dense: Sequence[ScoredDoc]
    bm25: Sequence[ScoredDoc]


class Candidates(NamedTuple):
    """The best snippets of the first stage for one query, and the sides they come from if it is hybrid."""

    ranking: list[ScoredDoc]
    sides: Sides | None = None
    left_out: tuple[Snippet, ...] = ()  # retracted articles among the first of them


def best_of_lists(
    index: Index, dense: Sequence[IndexQuery], bm25: Sequence[IndexQuery], limit: int, fuse: Fuse, true_scores: bool
) -> list[Candidates]:
    """Return each query's best `limit` of the snippets on either list.

    `true_scores`: whether `fuse` takes each side's scores of the snippets that the other alone found too.
    """
    sides = _searched(index, dense, bm25)
    scores = _completed(index, dense, bm25, sides) if true_scores else sides
    return [Candidates(ranked(fuse(*scored), limit), searched) for scored, searched in zip(scores, sides, strict=True)]


def best_of_all(
    index: Index, dense: Sequence[IndexQuery], bm25: Sequence[IndexQuery], limit: int, fuse: Fuse
) -> list[Candidates]:
    """Return each query's best `limit` of all snippets that fulfil its conditions, equal scores in the order of ids.

    The hybrid of the BioASQ 8 paper (section 4) is one inner product, `λ⟨q_bm25,p_bm25⟩ + ⟨q_nn,p_nn⟩`, searched over
    all passages. Its terms are not normalised, so a snippet's score depends on no other's. That is what the threshold
    algorithm needs (Fagin, Lotem and Naor, 2003): read the two lists d deep, look up for each snippet of either the
    score that the other list would give it, and stop if the `limit`-th best sum is above the threshold τ, the sum of
    the two lists' last scores; else read twice as deep.

    Proof. The dense list comes from an exact search, the BM25 list always does. A snippet in neither has a dense score
    of at most the last of d, and a BM25 score of at most the last of d, or 0 where fewer than d snippets share a term
    with the query, since all those are in the list. `fuse` does not fall when a score rises, in floating point too. So
    the snippet's fused score is at most τ, and where `limit` snippets are above τ, no other is among the best, whatever
    its id. Where the dense list has fewer than d snippets there are no more, and all are seen; so it ends.

    The limits of the probes are the first depth. `fuse` joins true scores of both sides; it must not fall when either
    rises, and count an absent BM25 score as 0.
    """
    fused: dict[int, Candidates] = {}
    depth = [max(limit, vector.limit, text.limit) for vector, text in zip(dense, bm25, strict=True)]
    while pending := [number for number in range(len(dense)) if number not in fused]:
        vectors = [replace(dense[number], limit=depth[number], exact=True) for number in pending]
        texts = [replace(bm25[number], limit=depth[number]) for number in pending]
        searched = _searched(index, vectors, texts)
        for number, sides, whole in zip(pending, searched, _completed(index, vectors, texts, searched), strict=True):
            best = ranked(fuse(*whole), limit)
            if len(sides.dense) < depth[number] or (
                len(best) == limit and best[-1].score > _threshold(sides, depth[number], fuse)
            ):
                asked = Sides(sides.dense[: dense[number].limit], sides.bm25[: bm25[number].limit])
                fused[number] = Candidates(best, asked)
            depth[number] *= 2
    return [fused[number] for number in range(len(dense))]


def _threshold(sides: Sides, depth: int, fuse: Fuse) -> float:
    """Return the highest score that a snippet beyond the two lists, read so deep, can have."""
    words = [ScoredDoc(ANY, sides.bm25[-1].score)] if len(sides.bm25) == depth else []
    return fuse([ScoredDoc(ANY, sides.dense[-1].score)], words)[ANY]


def _searched(index: Index, dense: Sequence[IndexQuery], bm25: Sequence[IndexQuery]) -> list[Sides]:
    """Return each query's two lists."""
    rankings = index.search([*dense, *bm25])
    return [Sides(*lists) for lists in zip(rankings[: len(dense)], rankings[len(dense) :], strict=True)]


def _completed(
    index: Index, dense: Sequence[IndexQuery], bm25: Sequence[IndexQuery], searched: Sequence[Sides]
) -> list[Sides]:
    """Return each query's two lists, each followed by its side's true scores of what the other list alone holds."""
    probes: list[IndexQuery] = []
    for vector, text, (by_vector, by_word) in zip(dense, bm25, searched, strict=True):
        ids, words = {id for id, _ in by_vector}, {id for id, _ in by_word}
        for probe, lacking in ((vector, words - ids), (text, ids - words)):
            probes.append(IndexQuery(probe.query, len(lacking), among=frozenset(lacking)))
    scores = iter(index.search([probe for probe in probes if probe.limit]) if any(p.limit for p in probes) else ())
    added = [next(scores) if probe.limit else [] for probe in probes]
    pairs = zip(searched, added[::2], added[1::2], strict=True)
    return [Sides([*sides.dense, *by_vector], [*sides.bm25, *by_word]) for sides, by_vector, by_word in pairs]
