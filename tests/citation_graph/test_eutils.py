"""The E-utilities client against a server on a loopback port, with faults."""

from __future__ import annotations

import pytest

from biorag.citation_graph import eutils
from biorag.citation_graph.eutils import EUtils, KeptAnswers, fill_gaps
from biorag.citation_graph.graph import Graph
from biorag.errors import OfflineError, ServiceError
from biorag.types import Snippet
from biorag.utils.network import Server, restrict
from tests.citation_graph.test_citation_graph import ListedIndex, csv, held, made, nothing
from tests.entrez import CITED, LINK, Entrez


@pytest.fixture
def entrez(monkeypatch):
    monkeypatch.setattr(eutils, "PER_SECOND", 10_000)
    server = Entrez()
    yield server
    server.close()


@pytest.fixture
def index() -> ListedIndex:
    pmids = [None, 5, *range(1, 12)]
    return ListedIndex([Snippet(f"s{n}", "", "text", pmid) for n, pmid in enumerate(pmids)])


def test_what_papers_cite(entrez):
    assert entrez.link().cited([1, 2, 4, 7]) == {pmid: CITED[pmid] for pmid in (1, 2, 4, 7)}
    (form,) = entrez.forms
    assert form == {
        "dbfrom": ["pubmed"],
        "db": ["pubmed"],
        "linkname": [LINK],
        "retmode": ["json"],
        "tool": ["biorag"],
        "id": ["1", "2", "4", "7"],
    }


def test_faults_that_pass(entrez, monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr("biorag.utils.retries.time.sleep", waits.append)
    entrez.faults = [
        (429, b'{"error":"API rate limit exceeded"}', {"Retry-After": "7"}),
        (500, b"oops", {}),
        (200, entrez.answer([1, 2])[:-9], {}),
    ]
    assert entrez.link().cited([1, 2]) == {1: CITED[1], 2: CITED[2]}
    assert len(entrez.forms) == 4
    assert max(waits) == 7


def test_faults_that_stay(entrez):
    entrez.faults = [(500, b"oops", {})] * 3
    with pytest.raises(ServiceError, match="answered 500: 'oops', 3 times: run the same command again later"):
        entrez.link(retries=2).cited([1])
    entrez.faults = [(400, b"API key s3cret not valid", {})]
    with pytest.raises(ServiceError, match="answered 400: 'API key … not valid'"):
        entrez.link(key="s3cret").cited([1])
    assert entrez.forms[-1]["api_key"] == ["s3cret"]
    entrez.faults = [(200, b"[]", {}), (200, b'{"linksets": [{"ids": []}]}', {}), (200, b'{"linksets": 1}', {})]
    for _ in range(3):
        with pytest.raises(ServiceError, match="not a list of links"):
            entrez.link().cited([1])


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


def test_gaps_are_filled_once(entrez, index, tmp_path, monkeypatch):
    monkeypatch.setattr(eutils, "BATCH", 4)
    made(tmp_path / "g", csv(tmp_path / "a.csv", [(1, 2), (9, 8), (9, 7)]))
    entrez.left_out = {6}
    kept = KeptAnswers(tmp_path / "cache" / "citations.jsonl")
    told: list[int] = []
    filled = fill_gaps(tmp_path / "g", index, entrez.link(), kept, told.append)
    assert entrez.asked == [[2, 3, 4, 5], [6, 7, 8, 10], [11]]
    assert (filled.papers, filled.lacking, filled.kept, filled.asked, filled.unanswered) == (11, 9, 0, 9, 1)
    assert (filled.empty, filled.added, sum(told)) == (2, 14, 9)
    wanted = {1: {2}, 9: {7, 8}} | {n: set(CITED[n]) for n in (2, 3, 5, 7, 10, 11)}
    assert held(Graph(tmp_path / "g")) == wanted
    assert filled.edges == sum(map(len, wanted.values()))
    entrez.left_out = set()
    again = fill_gaps(tmp_path / "g", index, entrez.link(), kept, nothing)
    assert entrez.asked[3:] == [[6]]  # 4 and 8 were answered: they cite nothing
    assert (again.lacking, again.kept, again.asked, again.added) == (3, 2, 1, 2)


def test_an_interrupted_run_goes_on(entrez, index, tmp_path, monkeypatch):
    monkeypatch.setattr(eutils, "BATCH", 3)
    kept = KeptAnswers(tmp_path / "kept.jsonl")
    link = entrez.link(retries=0)
    fill = link.cited

    def cited(pmids):
        entrez.faults = [(500, b"", {})] if 7 in pmids else []
        return fill(pmids)

    monkeypatch.setattr(link, "cited", cited)
    with pytest.raises(ServiceError):
        fill_gaps(tmp_path / "g", index, link, kept, nothing)
    with (tmp_path / "kept.jsonl").open("ab") as stream:
        stream.write(b'{"pmid": 9, "cit')  # torn by a kill
    entrez.forms.clear()
    filled = fill_gaps(tmp_path / "g", index, entrez.link(), kept, nothing)
    assert entrez.asked == [[7, 8, 9], [10, 11]]
    assert (filled.kept, filled.asked) == (6, 5)
    assert held(Graph(tmp_path / "g")) == {n: set(CITED[n]) for n in range(1, 12) if CITED[n]}
    assert fill_gaps(tmp_path / "g", index, entrez.link(), kept, nothing).asked == 0


def test_one_process_asks_at_a_time(entrez, index, tmp_path):
    kept = KeptAnswers(tmp_path / "new" / "kept.jsonl")
    with kept.alone(), pytest.raises(ServiceError, match="another biorag process is asking"):
        fill_gaps(tmp_path / "g", index, entrez.link(), KeptAnswers(tmp_path / "new" / "kept.jsonl"), nothing)
    assert entrez.forms == []
    assert fill_gaps(tmp_path / "g", index, entrez.link(), kept, nothing).asked == 11


def test_offline_mode_lets_only_named_hosts_through(entrez):
    restrict([])
    with pytest.raises(OfflineError, match="--eutils"):
        entrez.link().cited([1])
    restrict([entrez.url])
    assert entrez.link().cited([1]) == {1: CITED[1]}
