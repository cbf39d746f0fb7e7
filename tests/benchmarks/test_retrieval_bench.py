"""The retrieval benchmark: its measures against ir_measures on raw runs, and its files."""

from __future__ import annotations

import json
import math
import random
from dataclasses import asdict, replace

import ir_measures
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biorag.benchmarks.retrieval import (
    COMPARED,
    DEPTH,
    MEASURES,
    compare,
    evaluate,
    measure,
    read_run,
    score_run,
    write_run,
)
from biorag.benchmarks.significance import paired
from biorag.corpus.datasets import load_dataset, read_qrels
from biorag.errors import BadInputError
from biorag.indexes.edge import EdgeIndex
from biorag.indexes.store import Store
from biorag.retrieval.retriever import Retriever
from biorag.settings.settings import Settings
from tests.fakes import HashEncoder, OverlapReranker

IDS = [f"d{number}" for number in range(130)]


QUERIES = {
    "q1": "aspirin fever",
    "q2": "vitamin K and warfarin",
    "q3": "how is tuberculosis treated",
    "q4": "dopamine in Parkinson disease",
    "unjudged": "which has no judgement",
}
QRELS = {"q1": {"s0": 1}, "q2": {"s1": 2, "s2": 1}, "q3": {"s6": 1, "gone": 1}, "q4": {"s3": 1}, "elsewhere": {"s0": 1}}


def write_dataset(folder, queries=QUERIES, qrels=QRELS):
    (folder / "qrels").mkdir(parents=True)
    rows = [json.dumps({"_id": id, "text": text}) for id, text in queries.items()]
    (folder / "queries.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    lines = ["query-id\tcorpus-id\tscore"]
    lines += [f"{question}\t{id}\t{score}" for question, found in qrels.items() for id, score in found.items()]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def retriever(tmp_path_factory, snippets):
    encoder = HashEncoder()
    settings = Settings.of(home=tmp_path_factory.mktemp("retrieval"), name="test", k_init=5)
    store = Store(settings)
    index = EdgeIndex(store.folder, store.new_manifest(encoder.identity, 10.0), writable=True)
    index.upsert(snippets, encoder.encode_snippets([snippet.contents for snippet in snippets]))
    yield Retriever(index, encoder, [OverlapReranker()], settings.retrieval)
    index.close()


@pytest.fixture
def dataset(tmp_path):
    return load_dataset(write_dataset(tmp_path / "tiny"))


def test_measuring_asks_every_question_and_scores_its_ranking(dataset, retriever):
    calls = []
    measured = measure(dataset, retriever, (), calls.append)
    assert sum(calls) == 4
    for question in dataset.questions:
        ranking = [hit.snippet.id for hit in retriever.search(question.text, DEPTH).hits]
        assert len(ranking) == 12, "deeper than the reranked five"
        alone = evaluate({question.id: QRELS[question.id]}, {question.id: ranking})
        assert measured.per_question[question.id] == alone[1][question.id] == alone[0]
    assert measured.per_question["q1"]["MRR@10"] == 1.0
    assert measured.per_question["q3"]["R@10"] == 0.5


def test_judgements_may_name_pmids(dataset, retriever):
    """The snippets s0, s1 … have the PMIDs 1000, 1001 …; an id that is judged itself is kept."""
    judged = {"q1": {"s0": 1}, "q2": {"1000": 1, "1001": 2}, "q3": {"1006": 1}, "q4": {"1003": 1}}
    names = {"s1": "1001", "s3": "1003", "s6": "1006"}
    measured = measure(replace(dataset, qrels=judged), retriever, (), lambda *_: None)
    for question in dataset.questions:
        ranking = [hit.snippet.id for hit in retriever.search(question.text, DEPTH).hits]
        assert measured.run[question.id] == [names.get(id, id) for id in ranking]


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b'{"text": "no id"}',
        b'{"_id": "q2", "text": 3}',
        b'{"_id": "q2", "text": " "}',
        b'{"_id": "q2", "text": "\xff"}',
    ],
    ids=lambda line: repr(line[:30]),
)
def test_a_bad_query_is_refused_with_file_and_line(tmp_path, line):
    folder = write_dataset(tmp_path / "d")
    (folder / "queries.jsonl").write_bytes(b'{"_id": "q1", "text": "x"}\n\n' + line + b"\n")
    with pytest.raises(BadInputError) as caught:
        load_dataset(folder)
    assert f"{folder / 'queries.jsonl'}, line 3: " in str(caught.value)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("line", [b"q1 s0 1", b"q1\ts0\t0.5", b"q1\t\xff\t1", b"q1\ts\0\t1", b"q1\ts\t1000000000000"])
