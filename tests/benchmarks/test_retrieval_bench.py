"""The retrieval benchmark: every measure against a slow, obvious implementation, and its files."""

from __future__ import annotations

import json
import math
import random
import warnings
from dataclasses import replace
from itertools import pairwise

import ir_measures
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biorag.benchmarks.retrieval import (
    COMPARED,
    CUTOFFS,
    DEPTH,
    MEASURES,
    Difference,
    compare,
    evaluate,
    measure,
    read_run,
    run_scores,
    score_run,
    write_per_question,
    write_run,
)
from biorag.benchmarks.significance import paired
from biorag.corpus.datasets import Dataset, load_dataset, load_qrels, read_qrels
from biorag.errors import BadInputError, MissingError
from biorag.indexes.edge import EdgeIndex
from biorag.indexes.store import Store
from biorag.retrieval.retriever import Retriever
from biorag.settings.settings import Settings
from biorag.types import FieldFilter, Question
from tests.fakes import HashEncoder, OverlapReranker

# --- the measures, slowly -----------------------------------------------------------------------------------


def ndcg(relevance, ranking, k):
    """Järvelin and Kekäläinen (2002) as trec_eval has it: the gain is the relevance, the discount log2(rank + 1)."""
    gained = sum(relevance.get(id, 0) / math.log2(rank + 1) for rank, id in enumerate(ranking[:k], 1))
    ideal = sorted(relevance.values(), reverse=True)[:k]
    return gained / sum(gain / math.log2(rank + 1) for rank, gain in enumerate(ideal, 1))


def map_10(relevance, ranking):
    """Precision at the rank of each relevant snippet of the top ten, summed, by all relevant ones."""
    precisions = []
    for rank, id in enumerate(ranking[:10], 1):
        if id in relevance:
            precisions.append(len([other for other in ranking[:rank] if other in relevance]) / rank)
    return sum(precisions) / len(relevance)


def mrr_10(relevance, ranking):
    for rank, id in enumerate(ranking[:10], 1):
        if id in relevance:
            return 1 / rank
    return 0.0


def success(relevance, ranking, k):
    return 1.0 if any(id in relevance for id in ranking[:k]) else 0.0


def recall(relevance, ranking, k):
    return len([id for id in ranking[:k] if id in relevance]) / len(relevance)


def slowly(relevance, ranking):
    return {
        "nDCG@10": ndcg(relevance, ranking, 10),
        "nDCG@20": ndcg(relevance, ranking, 20),
        "MAP@10": map_10(relevance, ranking),
        "MRR@10": mrr_10(relevance, ranking),
        **{f"success@{k}": success(relevance, ranking, k) for k in (3, 5, 10, 20, 100)},
        **{f"R@{k}": recall(relevance, ranking, k) for k in (3, 5, 10, 20, 100)},
    }


def check(qrels, run):
    metrics, per_question = evaluate(qrels, run)
    expected = {question: slowly(relevance, run.get(question, [])) for question, relevance in qrels.items()}
    assert set(per_question) == set(qrels)
    for question, values in expected.items():
        assert per_question[question] == pytest.approx(values, abs=1e-6), question
    means = {name: sum(values[name] for values in expected.values()) / len(qrels) for name in MEASURES}
    assert metrics == pytest.approx(means, abs=1e-6)


IDS = [f"d{number}" for number in range(130)]


@st.composite
def judged_runs(draw):
    questions = [f"q{number}" for number in range(draw(st.integers(1, 4)))]
    qrels = {
        question: draw(st.dictionaries(st.sampled_from(IDS[:40]), st.integers(1, 3), min_size=1, max_size=12))
        for question in questions
    }
    run = {}
    for question in questions:
        length = draw(st.sampled_from([0, 1, 3, 5, 9, 10, 11, 25, 100]))
        run[question] = draw(st.randoms(use_true_random=False)).sample(IDS, length)
    return qrels, run


