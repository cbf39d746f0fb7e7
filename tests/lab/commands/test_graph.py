"""`biorag graph` and `biorag mine --negatives citation` from the command line."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import pytest

from biorag.types import Snippet
from tests import cli
from tests.cli import done, failed, succeeded
from tests.conftest import write_medrag
from tests.entrez import CITED, Entrez
from tests.pubmed_records import article, file_of

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
    rows = [{"query": f"Which {PARTS[n % 11]}?", "positive": "x", "positive_id": f"s{n}"} for n in range(1, 31)]
    rows = [{**row, "positive": f"Positive {place}."} for place, row in enumerate(rows)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def csv(path: Path, edges: list[tuple[int, int]]) -> Path:
    path.write_text("citing,referenced\n" + "".join(f"{citing},{cited}\n" for citing, cited in edges))
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
    arguments = ["mine", pairs, "--negatives", "citation", "--graph", "walked", "--name", "papers", "--out"]
    mined = report(*arguments, out)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert (mined["rows"], mined["without"], mined["kind"]) == (len(lines), 11, "citation")
    assert mined["per_row_mean"] == round(sum(len(line["negatives"]) for line in lines) / len(lines), 2)
    for line in lines:
        pmid = int(line["positive_id"][1:])
        reached = {f"s{n}" for n in range(pmid + 1, min(pmid + 11, 31))}
        assert {one["id"] for one in line["negatives"]} <= reached
        assert len(line["negatives"]) <= 10
    assert report(*arguments, out)["rows"] == mined["rows"]
    failed(invoke(*arguments, out, "--paths", 1), 5, "other walk")
    report("graph", "build", csv(tmp_path / "b.csv", [(40, 41)]), "--graph", "walked")
    failed(invoke(*arguments, out), 5, "other graph")
    failed(invoke(*arguments[:5], "absent", *arguments[6:], tmp_path / "y.jsonl"), 4, "'absent'")


def test_neighbours_are_fetched_indexed_and_mined(home, invoke, report, monkeypatch, tmp_path, tiny_encoder):
    monkeypatch.setattr("biorag.corpus.eutils.PER_SECOND", 10_000)
    entrez, out = Entrez(), tmp_path / "neighbours.jsonl"
    arguments = ["graph", "fill", "--name", "papers", "--graph", "hops", "--eutils", entrez.url, "--abstracts", out]
    try:
        fetched = report(*arguments)
        out.write_text("mine\n")
        failed(invoke(*arguments), 2, "neighbours.jsonl", "--force")
        assert report(*arguments, "--force")["asked"] == 0
    finally:
        entrez.close()
    assert fetched["written"] == fetched["one_hop"] + fetched["two_hop"] == len(out.read_text().splitlines()) > 30
    seeds = home / "papers.jsonl"
    report("index", seeds, out, "--name", "hops", "--encoder", tiny_encoder)
    pairs = tmp_path / "seeds.jsonl"
    pairs.write_text(json.dumps({"query": "Which aspirin?", "positive": "x", "positive_id": "s7"}) + "\n")
    mined = tmp_path / "m.jsonl"
    report("mine", pairs, "--negatives", "citation", "--graph", "hops", "--name", "hops", "--out", mined)
    (row,) = map(json.loads, mined.read_text().splitlines())
    assert any("Text 1" in text for key, text in row.items() if key.startswith("negative_"))
