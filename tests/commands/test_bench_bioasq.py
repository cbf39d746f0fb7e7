"""`biorag bench bioasq` from the command line, on an index of PubMed's XML and on one of passages."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from biorag.benchmarks.bioasq.golden import PUBMED, read_golden
from biorag.benchmarks.bioasq.measures import score_documents, score_snippets
from biorag.types import Snippet
from tests.cli import done, invoke, succeeded
from tests.conftest import write_medrag
from tests.pubmed_records import article, file_of

ABSTRACTS = {
    1: ("Warfarin and vitamin K.", "Blood clots are common. Warfarin blocks vitamin K recycling. It is old."),
    2: ("Heparin.", "Heparin activates antithrombin. It acts at once."),
    3: ("Malaria.", "Mosquitoes carry it. Malaria is caused by parasites."),
}


def question(id: str, text: str, *relevant: tuple[int, str]) -> dict:
    """A golden question whose snippets are sentences of the abstracts."""
    snippets = []
    for pmid, sentence in relevant:
        begin = ABSTRACTS[pmid][1].index(sentence)
        snippets.append(
            {
                "document": f"{PUBMED}{pmid}",
                "beginSection": "abstract",
                "endSection": "abstract",
                "offsetInBeginSection": begin,
                "offsetInEndSection": begin + len(sentence),
                "text": sentence,
            }
        )
    documents = [f"{PUBMED}{pmid}" for pmid, _ in relevant]
    return {"id": id, "body": text, "type": "factoid", "documents": documents, "snippets": snippets}


@pytest.fixture(scope="module")
def place(tmp_path_factory, tiny_encoder, snippets) -> Path:
    """A folder with a home of two indexes, `xml` and `passages`, and two golden files."""
    place = tmp_path_factory.mktemp("bioasq")
    (place / "pubmed.xml").write_bytes(file_of(*(article(pmid, *texts) for pmid, texts in ABSTRACTS.items())))
    judged = Snippet("judged", "", "Elsewhere.", 1)  # of four golden documents one, which no question finds
    write_medrag(place / "corpus.jsonl", [*snippets, judged])
    for name, source in (("xml", "pubmed.xml"), ("passages", "corpus.jsonl")):
        succeeded(invoke("index", place / source, "--name", name, "--encoder", tiny_encoder, home=place / "home"))
    blood = question(
        "a", "What does warfarin block in vitamin K recycling?", (1, "Warfarin blocks vitamin K recycling.")
    )
    heparin = question("b", "What does heparin activate?", (2, "Heparin activates antithrombin."))
    heparin["documents"].append(f"{PUBMED}99")
    malaria = question("c", "What is malaria caused by?", (3, "Malaria is caused by parasites."))
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
    assert len(found["comparisons"]) == 3
    for system, measured in found["systems"].items():
        assert measured["offsets_unknown"] == 0
        for batch, name in zip(measured["batches"], ("1_golden.json", "2_golden.json.gz"), strict=True):
            golden = read_golden(place / name).questions
            submitted = read_golden(tmp_path / "out" / system / f"{batch['batch']}.json").questions
            pairs = list(zip(golden, submitted, strict=True))
            documents = [score_documents(ours.documents, theirs.documents).average_precision for ours, theirs in pairs]
            snippets = [score_snippets(ours.snippets, theirs.snippets).f1 for ours, theirs in pairs]
            assert batch["documents"]["MAP"] == pytest.approx(sum(documents) / len(documents))
            assert batch["snippets"]["F1"] == pytest.approx(sum(snippets) / len(snippets))
