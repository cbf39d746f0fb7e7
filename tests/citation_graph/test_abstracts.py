"""Neighbourhoods with their abstracts, fetched from a server on a loopback port, with faults."""

from __future__ import annotations

import json

import pytest

from biorag.citation_graph import abstracts, eutils
from biorag.citation_graph.abstracts import KeptAbstracts, articles, fetch_neighbourhoods, is_abstracts
from biorag.citation_graph.eutils import KeptAnswers
from biorag.citation_graph.graph import Graph
from biorag.corpus.readers import read_snippets
from biorag.corpus.sources import Source
from biorag.errors import ServiceError
from biorag.types import Snippet
from tests.citation_graph.test_citation_graph import ListedIndex, held, nothing
from tests.entrez import CITED, Entrez

SEEDS = range(1, 12)
ONE_HOP = {other for seed in SEEDS for other in CITED[seed]}
TWO_HOP = {other for paper in ONE_HOP for other in CITED[paper]} - ONE_HOP


@pytest.fixture
def entrez(monkeypatch):
    monkeypatch.setattr(eutils, "PER_SECOND", 10_000)
    monkeypatch.setattr(eutils, "BATCH", 8)
    monkeypatch.setattr(abstracts, "BATCH", 8)
    server = Entrez()
    yield server
    server.close()


@pytest.fixture
def fetch(entrez, tmp_path):
    index = ListedIndex([Snippet(f"s{n}", "", "text", n) for n in SEEDS])

    def fetch(link=None, on_progress=nothing):
        answers, kept = KeptAnswers(tmp_path / "citations.jsonl"), KeptAbstracts(tmp_path / "abstracts.jsonl")
        out = tmp_path / "out.jsonl"
        return fetch_neighbourhoods(tmp_path / "g", index, link or entrez.link(), answers, kept, out, on_progress)

    return fetch


def pmids_of(forms):
    return [int(id) for form in forms for id in form["id"][0].split(",")]


def test_both_hops_come_with_their_abstracts(entrez, fetch, tmp_path):
    untold, entrez.left_out = min(ONE_HOP), {max(TWO_HOP)}
    entrez.untold = {untold}
    told = []
    found = fetch(on_progress=told.append)
    assert (found.one_hop, found.two_hop) == (len(ONE_HOP), len(TWO_HOP))
    assert held(Graph(tmp_path / "g")) == {n: set(CITED[n]) for n in (*SEEDS, *ONE_HOP) if CITED[n]}
    assert sorted(pmids_of(entrez.fetched)) == sorted(ONE_HOP | TWO_HOP)
    assert (found.asked, found.kept, found.without) == (len(ONE_HOP | TWO_HOP), 0, 2)
    assert sum(told) == len(SEEDS) + len(ONE_HOP) + found.asked
    snippets = {s.pmid: s for s in read_snippets(Source("out", tmp_path / "out.jsonl"))}
    assert set(snippets) == (ONE_HOP | TWO_HOP) - {untold} - entrez.left_out
    assert all((s.id, s.contents) == (str(pmid), f"Paper {pmid}. Text {pmid}.") for pmid, s in snippets.items())
    assert is_abstracts((tmp_path / "out.jsonl").read_bytes())
    (form, *_) = entrez.fetched
    assert {name: value for name, value in form.items() if name != "id"} == {
        "db": ["pubmed"],
        "retmode": ["xml"],
        "tool": ["biorag"],
    }
    again, before = fetch(), (tmp_path / "out.jsonl").read_bytes()
    assert (again.asked, again.kept, again.written) == (0, found.asked, found.written)
    assert (tmp_path / "out.jsonl").read_bytes() == before


def test_an_interrupted_run_goes_on(entrez, fetch, tmp_path, monkeypatch):
    whole = fetch()
    expected = {json.loads(line)["id"] for line in (tmp_path / "out.jsonl").read_text().splitlines()}
    for name in ("out.jsonl", "abstracts.jsonl"):
        (tmp_path / name).unlink()
    entrez.fetched.clear()
    link = entrez.link(retries=0)
    answered = link.articles
    monkeypatch.setattr(link, "articles", lambda pmids: (entrez.faults.extend(faults.pop(0)), answered(pmids))[1])
    faults = [[], [(500, b"", {})]]
    with pytest.raises(ServiceError):
        fetch(link)
    assert not (tmp_path / "out.jsonl").exists()
    with (tmp_path / "abstracts.jsonl").open("ab") as stream:
        stream.write(b'{"pmid": 9, "snip')  # torn by a kill
    resumed = fetch()
    assert (resumed.kept, resumed.asked) == (8, whole.asked - 8)
    assert {json.loads(line)["id"] for line in (tmp_path / "out.jsonl").read_text().splitlines()} == expected


def test_papers_that_cite_nothing_have_no_neighbours(entrez, fetch):
    entrez.left_out = set(SEEDS)
    found = fetch()
    assert (found.one_hop, found.two_hop, found.asked, found.written) == (0, 0, 0, 0)
    assert entrez.fetched == []


def test_other_answers_than_records(entrez):
    for body in (b"<html/>", b"no XML", entrez.records([1])[:-9]):
        entrez.faults = [(200, body, {})]
        with pytest.raises(ServiceError, match="no valid PubMed XML"):
            articles(entrez.link(retries=0), [1])
    entrez.faults = [(200, b"<a></PubmedArticleSet>", {})]
    with pytest.raises(ServiceError, match="did not answer with PubMed's XML"):
        articles(entrez.link(), [1])
    entrez.faults = [(200, entrez.records([7]), {})]
    assert articles(entrez.link(), [1]) == {1: None}, "a record that was not asked for"
