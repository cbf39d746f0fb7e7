"""The registered kinds of negatives, and a run that mines one of them into a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from biorag.citation_graph.graph import open_graph
from biorag.engine import OpenIndex
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
from biorag.training.negatives.retriever import RetrieverNegatives, parse_ranks, require_positives
from biorag.training.rows import read_rows, row_random, sha256_of
from biorag.types import Encoder, Index, Negative, Progress, TrainingRow
from biorag.utils.versions import installed_versions


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
    read, cleaning = read_rows(pairs, opened.index.fetch)
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
        "input": asdict(cleaning),
    }
