"""The size of a graph, and how much of an index it covers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biorag.citation_graph.graph import LARGEST, Graph, among
from biorag.indexes.reading import stored_snippets
from biorag.types import Index, OnProgress, Snippet


@dataclass(frozen=True, slots=True)
class Distribution:
    """The spread of a number over papers; a quantile is the number of the paper at that rank."""

    min: int
    p10: int
    median: int
    p90: int
    p99: int
    max: int
    mean: float


@dataclass(frozen=True, slots=True)
class Size:
    """Papers that cite, papers in all, edges; references of those that cite, citations of those that are cited."""

    citing: int
    papers: int
    edges: int
    out_degree: Distribution
    in_degree: Distribution


@dataclass(frozen=True, slots=True)
class Coverage:
    """Of an index's snippets those with a PMID, with references, and with one- and two-hop papers in the index."""

    snippets: int
    with_pmid: int
    with_references: int
    with_one_hop: int
    with_two_hop: int


def distribution(values: NDArray[np.integer]) -> Distribution:
    """Return the distribution of values, (papers,); all 0 without values."""
    if not values.size:
        return Distribution(0, 0, 0, 0, 0, 0, 0.0)
    low, p10, median, p90, p99, high = np.quantile(values, [0, 0.1, 0.5, 0.9, 0.99, 1], method="nearest").tolist()
    return Distribution(low, p10, median, p90, p99, high, round(float(values.mean()), 2))


def measure(graph: Graph) -> Size:
    """Return the size of a graph. Memory: some copies of the edges' ends."""
    pmids, targets = graph.pmids(), np.sort(graph.targets())
    firsts = np.flatnonzero(np.diff(targets, prepend=np.uint32(0)))  # no PMID is 0
    cited, cites = targets[firsts], np.diff(firsts, append=targets.size)
    return Size(
        citing=pmids.size,
        papers=int(pmids.size + cited.size - among(cited, pmids).sum()),
        edges=targets.size,
        out_degree=distribution(graph.out_degrees()),
        in_degree=distribution(cites),
    )


def cover(graph: Graph, index: Index, on_progress: OnProgress) -> Coverage:
    """Return how much of an index's snippets the graph covers."""
    pmids: list[int] = []
    snippets = 0
    for snippet in stored_snippets(index):
        snippets += 1
        pmid = paper_of(snippet)
        pmids += [pmid] if pmid is not None else []
        on_progress(1)
    papers, counts = np.unique(np.array(pmids, np.uint32), return_counts=True)
    referring = one = two = 0
    for pmid, count in zip(papers.tolist(), counts.tolist(), strict=True):
        hops = graph.neighbourhood(pmid)
        referring += count * bool(hops.one_hop.size)
        one += count * bool(among(hops.one_hop, papers).any())
        two += count * bool(among(hops.two_hop, papers).any())
    return Coverage(snippets, len(pmids), referring, one, two)


def paper_of(snippet: Snippet) -> int | None:
    """Return the PMID of a snippet; None without one, or if no graph can hold it."""
    return snippet.pmid if snippet.pmid is not None and 0 < snippet.pmid <= LARGEST else None