@settings(max_examples=120, deadline=None)
@given(judged_runs())
def test_measures_are_those_of_the_slow_implementation(judged_run):
    check(*judged_run)


def test_the_names_are_those_of_the_design():
    assert set(MEASURES) == {"nDCG@10", "nDCG@20", "MAP@10", "MRR@10"} | {
        f"{name}@{k}" for name in ("success", "R") for k in (3, 5, 10, 20, 100)
    }
    assert (CUTOFFS, DEPTH) == ((3, 5, 10, 20, 100), 100)


def test_a_hand_made_case():
    metrics, per_question = evaluate({"q": {"a": 1, "b": 1, "x": 1}}, {"q": ["n", "a", "m", "b"]})
    assert per_question["q"]["MRR@10"] == 0.5
    assert per_question["q"]["MAP@10"] == pytest.approx((1 / 2 + 2 / 4) / 3)
    ideal = 1 + 1 / math.log2(3) + 1 / math.log2(4)
    assert per_question["q"]["nDCG@10"] == pytest.approx((1 / math.log2(3) + 1 / math.log2(5)) / ideal)
    assert per_question["q"]["R@3"] == pytest.approx(1 / 3)
    assert per_question["q"]["success@3"] == 1.0
    assert metrics == pytest.approx(per_question["q"])


def test_a_question_with_nothing_found_counts_as_zero():
    qrels = {"found": {"a": 1}, "empty": {"a": 1}, "absent": {"a": 1}}
    metrics, per_question = evaluate(qrels, {"found": ["a"], "empty": []})
    assert per_question["empty"] == per_question["absent"] == dict.fromkeys(MEASURES, 0.0)
    assert metrics == pytest.approx(dict.fromkeys(MEASURES, 1 / 3))


def test_all_questions_with_nothing_found():
    metrics, _ = evaluate({"one": {"a": 1}, "two": {"b": 2}}, {"one": [], "two": []})
    assert metrics == dict.fromkeys(MEASURES, 0.0)


def test_a_long_ranking_keeps_its_order_in_the_scores():
    scores = run_scores(100)
    assert scores[:2] == [1.0, 0.5]
    assert all(high > low for high, low in pairwise(scores))


# --- a dataset, measured ------------------------------------------------------------------------------------

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


def test_questions_and_judgements_that_belong_together_are_kept(dataset):
    assert dataset.name == "tiny"
    assert list(dataset.questions) == [Question(id, QUERIES[id]) for id in ("q1", "q2", "q3", "q4")]
    assert dataset.qrels == {id: QRELS[id] for id in ("q1", "q2", "q3", "q4")}


def test_measuring_asks_every_question_and_scores_its_ranking(dataset, retriever):
    calls = []
    measured = measure(dataset, retriever, (), calls.append)
    assert sum(calls) == 4
    for question in dataset.questions:
        ranking = [hit.snippet.id for hit in retriever.search(question.text, DEPTH).hits]
        assert len(ranking) == 12, "deeper than the reranked five"
        assert measured.per_question[question.id] == pytest.approx(slowly(QRELS[question.id], ranking), abs=1e-6)
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


def test_a_filter_that_leaves_nothing_gives_zeros(dataset, retriever):
    measured = measure(dataset, retriever, (FieldFilter("year", "=", 1066),), lambda *_: None)
    assert measured.metrics == dict.fromkeys(MEASURES, 0.0)


def test_the_times_of_each_stage_are_summed_up(dataset, retriever):
    from biorag.benchmarks.retrieval import _summary

    measured = measure(dataset, retriever, (), lambda *_: None)
    times = measured.timings_ms
    assert set(times) == {"encode", "first_stage", "fetch", "rerank", "total"}
    assert all(0 <= stage["p50"] <= stage["p95"] and set(stage) == {"mean", "p50", "p95"} for stage in times.values())
    assert _summary([1.0, 2.0, 3.0, 10.0]) == {"mean": 4.0, "p50": 2.5, "p95": 8.95}


