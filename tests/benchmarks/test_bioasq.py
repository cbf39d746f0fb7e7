"""BioASQ's measures against its own evaluator's figures and a slow reading of its source; the files it reads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from biorag.benchmarks.bioasq import (
    coverage,
    score_documents,
    settings_of,
    summary,
)
from biorag.benchmarks.golden import PUBMED, GoldenBatch, GoldenQuestion, read_golden
from biorag.errors import BadInputError, UsageError
from biorag.indexes.edge import EdgeIndex
from biorag.indexes.store import Store
from biorag.retrieval.retriever import Retriever
from biorag.types import Snippet
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
