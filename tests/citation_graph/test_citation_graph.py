"""The graph on disk against a dictionary of sets: built, added to, interrupted, asked."""

from __future__ import annotations

import shutil
import statistics
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biorag.citation_graph import building, merge
from biorag.citation_graph.building import add, build
from biorag.citation_graph.coverage import cover, measure
from biorag.citation_graph.graph import MANIFEST, TARGETS, Graph, open_graph
from biorag.citation_graph.rows import LARGEST, edge_keys
from biorag.citation_graph.sources import find_citations
from biorag.errors import BadInputError, MismatchError, MissingError, ServiceError
from biorag.settings.settings import Settings
from biorag.types import Snippet
from biorag.utils.locks import DirectoryLock

Edges = list[tuple[int, int]]


def nothing(_: int) -> None:
    """Hear of no progress."""


@pytest.fixture
def small(monkeypatch):
    """Pieces so small that every graph has many."""
    monkeypatch.setattr(building, "RUN", 16)
    monkeypatch.setattr(merge, "PIECE", 16)
    monkeypatch.setattr(merge, "STRIDE", 4)


def csv(path: Path, edges: Edges) -> Path:
    path.write_text("citing,referenced\n" + "".join(f"{citing},{cited}\n" for citing, cited in edges))
    return path


def made(folder: Path, *files: Path, skip: bool = False):
    return build(folder, find_citations([str(file) for file in files]), skip, nothing)


def reference(edges: Edges) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for citing, cited in edges:
        if citing != cited:
            found.setdefault(citing, set()).add(cited)
    return found


def held(graph: Graph) -> dict[int, set[int]]:
    return {pmid: set(graph.cited(pmid).tolist()) for pmid in graph.pmids.tolist()}


def some_edges(seed: int, papers: int = 60, count: int = 700) -> Edges:
    random = Random(seed)
    pmids = [1, LARGEST, *random.sample(range(2, LARGEST), papers - 2)]
    return [(random.choice(pmids), random.choice(pmids)) for _ in range(count)]


def test_a_graph_is_what_the_edges_say(tmp_path, small, monkeypatch):
    monkeypatch.setattr("biorag.citation_graph.sources.BLOCK", 300)
    monkeypatch.setattr("biorag.corpus.sources.CHUNK", 100)
    edges = some_edges(0)
    report = made(tmp_path / "g", csv(tmp_path / "a.csv", edges))
    graph, slow = Graph(tmp_path / "g"), reference(edges)
    assert held(graph) == slow
    assert (report.papers, report.edges, report.added) == (len(slow), graph.targets.size, graph.targets.size)
    assert (report.graph, report.read, report.known, report.rejected) == ("g", 1, 0, 0)
    assert graph.targets.size == sum(map(len, slow.values()))
    assert sorted(path.name for path in (tmp_path / "g").iterdir()) == ["generation-1", "lock", MANIFEST]
    for pmid in [*slow, 2, 77]:
        cited = slow.get(pmid, set())
        two = set().union(*(slow.get(other, set()) for other in cited)) - cited - {pmid}
        hops = graph.neighbourhood(pmid)
        assert (hops.one_hop.tolist(), hops.two_hop.tolist()) == (sorted(cited), sorted(two))
        assert all(graph.cites(pmid, other) == (other in cited) for other in [*slow, 2])
    assert graph.citing(np.array([1, 2, LARGEST], np.uint32)).tolist() == [n in slow for n in (1, 2, LARGEST)]


@settings(max_examples=30, deadline=None)
@given(parts=st.lists(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), max_size=30), max_size=4))
def test_adding_is_the_same_as_building_at_once(tmp_path_factory, parts):
    folder = tmp_path_factory.mktemp("graphs")
    files = [csv(folder / f"{place}.csv", edges) for place, edges in enumerate(parts)]
    with pytest.MonkeyPatch.context() as patch:
        for module, name, size in ((building, "RUN", 5), (merge, "PIECE", 4), (merge, "STRIDE", 2)):
            patch.setattr(module, name, size)
        patch.setattr("os.fsync", lambda _: None)
        made(folder / "once", *files)
        made(folder / "steps")
        for file in files:
            made(folder / "steps", file)
    once, steps = Graph(folder / "once"), Graph(folder / "steps")
    assert held(steps) == held(once) == reference([edge for edges in parts for edge in edges])
    assert steps.manifest.sha256 == once.manifest.sha256
    assert len(steps.manifest.sources) == len({file.read_text() for file in files})