def test_the_run_file_is_read_by_ir_measures_and_gives_the_same_figures(dataset, retriever, tmp_path):
    measured = measure(dataset, retriever, (), lambda *_: None)
    path = tmp_path / "runs" / "new" / "hybrid.trec"
    write_run(path, measured.run)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 4 * 12
    assert [line.split()[0] for line in lines[::12]] == ["q1", "q2", "q3", "q4"]
    assert lines[0].split()[1:4] == ["Q0", "s0", "1"]
    assert [line.split()[3] for line in lines[:12]] == [str(rank) for rank in range(1, 13)]
    assert {line.split()[5] for line in lines} == {"biorag"}

    run = list(ir_measures.read_trec_run(str(path)))
    qrels = [
        ir_measures.Qrel(question, id, score)
        for question, found in dataset.qrels.items()
        for id, score in found.items()
    ]
    again = ir_measures.calc_aggregate(list(MEASURES.values()), qrels, run)
    assert {name: again[found] for name, found in MEASURES.items()} == pytest.approx(measured.metrics)


def test_the_file_of_questions_averages_to_the_report(dataset, retriever, tmp_path):
    measured = measure(dataset, retriever, (), lambda *_: None)
    path = tmp_path / "new" / "questions.jsonl"
    write_per_question(path, measured)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(row["id"], row["text"]) for row in rows] == [(id, QUERIES[id]) for id in ("q1", "q2", "q3", "q4")]
    for name, value in measured.metrics.items():
        assert sum(row["metrics"][name] for row in rows) / len(rows) == pytest.approx(value)
    for row in rows:
        assert row["top"] == list(measured.run[row["id"]][:10])
        assert row["metrics"]["nDCG@10"] == pytest.approx(ndcg(QRELS[row["id"]], row["top"], 10))


# --- reading ------------------------------------------------------------------------------------------------


def test_real_datasets_have_the_published_counts(shared_data):
    for name, count in (("bioasq", 1497), ("pubmedqa", 500)):
        found = load_dataset(shared_data / name)
        assert (found.name, len(found.questions), len(found.qrels)) == (name, count, count)


def test_judgements_without_a_header_and_with_windows_line_ends_are_read(tmp_path):
    folder = write_dataset(tmp_path / "d")
    (folder / "qrels" / "test.tsv").write_bytes(b"q1\ts0\t1\r\nq1\ts1\t0\r\n\r\nq2\ts2\t2\r\n")
    assert load_dataset(folder).qrels == {"q1": {"s0": 1}, "q2": {"s2": 2}}


def test_blank_lines_and_other_fields_of_queries_are_passed_over(tmp_path):
    folder = write_dataset(tmp_path / "d")
    line = json.dumps({"_id": "q1", "text": "β?", "metadata": {"year": 2000}}, ensure_ascii=False)
    (folder / "queries.jsonl").write_text(f"\n{line}\n\n", encoding="utf-8")
    assert list(load_dataset(folder).questions) == [Question("q1", "β?")]


@pytest.mark.parametrize("missing", ["queries.jsonl", "qrels/test.tsv", None])
def test_a_missing_folder_or_file_is_named(tmp_path, missing):
    folder = tmp_path / "d"
    if missing:
        write_dataset(folder)
        (folder / missing).unlink()
    with pytest.raises(MissingError, match=r"is not there: a dataset folder has queries\.jsonl and") as caught:
        load_dataset(folder)
    assert str(folder / (missing or "queries.jsonl")) in str(caught.value)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b'"text"',
        b"null",
        b"7",
        b'{"text": "no id"}',
        b'{"_id": "q2"}',
        b'{"_id": 2, "text": "x"}',
        b'{"_id": "q2", "text": 3}',
        b'{"_id": "q2", "text": " "}',
        b'{"_id": "q2", "text": null}',
        b'{"_id": "q2", "text": "\xff"}',
        b'{"_id": "q2", "text": "half a pair \\ud83d"}',
        b"[" * 100_000,
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


