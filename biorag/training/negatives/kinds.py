"""The registered kinds of negatives, and a run that mines one of them into a file."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from biorag.corpus.citation_graph import open_graph
from biorag.engine import OpenIndex
from biorag.errors import UsageError
from biorag.models.token_projection import unit
from biorag.registries import NEGATIVES
from biorag.training.contamination import ContaminationPolicy
from biorag.training.instructions import instructed
from biorag.training.negatives.citation import CitedPapers, walk
from biorag.training.negatives.mining import (
    Gold,
    Miner,
    MiningPlan,
    Negative,
    Walk,
    as_negatives,
    eligible,
    mine,
    mined_file,
    ranking,
)
from biorag.training.rows import normalised, read_rows, row_random, sha256_of
from biorag.types import Hit, Progress, TrainingRow, Vectors
from biorag.utils.versions import installed_versions

DEEPEST = 10_000


def bm25(plan: MiningPlan, opened: OpenIndex, rows: Sequence[TrainingRow]) -> Miner:
    """Return the bottom 32 of the top 42, as in ModernBERT + ColBERT for biomedical retrieval (arXiv 2510.04757)."""
    return _bottom(opened, 42, 32)


def bm25_hits(plan: MiningPlan, opened: OpenIndex, rows: Sequence[TrainingRow]) -> Miner:
    """Return the first ten passages by BM25, gold removed.

    The BioASQ 8 hybrid system takes its BM25 system's passages (section 5.1), without saying how many: ten is ours, the
    most documents that a submission may name.
    """
    return _bottom(opened, 10, 10)


def _bottom(opened: OpenIndex, top: int, kept: int) -> Miner:
    """Return the bottom `kept` of the top `top`, gold removed, or all if a question has fewer."""
    hits = ranking(opened, top)
    return lambda row, gold: list(eligible(as_negatives(hits(row)), gold))[-kept:]


def random(plan: MiningPlan, opened: OpenIndex, rows: Sequence[TrainingRow]) -> Miner:
    """Return negatives drawn uniformly without replacement; a negative's rank is the number of its draw.

    Memory: the ids of the corpus.
    """
    index, count, all_ids = opened.index, plan.per_row, sorted(opened.index.ids())
    assert count is not None, "the number of draws"

    def draws(row: TrainingRow) -> Iterator[Negative]:
        order = shuffled(all_ids, row_random(plan.seed, row))
        while ids := list(islice(order, count)):
            snippets = index.fetch(ids)
            yield from (Negative(snippets[id].document, snippets[id].contents, 0, None) for id in ids if id in snippets)

    def window(row: TrainingRow, gold: Gold) -> list[Negative]:
        return [replace(one, rank=rank) for rank, one in enumerate(islice(eligible(draws(row), gold), count), 1)]

    return window


def shuffled(items: Sequence[str], random: Random) -> Iterator[str]:
    """Yield all items in a random order: a lazy Fisher-Yates shuffle."""
    moved: dict[int, int] = {}
    for index in range(len(items)):
        other = random.randrange(index, len(items))
        yield items[moved.get(other, other)]
        moved[other] = moved.get(index, index)


def retriever(plan: MiningPlan, opened: OpenIndex, rows: Sequence[TrainingRow]) -> Miner:
    """Return the passages at the plan's ranks (from 1, gold counted), gold removed.

    With a margin those that score near the row's positive or above it are dropped too, as likely false negatives: see
    `highest_score`. A positive below the last rank has every candidate above it, so none is kept.
    """
    assert plan.ranks is not None, "the ranks of the kind retriever"
    first, last = plan.ranks
    margin, search = plan.margin, ranking(opened, last)

    def window(row: TrainingRow, gold: Gold) -> list[Negative]:
        hits = search(row)
        candidates = eligible(as_negatives(hits[first - 1 :]), gold)
        if margin is None:
            return list(candidates)
        limit = highest_score(score_of_positive(row, hits), margin)
        return [negative for negative in candidates if negative.score is not None and negative.score <= limit]

    return window


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


def citation(plan: MiningPlan, opened: OpenIndex, rows: Sequence[TrainingRow]) -> Miner:
    """Return the papers that walks over a positive's neighbourhood visit, and another, drawn uniformly from the rest.

    Gold and repeated texts are not candidates. A negative's rank is the number of its visit, its score the cosine with
    the query. A row whose positive has no candidate gets none.
    """
    how, index, encoder = plan.walk, opened.index, opened.load_encoder()
    assert how is not None, "the walk of the kind citation"
    papers = CitedPapers(open_graph(opened.settings), index, rows)

    @lru_cache(maxsize=1)  # rows of one query come together
    def vector_of(query: str, instruction: str) -> Vectors:
        with instructed(encoder, instruction):
            vector: Vectors = unit(encoder.encode_queries([query]))[0]
        return vector

    def window(row: TrainingRow, gold: Gold) -> list[Negative]:
        ids, cited = papers.of(row)
        snippets = index.fetch(ids)
        order = {snippets[id].document: number for number, id in enumerate(ids)}
        others = list(eligible((Negative(snippets[id].document, snippets[id].contents, 0, None) for id in ids), gold))
        if not others:
            return []
        stored = index.dense_vectors([ids[order[other.id]] for other in others])
        vectors = unit(np.stack([stored[ids[order[other.id]]] for other in others]))
        to_query = vectors @ vector_of(row.query, row.instruction)
        one_hop = np.array([order[other.id] < cited for other in others])
        visited = walk(to_query, vectors @ vectors.T, one_hop, how, row_random(plan.seed, row))
        return [replace(others[n], rank=rank, score=float(to_query[n])) for rank, n in enumerate(visited, 1)]

    return window


def plan_of(kind: str, seed: int, per_row: int | None, ranks: str, margin: float | None, walk: Walk) -> MiningPlan:
    """Return the plan of a kind with its own options; raises UsageError if the ranks are not FIRST-LAST."""
    options: dict[str, Any] = {"ranks": parse_ranks(ranks), "margin": margin, "walk": walk}
    return MiningPlan(kind, per_row, seed, **{name: options[name] for name in NEGATIVES[kind].plan})


def _identity(row: TrainingRow) -> list[str]:
    return [row.query, row.positive, row.query_id, row.positive_id, *filter(None, [row.instruction])]


def mine_pairs(
    pairs: Sequence[Path],
    plan: MiningPlan,
    opened: OpenIndex,
    policy: ContaminationPolicy,
    out: Path,
    progress: Progress,
) -> dict[str, Any]:
    """Mine negatives of pairs into the file `out`, resuming an interrupted run, and return the report.

    Raises ContaminationError if pairs match benchmark questions and the policy does not drop them; BadInputError if the
    pairs cannot be read; MismatchError if the file is of other pairs or settings.
    """
    read, counts_of_pairs = read_rows(pairs, opened.index.fetch)
    rows, matches = policy.apply(read)
    identity = {
        **asdict(plan),
        **opened.settings.retrieval.first_stage(),
        "index": opened.fingerprint(),
        "graph": open_graph(opened.settings).sha256 if plan.walk else None,
        "pairs": sha256_of(_identity(row) for row in rows),
        "versions": installed_versions(),
    }

    def load_miner() -> Miner:
        miner: Miner = NEGATIVES[plan.kind].load()(plan, opened, rows)
        return miner

    with progress("Mining", len(rows)) as advance:
        counts = mine(rows, load_miner, plan, mined_file(out, identity), advance)
    return {
        "kind": plan.kind,
        **counts,
        "per_row_mean": round(counts["negatives"] / counts["rows"], 2) if counts["rows"] else 0.0,
        "contaminated": len(read) - len(rows),
        "matches": [asdict(match) for match in matches],
        "input": counts_of_pairs,
    }
