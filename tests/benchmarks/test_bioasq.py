"""BioASQ's measures against its own evaluator's figures and a slow reading of its source; the files it reads."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from biorag.benchmarks.bioasq.golden import PUBMED, GoldenBatch, GoldenQuestion, read_golden
from biorag.benchmarks.bioasq.run import (
    SYSTEMS,
    answer,
    coverage,
    documents_of,
    report,
    score_documents,
    settings_of,
    summary,
    write_submission,
)
from biorag.errors import BadInputError, UsageError
from biorag.indexes.edge import EdgeIndex
from biorag.indexes.store import Store
from biorag.retrieval.retriever import Retriever
from biorag.types import Hit, Snippet
from tests.fakes import HashEncoder, OverlapReranker

CASES = Path(__file__).parent / "bioasq_cases"
# What BioASQ's EvaluatorTask1b (-phaseA -e 8 -verbose) prints for golden.json and submission.json.
EVALUATOR = {
    "MAP": 0.16830977182539683,
    "GMAP": 0.04182399857761282,
    "precision": 0.2643353174603174,
    "recall": 0.5053165584415584,
    "F1": 0.27465277777777775,
}


def test_the_figures_are_those_of_bioasqs_evaluator():
    golden, submitted = (read_golden(CASES / name).questions for name in ("golden.json", "submission.json"))
    pairs = list(zip(golden, submitted, strict=True))
    documents = summary([score_documents(ours.documents, theirs.documents) for ours, theirs in pairs])
    assert documents == pytest.approx(EVALUATOR, abs=1e-12)


def test_a_ranking_by_hand():
    """Relevant at ranks 1 and 3, of three relevant ones: AP = (1/1 + 2/3) / 3."""
    found = score_documents(["a", "b", "c"], ["a", "x", "b", "y"])
    assert found.average_precision == pytest.approx((1 + 2 / 3) / 3)
    assert (found.precision, found.recall, found.f1) == pytest.approx((2 / 4, 2 / 3, 4 / 7))


def record(**changes):
    whole = {"id": "q", "body": "Why?", "type": "yesno", "documents": [PUBMED + "7"] * 2, "snippets": []}
    return {**whole, **changes}


def written(path: Path, content) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_a_golden_file_is_read(tmp_path):
    path = tmp_path / "8B1_golden.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"questions": [record()]}).encode()))
    question = GoldenQuestion("q", "Why?", "yesno", ["7"])
    assert read_golden(path) == GoldenBatch("8B1", [question])


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ({"questions": []}, ["not a golden file"]),
        ({"questions": [3]}, ["golden.json, question 1: "]),
        ({"questions": [record(), record(id="r", body=" ")]}, ["question 2 ('r')", "body"]),
        ({"questions": [record(), record()]}, ["two questions have the id 'q'"]),
    ],
)
def test_what_is_no_golden_file_is_said(tmp_path, content, parts):
    path = written(tmp_path / "golden.json", content)
    with pytest.raises(BadInputError) as caught:
        read_golden(path)
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)


def test_documents_are_ten_records_each_once():
    many = [Snippet(f"s{n}", "", f"Text {n}.", n // 2 or None) for n in range(30)]
    hits = [Hit(rank, snippet, 1.0 / rank) for rank, snippet in enumerate(many, 1)]
    assert documents_of(hits) == [str(n) for n in range(1, 11)]


def test_a_submission_is_read_back_as_it_was_written(tmp_path):
    batch = GoldenBatch("b", [GoldenQuestion("q", "Does warfarin thin blood?", "yesno", ["2", "1"])])
    write_submission(tmp_path / "b.json", batch, {"q": ["2", "1"]})
    assert read_golden(tmp_path / "b.json") == batch
    (row,) = json.loads((tmp_path / "b.json").read_text())["questions"]
    assert row["documents"][0] == "http://www.ncbi.nlm.nih.gov/pubmed/2"


@pytest.fixture
def index(settings, snippets):
    encoder = HashEncoder()
    store = Store(settings)
    index = EdgeIndex(store.folder, store.new_manifest(encoder.identity, 10.0), writable=True)
    # Further passages of one record, which come first for any vector whose parts are alike.
    again = [Snippet(f"again{n}", "", " ".join(f"word{i}" for i in range(200)), 1002) for n in range(5)]
    index.upsert([*snippets, *again], encoder.encode_snippets([each.contents for each in (*snippets, *again)]))
    yield index
    index.close()


BATCHES = [
    GoldenBatch(
        "one",
        [
            GoldenQuestion("a", "Does warfarin thin the blood?", "yesno", ["1001", "77"]),
            GoldenQuestion("b", "What does heparin activate?", "factoid", ["1002", "1004"]),
        ],
    ),
    GoldenBatch("two", [GoldenQuestion("a", "What is malaria caused by?", "factoid", ["1005", "PMC3"])]),
]


def test_coverage_counts_records(index):
    rows = coverage(BATCHES, index, 64)
    assert [(row["documents"], row["documents_in_index"]) for row in rows] == [(4, 3), (2, 1)]


def test_the_report_against_means_by_hand(index, settings):
    retriever = Retriever(index, HashEncoder(), [OverlapReranker()], settings.retrieval)
    done = []
    runs = {name: answer(BATCHES, retriever.variant(**SYSTEMS[name]), done.append) for name in SYSTEMS}
    assert sum(done) == 3 * len(SYSTEMS)
    found = report(BATCHES, runs, seed=0)
    assert list(found["systems"]) == list(SYSTEMS)
    for name, responses in runs.items():
        averages = {
            (batch.name, question.id): score_documents(
                question.documents, responses[batch.name][question.id]
            ).average_precision
            for batch in BATCHES
            for question in batch.questions
        }
        one, two = (averages["one", "a"] + averages["one", "b"]) / 2, averages["two", "a"]
        system = found["systems"][name]
        assert [row["documents"]["MAP"] for row in system["batches"]] == pytest.approx([one, two])
        assert system["mean"]["documents"]["MAP"] == pytest.approx((one + two) / 2)
    compared = [(row["ours"], row["theirs"], row["questions"]) for row in found["comparisons"]]
    assert compared == [("hybrid", "bm25", 3), ("hybrid", "dense", 3), ("hybrid+rerank", "hybrid", 3)]


class Longest:
    """A cross-encoder's place: the longer a text, the better, on a scale far from a cosine's."""

    def score_all(self, queries, candidates):
        return [np.array([1000.0 * len(each.contents) for each in found], np.float32) for found in candidates]


def test_hybrid_rerank_orders_the_best_ten_by_the_cross_encoder_alone(index, settings):
    chained = settings.replace(reranker="encoder,cross:x@3", k_init=5, fusion="exact").retrieval
    retriever = Retriever(index, HashEncoder(), [OverlapReranker(), Longest()], chained)
    query = "warfarin and heparin thin the blood"
    ours, hybrid = (
        retriever.variant(**settings_of(name, chained)).search(query, 17).hits for name in ("hybrid+cross", "hybrid")
    )
    expected = sorted(hybrid[:10], key=lambda hit: (-len(hit.snippet.contents), hit.snippet.id))
    assert [hit.snippet.id for hit in ours] == [hit.snippet.id for hit in (*expected, *hybrid[10:])]
    assert [hit.score for hit in ours[:10]] == [1000.0 * len(hit.snippet.contents) for hit in expected]
    with pytest.raises(UsageError, match="--reranker cross:ID"):
        settings_of("hybrid+cross", settings.retrieval)
