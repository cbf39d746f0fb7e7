"""Records of papers that say little of themselves, from stand-ins of Crossref and PubMed on a loopback port."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from biorag.corpus.enriching import Crossref, PubMed
from biorag.errors import ServiceError
from biorag.utils.network import Server
from tests.cli import done, failed, invoke, succeeded
from tests.corpus.samples import searchable_pdf
from tests.entrez import Entrez
from tests.loopback import Loopback
from tests.pubmed_records import HEAD

DOI = "10.5555/gout.2019(3)<4>"
TITLE = "Low-dose colchicine in acute gout"


def work(**fields) -> dict:
    """A work as Crossref describes it, but for what biorag does not read."""
    return {
        "publisher": "Wiley",
        "issue": "2",
        "short-container-title": ["J Gout"],
        "DOI": DOI.lower(),
        "type": "journal-article",
        "page": "319-322",
        "title": [" Low-dose <i>colchicine</i> in acute gout "],
        "subtitle": ["a randomised trial"],
        "volume": "10",
        "author": [
            {"given": "John A.", "family": "Smith", "sequence": "first", "affiliation": [{"name": "Graz"}]},
            {"name": "GOUT Study Group", "sequence": "additional", "affiliation": []},
        ],
        "container-title": ["Journal of Gout &amp; Crystals"],
        "language": "en",
        "issued": {"date-parts": [[2019, 3, 4]]},
        "ISSN": ["0170-0001", "1521-3951"],
        **fields,
    }


def replied(kind: str, message: object) -> bytes:
    reply = {"status": "ok", "message-type": kind, "message-version": "1.0.0", "message": message}
    return json.dumps(reply).encode()


class CrossrefServer(Loopback):
    """Answers `/works/DOI` by `works`, and any search with those `found`; keeps what was asked."""

    def __init__(self) -> None:
        self.works: dict[str, dict] = {}
        self.found: list[dict] = []
        self.asked: list[str] = []
        self.fault: tuple[int, bytes, dict[str, str]] | None = None
        super().__init__()

    def respond(self, method, path, headers, body):
        assert method == "GET" and headers["User-Agent"].startswith("biorag/")
        address = urlsplit(path)
        query = parse_qs(address.query)
        self.asked.append(query["query.bibliographic"][0] if query else unquote(address.path.removeprefix("/works/")))
        if self.fault:
            return self.fault
        if not query and self.asked[-1] not in self.works:
            return 404, b"Resource not found.", {"Content-Type": "text/plain"}
        if not query:
            return 200, replied("work", self.works[self.asked[-1]]), {}
        listed = {"facets": {}, "total-results": len(self.found), "items": self.found, "items-per-page": 5}
        return 200, replied("work-list", listed), {}


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr("biorag.corpus.enriching.PAUSE", 0.0)
    monkeypatch.setattr("biorag.corpus.eutils.PER_SECOND", 1000)


@pytest.fixture
def crossref():
    server = CrossrefServer()
    yield server
    server.close()


@pytest.fixture
def entrez():
    server = Entrez()
    yield server
    server.close()


# --- Crossref


def found(server: Loopback, title: str, **facts):
    return Crossref(Server(server.url, 5.0, 0))(title, facts)


def test_crossref_has_the_record_of_a_doi(crossref):
    crossref.works[DOI] = work()
    record = found(crossref, "trial1", doi=DOI)
    assert (record.title, record.pmid) == ("Low-dose colchicine in acute gout: a randomised trial", None)
    assert record.metadata == {
        "authors": ["Smith, John A.", "GOUT Study Group"],
        "journal": "Journal of Gout & Crystals",
        "journal_abbreviation": "J Gout",
        "year": 2019,
        "date": "2019-03-04",
        "volume": "10",
        "issue": "2",
        "pages": "319-322",
        "doi": "10.5555/gout.2019(3)<4>",
        "issn": "0170-0001",
        "language": ["en"],
        "type": ["Journal Article"],
    }
    assert crossref.asked == [DOI]
    assert found(crossref, "", doi="..") is None
    assert crossref.asked == [DOI], "a DOI has a slash; this names another path of the service"


def test_a_title_finds_the_work_that_has_it_and_no_other(crossref):
    crossref.found = [work(title=["Colchicine in gout"], DOI="10.5555/other"), work()]
    for title in (TITLE, "LOW DOSE colchicine in acute gout: a randomised trial"):
        assert found(crossref, title).metadata["doi"] == DOI
    assert found(crossref, "Low-dose colchicine in chronic gout") is None
    assert found(crossref, "trial1") is None, "a title of one word is not sent"
    assert crossref.asked == [
        TITLE,
        "LOW DOSE colchicine in acute gout: a randomised trial",
        "Low-dose colchicine in chronic gout",
    ]
    assert found(crossref, TITLE, doi="10.5555/unknown").metadata["doi"] == DOI
    assert crossref.asked[-2:] == ["10.5555/unknown", TITLE]


def test_a_title_that_several_works_have_is_nobodys_but_for_a_preprint(crossref):
    crossref.found = [work(type="posted-content", DOI="10.5555/preprint"), work()]
    assert found(crossref, TITLE).metadata["doi"] == DOI
    crossref.found = crossref.found[:1]
    assert found(crossref, TITLE).metadata == {**found(crossref, TITLE).metadata, "type": ["Preprint"]}
    crossref.found = [work(title=["Letter to the editor"], DOI=f"10.5555/{n}", subtitle=[]) for n in range(3)]
    assert found(crossref, "Letter to the editor") is None


def test_requests_keep_their_distance(crossref, monkeypatch):
    waits = []
    monkeypatch.setattr("biorag.corpus.enriching.PAUSE", 1.0)
    monkeypatch.setattr("biorag.corpus.enriching.time.sleep", waits.append)
    found(crossref, TITLE, doi="10.5555/unknown")
    assert [wait > 0.5 for wait in waits] == [False, True]


@pytest.mark.parametrize(
    "body", [b"[]", b'{"status": "ok"}', b'{"message": []}', b'{"message": {"items": 3}}', b"null"]
)
def test_a_reply_that_is_not_crossrefs_ends_the_asking(crossref, body):
    crossref.fault = (200, body, {})
    with pytest.raises(ServiceError, match="not works of Crossref's"):
        found(crossref, TITLE)


@pytest.mark.parametrize("value", [None, 3, "x", [], [None], {}, {"a": [1]}, [[]], [{"family": [3]}], True])
def test_fields_of_any_type_are_passed_over(crossref, value):
    names = ("author", "container-title", "short-container-title", "page", "ISSN", "type", "subtitle", "language")
    for fields in ({name: value for name in names}, {"issued": value}, {"issued": {"date-parts": value}}):
        crossref.works[DOI] = work(**fields)
        assert found(crossref, "", doi=DOI).title.startswith(TITLE)
    crossref.works[DOI] = work(title=value, subtitle=[])
    record = found(crossref, "", doi=DOI)
    assert record is None or record.title in ("3", "x")


# --- PubMed


class PapersOfPubMed(Entrez):
    """Has one paper; `searched` finds it."""

    def records(self, pmids):
        article = (
            "<Article><Journal><ISSN>0170-0001</ISSN><JournalIssue><PubDate><Year>2019</Year></PubDate></JournalIssue>"
            "<Title>Journal of Gout</Title><ISOAbbreviation>J Gout</ISOAbbreviation></Journal>"
            f"<ArticleTitle>{TITLE}.</ArticleTitle><Abstract><AbstractText>It helps.</AbstractText></Abstract>"
            "<AuthorList><Author><LastName>Smith</LastName><ForeName>John A</ForeName></Author></AuthorList>"
            "<PublicationTypeList><PublicationType>Retracted Publication</PublicationType></PublicationTypeList>"
            '<ELocationID EIdType="doi">10.5555/Gout</ELocationID></Article>'
        )
        cited = f'<MedlineCitation><PMID Version="1">77</PMID>{article}</MedlineCitation>'
        record = f"<PubmedArticle>{cited}</PubmedArticle>" if 77 in pmids else ""
        return f"{HEAD}<PubmedArticleSet>{record}</PubmedArticleSet>\n".encode()


@pytest.mark.parametrize(
    ("title", "facts", "query"),
    [
        ("trial1", {"pmid": 77}, None),
        ("trial1", {"doi": "10.5555/GOUT"}, '"10.5555/gout"[doi]'),
        ("trial1", {"doi": '10.5555/a(1)"b'}, '"10.5555/a(1)b"[doi]'),
        (f'{TITLE} "[ti]', {}, "Low-dose colchicine in acute gout ti[ti]"),
        (TITLE, {}, "Low-dose colchicine in acute gout[ti]"),
        ("Another title of three words", {"doi": "10.5555/other"}, "Another title of three words[ti]"),
    ],
)
def test_pubmed_has_the_record_of_a_pmid_a_doi_or_the_same_title(title, facts, query):
    server = PapersOfPubMed()
    try:
        server.found = [77]
        record = PubMed(server.link(retries=0))(title, facts)
        assert [form["term"] for form in server.searched][-1:] == ([[query]] if query else [])
        if query and ("ti[ti]" in query or "Another" in query or "(1)" in query):
            assert record is None
        else:
            assert (record.pmid, record.metadata["journal_abbreviation"], record.retracted) == (77, "J Gout", True)
    finally:
        server.close()


# --- biorag index --enrich


@pytest.fixture
def run(tmp_path, tiny_encoder):
    """Index the papers, with the tiny encoder."""

    def index(*words: object, name: str = "kept", **variables: str):
        options = ("--name", name, "--encoder", tiny_encoder, "--json")
        return invoke("index", tmp_path / "papers", *options, *words, home=tmp_path / "home", **variables)

    return index


@pytest.fixture
def papers(tmp_path) -> Path:
    folder = tmp_path / "papers"
    folder.mkdir()
    text = " ".join(["colchicine eases gout"] * 60)  # in so many lines that it is not taken for a title
    (folder / "a-doi.pdf").write_bytes(searchable_pdf([f"doi:10.5555/one. {text}", text]))
    (folder / "b-title.pdf").write_bytes(searchable_pdf([text], title=TITLE))
    (folder / "c-unknown.html").write_text(f"<title>A paper that nobody knows</title><p>{text}</p>")
    (folder / "d-whole.html").write_text(
        '<meta name="citation_title" content="All is known of this"><meta name="citation_author" content="Jones, A">'
        '<meta name="citation_journal_title" content="Gut"><meta name="citation_date" content="2001">'
        + f"<p>{text}</p>"
    )
    (folder / "e-notes.md").write_text("# My own notes on gout\n\nNobody is asked about them.\n")
    return folder


def of_paper(tmp_path: Path, name: str, index: str = "kept") -> dict:
    words = ("search", "colchicine gout", "-k", 10, "--mode", "bm25", "--no-rerank", "--name", index, "--json")
    hits = done(invoke(*words, home=tmp_path / "home"))["hits"]
    (hit, *_) = [hit for hit in hits if hit["id"].startswith(name)]
    return {"title": hit["title"], **{key: hit["metadata"].get(key) for key in ("authors", "year", "journal", "doi")}}


KNOWN = {"authors": ["Smith, John A.", "GOUT Study Group"], "year": 2019, "journal": "Journal of Gout & Crystals"}
WHOLE_TITLE = f"{TITLE}: a randomised trial"


def test_papers_that_lack_facts_are_asked_about_once_and_keep_what_came(run, papers, crossref, tmp_path):
    crossref.works["10.5555/one"] = work(DOI="10.5555/one", title=["Gout, a paper by its DOI"], subtitle=[])
    crossref.found = [work()]
    result = succeeded(run("--enrich", "crossref", "--crossref", crossref.url))
    assert "records found of papers that lack authors, year or journal: 2 of 3" in result.stderr
    assert crossref.asked == ["10.5555/one", TITLE, "A paper that nobody knows"]
    assert of_paper(tmp_path, "a-doi.pdf") == {"title": "Gout, a paper by its DOI", "doi": "10.5555/one", **KNOWN}
    assert of_paper(tmp_path, "b-title.pdf") == {"title": WHOLE_TITLE, "doi": DOI, **KNOWN}
    assert of_paper(tmp_path, "c-unknown.html")["authors"] is None
    assert of_paper(tmp_path, "d-whole.html")["journal"] == "Gut"
    # Nobody is asked again: not by a run that does not say so, under a new name of the paper, or for another index.
    (papers / "b-title.pdf").rename(papers / "z.pdf")
    assert done(run())["renamed"] == 1
    assert of_paper(tmp_path, "z.pdf") == {"title": WHOLE_TITLE, "doi": DOI, **KNOWN}
    succeeded(run(name="other"))
    assert of_paper(tmp_path, "a-doi.pdf", "other")["year"] == 2019
    assert len(crossref.asked) == 3
    report = done(run("--enrich", "crossref", "--crossref", crossref.url))
    assert (report["added"], report["updated"], report["deleted"]) == (0, 0, 0)
    assert crossref.asked[3:] == ["A paper that nobody knows"]


def test_an_index_is_enriched_later_and_a_record_beside_a_paper_counts_before(run, papers, crossref, tmp_path):
    (papers / "b-title.ris").write_text(f"TY  - JOUR\nTI  - {TITLE}\nAU  - Jones, Mary\nER  - \n")
    succeeded(run())
    crossref.found = [work()]
    report = done(run("--enrich", "crossref", "--crossref", crossref.url))
    assert (report["added"], report["updated"]) == (0, 1)
    expected = {"title": TITLE, "doi": DOI, **KNOWN, "authors": ["Jones, Mary"]}
    assert of_paper(tmp_path, "b-title.pdf") == expected


def test_a_service_that_fails_costs_nothing_but_its_records(run, papers, crossref, tmp_path):
    crossref.fault = (500, b"out of order", {})
    result = succeeded(run("--enrich", "crossref", "--crossref", crossref.url, BIORAG_RETRIES="0"))
    assert "answered 500" in result.stderr and "the papers that are left stay as they are" in result.stderr
    assert (crossref.asked, json.loads(result.stdout)["snippets"]) == (["10.5555/one"], 6)
    assert of_paper(tmp_path, "a-doi.pdf")["doi"] == "10.5555/one"
    assert not (tmp_path / "home" / "records").exists()


def test_offline_nothing_is_sent_but_to_a_server_that_is_named(run, papers, crossref, tmp_path, tiny_encoder):
    offline = partial(invoke, "--offline", "index", papers, "--name", "kept", "--encoder", tiny_encoder, "--json")
    variables = {"home": tmp_path / "home", "BIORAG_CROSSREF": crossref.url}
    failed(offline("--enrich", "crossref", **variables), 6, "offline: 127.0.0.1 is not named")
    assert crossref.asked == []
    succeeded(offline("--enrich", "crossref", "--crossref", crossref.url, **variables))
    assert len(crossref.asked) == 3


def test_pubmed_is_asked_at_the_eutils(run, papers, tmp_path):
    server = PapersOfPubMed()
    try:
        server.found = [77]
        succeeded(run("--enrich", "pubmed", "--eutils", server.url))
    finally:
        server.close()
    assert of_paper(tmp_path, "b-title.pdf")["journal"] == "Journal of Gout"
    found = done(invoke("search", "gout", "--filter", "pmid=77", "--name", "kept", "--json", home=tmp_path / "home"))
    assert [(hit["id"], hit["retracted"]) for hit in found["hits"]] == [("b-title.pdf#page=1", True)]
    assert not {"references", "version", "revised"} & found["hits"][0]["metadata"].keys()
