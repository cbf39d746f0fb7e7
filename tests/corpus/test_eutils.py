"""The E-utilities client, and graphs and abstracts filled by it, against a server on a loopback port, with faults."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from biorag.corpus import eutils
from biorag.corpus.citation_graph import Graph
from biorag.corpus.eutils import EUtils, kept_answers
from biorag.corpus.readers import read_snippets
from biorag.corpus.sources import Source
from biorag.errors import MismatchError, ServiceError
from biorag.lab.citation_graph.entrez import GraphFiller, abstracts, indexed_papers, is_abstracts
from biorag.types import Snippet
from biorag.utils.network import Server
from tests.entrez import CITED, LINK, Entrez
from tests.lab.test_graph import csv, held, made, nothing


class ListedIndex:
    """Snippets by id."""

    def __init__(self, snippets: list[Snippet]) -> None:
        self.snippets = {snippet.id: snippet for snippet in snippets}

    def ids(self):
        return iter(self.snippets)

    def fetch(self, ids):
        return {id: self.snippets[id] for id in ids}


SEEDS = range(1, 12)
ONE_HOP = {other for seed in SEEDS for other in CITED[seed]}
TWO_HOP = {other for paper in ONE_HOP for other in CITED[paper]} - ONE_HOP
PAPERS = indexed_papers(ListedIndex([Snippet(f"s{n}", "", "text", pmid) for n, pmid in enumerate([None, 5, *SEEDS])]))


@pytest.fixture
def entrez(monkeypatch):
    monkeypatch.setattr(eutils, "PER_SECOND", 10_000)
    server = Entrez()
    yield server
    server.close()


@pytest.fixture
def fill(entrez, tmp_path):
    """Fill the graph, or fetch the neighbourhoods into a file, too."""

    def fill(link=None, out=None, on_progress=nothing):
        with kept_answers(tmp_path / "cache" / "answers.sqlite") as answers:
            graph = GraphFiller(tmp_path / "g", link or entrez.link(), answers, on_progress)
            return SimpleNamespace(**graph.fetch_neighbourhoods(PAPERS, out) if out else graph.fill_gaps(PAPERS))

    return fill


def test_what_papers_cite(entrez):
    assert entrez.link().cited([1, 2, 4, 7]) == {pmid: CITED[pmid] for pmid in (1, 2, 4, 7)}
    form = {"dbfrom": ["pubmed"], "db": ["pubmed"], "linkname": [LINK], "retmode": ["json"], "tool": ["biorag"]}
    assert entrez.forms == [{**form, "id": ["1", "2", "4", "7"]}]


def test_faults_that_pass(entrez, monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr("biorag.utils.http.time.sleep", waits.append)
    limit = (429, b'{"error":"API rate limit exceeded"}', {"Retry-After": "7"})
    entrez.faults = [limit, (500, b"oops", {}), (200, entrez.answer([1, 2])[:-9], {})]
    assert entrez.link().cited([1, 2]) == {1: CITED[1], 2: CITED[2]}
    assert (len(entrez.forms), max(waits)) == (4, 7)


def test_faults_that_stay(entrez):
    entrez.faults = [(400, b"API key s3cret not valid", {})]
    with pytest.raises(ServiceError, match="answered 400: 'API key … not valid'"):
        entrez.link(key="s3cret").cited([1])
    assert entrez.forms[-1]["api_key"] == ["s3cret"]
    entrez.faults = [(200, b"[]", {}), (200, b'{"linksets": [{"ids": []}]}', {})]
    for _ in range(2):
        with pytest.raises(ServiceError, match="not a list of links"):
            entrez.link().cited([1])


def test_other_answers_than_records(entrez):
    for body in (b"no XML", entrez.records([1])[:-9]):
        entrez.faults = [(200, body, {})]
        with pytest.raises(ServiceError, match="no valid PubMed XML"):
            abstracts(entrez.link(retries=0), [1])
    entrez.faults = [(200, b"<a></PubmedArticleSet>", {})]
    with pytest.raises(ServiceError, match="did not answer with PubMed's XML"):
        abstracts(entrez.link(), [1])
    entrez.faults = [(200, entrez.records([7]), {})]
    assert abstracts(entrez.link(), [1]) == {1: None}, "a record that was not asked for"


@pytest.mark.parametrize(("key", "pause"), [(None, 1 / 3), ("key", 0.1)])
def test_no_faster_than_allowed(monkeypatch, key, pause):
    now, waits = [100.0], []
    link = EUtils(Server("http://localhost", 5.0, 0, key))
    monkeypatch.setattr(link._http, "send", lambda request: request)
    monkeypatch.setattr(eutils.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        eutils.time, "sleep", lambda seconds: (waits.append(seconds), now.__setitem__(0, now[0] + seconds))
    )
    for _ in range(4):
        link._send(None)
        now[0] += 0.02
    assert waits == pytest.approx([0, pause - 0.02, pause - 0.02, pause - 0.02])


def test_gaps_are_filled_once(entrez, fill, tmp_path, monkeypatch):
    monkeypatch.setattr(eutils, "BATCH", 4)
    made(tmp_path / "g", csv(tmp_path / "a.csv", [(1, 2), (9, 8), (9, 7)]))
    entrez.left_out = {6}
    told: list[int] = []
    filled = fill(on_progress=told.append)
    assert entrez.asked == [[2, 3, 4, 5], [6, 7, 8, 10], [11]]
    assert (filled.papers, filled.lacking, filled.asked, filled.unanswered) == (11, 9, 9, 1)
    assert (filled.added, sum(told)) == (14, 9)
    wanted = {1: {2}, 9: {7, 8}} | {n: set(CITED[n]) for n in (2, 3, 5, 7, 10, 11)}
    assert held(Graph(tmp_path / "g")) == wanted
    assert filled.edges == sum(map(len, wanted.values()))
    entrez.left_out = set()
    again = fill()
    assert entrez.asked[3:] == [[6]]  # 4 and 8 were answered: they cite nothing
    assert (again.lacking, again.asked, again.added) == (3, 1, 2)


def test_an_interrupted_run_resumes(entrez, fill, tmp_path, monkeypatch):
    monkeypatch.setattr(eutils, "BATCH", 3)
    link = entrez.link(retries=0)
    answered = link.cited

    def cited(pmids):
        entrez.faults = [(500, b"", {})] if 7 in pmids else []
        return answered(pmids)

    monkeypatch.setattr(link, "cited", cited)
    with pytest.raises(ServiceError):
        fill(link)
    entrez.forms.clear()
    filled = fill()
    assert entrez.asked == [[7, 8, 9], [10, 11]]
    assert filled.asked == 5
    assert held(Graph(tmp_path / "g")) == {n: set(CITED[n]) for n in SEEDS if CITED[n]}
    assert fill().asked == 0


def test_one_process_asks_at_a_time(tmp_path):
    path = tmp_path / "new" / "answers.sqlite"
    with kept_answers(path), pytest.raises(ServiceError, match="another biorag process is asking"), kept_answers(path):
        pass
    path.write_bytes(b"no database" * 500)
    with pytest.raises(MismatchError, match="is damaged"), kept_answers(path):
        pass
    path.unlink()
    full = pytest.raises(ServiceError, match="sqlite: database or disk is full: check the disk's room")
    with full, kept_answers(path) as answers:
        answers._connection.execute("PRAGMA max_page_count = 3")
        answers.ask("cites", range(500), lambda batch: dict.fromkeys(batch, "x" * 99), lambda _: None)
    path.unlink()
    path.mkdir()
    with pytest.raises(ServiceError, match="sqlite: unable to open"), kept_answers(path):
        pass


def test_both_hops_come_with_their_abstracts(entrez, fill, tmp_path, monkeypatch):
    monkeypatch.setattr(eutils, "BATCH", 8)
    untold, entrez.left_out = min(ONE_HOP), {max(TWO_HOP)}
    entrez.untold = {untold}
    out, told = tmp_path / "out.jsonl", []
    fetched = fill(out=out, on_progress=told.append)
    assert (fetched.one_hop, fetched.two_hop) == (len(ONE_HOP), len(TWO_HOP))
    assert held(Graph(tmp_path / "g")) == {n: set(CITED[n]) for n in (*SEEDS, *ONE_HOP) if CITED[n]}
    asked = [int(id) for form in entrez.fetched for id in form["id"][0].split(",")]
    assert sorted(asked) == sorted(ONE_HOP | TWO_HOP)
    assert (fetched.asked, fetched.without) == (len(ONE_HOP | TWO_HOP), 2)
    assert sum(told) == len(SEEDS) + len(ONE_HOP) + fetched.asked
    snippets = {s.pmid: s for s in read_snippets(Source("out", out))}
    assert set(snippets) == (ONE_HOP | TWO_HOP) - {untold} - entrez.left_out
    assert all((s.id, s.contents) == (str(pmid), f"Paper {pmid}. Text {pmid}.") for pmid, s in snippets.items())
    assert is_abstracts(out.read_bytes())
    assert not is_abstracts(b'{"id": "1"}\n')
    before = out.read_bytes()
    again = fill(out=out)
    assert (again.asked, again.written) == (0, fetched.written)
    assert out.read_bytes() == before
