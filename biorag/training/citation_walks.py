"""Citation negatives: papers one or two citations away from the positive, walked by similarity.

Algorithm 1 of BiCA (Sinha et al., 2025, arXiv 2511.08029).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from biorag.corpus.citation_graph import Graph, Papers, paper_of
from biorag.indexes.reading import stored_snippets
from biorag.training.rows import normalised
from biorag.types import Index, Snippet, TrainingRow, Vectors


@dataclass(frozen=True, slots=True)
class Walk:
    """Paths over cited papers: their number, papers on each, and from how many nearest ones the next is drawn."""

    paths: int = 3
    length: int = 3
    top: int = 5


class CitedPapers:
    """The positives' neighbourhoods within an index: the first snippet of a paper stands for it.

    The first is that of the lowest block, then of the lowest id. A positive's PMID is that of the snippet that has
    its id or, where the row has none, its text. Memory: the PMIDs and ids of the index.
    """

    def __init__(self, graph: Graph, index: Index, rows: Sequence[TrainingRow]) -> None:
        self._graph = graph
        ids = {row.positive_id for row in rows if row.positive_id}
        texts = {normalised(row.positive) for row in rows if not row.positive_id}
        self._by_id: dict[str, int] = {}
        self._by_text: dict[str, int] = {}
        first: dict[int, tuple[int, str]] = {}
        for snippet in stored_snippets(index):
            pmid = paper_of(snippet)
            if pmid is None:
                continue
            rank = (_block(snippet), snippet.id)
            first[pmid] = min(first.get(pmid, rank), rank)
            if snippet.document in ids:
                self._by_id[snippet.document] = pmid
            if texts and (text := normalised(snippet.contents)) in texts:
                self._by_text.setdefault(text, pmid)
        self._pmids: Papers = np.array(sorted(first), np.uint32)
        self._ids = [first[pmid][1] for pmid in self._pmids.tolist()]

    def of(self, row: TrainingRow) -> tuple[list[str], int]:
        """Return the snippets of a positive's candidates, and the number of the first ones: those one hop away.

        In each hop the older ones come first.
        """
        text = normalised(row.positive)
        pmid = self._by_id.get(row.positive_id) if row.positive_id else self._by_text.get(text)
        if pmid is None:
            return [], 0
        one_hop, two_hop = (self._indexed(papers) for papers in self._graph.neighbourhood(pmid))
        return [*one_hop, *two_hop], len(one_hop)

    def _indexed(self, papers: Papers) -> list[str]:
        """Return the snippets of those papers that are in the index."""
        indexed = papers[np.isin(papers, self._pmids)]
        return [self._ids[row] for row in np.searchsorted(self._pmids, indexed).tolist()]


def walk(
    to_query: Vectors, to_each_other: Vectors, one_hop: NDArray[np.bool_], options: Walk, random: Random
) -> list[int]:
    """Return the candidates that the paths visit, and one drawn uniformly from the rest, as the last.

    A path begins at one of the `paths` one-hop candidates most similar to the query, and is skipped if an earlier one
    visited that; beyond the paper, if no candidate is one hop away (gold is excluded), at a two-hop one. The beginning
    counts as one of its `length` papers, as in Algorithm 1. Each step goes to one of the `top` unvisited
    candidates most similar to the current one, one hop away or two, with probability proportional to the cosine, as in
    the paper; negative cosines count as 0, and if all are, the draw is uniform. Ties go to the earlier candidate.

    `to_query` are the candidates' cosines with the query, (candidates,), `to_each_other` those among them, (candidates,
    candidates); `one_hop` says which of them the positive cites itself, (candidates,).
    """
    free = np.ones(to_query.size, np.bool_)
    eligible_starts = one_hop if one_hop.any() else free.copy()
    starts = np.argsort(-to_query, kind="stable")
    visited: list[int] = []
    for start in starts[eligible_starts[starts]][: options.paths].tolist():
        if not free[start]:
            continue
        path = [start]
        free[start] = False
        while len(path) < options.length and free.any():
            path.append(_next(to_each_other[path[-1]], free, options.top, random))
            free[path[-1]] = False
        visited += path
    unvisited = np.flatnonzero(free).tolist()
    return [*visited, unvisited[random.randrange(len(unvisited))]] if unvisited else visited


def _next(cosines: Vectors, free: NDArray[np.bool_], top: int, random: Random) -> int:
    """Return one of the `top` nearest free candidates."""
    nearest = np.argsort(-cosines, kind="stable")
    nearest = nearest[free[nearest]][:top]
    weights = np.maximum(cosines[nearest], 0).tolist()
    return int(random.choices(nearest.tolist(), weights if any(weights) else None)[0])


def _block(snippet: Snippet) -> int:
    block = snippet.metadata.get("block")
    return block if snippet.document != snippet.id and isinstance(block, int) else 0