def test_a_bad_judgement_is_refused_with_file_and_line(tmp_path, line):
    folder = write_dataset(tmp_path / "d")
    path = folder / "qrels" / "test.tsv"
    path.write_bytes(b"query-id\tcorpus-id\tscore\nq1\ts0\t1\n" + line + b"\n")
    with pytest.raises(BadInputError) as caught:
        load_dataset(folder)
    assert f"{path}, line 3: " in str(caught.value)


@pytest.mark.parametrize("space", [" ", "\t", "  \t"])
def test_judgements_of_trec_are_read_as_those_of_beir(tmp_path, space):
    path = tmp_path / "test.tsv"
    path.write_text("1 0 d1 2\n1 0 d2 0\n2 Q0 d1 -1\n".replace(" ", space))
    assert read_qrels(path) == {"1": {"d1": 2}}
    assert read_qrels(path, lowest=0) == {"1": {"d1": 2, "d2": 0}}


def write_lines(path, rows):
    path.write_text("".join(" ".join(map(str, row)) + "\n" for row in rows), encoding="utf-8")
    return path


IDENTIFIERS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0 \t\n\r\v\f\ufeff"), min_size=1)
RUNS = st.dictionaries(IDENTIFIERS, st.lists(IDENTIFIERS, min_size=1, max_size=DEPTH, unique=True), max_size=5)


@settings(max_examples=25, deadline=None)
@given(RUNS)
def test_a_run_that_is_written_is_read_again(tmp_path_factory, run):
    path = tmp_path_factory.getbasetemp() / "again.trec"
    write_run(path, run)
    assert read_run(path) == run


def test_the_order_is_that_of_the_scores_then_the_ranks_then_the_lines(tmp_path):
    rows = [
        ("q", "Q0", "low", 1, -3.5, "x"),
        ("q", "Q0", "tied-later", 7, 2, "x"),
        ("other", "Q0", "a", 1, "-inf", "x"),
        ("q", "Q0", "tied-sooner", 2, "2.0", "x"),
        ("q", "Q0", "tied-same-line-after", 7, "2e0", "x"),
        ("q", "Q0", "high", 9, 11.0, "x"),
        ("other", "Q0", "b", 2, 0, "x"),
    ]
    assert read_run(write_lines(tmp_path / "run", rows)) == {
        "q": ["high", "tied-sooner", "tied-later", "tied-same-line-after", "low"],
        "other": ["b", "a"],
    }


