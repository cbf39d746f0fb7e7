"""`biorag fetch` against a stand-in for the E-utilities: whole, resumed, limited, refused."""

from __future__ import annotations

import gzip
import time
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
def fetch(entrez, tmp_path):
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
    assert entrez.searched[0]["term"] == ["isoniazid AND 2020[dp]"]
    assert (entrez.searched[0]["usehistory"], len(entrez.searched)) == (["y"], 1)
    assert [(form["retstart"], form["retmax"]) for form in entrez.fetched] == [
        (["0"], ["200"]),
        (["200"], ["200"]),
        (["400"], ["50"]),
    ]
    assert [element.findtext(".//PMID") for element in etree.parse(out).getroot()] == list(map(str, entrez.found))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["found.xml", "home"]


INTERRUPTED = [None, None, (400, b"history expired", {})]  # after the search and a batch


def test_an_interrupted_run_asks_for_the_rest_and_gives_the_same_bytes(fetch, entrez, tmp_path):
    whole, out = tmp_path / "whole.xml.gz", tmp_path / "resumed.xml.gz"
    done(fetch("x", "--out", whole, "--json"))
    entrez.faults = [*INTERRUPTED]
    failed(fetch("x", "--out", out, "--json"), 6, "answered 400")
    part = tmp_path / "resumed.xml.gz.part"
    part.write_bytes(part.read_bytes() + b"<PubmedArticle>torn")
    entrez.fetched.clear()
    report = done(fetch("x", "--out", out, "--json"))
    assert (report["kept"], report["records"]) == (200, 450)
    assert [form["retstart"] for form in entrez.fetched] == [["200"], ["400"]]
    assert out.read_bytes() == whole.read_bytes()
    assert len(gzip.decompress(out.read_bytes()).split(b"<PubmedArticle>")) == 451


def test_what_pubmed_finds_must_be_the_same_when_a_run_resumes(fetch, entrez, tmp_path):
    out = tmp_path / "x.xml"
    entrez.faults = [*INTERRUPTED]
    failed(fetch("x", "--out", out), 6)
    failed(fetch("x", "--limit", 300, "--out", out), 5, "x.xml.part", "another query or limit")
    entrez.found.insert(0, 999)
    failed(fetch("x", "--out", out), 5, "other records since", "delete")
    (tmp_path / "x.xml.part.json").write_text("{}")
    failed(fetch("x", "--out", out), 5, "x.xml.part.json is damaged")


def test_a_limit_takes_the_first_records(fetch, entrez, tmp_path):
    report = done(fetch("x", "--limit", 7, "--out", tmp_path / "x.xml", "--json"))
    assert (report["found"], report["records"]) == (450, 7)
    assert pmids(tmp_path / "x.xml") == entrez.found[:7]
    entrez.found = list(range(1, 12_001))
    failed(fetch("x", "--out", tmp_path / "y.xml"), 2, "12,000 records", "9,999", "--limit")


def test_book_chapters_and_missing_records_are_counted(fetch, entrez, tmp_path):
    entrez.found, entrez.books, entrez.left_out = [1, 2, 3, 4], {2}, {3}
    report = done(fetch("x", "--out", tmp_path / "x.xml", "--json"))
    assert (report["records"], report["books"], report["missing"]) == (2, 1, 1)
    assert pmids(tmp_path / "x.xml") == [1, 4]


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


@pytest.mark.parametrize(("words", "variables"), [([], {"BIORAG_OFFLINE": "1"}), (["--offline"], {})])
def test_nothing_is_sent_offline(tmp_path, words, variables):
    fetch = ("fetch", "x", "--out", tmp_path / "x.xml")
    failed(cli.invoke(*words, *fetch, home=tmp_path / "home", **variables), 6, "offline")


def test_requests_are_three_a_second_and_ten_with_a_key(entrez, fetch, tmp_path):
    entrez.found = list(range(1, 1001))  # one search and five batches
    for name, pause, variables in (("a", 1 / 3, {}), ("b", 1 / 10, {"NCBI_API_KEY": "k" * 36})):
        started = time.monotonic()
        done(fetch("x", "--out", tmp_path / f"{name}.xml", "--json", **variables))
        assert time.monotonic() - started >= 5 * pause
    keys = [form.get("api_key") for form in (*entrez.searched, *entrez.fetched)]
    assert keys == [None, ["k" * 36], *[None] * 5, *[["k" * 36]] * 5]
