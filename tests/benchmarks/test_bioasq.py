"""BioASQ's measures against its own evaluator's figures and a slow reading of its source; the files it reads."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biorag.benchmarks.bioasq.golden import PUBMED, GoldenBatch, GoldenQuestion, Span, read_golden
from biorag.benchmarks.bioasq.measures import merged, score_documents, score_snippets, summary
from biorag.benchmarks.bioasq.run import SYSTEMS, answer, coverage, report, response, settings_of, write_submission
from biorag.errors import BadInputError, UsageError
from biorag.indexes.edge import EdgeIndex
from biorag.indexes.store import Store
from biorag.retrieval.retriever import Retriever
from biorag.types import Hit, Snippet
from tests.fakes import HashEncoder, OverlapReranker

CASES = Path(__file__).parent / "bioasq_cases"
# What BioASQ's EvaluatorTask1b (-phaseA -e 8 -verbose) prints for golden.json and submission.json.
EVALUATOR = {
    "documents": {
        "MAP": 0.16830977182539683,
        "GMAP": 0.04182399857761282,
        "precision": 0.2643353174603174,
        "recall": 0.5053165584415584,
        "F1": 0.27465277777777775,
    },
    "snippets": {
        "MAP": 0.019853097158651228,
        "GMAP": 5.022226454675252e-4,
        "precision": 0.054790748111292135,
        "recall": 0.0762866870236921,
        "F1": 0.06287674149158752,
    },
}


def test_the_figures_are_those_of_bioasqs_evaluator():
    golden, submitted = (read_golden(CASES / name).questions for name in ("golden.json", "submission.json"))
    pairs = list(zip(golden, submitted, strict=True))
    documents = summary([score_documents(ours.documents, theirs.documents) for ours, theirs in pairs])
    snippets = summary([score_snippets(ours.snippets, theirs.snippets) for ours, theirs in pairs])
    assert documents == pytest.approx(EVALUATOR["documents"], abs=1e-12)
    assert snippets == pytest.approx(EVALUATOR["snippets"], abs=1e-12)


def test_a_ranking_by_hand():
    """Relevant at ranks 1 and 3, of three relevant ones: AP = (1/1 + 2/3) / 3."""
    found = score_documents(["a", "b", "c"], ["a", "x", "b", "y"])
    assert found.average_precision == pytest.approx((1 + 2 / 3) / 3)
    assert (found.precision, found.recall, found.f1) == pytest.approx((2 / 4, 2 / 3, 4 / 7))


def characters(span: Span) -> set[tuple]:
    return {(span.document, span.sections, place) for place in range(span.begin, span.end + 1)}


def slowly_merged(spans):
    """The evaluator's loop: join any two that share a character until no two do."""
    spans = list(spans)
    while True:
        pair = next(
            ((i, j) for i in range(len(spans)) for j in range(i) if characters(spans[i]) & characters(spans[j])), None
        )
        if pair is None:
            return spans
        later, earlier = pair
        both = characters(spans[later]) | characters(spans[earlier])
        places = [place for _, _, place in both]
        spans[earlier] = Span(spans[earlier].document, spans[earlier].sections, min(places), max(places))
        del spans[later]


def slowly_scored(golden, returned):
    """Precision, recall and AP by sets of characters."""
    golden, returned = slowly_merged(golden), slowly_merged(returned)
    right = set().union(*map(characters, golden))
    precisions = []
    for rank in range(1, len(returned) + 1):
        shown = set().union(*map(characters, returned[:rank]))
        if any(span.document == returned[rank - 1].document for span in golden):
            precisions.append(len(shown & right) / len(shown))
    shown = set().union(*map(characters, returned))
    precision = len(shown & right) / len(shown) if shown else 0.0
    recall = len(shown & right) / len(right) if right else 0.0
    return precision, recall, sum(precisions) / min(10, len(golden)) if golden else math.nan


spans = st.lists(
    st.builds(
        lambda document, section, begin, size: Span(document, (section, section), begin, begin + size),
        st.sampled_from("ab"),
        st.sampled_from(["title", "abstract"]),
        st.integers(0, 40),
        st.integers(0, 12),
    ),
    max_size=7,
)


@given(spans, spans)
@settings(max_examples=40, deadline=None)
def test_snippets_against_sets_of_characters(golden, returned):
    assert merged(golden) == slowly_merged(golden)
    found = score_snippets(golden, returned)
    values = (found.precision, found.recall, found.average_precision)
    assert values == pytest.approx(slowly_scored(golden, returned), nan_ok=True)


def record(**changes):
    snippet = {
        "document": PUBMED + "7",
        "beginSection": "sections.0",
        "endSection": "abstract",
        "offsetInBeginSection": 3,
        "offsetInEndSection": 9,
        "text": "x",
    }
    whole = {"id": "q", "body": "Why?", "type": "yesno", "documents": [PUBMED + "7"] * 2, "snippets": [snippet]}
    return {**whole, **changes}


