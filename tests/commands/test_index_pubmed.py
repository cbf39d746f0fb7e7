"""PubMed's files from the command line: indexed, updated, split, filtered, retracted, measured."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.cli import done, invoke, run
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


def test_the_folder_again_changes_nothing(home, corpus):
    again = done(invoke("index", corpus, "--json", home=home))
    counts = {name: again[name] for name in ("added", "updated", "deleted", "unchanged", "rejected")}
    assert counts == {"added": 0, "updated": 0, "deleted": 0, "unchanged": 6, "rejected": 0}


def test_each_document_comes_once(home):
    assert sorted(ids(home)) == ["1", "2", "3", "5"]
    (hit,) = done(invoke("search", "heparin kidney", "--json", "-k", "2", *BM25, home=home))["hits"]
    assert (hit["id"], hit["pmid"], hit["content"].endswith("kidney.")) == ("2", 2, True)
    assert len(hit["content"]) < 60 * len("Heparin, ")


FILTERS = {
    "year>=2015": {"2", "3", "5"},
    "mesh:Aspirin": {"1"},
    "mesh:aspirin": {"1"},
    'type:"Randomized Controlled Trial"': {"5"},
    "retracted": {"3"},
    "not retracted": {"1", "2", "5"},
    "abstract": {"1", "2", "3"},
    'year>=2015 and mesh:Asthma and not retracted and not type:"Randomized Controlled Trial"': {"2"},
    "revised:2024-03-01": {"2"},
}


@pytest.mark.parametrize("text", FILTERS)
def test_filters_hold(home, text):
    assert set(ids(home, "--filter", text)) == FILTERS[text]


def test_retracted_articles_are_marked(home):
    hits = {hit["id"]: hit for hit in done(invoke("search", "asthma", "-k", "10", "--json", home=home))["hits"]}
    assert [id for id, hit in hits.items() if hit.get("retracted")] == ["3"]
    assert "retracted" not in hits["1"]
    table = invoke("search", "asthma", "-k", "10", home=home).stdout
    assert "RETRACTED Warfarin in asthma." in table and table.count("RETRACTED") == 1


def test_answers_leave_them_out(home):
    question = ("ask", "asthma", "--llm", "none", "-k", "10", "--json")
    assert {hit["id"] for hit in done(invoke(*question, home=home))["hits"]} == {"1", "2", "5"}
    hits = done(invoke(*question, "--include-retracted", home=home))["hits"]
    assert {hit["id"]: hit.get("retracted") for hit in hits} == {"1": None, "2": None, "3": True, "5": None}


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


def test_blocks_are_fixed_for_an_index(home, corpus):
    for options in (("--block-tokens", "50"), ("--block-tokens", "40", "--block-overlap", "5")):
        result = invoke("index", corpus, *options, home=home)
        assert result.exit_code == 5
        assert "was made with --block-tokens 40 --block-overlap 8" in result.stderr
    assert invoke("index", corpus, "--block-tokens", "40", home=home).exit_code == 0


def test_an_overlap_of_more_than_half_is_refused(home, corpus):
    for options in (("--block-tokens", "40", "--block-overlap", "21"), ("--block-overlap", "1")):
        result = invoke("index", corpus, "--name", "other", *options, home=home)
        assert result.exit_code == 2
        assert "give at most half of --block-tokens" in result.stderr


def test_a_damaged_file_stops_the_run_or_is_said_at_its_end(tmp_path, tiny_encoder):
    path = tmp_path / "cut.xml.gz"
    whole = gzip.compress(file_of(*(article(pmid, f"Aspirin {pmid * 7919}.") for pmid in range(1, 4000))))
    path.write_bytes(whole[: len(whole) // 2])
    stopped = invoke("index", path, "--encoder", tiny_encoder, home=tmp_path)
    assert stopped.exit_code == 3 and "truncated gzip" in stopped.stderr
    assert not (tmp_path / "indexes").exists()
    for count in ("added", "unchanged"):
        skipped = invoke("index", path, "--encoder", tiny_encoder, "--on-bad-line", "skip", "--json", home=tmp_path)
        assert skipped.exit_code == 3 and "truncated gzip" in skipped.stderr, "the second time too"
        assert json.loads(skipped.stdout)[count] > 1000
    bad = tmp_path / "bad.xml"
    bad.write_bytes(file_of(article(1, "Aspirin."), article(2, "")))
    skipped = invoke("index", bad, "--on-bad-line", "skip", "--json", home=tmp_path)
    assert done(skipped)["rejected"] == 1
    (row,) = map(json.loads, (tmp_path / "indexes" / "default" / "rejects.jsonl").read_text().splitlines())
    assert (row["line"], row["reason"]) == (4, "PMID 2 has neither title nor abstract")


def test_in_a_process_of_its_own(tmp_path, corpus, tiny_encoder):
    content = (corpus / "pubmed25n0001.xml.gz").read_bytes()
    ended = run("index", "-", "--encoder", tiny_encoder, "--json", input=content)
    assert json.loads(ended.stdout)["added"] == 4
