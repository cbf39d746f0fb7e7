"""Citation negatives: papers one or two citations away from the positive, walked by similarity.

Algorithm 1 of BiCA (Sinha et al., 2025, arXiv 2511.08029).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biorag.citation_graph.graph import Graph, Papers, among, paper_of
from biorag.indexes.reading import stored_snippets
from biorag.models.token_projection import unit
from biorag.training.negatives.mining import Gold, Walk, by_question, eligible
from biorag.training.rows import normalised, row_random
from biorag.types import Encoder, Index, Negative, Snippet, TrainingRow, Vectors

BLOCK = 64  # texts encoded at once


@dataclass(frozen=True, slots=True)
class Reach:
    """How many positives there are, and how many have no candidates, by the first reason that applies."""

    positives: int
    without_pmid: int
    not_in_graph: int
    without_neighbourhood: int


class WalkCandidates(NamedTuple):
    """A positive's candidates: the ids of their snippets, those one hop away first, and the number of these."""

    ids: tuple[str, ...]
    one_hop: int


class CitedPapers:
    """The positives' neighbourhoods within an index: the first snippet of a paper stands for it.

    The first is that of the lowest block, then of the lowest id. A positive's PMID is that of the snippet that has
    its id or, where the row has none, its text. Memory: the PMIDs and ids of the index.

    Attributes
    ----------
    stored : the ids of the snippets that are positives word for word, by their texts
    """

    def __init__(self, graph: Graph, index: Index, rows: Sequence[TrainingRow], exclude_citing: bool) -> None:
        self.graph = graph
        self._exclude_citing = exclude_citing
        ids = {row.positive_id for row in rows if row.positive_id}
        texts = {normalised(row.positive) for row in rows if not row.positive_id}
        positives = {row.positive for row in rows}
        self.stored: dict[str, str] = {}
        self._by_id: dict[str, int] = {}
        self._by_text: dict[str, int] = {}
        first: dict[int, tuple[int, str]] = {}
        for snippet in stored_snippets(index):
            if snippet.contents in positives:
                self.stored.setdefault(snippet.contents, snippet.id)
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

    def of(self, row: TrainingRow) -> WalkCandidates:
        """Return the candidates of a row's positive, the older ones first in each hop."""
        pmid = self._pmid(row)
        if pmid is None:
            return WalkCandidates((), 0)
        one_hop, two_hop = self._hops(pmid)
        return WalkCandidates((*one_hop, *two_hop), len(one_hop))

    def reach(self, rows: Iterable[TrainingRow]) -> Reach:
        """Return how many positives have candidates."""
        pmids = [self._pmid(row) for row in rows]
        citing = [pmid for pmid in pmids if pmid is not None and self.graph.cited(pmid).size]
        isolated = sum(not any(self._hops(pmid)) for pmid in citing)
        without_pmid = pmids.count(None)
        return Reach(len(pmids), without_pmid, len(pmids) - without_pmid - len(citing), isolated)

    def _pmid(self, row: TrainingRow) -> int | None:
        return self._by_id.get(row.positive_id) if row.positive_id else self._by_text.get(normalised(row.positive))

    def _hops(self, pmid: int) -> list[list[str]]:
        return [self._indexed(pmid, papers) for papers in self.graph.neighbourhood(pmid)]

    def _indexed(self, pmid: int, papers: Papers) -> list[str]:
        """Return the snippets of those papers that are in the index."""
        indexed = papers[among(papers, self._pmids)]
        rows = zip(indexed.tolist(), np.searchsorted(self._pmids, indexed).tolist(), strict=True)
        return [self._ids[row] for other, row in rows if not (self._exclude_citing and self.graph.cites(other, pmid))]