def test_a_file_that_is_in_the_graph_is_not_read_again(tmp_path, monkeypatch):
    first = csv(tmp_path / "a.csv", [(1, 2), (3, 4)])
    made(tmp_path / "g", first)
    before = (tmp_path / "g" / MANIFEST).read_bytes()
    monkeypatch.setattr(building, "read_edges", lambda *_: pytest.fail("it was read"))
    report = made(tmp_path / "g", first, shutil.copy(first, tmp_path / "renamed.csv"))
    assert (report.read, report.known, report.added, report.edges) == (0, 2, 0, 2)
    assert (tmp_path / "g" / MANIFEST).read_bytes() == before


def test_a_paper_given_again_adds(tmp_path):
    made(tmp_path / "g", csv(tmp_path / "a.csv", [(1, 2), (1, 3)]))
    report = made(tmp_path / "g", csv(tmp_path / "b.csv", [(1, 3), (1, 4), (9, 1)]))
    assert held(Graph(tmp_path / "g")) == {1: {2, 3, 4}, 9: {1}}
    assert (report.added, report.edges) == (2, 4)
    assert [source.edges for source in Graph(tmp_path / "g").manifest.sources] == [2, 3]


def test_a_build_that_was_stopped_goes_on(tmp_path, monkeypatch):
    files = [csv(tmp_path / f"{n}.csv", some_edges(n, 20, 50)) for n in range(3)]
    made(tmp_path / "g", files[0])
    old = held(Graph(tmp_path / "g"))
    real = building.merge
    monkeypatch.setattr(building, "merge", lambda runs, folder: (real(runs, folder), pytest.fail("killed"))[0])
    with pytest.raises(pytest.fail.Exception):
        made(tmp_path / "g", *files)
    assert held(Graph(tmp_path / "g")) == old
    monkeypatch.setattr(building, "merge", real)
    monkeypatch.setattr(building, "read_edges", lambda *_: pytest.fail("it was read"))
    report = made(tmp_path / "g", *files)
    assert (report.read, report.known) == (0, 3)
    assert held(Graph(tmp_path / "g")) == reference([edge for n in range(3) for edge in some_edges(n, 20, 50)])


def test_what_a_killed_build_left_is_deleted_by_the_next(tmp_path, monkeypatch):
    first, second = csv(tmp_path / "a.csv", some_edges(1)), csv(tmp_path / "b.csv", some_edges(2))
    made(tmp_path / "g", first)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(building.shutil, "rmtree", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        made(tmp_path / "g", second)
    left = {path.name for path in (tmp_path / "g").iterdir()}
    assert left == {"generation-1", "generation-2", "pending", "lock", MANIFEST}
    assert made(tmp_path / "g", second).read == 0
    assert {path.name for path in (tmp_path / "g").iterdir()} == {"generation-2", "lock", MANIFEST}
    assert held(Graph(tmp_path / "g")) == reference(some_edges(1) + some_edges(2))


def test_a_file_that_was_read_in_part_is_read_anew(tmp_path, small, monkeypatch):
    monkeypatch.setattr("biorag.citation_graph.sources.BLOCK", 64)
    monkeypatch.setattr("biorag.corpus.sources.CHUNK", 64)
    edges = [(n, n + 1) for n in range(1, 200)]
    bad = csv(tmp_path / "a.csv", edges)
    bad.write_text(bad.read_text() + "x,y\n")
    with pytest.raises(BadInputError, match=r"line 201"):
        made(tmp_path / "g", bad)
    assert list((tmp_path / "g" / "pending").glob("*.run"))
    with pytest.raises(MissingError):
        Graph(tmp_path / "g")
    assert made(tmp_path / "g", bad, skip=True).rejected == 1
    assert held(Graph(tmp_path / "g")) == reference(edges)


def test_an_open_graph_outlives_a_build(tmp_path):
    made(tmp_path / "g", csv(tmp_path / "a.csv", [(1, 2)]))
    graph = Graph(tmp_path / "g")
    made(tmp_path / "g", csv(tmp_path / "b.csv", [(1, 3)]))
    assert held(graph) == {1: {2}}
    assert held(Graph(tmp_path / "g")) == {1: {2, 3}}


def test_one_build_at_a_time(tmp_path):
    lock = DirectoryLock(tmp_path / "g", exclusive=True, what="graph")
    with pytest.raises(ServiceError, match="graph 'g' is being written by process"):
        made(tmp_path / "g", csv(tmp_path / "a.csv", [(1, 2)]))
    lock.release()


def test_edges_added_at_once(tmp_path):
    keys = edge_keys(np.array([5, 5, 6]), np.array([6, 7, 6]))
    assert add(tmp_path / "g", "E-utilities", keys).edges == 2
    assert add(tmp_path / "g", "E-utilities", keys).generation == 1
    assert held(Graph(tmp_path / "g")) == {5: {6, 7}}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "sources": [{}]}'])
