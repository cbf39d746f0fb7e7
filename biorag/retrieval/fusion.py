"""Joining the two sides of first-stage retrieval by pure functions on their scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from biorag.types import Index, IndexQuery, ScoredDoc, Snippet

Fuse = Callable[[Sequence[ScoredDoc], Sequence[ScoredDoc]], Mapping[str, float]]
Lists = Sequence[list[ScoredDoc]]  # one for each query, best first
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
    by_vector, by_word = _lists(index, dense, bm25)
    scores = _completed(index, dense, bm25, by_vector, by_word) if true_scores else (by_vector, by_word)
    fused = [ranked(fuse(*sides), limit) for sides in zip(*scores, strict=True)]
    return [Candidates(best, Sides(*sides)) for best, *sides in zip(fused, by_vector, by_word, strict=True)]


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
    with the query, since all those are in the list. `fuse` does not fall when a score rises, in floating point too:
    rounding keeps the order. So the snippet's fused score is at most τ. Where `limit` snippets are above τ, none of the
    `limit` best is unseen, whatever its id. Where the dense list has fewer than d snippets there are no more, and all
    are seen; so it ends.

    The limits of the probes are the first depth. `fuse` joins true scores of both sides; it must not fall when either
    rises, and count an absent BM25 score as 0.
    """
    fused: dict[int, Candidates] = {}
    depths = [max(limit, vector.limit, text.limit) for vector, text in zip(dense, bm25, strict=True)]
    while pending := [number for number in range(len(dense)) if number not in fused]:
        vectors = [replace(dense[number], limit=depths[number], exact=True) for number in pending]
        texts = [replace(bm25[number], limit=depths[number]) for number in pending]
        by_vector, by_word = _lists(index, vectors, texts)
        by_both = zip(*_completed(index, vectors, texts, by_vector, by_word), strict=True)
        for turn, (number, sides) in enumerate(zip(pending, by_both, strict=True)):
            best = ranked(fuse(*sides), limit)
            if _is_final(best, by_vector[turn], by_word[turn], limit, depths[number], fuse):
                read = dense[number].limit, bm25[number].limit
                fused[number] = Candidates(best, Sides(by_vector[turn][: read[0]], by_word[turn][: read[1]]))
            depths[number] *= 2
    return [fused[number] for number in range(len(dense))]


def _is_final(
    best: Sequence[ScoredDoc],
    by_vector: Sequence[ScoredDoc],
    by_word: Sequence[ScoredDoc],
    limit: int,
    depth: int,
    fuse: Fuse,
) -> bool:
    """Return whether no snippet beyond the two lists, read so deep, can be among the best."""
    if len(by_vector) < depth:
        return True
    words = [ScoredDoc(ANY, by_word[-1].score)] if len(by_word) == depth else []
    threshold = fuse([ScoredDoc(ANY, by_vector[-1].score)], words)[ANY]
    return len(best) == limit and best[-1].score > threshold


def _lists(index: Index, dense: Sequence[IndexQuery], bm25: Sequence[IndexQuery]) -> tuple[Lists, Lists]:
    """Return each query's two lists."""
    rankings = index.search([*dense, *bm25])
    return rankings[: len(dense)], rankings[len(dense) :]


def _completed(
    index: Index, dense: Sequence[IndexQuery], bm25: Sequence[IndexQuery], by_vector: Lists, by_word: Lists
) -> tuple[Lists, Lists]:
    """Return each query's two lists, each followed by its side's true scores of what the other list alone holds."""
    probes, rankings, others = [*dense, *bm25], [*by_vector, *by_word], [*by_word, *by_vector]
    lacking = [
        frozenset(id for id, _ in other).difference(id for id, _ in own)
        for own, other in zip(rankings, others, strict=True)
    ]
    incomplete = [number for number, ids in enumerate(lacking) if ids]
    missing = [IndexQuery(probes[number].query, len(lacking[number]), among=lacking[number]) for number in incomplete]
    scores = dict(zip(incomplete, index.search(missing) if missing else (), strict=True))
    whole = [[*ranking, *scores.get(number, ())] for number, ranking in enumerate(rankings)]
    return whole[: len(dense)], whole[len(dense) :]