@pytest.mark.parametrize(
    "line", [b"q1 s0 1", b"q1\ts0", b"q1\ts0\t1\t2", b"q1\ts0\tone", b"q1\ts0\t0.5", b"q1\ts0\t", b"q1\t\xff\t1"]
)
def test_a_bad_judgement_is_refused_with_file_and_line(tmp_path, line):
    folder = write_dataset(tmp_path / "d")
    path = folder / "qrels" / "test.tsv"
    path.write_bytes(b"query-id\tcorpus-id\tscore\nq1\ts0\t1\n" + line + b"\n")
    with pytest.raises(BadInputError) as caught:
        load_dataset(folder)
    assert f"{path}, line 3: " in str(caught.value)


def test_ids_that_do_not_fit_are_an_error(tmp_path):
    folder = write_dataset(tmp_path / "d", queries={"Q1": "other ids"})
    with pytest.raises(BadInputError, match="do the ids belong together"):
        load_dataset(folder)


def test_judgements_that_are_all_zero_are_an_error(tmp_path):
    folder = write_dataset(tmp_path / "d", qrels={"q1": {"s0": 0}})
    with pytest.raises(BadInputError, match="no question of"):
        load_dataset(folder)


# --- judgement files alone ----------------------------------------------------------------------------------

BEIR = "query-id\tcorpus-id\tscore\nq1\ta\t1\nq1\tb\t0\nq2\tc\t2\n"


@pytest.mark.parametrize(
    "text",
    [
        BEIR,
        BEIR.partition("\n")[2],
        "q1 0 a 1\nq1 0 b 0\n\nq2 0 c 2\nq3 0 a -2\n",
        "q1\tQ0\ta\t1\r\nq2\t0\tc\t2\r\n",
        "\ufeffq1   0 \t a 1\n  q2 0 c 2",
        "\n\n\ufeff q2 0 x 0\nq1 0 a 1\nq2 0 c 2".replace("\ufeff", ""),
    ],
    ids=["BEIR", "no header", "TREC", "TREC with tabs", "TREC with a mark and odd spaces", "TREC after blank lines"],
)
def test_judgements_of_either_kind_are_read(tmp_path, text):
    path = tmp_path / "qrels"
    path.write_bytes(text.encode())
    found = load_qrels(path)
    assert found == Dataset(str(path), [Question("q1", ""), Question("q2", "")], {"q1": {"a": 1}, "q2": {"c": 2}})


def test_ids_with_other_white_space_stay_whole(tmp_path):
    path = tmp_path / "qrels"
    path.write_bytes("q\xa01 0 a\u20281 1\n".encode())
    assert load_qrels(path).qrels == {"q\xa01": {"a\u20281": 1}}
    path.write_bytes(b"q 1\ta b\t1\n")
    assert load_qrels(path).qrels == {"q 1": {"a b": 1}}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"q1 0 a 1\nq1 0 a", "line 2: expected four fields"),
        (b"q1 0 a 1\n\nq1 0 a 1 x", "line 3: expected four fields"),
        (b"q1 0 a 1\nq1 0 a 0.5", "line 2: expected four fields"),
        (b"q1 0 a 1\nq1 0 \xff 1", "line 2: not UTF-8"),
        (b"q1 0 a 1\nq1 0 b\x00c 1", "line 2: holds a NUL character"),
        (b"q1\ta\t1\nq1\tb\x00c\t1", "line 2: holds a NUL character"),
        (b"q1 0 a 1\nq1 0 b 9999999999", "line 2: the relevance is above 1,000,000"),
        (b"q1\ta\t" + b"9" * 5000, "line 1: expected three tab-separated fields"),
        (b"q1 0 a 0\n", "holds no judgement above 0"),
        (b"", "holds no judgement above 0"),
        (b"query-id\tcorpus-id\tscore\n", "holds no judgement above 0"),
    ],
)
def test_bad_judgements_alone_are_refused(tmp_path, text, reason):
    path = tmp_path / "qrels"
    path.write_bytes(text)
    with pytest.raises(BadInputError) as caught:
        load_qrels(path)
    assert str(caught.value).startswith(str(path))
    assert reason in str(caught.value)


