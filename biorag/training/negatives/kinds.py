"""The registered kinds of negatives, and a run that mines one of them into a file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from biorag.citation_graph.graph import open_graph
from biorag.engine import OpenIndex
from biorag.errors import BadInputError, UsageError
from biorag.indexes.reading import stored_snippets
from biorag.registries import NEGATIVES
from biorag.retrieval.retriever import Retriever
from biorag.training.contamination import ContaminationPolicy
from biorag.training.negatives.citation import CitationNegatives, CitedPapers
from biorag.training.negatives.mining import (
    Gold,
    Miner,
    MiningPlan,
    Walk,
    as_negatives,
    eligible,
    mine,
    mined_file,
    ranking,
)
from biorag.training.rows import normalised, read_rows, row_random, sha256_of
from biorag.types import Encoder, Hit, Index, Negative, Progress, TrainingRow, block_id
from biorag.utils.progress import batched
from biorag.utils.versions import installed_versions

DEEPEST = 10_000
BATCH = 1024


@dataclass(frozen=True, slots=True)
class Collaborators:
    """What the kinds are built from; `papers` and `load_encoder` are for the kind `citation`."""

    index: Index
    retriever: Retriever
    rows: Sequence[TrainingRow]
    load_encoder: Callable[[], Encoder]
    papers: CitedPapers | None = None


class Bm25Negatives:
    """Of the top `top` by BM25, gold removed, the bottom `kept`; `retriever` ranks by BM25 alone."""

    def __init__(self, retriever: Retriever, top: int, kept: int) -> None:
        self._hits = ranking(retriever, top)
        self._kept = kept

    def window(self, row: TrainingRow, gold: Gold) -> list[Negative]:
        """Return the bottom, or all if a question has fewer."""
        return list(eligible(as_negatives(self._hits(row.query)), gold))[-self._kept :]


class RandomNegatives:
    """`count` negatives a row, drawn uniformly without replacement; a negative's rank is the number of its draw.

    Memory: the ids of the corpus.
    """

    def __init__(self, index: Index, seed: int, count: int) -> None:
        self._index = index
        self._ids = sorted(index.ids())
        self._seed = seed
        self._count = count

    def window(self, row: TrainingRow, gold: Gold) -> list[Negative]:
        """Return the first `count` draws that are neither gold nor a repetition."""
        draws = islice(eligible(self._draws(row), gold), self._count)
        return [replace(negative, rank=rank) for rank, negative in enumerate(draws, 1)]

    def _draws(self, row: TrainingRow) -> Iterator[Negative]:
        order = shuffled(self._ids, row_random(self._seed, row))
        while ids := list(islice(order, self._count)):
            snippets = self._index.fetch(ids)
            yield from (Negative(snippets[id].document, snippets[id].contents, 0, None) for id in ids if id in snippets)


def shuffled(items: Sequence[str], random: Random) -> Iterator[str]:
    """Yield all items in a random order: a lazy Fisher-Yates shuffle."""
    moved: dict[int, int] = {}
    for index in range(len(items)):
        other = random.randrange(index, len(items))
        yield items[moved.get(other, other)]
        moved[other] = moved.get(index, index)


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


def bm25(plan: MiningPlan, inputs: Collaborators) -> Miner:
    """Return the bottom 32 of the top 42, as in ModernBERT + ColBERT for biomedical retrieval (arXiv 2510.04757)."""
    return Bm25Negatives(inputs.retriever, 42, 32)


def bm25_hits(plan: MiningPlan, inputs: Collaborators) -> Miner:
    """Return the ten passages that a BM25 system returns, as in the BioASQ 8 hybrid system (section 5.1)."""
    return Bm25Negatives(inputs.retriever, 10, 10)


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
    """Return the plan of a kind with its own options; raises UsageError if the ranks are not FIRST-LAST."""
    options: dict[str, Any] = {"ranks": parse_ranks(ranks), "margin": margin, "walk": walk}
    return MiningPlan(kind, per_row, seed, **{name: options[name] for name in NEGATIVES[kind].plan})


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
    pairs cannot be read, or a positive whose score is needed is not in the index; MismatchError if the file is of other
    pairs or settings.
    """
    read, counts_of_pairs = read_rows(pairs, opened.index.fetch)
    rows, matches = policy.apply(read)
    papers = None
    if plan.walk is not None:
        papers = CitedPapers(open_graph(opened.settings), opened.index, rows, plan.walk.exclude_citing)
    identity = {
        **asdict(plan),
        **opened.settings.retrieval.first_stage(),
        "index": opened.fingerprint(),
        "graph": papers and papers.graph.sha256,
        "pairs": sha256_of([row.query, row.positive, row.query_id, row.positive_id] for row in rows),
        "versions": installed_versions(),
    }
    file = mined_file(out, identity)
    if plan.margin is not None and file.counts() is None:
        require_positives(opened.index, rows)

    def load_miner() -> Miner:
        inputs = Collaborators(opened.index, opened.retriever, rows, opened.load_encoder, papers)
        miner: Miner = NEGATIVES[plan.kind].load()(plan, inputs)
        return miner

    with progress("Mining", len(rows)) as advance:
        counts = mine(rows, load_miner, plan, file, advance)
    return {
        "kind": plan.kind,
        **counts,
        "per_row_mean": round(counts["negatives"] / counts["rows"], 2) if counts["rows"] else 0.0,
        **({"reach": asdict(papers.reach(rows))} if papers else {}),
        "contaminated": len(read) - len(rows),
        "matches": [asdict(match) for match in matches],
        "input": counts_of_pairs,
    }