def test_a_damaged_manifest(tmp_path, text):
    made(tmp_path / "g", csv(tmp_path / "a.csv", [(1, 2)]))
    (tmp_path / "g" / MANIFEST).write_text(text)
    with pytest.raises(MismatchError, match="is damaged"):
        Graph(tmp_path / "g")


def test_damaged_arrays(tmp_path):
    made(tmp_path / "g", csv(tmp_path / "a.csv", [(1, 2), (1, 3)]))
    targets = tmp_path / "g" / "generation-1" / TARGETS
    targets.write_bytes(targets.read_bytes()[:-1])
    with pytest.raises(MismatchError, match="not 2 entries"):
        Graph(tmp_path / "g")
    targets.unlink()
    with pytest.raises(MismatchError, match="is not there"):
        Graph(tmp_path / "g")


def test_a_graph_that_is_not_there(tmp_path):
    settings = Settings.of(home=tmp_path, graph="absent")
    with pytest.raises(MissingError, match=r"'absent' is not there .there is none yet.: make it with 'biorag graph"):
        open_graph(settings)
    made(settings.graphs / "one", csv(tmp_path / "a.csv", [(1, 2)]))
    with pytest.raises(MissingError, match="there are one"):
        open_graph(settings)


def test_sizes_and_degrees(tmp_path):
    edges = some_edges(4, 40, 300)
    made(tmp_path / "g", csv(tmp_path / "a.csv", edges))
    slow, size = reference(edges), measure(Graph(tmp_path / "g"))
    out = [len(cited) for cited in slow.values()]
    inward = list(Counter(cited for found in slow.values() for cited in found).values())
    assert (size.citing, size.edges) == (len(slow), sum(out))
    assert size.papers == len(set(slow).union(*slow.values()))
    for found, degrees in ((size.out_degree, out), (size.in_degree, inward)):
        ordered = sorted(degrees)
        at = [ordered[round((len(ordered) - 1) * share)] for share in (0, 0.1, 0.5, 0.9, 0.99, 1)]
        assert [found.min, found.p10, found.median, found.p90, found.p99, found.max] == at
        assert found.mean == round(statistics.fmean(degrees), 2)


def test_an_empty_graph(tmp_path):
    assert made(tmp_path / "g", csv(tmp_path / "a.csv", [(7, 7)])).edges == 0
    graph = Graph(tmp_path / "g")
    assert (graph.cited(7).size, graph.neighbourhood(7).two_hop.size, measure(graph).papers) == (0, 0, 0)


class ListedIndex:
    """Snippets by id."""

    def __init__(self, snippets: list[Snippet]) -> None:
        self.snippets = {snippet.id: snippet for snippet in snippets}

    def ids(self):
        return iter(self.snippets)

    def fetch(self, ids):
        return {id: self.snippets[id] for id in ids}


def test_coverage_counts_snippets(tmp_path):
    made(tmp_path / "g", csv(tmp_path / "a.csv", [(1, 2), (2, 3), (4, 99), (5, 99), (99, 1)]))
    pmids = [1, 1, 2, 3, 4, 5, None, 2**53 - 1, -1]
    index = ListedIndex([Snippet(f"s{n}", "", "x", pmid) for n, pmid in enumerate(pmids)])
    told: list[int] = []
    found = cover(Graph(tmp_path / "g"), index, told.append)
    assert (found.snippets, found.with_pmid, found.with_references) == (9, 6, 5)
    # 1 cites 2, which cites 3; 4 and 5 cite 99, which is not in the index, and that cites 1, which is.
    assert (found.with_one_hop, found.with_two_hop, sum(told)) == (3, 4, 9)
