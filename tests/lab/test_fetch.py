"""`biorag fetch` against a stand-in for the E-utilities: whole, resumed, limited, refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from lxml import etree

from biorag.corpus.readers import read_snippets
from biorag.corpus.sources import Source
from tests import cli
from tests.cli import done, failed
from tests.entrez import Entrez


@pytest.fixture
def entrez():
    server = Entrez()
    server.found = list(range(1000, 1450))
    yield server
    server.close()


@pytest.fixture
def fetch(entrez, tmp_path, monkeypatch):
    monkeypatch.setattr("biorag.corpus.eutils.PER_SECOND", 10_000)

    def fetch(*words, **variables):
        chosen = ["--eutils", entrez.url] if "--eutils" not in words else []
        return cli.invoke("fetch", *words, *chosen, home=tmp_path / "home", **variables)

    return fetch


def pmids(path: Path) -> list[int | None]:
    return [snippet.pmid for snippet in read_snippets(Source(str(path), path))]


def test_a_query_becomes_one_file_that_index_reads(fetch, entrez, tmp_path):
    out = tmp_path / "found.xml"
    report = done(fetch("isoniazid AND 2020[dp]", "--out", out, "--json"))
    assert (report["found"], report["asked"], report["records"], report["missing"]) == (450, 450, 450, 0)
    assert pmids(out) == entrez.found
    assert [form["term"] for form in entrez.searched] == [["isoniazid AND 2020[dp]"]]
    assert [len(form["id"][0].split(",")) for form in entrez.fetched] == [200, 200, 50]
    assert [element.findtext(".//PMID") for element in etree.parse(out).getroot()] == list(map(str, entrez.found))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["found.xml", "home"]


def test_an_interrupted_run_asks_for_the_rest_and_gives_the_same_bytes(fetch, entrez, tmp_path):
    whole, out = tmp_path / "whole.xml.gz", tmp_path / "resumed.xml.gz"
    done(fetch("x", "--out", whole, "--json"))
    entrez.faults = [None, None, (400, b"busy", {})]  # after the search and a batch
    failed(fetch("x", "--out", out, "--json"), 6, "answered 400")
    entrez.fetched.clear()
    report = done(fetch("x", "--out", out, "--json"))
    assert report["records"] == 450
    assert [len(form["id"][0].split(",")) for form in entrez.fetched] == [200, 50]
    assert out.read_bytes() == whole.read_bytes()
    assert len(gzip.decompress(out.read_bytes()).split(b"<PubmedArticle>")) == 451
    done(fetch("x", "--out", out, "--json"))
    assert len(entrez.fetched) == 5, "a later run asks for revised records"


def test_a_limit_takes_the_first_records_and_others_are_counted(fetch, entrez, tmp_path):
    report = done(fetch("x", "--limit", 7, "--out", tmp_path / "x.xml", "--json"))
    assert (report["found"], report["records"]) == (450, 7)
    assert pmids(tmp_path / "x.xml") == entrez.found[:7]
    entrez.found = list(range(1, 12_001))
    failed(fetch("x", "--out", tmp_path / "y.xml"), 2, "12,000 records", "9,999", "--limit")
    entrez.found, entrez.books, entrez.left_out = [1, 2, 3, 4], {2}, {3}
    report = done(fetch("x", "--out", tmp_path / "z.xml", "--json"))
    assert (report["records"], report["books"], report["missing"]) == (2, 1, 1)
    assert pmids(tmp_path / "z.xml") == [1, 4]


def test_what_cannot_be_fetched_is_one_sentence(fetch, entrez, tmp_path):
    out = tmp_path / "x.xml"
    entrez.faults = [(200, b'{"esearchresult": {"count": "0", "ERROR": "Empty term"}}', {})]
    failed(fetch("(", "--out", out), 3, "Empty term")
    entrez.faults = [(200, b'{"header": {}}', {})]
    failed(fetch("x", "--out", out), 6, "not a result of a search")
    entrez.found = []
    failed(fetch("x", "--out", out), 3, "no record", "'x'")
    failed(fetch(" ", "--out", out), 2, "empty")
    failed(fetch("x", "--out", tmp_path / "x.csv"), 2, ".xml.gz")
    out.write_text("<mine/>")
    failed(fetch("x", "--out", out), 2, "--force")
    assert not entrez.fetched


def test_nothing_is_sent_offline(tmp_path):
    failed(cli.invoke("--offline", "fetch", "x", "--out", tmp_path / "x.xml", home=tmp_path / "home"), 6, "offline")