class CitationNegatives:
    """The papers that walks over a positive's neighbourhood visit, and one more, drawn uniformly from the others.

    Gold and repeated texts are not candidates. A negative's rank is the number of its visit, its score the cosine with
    the query. A row whose positive has no candidate gets none.
    """

    def __init__(
        self, index: Index, encoder: Encoder, papers: CitedPapers, rows: Sequence[TrainingRow], seed: int, options: Walk
    ) -> None:
        self._index = index
        self._papers = papers
        self._seed = seed
        self._walk = options
        mined_rows = [row for row in by_question(rows) if papers.of(row).ids]
        self._queries = BlockVectors([row.query for row in mined_rows], encoder.encode_queries)
        not_stored = [row.positive for row in mined_rows if row.positive not in papers.stored]
        self._positives = BlockVectors(not_stored, encoder.encode_snippets)

    def window(self, row: TrainingRow, gold: Gold) -> list[Negative]:
        """Return the negatives in the order of the visits."""
        neighbourhood = self._papers.of(row)
        snippets = self._index.fetch(neighbourhood.ids)
        order = {snippets[id].document: number for number, id in enumerate(neighbourhood.ids)}
        texts = (Negative(snippets[id].document, snippets[id].contents, 0, None) for id in neighbourhood.ids)
        others = list(eligible(texts, gold))
        if not others:
            return []
        vectors = self._stored([neighbourhood.ids[order[other.id]] for other in others])
        if self._walk.max_similarity is not None:
            kept = np.flatnonzero(vectors @ self._positive(row) <= self._walk.max_similarity)
            others, vectors = [others[index] for index in kept], vectors[kept]
        if not others:
            return []
        to_query = vectors @ self._queries.of(row.query)
        one_hop = np.array([order[other.id] < neighbourhood.one_hop for other in others])
        visited = walk(to_query, vectors @ vectors.T, one_hop, self._walk, row_random(self._seed, row))
        return [
            replace(others[index], rank=rank, score=float(to_query[index])) for rank, index in enumerate(visited, 1)
        ]

    def _positive(self, row: TrainingRow) -> Vectors:
        id = self._papers.stored.get(row.positive)
        return self._positives.of(row.positive) if id is None else self._stored([id])[0]

    def _stored(self, ids: Sequence[str]) -> Vectors:
        """Return the unit vectors of snippets, as the index has them, (snippets, dimension)."""
        vectors = self._index.dense_vectors(ids)
        return unit(np.stack([vectors[id] for id in ids]))


class BlockVectors:
    """Unit vectors of texts, encoded in blocks on first use.

    Rounding depends on the other texts of a batch. The blocks of one order are the same in every run, so that a resumed
    one draws the same. Memory: the vectors of the blocks that were used.
    """

    def __init__(self, texts: Iterable[str], encode: Callable[[Sequence[str]], Vectors]) -> None:
        self._texts = list(dict.fromkeys(texts))
        self._rows = {text: row for row, text in enumerate(self._texts)}
        self._encode = encode
        self._blocks: dict[int, Vectors] = {}

    def of(self, text: str) -> Vectors:
        """Return the vector of one of the texts, (dimension,)."""
        block, row = divmod(self._rows[text], BLOCK)
        if block not in self._blocks:
            self._blocks[block] = unit(self._encode(self._texts[block * BLOCK : (block + 1) * BLOCK]))
        vector: Vectors = self._blocks[block][row]
        return vector


def walk(
    to_query: Vectors, to_each_other: Vectors, one_hop: NDArray[np.bool_], options: Walk, random: Random
) -> list[int]:
    """Return the candidates that the paths visit, and one drawn uniformly from the rest, as the last.

    A path begins at one of the `paths` one-hop candidates most similar to the query, and is skipped if an earlier one
    visited that; beyond the paper, if no candidate is one hop away (gold is excluded), at a two-hop one. The beginning
    counts as one of its `length` papers, as in Algorithm 1. Each step goes to one of the `top` unvisited
    candidates most similar to the current one, one hop away or two, with probability proportional to the cosine, as in
    the paper; negative cosines count as 0, and if all are, the draw is uniform. Ties go to the earlier candidate.

    Parameters
    ----------
    to_query : cosine of each candidate with the query, (candidates,)
    to_each_other : cosines of the candidates, (candidates, candidates)
    one_hop : which candidates the positive cites itself, (candidates,)
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
    rest = np.flatnonzero(free).tolist()
    return [*visited, rest[random.randrange(len(rest))]] if rest else visited


def _next(cosines: Vectors, free: NDArray[np.bool_], top: int, random: Random) -> int:
    """Return one of the `top` nearest free candidates."""
    nearest = np.argsort(-cosines, kind="stable")
    nearest = nearest[free[nearest]][:top]
    weights = np.maximum(cosines[nearest], 0).tolist()
    return int(random.choices(nearest.tolist(), weights if any(weights) else None)[0])


def _block(snippet: Snippet) -> int:
    block = snippet.metadata.get("block")
    return block if snippet.document != snippet.id and isinstance(block, int) else 0