@pytest.mark.parametrize("seed", range(2))
def test_the_figures_of_a_raw_run_are_those_of_ir_measures(tmp_path, seed):
    """Lines and ranks in any order, questions that are not judged and judged ones without a ranking included."""
    draw = random.Random(seed)
    questions = [f"q{number}" for number in range(12)]
    judged = {question: {id: draw.randint(-1, 3) for id in draw.sample(IDS, 20)} for question in questions}
    scores = draw.sample(range(-3000, 3000), 3000)
    ranked = [(question, id) for question in [*questions[2:], "unjudged"] for id in draw.sample(IDS, 110)]
    rows = [(question, "Q0", id, draw.randint(0, 999), scores.pop() / 8, "x") for question, id in ranked]
    draw.shuffle(rows)
    run = write_lines(tmp_path / "run", rows)

    measured = score_run(load_dataset(write_dataset(tmp_path / "d", dict.fromkeys(questions, "Why?"), judged)), run)
    expected = ir_measures.calc_aggregate(list(MEASURES.values()), judged, ir_measures.read_trec_run(str(run)))
    assert measured.metrics == pytest.approx({name: expected[found] for name, found in MEASURES.items()})
    names = {"nDCG@10": "nDCG@10", "nDCG@20": "nDCG@20", "MAP@10": "AP@10", "MRR@10": "RR@10"}
    names |= {name: name.replace("s", "S", 1) for name in measured.metrics if name not in names}
    assert {name: str(measure) for name, measure in MEASURES.items()} == names
    assert (measured.unanswered, measured.timings_ms) == (2, {})
    assert set(measured.run) == set(measured.per_question) == set(questions)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"q Q0 d 1 0.5", "expected six fields"),
        (b"q Q0 d 1 high tag", "expected six fields"),
        (b"q Q0 d 1 nan tag", "the score is not a number"),
        (b"q Q0 \xff 1 0.5 tag", "not UTF-8"),
        (b"q Q0 d\x00 1 0.5 tag", "a NUL character"),
        (b"q Q0 a 2 0.5 tag", "a stands a second time in the ranking of q"),
    ],
    ids=lambda value: repr(value[:24]) if isinstance(value, bytes) else "",
)
def test_a_bad_line_of_a_run_is_refused_with_file_and_line(tmp_path, line, reason):
    path = tmp_path / "run"
    path.write_bytes(b"q Q0 a 1 1.5 tag\n\n" + line + b"\n")
    with pytest.raises(BadInputError) as caught:
        read_run(path)
    assert str(caught.value).startswith(f"{path}, line 3: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize("rows", [[], [("Q1", "Q0", "s0", 1, 1.0, "x")]])
def test_a_run_of_other_questions_is_refused(tmp_path, dataset, rows):
    path = write_lines(tmp_path / "run", rows)
    with pytest.raises(BadInputError, match="has a judgement in tiny: check that the ids match") as caught:
        score_run(dataset, path)
    assert str(path) in str(caught.value)


def test_two_runs_are_compared_question_by_question(tmp_path, dataset):
    better = {"q1": ["s0"], "q2": ["s1", "s2"], "q3": ["x", "s6"], "q4": ["s3"]}
    worse = {"q1": ["x", "s0"], "q3": ["s6", "x"], "q4": ["s3", "x"], "elsewhere": ["s0"]}
    write_run(tmp_path / "better", better)
    write_run(tmp_path / "worse", worse)
    ours, theirs = score_run(dataset, tmp_path / "better"), score_run(dataset, tmp_path / "worse")
    found = compare(ours, theirs, seed=5)
    assert tuple(found["measures"]) == COMPARED == ("nDCG@10", "MAP@10", "MRR@10", "success@5", "R@100")
    for name, result in found["measures"].items():
        values = [[run.per_question[id][name] for id in ("q1", "q2", "q3", "q4")] for run in (ours, theirs)]
        means = {"ours": ours.metrics[name], "theirs": theirs.metrics[name]}
        assert result == pytest.approx({**means, **asdict(paired(*values, seed=5))}, abs=1e-6)
        assert result["difference"] == pytest.approx(means["ours"] - means["theirs"], abs=1e-6)
    second = 1 / math.log2(3)
    ideal = 1 + second

    def row(id, ours, theirs):
        gain = pytest.approx(ours - theirs, abs=1e-6)
        values = {"ours": pytest.approx(ours, abs=1e-6), "theirs": pytest.approx(theirs, abs=1e-6), "difference": gain}
        return {"id": id, "text": QUERIES[id], **values}

    assert found["wins"] == [row("q2", 1.0, 0.0), row("q1", 1.0, second)]
    assert found["losses"] == [row("q3", second / ideal, 1 / ideal)]
    assert (found["measures"]["nDCG@10"]["ties"], found["unanswered"], ours.unanswered) == (1, 1, 0)
