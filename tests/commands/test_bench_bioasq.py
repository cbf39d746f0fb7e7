"""`biorag bench bioasq` from the command line, on an index of PubMed's XML."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from biorag.benchmarks.bioasq import score_documents
from biorag.benchmarks.golden import PUBMED, read_golden
from tests.benchmarks.test_per_question import check_figures
from tests.cli import done, invoke, succeeded
from tests.pubmed_records import article, file_of

ABSTRACTS = {
    1: ("Warfarin and vitamin K.", "Blood clots are common. Warfarin blocks vitamin K recycling. It is old."),
    2: ("Heparin.", "Heparin activates antithrombin. It acts at once."),
    3: ("Malaria.", "Mosquitoes carry it. Malaria is caused by parasites."),
}


def question(id: str, text: str, *relevant: int) -> dict:
    """A golden question."""
    documents = [f"{PUBMED}{pmid}" for pmid in relevant]
    return {"id": id, "body": text, "type": "factoid", "documents": documents, "snippets": []}


@pytest.fixture(scope="module")
def place(tmp_path_factory, tiny_encoder) -> Path:
    """A folder with a home that has the index `xml`, and two golden files."""
    place = tmp_path_factory.mktemp("bioasq")
    (place / "pubmed.xml").write_bytes(file_of(*(article(pmid, *texts) for pmid, texts in ABSTRACTS.items())))
    succeeded(invoke("index", place / "pubmed.xml", "--name", "xml", "--encoder", tiny_encoder, home=place / "home"))
    blood = question("a", "What does warfarin block in vitamin K recycling?", 1)
    heparin = question("b", "What does heparin activate?", 2, 99)
    malaria = question("c", "What is malaria caused by?", 3)
    (place / "1_golden.json").write_text(json.dumps({"questions": [blood, heparin]}))
    (place / "2_golden.json.gz").write_bytes(gzip.compress(json.dumps({"questions": [malaria]}).encode()))
    return place


def bench(place, *words):
    files = [place / "1_golden.json", place / "2_golden.json.gz"]
    return invoke("bench", "bioasq", *files, *words, home=place / "home")


def test_the_report_is_that_of_the_submissions(place, tmp_path):
    found = done(bench(place, "--name", "xml", "--out", tmp_path / "out", "--json"))
    assert json.loads((tmp_path / "out" / "report.json").read_bytes()) == found
    assert found["coverage"] == [
        {"batch": "1", "questions": 2, "documents": 3, "documents_in_index": 2},
        {"batch": "2", "questions": 1, "documents": 1, "documents_in_index": 1},
    ]
    assert list(found["systems"]) == ["bm25", "dense", "hybrid", "hybrid+rerank"]
    parts = ("mean", "batches.1", "batches.2")
    paths = {f"systems.{name}.{part}.documents.MAP" for name in found["systems"] for part in parts}
    assert check_figures(tmp_path / "out", found) == paths
    assert len(found["comparisons"]) == 3
    for system, measured in found["systems"].items():
        for batch, name in zip(measured["batches"], ("1_golden.json", "2_golden.json.gz"), strict=True):
            golden = read_golden(place / name).questions
            submitted = read_golden(tmp_path / "out" / system / f"{batch['batch']}.json").questions
            pairs = list(zip(golden, submitted, strict=True))
            documents = [score_documents(ours.documents, theirs.documents).average_precision for ours, theirs in pairs]
            assert batch["documents"]["MAP"] == pytest.approx(sum(documents) / len(documents))