def test_missing_judgements_are_named(tmp_path):
    for path in (tmp_path / "no.qrels", tmp_path):
        with pytest.raises(MissingError, match=r"is not there") as caught:
            load_qrels(path)
        assert str(path) in str(caught.value)


LINES = st.lists(
    st.one_of(
        st.binary(max_size=30),
        st.lists(
            st.sampled_from([b"q1", b"0", b"a", b"1", b"2.5", b"nan", b"-inf", b"1e999", b"\x00"]), max_size=7
        ).map(b" ".join),
        st.lists(st.sampled_from([b"q1", b"a", b"b", b"1", b"score", b"-1", b"\xff"]), max_size=4).map(b"\t".join),
    ),
    max_size=6,
).map(b"\n".join)


@settings(max_examples=300, deadline=None)
@given(LINES)
def test_any_file_is_read_or_refused(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(content)
    for read in (load_qrels, read_qrels, read_run):
        try:
            found = read(path)
        except BadInputError as error:
            assert str(path) in str(error)
        else:
            assert isinstance(found, Dataset | dict)


# --- run files of other systems -----------------------------------------------------------------------------


def write_lines(path, rows):
    path.write_text("".join(" ".join(map(str, row)) + "\n" for row in rows), encoding="utf-8")
    return path


IDENTIFIERS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0 \t\n\r\v\f\ufeff"), min_size=1)
RUNS = st.dictionaries(IDENTIFIERS, st.lists(IDENTIFIERS, min_size=1, max_size=DEPTH, unique=True), max_size=5)


@settings(max_examples=100, deadline=None)
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


def test_a_deep_run_is_cut(tmp_path):
    rows = [("q", "Q0", f"d{number}", number, number, "x") for number in range(250)]
    path = write_lines(tmp_path / "run", rows)
    assert read_run(path)["q"] == [f"d{number}" for number in range(249, 149, -1)]
    assert read_run(path, depth=3)["q"] == ["d249", "d248", "d247"]
    assert score_run(load_dataset(write_dataset(tmp_path / "d", {"q": "x"}, {"q": {"d0": 1}})), path).metrics[
        "R@100"
    ] == pytest.approx(0.0)


@pytest.mark.parametrize("seed", range(5))
def test_the_figures_of_a_raw_run_are_those_of_ir_measures(tmp_path, seed):
    """Lines and ranks in any order, questions that are not judged and judged ones without a ranking included."""
    draw = random.Random(seed)
    questions = [f"q{number}" for number in range(12)]
    judged = [(question, 0, id, draw.randint(-1, 3)) for question in questions for id in draw.sample(IDS, 20)]
    scores = draw.sample(range(-3000, 3000), 3000)
    ranked = [(question, id) for question in [*questions[2:], "unjudged"] for id in draw.sample(IDS, 110)]
    rows = [(question, "Q0", id, draw.randint(0, 999), scores.pop() / 8, "x") for question, id in ranked]
    draw.shuffle(rows)
    run, qrels = write_lines(tmp_path / "run", rows), write_lines(tmp_path / "qrels", judged)

    measured = score_run(load_qrels(qrels), run)
    expected = ir_measures.calc_aggregate(
        list(MEASURES.values()), ir_measures.read_trec_qrels(str(qrels)), ir_measures.read_trec_run(str(run))
    )
    assert measured.metrics == pytest.approx({name: expected[found] for name, found in MEASURES.items()})
    assert (measured.unanswered, measured.timings_ms) == (2, {})
    assert set(measured.run) == set(measured.per_question) == set(questions)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"q Q0 d 1 0.5", "expected six fields"),
        (b"q Q0 d 1 0.5 tag more", "expected six fields"),
        (b"q Q0 d one 0.5 tag", "expected six fields"),
        (b"q Q0 d 1.0 0.5 tag", "expected six fields"),
        (b"q Q0 d 1 high tag", "expected six fields"),
        (b"q Q0 d " + b"1" * 5000 + b" 0.5 tag", "expected six fields"),
        (b"q Q0 d 1 nan tag", "the score is no number"),
        (b"q Q0 \xff 1 0.5 tag", "not UTF-8"),
        (b"q Q0 d\x00 1 0.5 tag", "holds a NUL character"),
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


