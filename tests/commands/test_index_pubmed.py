"""PubMed's files from the command line: indexed, updated, split, filtered, retracted, measured."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.cli import done, invoke
from tests.pubmed_records import article, deletions, file_of

TRIAL, RETRACTED = "Randomized Controlled Trial", "Retracted Publication"
BM25 = ("--mode", "bm25", "--no-rerank")  # the tiny encoder's vectors are random
FILES = {
    "pubmed25n0001.xml.gz": file_of(
        article(
            1, "Aspirin in asthma.", "Aspirin relieves fever.", types=("Review",), mesh=("Asthma", "Aspirin"), year=2010
        ),
        article(
            2,
            "Heparin in asthma.",
            "Heparin and heart.",
            types=("Randomized Controlled Trial",),
            mesh=("Asthma",),
            year=2018,
        ),
        article(
            3,
            "Warfarin in asthma.",
            "Warfarin and liver.",
            types=("Retracted Publication",),
            mesh=("Asthma",),
            year=2019,
        ),
        article(4, "Ibuprofen in asthma.", "Ibuprofen and pain.", mesh=("Asthma",)),
    ),
    "pubmed25n0002.xml.gz": file_of(
        article(2, "Heparin in asthma.", "Heparin, " * 60 + "kidney.", "2024-03-01", mesh=("Asthma",), year=2018),
        article(5, "Gene of asthma.", "", types=("Letter", TRIAL), mesh=("Asthma",), year=2021),
        deletions(4),
    ),
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pubmed")
    for name, content in FILES.items():
        (folder / name).write_bytes(gzip.compress(content))
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory, corpus, tiny_encoder) -> Path:
    """A home whose index `default` took both files in, in blocks; tests only read it."""
    home = tmp_path_factory.mktemp("pubmed-home")
    first, second = corpus / "pubmed25n0001.xml.gz", corpus / "pubmed25n0002.xml.gz"
    options = ("--encoder", tiny_encoder, "--block-tokens", "40", "--json")
    made = done(invoke("index", first, *options, home=home))
    assert (made["added"], made["deleted"], made["snippets"]) == (4, 0, 4)
    updated = done(invoke("index", second, "--json", home=home))
    assert {name: updated[name] for name in ("added", "updated", "deleted", "unchanged")} == {
        "added": 1,
        "updated": 1,
        "deleted": 1,
        "unchanged": 0,
    }
    assert updated["snippets"] > 6
    return home


def ids(home: Path, *words: object) -> list[str]:
    return [hit["id"] for hit in done(invoke("search", "asthma", "-k", "10", "--json", *words, home=home))["hits"]]


def test_the_manifest_has_the_files_in_order_and_the_blocks(home, corpus):
    manifest = done(invoke("info", "default", "--json", home=home))
    assert [Path(source["name"]).name for source in manifest["sources"]] == list(FILES)
    assert [(source["snippets"], source["deletions"]) for source in manifest["sources"]] == [(4, 0), (2, 1)]
    assert manifest["blocks"] == {"tokens": 40, "overlap": 8}


def test_retracted_articles_are_marked(home):
    hits = {hit["id"]: hit for hit in done(invoke("search", "asthma", "-k", "10", "--json", home=home))["hits"]}
    assert [id for id, hit in hits.items() if hit.get("retracted")] == ["3"]
    assert "retracted" not in hits["1"]
    table = invoke("search", "asthma", "-k", "10", home=home).stdout
    assert "RETRACTED Warfarin in asthma." in table and table.count("RETRACTED") == 1


def test_judgements_match_documents(home, tmp_path):
    (tmp_path / "qrels").mkdir()
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "heparin kidney"}\n')
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t2\t1\n")
    report = done(
        invoke("bench", "retrieval", tmp_path, "--run-file", tmp_path / "run.trec", "--json", *BM25, home=home)
    )
    assert report["metrics"]["nDCG@10"] == 1.0
    ranked = [line.split()[2] for line in (tmp_path / "run.trec").read_text().splitlines()]
    assert ranked == ["2"]
