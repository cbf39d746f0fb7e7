"""`biorag graph`: held against a dictionary of sets when built, added to, interrupted and asked; filled, and mined."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sqlite3
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from biorag.corpus.citation_graph import FILE, LARGEST, Graph
from biorag.corpus.sources import Source
from biorag.errors import BadInputError, BioragError, MismatchError
from biorag.lab.citation_graph import building
from biorag.lab.citation_graph.building import build, find_citations, read_edges
from biorag.types import Snippet
from tests import cli
from tests.cli import done, failed, succeeded
from tests.conftest import write_medrag
from tests.entrez import CITED, Entrez
from tests.pubmed_records import article, deletions, file_of, record

Edges = list[tuple[int, int]]
HEADER = b"citing,referenced\n"


def nothing(_: int) -> None:
    """Hear of no progress."""


@pytest.fixture
def small(monkeypatch):
    """Pieces so small that every graph and every file has many."""
    monkeypatch.setattr(building, "RUN", 16)
    monkeypatch.setattr(building, "EDGES", 7)
    monkeypatch.setattr("biorag.corpus.sources.CHUNK", 30)


def csv(path: Path, edges: Edges) -> Path:
    path.write_text("citing,referenced\n" + "".join(f"{citing},{cited}\n" for citing, cited in edges))
    return path


def made(folder: Path, *files: Path):
    return SimpleNamespace(**build(folder, find_citations([str(file) for file in files]), nothing))


def reference(edges: Edges) -> dict[int, set[int]]:
    cited_by: dict[int, set[int]] = {}
    for citing, cited in edges:
        if citing != cited:
            cited_by.setdefault(citing, set()).add(cited)
    return cited_by


def held(graph: Graph) -> dict[int, set[int]]:
    return {pmid: set(graph.cited(pmid).tolist()) for pmid in graph.pmids().tolist()}


def some_edges(seed: int, papers: int = 60, count: int = 700) -> Edges:
    random = Random(seed)
    pmids = [1, LARGEST, *random.sample(range(2, LARGEST), papers - 2)]
    return [(random.choice(pmids), random.choice(pmids)) for _ in range(count)]


# --- the graph


def test_a_graph_is_what_the_edges_say(tmp_path, small):
    edges = some_edges(0)
    report = made(tmp_path / "g", csv(tmp_path / "a.csv", edges))
    graph, slow = Graph(tmp_path / "g"), reference(edges)
    assert held(graph) == slow
    assert (report.papers, report.edges, report.added) == (len(slow), *[sum(map(len, slow.values()))] * 2)
    assert (report.graph, report.read, report.known) == ("g", 1, 0)
    assert graph.size() == (report.papers, report.edges)
    for pmid in [*slow, 2, 77]:
        cited = slow.get(pmid, set())
        two = set().union(*(slow.get(other, set()) for other in cited)) - cited - {pmid}
        hops = graph.neighbourhood(pmid)
        assert (hops.one_hop.tolist(), hops.two_hop.tolist()) == (sorted(cited), sorted(two))
        assert all((other in graph.cited(pmid)) == (other in cited) for other in [*slow, 2])
        assert graph.times_cited(pmid) == sum(pmid in others for others in slow.values())
    assert graph.times_cited(2**40) == 0


def test_a_citation_is_not_counted_across_the_ends_of_numbers(tmp_path):
    made(tmp_path / "g", csv(tmp_path / "a.csv", [(9, 0x01000000), (9, 0x02000001)]))
    assert [Graph(tmp_path / "g").times_cited(pmid) for pmid in (0x01000000, 1, 0x00010000)] == [1, 0, 0]


@pytest.mark.slow
@given(lists=st.lists(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), max_size=30), max_size=4))
def test_files_in_steps_are_files_at_once(tmp_path_factory, lists):
    folder = tmp_path_factory.mktemp("steps")
    files = [csv(folder / f"{number}.csv", edges) for number, edges in enumerate(lists)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "RUN", 5)
        made(folder / "once", *files)
        made(folder / "steps")
        for file in files:
            made(folder / "steps", file)
    once, steps = Graph(folder / "once"), Graph(folder / "steps")
    assert held(steps) == held(once) == reference([edge for edges in lists for edge in edges])
    assert steps.sha256 == once.sha256
    assert len(steps.history) == len({file.read_text() for file in files})


def test_a_file_that_is_in_the_graph_is_not_read_again(tmp_path, monkeypatch):
    first = csv(tmp_path / "a.csv", [(1, 2), (3, 4)])
    made(tmp_path / "g", first)
    before = Graph(tmp_path / "g").history
    monkeypatch.setattr(building, "read_edges", lambda *_: pytest.fail("it was read"))
    report = made(tmp_path / "g", first, shutil.copy(first, tmp_path / "renamed.csv"))
    assert (report.read, report.known, report.added, report.edges) == (0, 2, 0, 2)
    assert Graph(tmp_path / "g").history == before


def test_a_file_takes_effect_as_a_whole_and_a_stopped_build_resumes_after_it(tmp_path, small):
    good, bad = csv(tmp_path / "a.csv", some_edges(1)), csv(tmp_path / "b.csv", some_edges(2))
    bad.write_text(bad.read_text() + "x,y\n")
    with pytest.raises(BadInputError, match=r"line 702"):
        made(tmp_path / "g", good, bad)
    assert held(Graph(tmp_path / "g")) == reference(some_edges(1))
    csv(bad, some_edges(2))
    report = made(tmp_path / "g", good, bad)
    assert (report.read, report.known) == (1, 1)
    assert held(Graph(tmp_path / "g")) == reference(some_edges(1) + some_edges(2))


def test_an_open_graph_outlives_a_build(tmp_path):
    made(tmp_path / "g", csv(tmp_path / "a.csv", [(1, 2)]))
    graph = Graph(tmp_path / "g")
    made(tmp_path / "g", csv(tmp_path / "b.csv", [(1, 3)]))
    assert held(graph) == {1: {2}}
    assert held(Graph(tmp_path / "g")) == {1: {2, 3}}


def test_damaged_files(tmp_path):
    made(tmp_path / "g", csv(tmp_path / "a.csv", [(1, 2)]))
    path = tmp_path / "g" / FILE
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE papers SET cited = x'010203'")
    with pytest.raises(MismatchError, match="is damaged"):
        Graph(tmp_path / "g").cited(1)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 1")
    for act in (Graph, made):
        with pytest.raises(MismatchError, match="of another format: delete the folder and build"):
            act(tmp_path / "g")
    (tmp_path / "h").mkdir()
    (tmp_path / "h" / FILE).write_bytes(b"no database" * 500)
    for act in (Graph, made):
        with pytest.raises(MismatchError, match="is damaged"):
            act(tmp_path / "h")


def test_an_empty_graph_and_one_of_a_bad_file(tmp_path):
    assert made(tmp_path / "g", csv(tmp_path / "a.csv", [(7, 7)])).edges == 0
    graph = Graph(tmp_path / "g")
    assert (graph.cited(7).size, graph.neighbourhood(7).two_hop.size, graph.size()) == (0, 0, (0, 0))
    (tmp_path / "bad.csv").write_text("citing,cited\n1,2\n")
    with pytest.raises(BadInputError, match="line 1: expected the header citing,referenced"):
        made(tmp_path / "new", tmp_path / "bad.csv")
    assert not (tmp_path / "new" / FILE).exists()


# --- files


def written(folder: Path, content: bytes, name: str = "occ.csv") -> Source:
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return Source(name, path)


def read(source: Source) -> Edges:
    return [tuple(pair) for pair in np.concatenate([building.pairs_of([]), *read_edges(source)]).tolist()]


@pytest.mark.parametrize("name", ["occ.csv", "occ.csv.gz"])
def test_a_csv_is_read_in_blocks(tmp_path, small, name):
    rows = [(Random(0).randrange(1, 10**8) + n, n + 1) for n in range(500)]
    content = HEADER + "".join(f"{one},{other}\n" for one, other in rows).encode()
    assert read(written(tmp_path, content, name)) == rows
    assert read(written(tmp_path, content.rstrip(b"\n"), name)) == rows
    assert read(written(tmp_path, content.replace(b"\n", b"\r\n"), name)) == rows


def test_a_csv_with_quotes_spaces_and_blank_lines(tmp_path):
    content = b'\xef\xbb\xbf"Citing", "Referenced"\n"12","3"\n\n 4 , 5 \n6,7'
    assert read(written(tmp_path, content)) == [(12, 3), (4, 5), (6, 7)]
    assert read(written(tmp_path, HEADER)) == []


def test_papers_judged_for_one_question_refer_to_each_other(tmp_path):
    judged = {"a": [3, 7, 9], "b": [7, 12], "c": [5]}
    rows = [f"{question}\tpubmed_{paper}\t1\n" for question, papers in judged.items() for paper in papers]
    (tmp_path / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows) + "c\tpubmed_3\t0\n")
    built = made(tmp_path / "g", tmp_path / "test.tsv")
    pairs = [(one, other) for papers in judged.values() for one in papers for other in papers if one != other]
    assert (built.papers, built.edges) == (4, len(set(pairs)))
    graph = Graph(tmp_path / "g")
    for paper in (3, 5, 7, 9, 12):
        assert set(graph.neighbourhood(paper)[0].tolist()) == {other for one, other in pairs if one == paper}
    (tmp_path / "bad.tsv").write_text("query-id\tcorpus-id\tscore\na\tb\t1\n")
    with pytest.raises(BadInputError, match="end in a PMID"):
        made(tmp_path / "h", tmp_path / "bad.tsv")


@pytest.mark.parametrize("row", ["x,1", "1,2,3", "0,5", "5,4294967296", "1.5,2"])
def test_a_bad_row_is_named(tmp_path, small, row):
    content = HEADER + b"1,2\n3,4\n5,6\n" + row.encode() + b"\n7,8\n"
    source = written(tmp_path, content)
    with pytest.raises(
        BadInputError, match=re.escape(f"occ.csv, line 5: expected two PMIDs, citing,referenced, not '{row}'")
    ):
        read(source)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(), name=st.sampled_from(["x.csv", "x.xml", "x.csv.gz", "x.tsv"]))
def test_no_file_raises_anything_but_our_errors(tmp_path, content, name):
    path = tmp_path / name
    path.write_bytes(HEADER + content if name == "x.csv" else content)
    with suppress(BioragError):
        list(read_edges(Source(name, path)))


def test_records_cite_what_the_reader_of_snippets_says(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "EDGES", 7)
    random = Random(3)
    records = [record(random, 100 + n) for n in range(60)]
    wanted = [
        (one.snippet.pmid, cited)
        for one in records
        for cited in one.snippet.metadata.get("references", [])
        if cited <= LARGEST
    ]
    content = file_of(*(one.xml for one in records), deletions(5, 6))
    assert len(wanted) > 50
    assert read(written(tmp_path, content, "pubmed.xml.gz")) == wanted


def test_files_are_found(tmp_path):
    for name in ("b/two.csv.gz", "a/one.xml", "a/notes.txt", "three.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    files = find_citations([str(tmp_path / "three.csv"), str(tmp_path)])
    assert [source.path.name for source in files] == ["three.csv", "one.xml", "two.csv.gz", "three.csv"]
    with pytest.raises(BadInputError, match=r"notes\.txt has no citations: expected names"):
        find_citations([str(tmp_path / "a" / "notes.txt")])


# --- the commands

EDGES = [(n, other) for n in range(1, 20) for other in range(n + 1, min(n + 6, 31))]
PARTS = ["aspirin", "ibuprofen", "warfarin", "heparin", "liver", "kidney", "heart", "lung", "fever", "pain", "gene"]


@pytest.fixture(scope="module")
def home(tmp_path_factory, tiny_encoder) -> Path:
    """A home with thirty papers as index `papers`, encoded by a tiny random model."""
    home = tmp_path_factory.mktemp("graph-home")
    texts = [f"{PARTS[n % 11]} {PARTS[n % 7]} {PARTS[n % 5]} {PARTS[n % 3]}." for n in range(1, 31)]
    snippets = [Snippet(f"s{n}", "", text, n) for n, text in enumerate(texts, 1)]
    corpus = write_medrag(home / "papers.jsonl", snippets)
    succeeded(cli.invoke("index", corpus, "--name", "papers", "--encoder", tiny_encoder, home=home))
    return home


@pytest.fixture
def invoke(home):
    return partial(cli.invoke, home=home)


@pytest.fixture
def report(invoke):
    def report(*arguments, **variables):
        return done(invoke(*arguments, "--json", **variables))

    return report


@pytest.fixture
def pairs(tmp_path) -> Path:
    path = tmp_path / "pairs.jsonl"
    rows = [{"query": f"Which {PARTS[n % 11]}?", "positive": f"No. {n}.", "positive_id": f"s{n}"} for n in range(1, 31)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_graph_is_built_and_shown(invoke, report, tmp_path):
    xml = tmp_path / "update.xml"
    references = "<CommentsCorrectionsList>{}</CommentsCorrectionsList></MedlineCitation>"
    cites = references.format('<CommentsCorrections RefType="Cites"><PMID Version="1">1</PMID></CommentsCorrections>')
    xml.write_bytes(file_of(article(30, "Thirty.").replace("</MedlineCitation>", cites)))
    built = report("graph", "build", csv(tmp_path / "a.csv", EDGES), "--graph", "shown")
    assert (built["papers"], built["edges"], built["added"], built["read"]) == (19, 95, 95, 1)
    built = report("graph", "build", tmp_path, "--graph", "shown")
    assert (built["edges"], built["added"], built["read"], built["known"]) == (96, 1, 1, 1)
    shown = report("graph", "info", "--graph", "shown")
    assert (shown["papers"], shown["edges"]) == (20, 96)
    assert [Path(source["name"]).name for source in shown["sources"]] == ["a.csv", "update.xml"]
    table = invoke("graph", "info", "--graph", "shown").stdout
    assert "update.xml" in re.sub(r"[\s│]", "", table), "the path may be wrapped"


def test_what_is_refused(invoke, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("citing,referenced\n1,2\n3\n")
    failed(invoke("graph", "build", bad, "--graph", "bad"), 3, "bad.csv, line 3")
    failed(invoke("graph", "build", tmp_path / "absent.csv"), 4, "absent.csv")
    failed(invoke("graph", "info", "--graph", "absent"), 4, "'absent'", "biorag graph build")
    failed(invoke("graph", "info", "--graph", "../x"), 2, "--graph '../x'")


def test_gaps_are_filled_from_a_named_server(home, invoke, report, monkeypatch):
    monkeypatch.setattr("biorag.corpus.eutils.PER_SECOND", 10_000)
    entrez = Entrez()
    arguments = ["graph", "fill", "--name", "papers", "--graph", "filled", "--eutils", entrez.url]
    try:
        filled = report("--offline", *arguments, NCBI_API_KEY="canary")
        assert (filled["papers"], filled["asked"]) == (30, 30)
        assert filled["edges"] == sum(len(CITED[n]) for n in range(1, 31))
        assert [form["api_key"] for form in entrez.forms] == [["canary"]]
        assert report(*arguments)["asked"] == 0
        shown = json.dumps(report("graph", "info", "--graph", "filled"))
        assert "canary" not in shown
        (home / "cache" / "eutils.sqlite").unlink()
        failed(invoke("--offline", "graph", "fill", "--name", "papers", "--graph", "other"), 6, "offline")
    finally:
        entrez.close()


def test_negatives_are_mined_by_citations(report, invoke, pairs, tmp_path):
    report("graph", "build", csv(tmp_path / "a.csv", EDGES), "--graph", "walked")
    out = tmp_path / "mined.jsonl"
    arguments = ["mine", pairs, "--negatives", "citation", "--name", "papers", "--out", out, "--graph"]
    mined = report(*arguments, "walked")
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert (mined["rows"], mined["without"], mined["kind"]) == (len(lines), 11, "citation")
    for line in lines:
        pmid = int(line["positive_id"][1:])
        reached = {f"s{n}" for n in range(pmid + 1, min(pmid + 11, 31))}
        assert {negative["id"] for negative in line["negatives"]} <= reached
        assert len(line["negatives"]) <= 10
    failed(invoke(*arguments, "walked", "--paths", 1), 5, "other walk")
    report("graph", "build", csv(tmp_path / "b.csv", [(40, 41)]), "--graph", "walked")
    failed(invoke(*arguments, "walked"), 5, "other graph")


def test_neighbours_are_fetched_and_indexed(home, invoke, report, monkeypatch, tmp_path, tiny_encoder):
    monkeypatch.setattr("biorag.corpus.eutils.PER_SECOND", 10_000)
    entrez, out = Entrez(), tmp_path / "neighbours.jsonl"
    arguments = ["graph", "fill", "--name", "papers", "--graph", "hops", "--eutils", entrez.url, "--abstracts", out]
    try:
        fetched = report(*arguments)
        lines = out.read_text().splitlines()
        out.write_text("mine\n")
        failed(invoke(*arguments), 2, "neighbours.jsonl", "--force")
        assert report(*arguments, "--force")["asked"] == 0
    finally:
        entrez.close()
    assert fetched["written"] == fetched["one_hop"] + fetched["two_hop"] == len(lines) > 30
    indexed = report("index", home / "papers.jsonl", out, "--name", "hops", "--encoder", tiny_encoder)
    assert indexed["snippets"] == 30 + len(lines)