def written(path: Path, content) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_a_golden_file_is_read(tmp_path):
    path = tmp_path / "8B1_golden.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"questions": [record()]}).encode()))
    question = GoldenQuestion("q", "Why?", "yesno", ["7"], [Span("7", ("0", "abstract"), 3, 9)])
    assert read_golden(path) == GoldenBatch("8B1", [question])


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ([], ["golden.json", "not a golden file"]),
        ({"questions": []}, ["not a golden file"]),
        ({"questions": [3]}, ["golden.json, question 1: "]),
        ({"questions": [record(), record(id="r", body=" ")]}, ["question 2 ('r')", "body"]),
        ({"questions": [record(), record()]}, ["two questions have the id 'q'"]),
        ({"questions": [{"id": "q", "body": "Why?"}]}, ["documents: Field required"]),
        ({"questions": [record(snippets=[record()["snippets"][0] | {"offsetInBeginSection": True}])]}, ["offset"]),
    ],
)
def test_what_is_no_golden_file_is_said(tmp_path, content, parts):
    path = written(tmp_path / "golden.json", content)
    with pytest.raises(BadInputError) as caught:
        read_golden(path)
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)


def hits(*snippets):
    return [Hit(rank, snippet, 1.0 / rank) for rank, snippet in enumerate(snippets, 1)]


CONTENT = "Aspirin is old. Warfarin (a drug) thins blood. Heparin acts at once."
WHOLE = Snippet("1", "On warfarin.", CONTENT, 1, {"abstract": True})


def test_the_best_sentence_and_its_place(tmp_path):
    found = response("Does warfarin thin blood?", hits(WHOLE), whole_records=False)
    (passage,) = found.passages
    assert passage.text == "Warfarin (a drug) thins blood."
    assert CONTENT[passage.span.begin : passage.span.end] == passage.text
    assert (passage.span.document, passage.span.sections) == ("1", ("abstract", "abstract"))


@pytest.mark.parametrize(
    ("metadata", "whole_records", "known"),
    [
        ({"abstract": True}, False, True),
        ({}, False, False),
        ({}, True, True),
        ({"abstract": True, "block": 0}, False, False),
        ({"block": 1}, True, False),
    ],
)
def test_offsets_are_given_where_they_are_known(metadata, whole_records, known):
    found = response("Warfarin?", hits(Snippet("1", "", CONTENT, 1, metadata)), whole_records)
    assert len(found.passages) == 1
    assert bool(found.spans) == known


def test_documents_are_ten_records_each_once():
    many = [Snippet(f"s{n}", "", f"Text {n}.", n // 2 or None) for n in range(30)]
    assert response("Text?", hits(*many), whole_records=False).documents == [str(n) for n in range(1, 11)]


def test_a_submission_is_read_back_as_it_was_written(tmp_path):
    batch = GoldenBatch("b", [GoldenQuestion("q", "Does warfarin thin blood?", "yesno", ["1"], [])])
    other = Snippet("2", "", "Blood.", 2)
    found = response("Does warfarin thin blood?", hits(WHOLE, other), whole_records=False)
    write_submission(tmp_path / "b.json", batch, {"q": found})
    (read,) = read_golden(tmp_path / "b.json").questions
    assert (read.id, read.text, read.type) == ("q", "Does warfarin thin blood?", "yesno")
    assert (read.documents, read.snippets) == (["1", "2"], found.spans)
    (row,) = json.loads((tmp_path / "b.json").read_text())["questions"]
    assert row["documents"][0] == "http://www.ncbi.nlm.nih.gov/pubmed/1"
    assert [snippet["text"] for snippet in row["snippets"]] == ["Warfarin (a drug) thins blood."]


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
            GoldenQuestion("a", "Does warfarin thin the blood?", "yesno", ["1001", "77"], []),
            GoldenQuestion("b", "What does heparin activate?", "factoid", ["1002", "1004"], []),
        ],
    ),
    GoldenBatch("two", [GoldenQuestion("a", "What is malaria caused by?", "factoid", ["1005", "PMC3"], [])]),
]


def test_coverage_counts_records(index):
    rows = coverage(BATCHES, index, 64)
    assert [(row["documents"], row["documents_in_index"]) for row in rows] == [(4, 3), (2, 1)]


def test_the_report_against_means_by_hand(index, settings):
    retriever = Retriever(index, HashEncoder(), [OverlapReranker()], settings.retrieval)
    done = []
    runs = {name: answer(BATCHES, retriever.variant(**SYSTEMS[name]), False, done.append) for name in SYSTEMS}
    assert sum(done) == 3 * len(SYSTEMS)
    found = report(BATCHES, runs, seed=0)
    assert list(found["systems"]) == list(SYSTEMS)
    for name, responses in runs.items():
        averages = {
            (batch.name, question.id): score_documents(
                question.documents, responses[batch.name][question.id].documents
            ).average_precision
            for batch in BATCHES
            for question in batch.questions
        }
        one, two = (averages["one", "a"] + averages["one", "b"]) / 2, averages["two", "a"]
        system = found["systems"][name]
        assert [row["documents"]["MAP"] for row in system["batches"]] == pytest.approx([one, two])
        assert system["mean"]["documents"]["MAP"] == pytest.approx((one + two) / 2)
        assert (system["mean"]["snippets"], system["batches"][0]["snippets"]) == (None, None)
        assert system["offsets_unknown"] == system["returned_snippets"] > 0
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