def test_a_missing_run_is_named(tmp_path):
    for path in (tmp_path / "no.trec", tmp_path):
        with pytest.raises(MissingError) as caught:
            read_run(path)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("rows", [[], [("Q1", "Q0", "s0", 1, 1.0, "x")]])
def test_a_run_of_other_questions_is_refused(tmp_path, dataset, rows):
    path = write_lines(tmp_path / "run", rows)
    with pytest.raises(BadInputError, match="has a judgement in tiny: do the ids belong together") as caught:
        score_run(dataset, path)
    assert str(path) in str(caught.value)


def test_a_run_file_that_was_written_scores_the_same(dataset, retriever, tmp_path):
    measured = measure(dataset, retriever, (), lambda *_: None)
    write_run(tmp_path / "run", measured.run)
    again = score_run(dataset, tmp_path / "run")
    assert (again.run, again.metrics, again.per_question) == (measured.run, measured.metrics, measured.per_question)
    write_per_question(tmp_path / "rows", again)
    assert len((tmp_path / "rows").read_text(encoding="utf-8").splitlines()) == 4


# --- two runs -----------------------------------------------------------------------------------------------


def test_two_runs_are_compared_question_by_question(tmp_path, dataset):
    better = {"q1": ["s0"], "q2": ["s1", "s2"], "q3": ["x", "s6"], "q4": ["s3"]}
    worse = {"q1": ["x", "s0"], "q3": ["s6", "x"], "q4": ["s3", "x"], "elsewhere": ["s0"]}
    write_run(tmp_path / "better", better)
    write_run(tmp_path / "worse", worse)
    ours, theirs = score_run(dataset, tmp_path / "better"), score_run(dataset, tmp_path / "worse")
    found = compare(ours, theirs, seed=5)
    assert tuple(found.measures) == COMPARED == ("nDCG@10", "MAP@10", "MRR@10", "success@5", "R@100")
    for name, result in found.measures.items():
        values = [[run.per_question[id][name] for id in ("q1", "q2", "q3", "q4")] for run in (ours, theirs)]
        assert result == paired(*values, seed=5)
        assert result.difference == pytest.approx(ours.metrics[name] - theirs.metrics[name])
    second = 1 / math.log2(3)
    ideal = 1 + second
    assert found.wins == [
        Difference("q2", QUERIES["q2"], 1.0, 0.0, 1.0),
        Difference("q1", QUERIES["q1"], 1.0, pytest.approx(second), pytest.approx(1 - second)),
    ]
    assert found.losses == [
        Difference(
            "q3",
            QUERIES["q3"],
            pytest.approx(second / ideal),
            pytest.approx(1 / ideal),
            pytest.approx((second - 1) / ideal),
        )
    ]
    assert (found.measures["nDCG@10"].ties, theirs.unanswered, ours.unanswered) == (1, 1, 0)


def test_runs_that_find_the_same_do_not_differ(tmp_path, dataset):
    write_run(tmp_path / "run", {"q1": ["s0"], "q3": ["x", "s6"]})
    measured = score_run(dataset, tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = compare(measured, measured, seed=0)
    assert (found.wins, found.losses) == ([], [])
    assert {result.p_value for result in found.measures.values()} == {1.0}
