"""Citation negatives: BiCA's Algorithm 1 against a slow walk with the same draws, and what its candidates are."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.corpus.citation_graph import Graph
from biorag.lab.citation_graph.building import add, pairs_of
from biorag.training import mining
from biorag.training.citation_walks import CitedPapers, walk
from biorag.training.mining import MiningPlan, Walk
from biorag.training.rows import row_random
from biorag.types import Snippet
from tests.training.small_corpus import ENCODER, NO_GOLD, corpus, indexed, row

HOW = Walk()


def slow_walk(to_query, cosines, one_hop, how: Walk, draw: random.Random) -> list[int]:
    """Algorithm 1, a path after the other, every list sorted anew."""
    everything = range(len(to_query))
    first_hop = [n for n in everything if one_hop[n]] or list(everything)
    visited: list[int] = []
    for start in sorted(first_hop, key=lambda n: (-to_query[n], n))[: how.paths]:
        if start in visited:
            continue
        visited.append(start)
        here = start
        for _ in range(how.length - 1):
            nearest = sorted((n for n in everything if n not in visited), key=lambda n: (-cosines[here][n], n))
            nearest = nearest[: how.top]
            if not nearest:
                break
            weights = [max(0.0, float(cosines[here][n])) for n in nearest]
            if sum(weights) == 0:
                here = nearest[int(draw.random() * len(nearest))]
            else:
                point, total = draw.random() * sum(weights), 0.0
                for n, weight in zip(nearest, weights, strict=True):
                    here, total = n, total + weight
                    if point < total:
                        break
            visited.append(here)
    rest = [n for n in everything if n not in visited]
    return [*visited, rest[draw.randrange(len(rest))]] if rest else visited


@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 30),
    near=st.floats(0, 1),
    how=st.builds(Walk, paths=st.integers(1, 5), length=st.integers(1, 5), top=st.integers(1, 7)),
    coarse=st.booleans(),
)
def test_walks_visit_what_a_slow_walk_visits(seed, size, near, how, coarse):
    draw = np.random.default_rng(seed)
    vectors = draw.normal(size=(size + 1, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = (vectors @ vectors.T).astype(np.float32)
    cosines = np.round(cosines) if coarse else cosines  # with equal ones and zeros
    one_hop = draw.random(size) < near
    found = walk(cosines[0, 1:], cosines[1:, 1:], one_hop, how, random.Random(seed))
    assert found == slow_walk(cosines[0, 1:], cosines[1:, 1:], one_hop, how, random.Random(seed))
    assert len(found) == len(set(found)) <= how.paths * how.length + 1


# --- over an index


@pytest.fixture
def graphed(tmp_path):
    """Return a function that makes a graph of edges."""

    def graphed(edges: list[tuple[int, int]]) -> Graph:
        add(tmp_path / "g", "test", pairs_of(edges))
        return Graph(tmp_path / "g")

    return graphed


def papers(size: int = 40) -> list[Snippet]:
    return [replace(snippet, pmid=100 + n) for n, snippet in enumerate(corpus(size))]


def mined(snippets, graph, rows, how=HOW, seed=0):
    index = indexed(snippets)
    plan = MiningPlan("citation", None, seed, walk=how)
    opened = SimpleNamespace(index=index, load_encoder=lambda: ENCODER, settings=graph)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mining, "open_graph", lambda graph: graph)
        return CitedPapers(graph, index, rows), mining.citation(plan, opened, rows)


EDGES = [(100, 100 + n) for n in range(1, 6)] + [(101, n) for n in range(110, 125)] + [(104, 100), (104, 500)]


def test_negatives_are_those_of_the_slow_walk(graphed):
    snippets = papers()
    asked = row("heart and liver pain", snippets[0].contents, "s00")
    _, kind = mined(snippets, graphed(EDGES), [asked])
    candidates = [*range(1, 6), *range(10, 25)]
    vectors = ENCODER.encode_snippets([snippets[n].contents for n in candidates])
    to_query = vectors @ ENCODER.encode_queries([asked.query])[0]
    one_hop = [n < 6 for n in candidates]
    places = slow_walk(to_query, vectors @ vectors.T, one_hop, HOW, row_random(0, asked))
    found = kind(asked, NO_GOLD)
    assert [one.id for one in found] == [snippets[candidates[place]].id for place in places]
    assert [one.text for one in found] == [snippets[candidates[place]].contents for place in places]
    assert [one.score for one in found] == pytest.approx([to_query[place] for place in places])
    assert [one.rank for one in found] == list(range(1, 11))
    assert kind(asked, NO_GOLD) == found
    assert mined(snippets, graphed(EDGES), [asked], seed=1)[1](asked, NO_GOLD) != found


def test_positives_are_found_by_id_or_text(graphed):
    snippets = [*papers(10), Snippet("none", "", "No PMID.")]
    graph = graphed([(100, 101), (102, 999), (103, 998), (998, 104)])
    rows = [
        row("a", "whatever", "s00"),
        row("b", snippets[0].contents.upper()),
        row("c", "whatever", "absent"),
        row("d", "not in the index"),
        row("e", "No PMID.", "none"),
        row("f", "whatever", "s05"),
        row("g", "whatever", "s02"),
        row("h", "whatever", "s03"),
    ]
    cited, kind = mined(snippets, graph, rows)
    assert [cited.of(one)[0] for one in rows] == [["s01"], ["s01"], [], [], [], [], [], ["s04"]]
    assert [len(kind(one, NO_GOLD)) for one in rows] == [1, 1, 0, 0, 0, 0, 0, 1]
