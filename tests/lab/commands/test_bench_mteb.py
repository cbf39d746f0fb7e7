"""`biorag bench mteb`: the same nDCG@10 as `bench retrieval`, mteb's result files, resuming, errors."""

from __future__ import annotations

import json

import pytest

from biorag.corpus.sources import demo_file
from tests.benchmarks.test_per_question import check_figures
from tests.cli import done, failed, invoke
from tests.conftest import write_demo_questions, write_judged

pytestmark = pytest.mark.models


@pytest.fixture(autouse=True)
def mteb():
    """Import it late: that takes seconds, in each process that collects these tests."""
    return pytest.importorskip("mteb", reason="mteb is not installed: pip install 'biorag[mteb]'")


def report(*arguments, home=None):
    """Return the one JSON document that a command printed."""
    return done(invoke(*arguments, "--json", home=home))


def write_task(folder, corpus, queries, judged):
    write_judged(folder, queries, judged)
    (folder / "corpus.jsonl").write_bytes(corpus)
    return folder


@pytest.fixture(scope="module")
def demo_task(tmp_path_factory):
    """The demonstration corpus with its questions, as a folder in BEIR's layout."""
    folder = write_demo_questions(tmp_path_factory.mktemp("tasks") / "demo")
    (folder / "corpus.jsonl").write_bytes(demo_file("snippets.jsonl").read_bytes())
    return folder


def test_ndcg_of_the_demonstration_is_that_of_bench_retrieval(demo_task, tiny_encoder, tmp_path):
    report("index", "demo", "--encoder", tiny_encoder, "--store-tokens", "none")
    retrieval = report("bench", "retrieval", demo_task, "--mode", "dense", "--no-rerank")["metrics"]["nDCG@10"]
    exact = report("bench", "mteb", "--local", demo_task, "--encoder", tiny_encoder, "--out", tmp_path / "out")
    assert 0 < exact["tasks"][0]["measures"]["ndcg_at_10"] == pytest.approx(retrieval, abs=1e-5)


def test_both_kinds_of_folder_are_measured(demo_task, tmp_path, tiny_encoder):
    corpus = (demo_task / "corpus.jsonl").read_bytes()
    judged = [("q", "demo_001", 0), ("q", "demo_002", 1), ("q", "demo_003", 0)]
    write_task(tmp_path / "rec", corpus, {"q": json.loads(corpus.splitlines()[1])["title"]}, judged)
    folders = ("--local", demo_task, "--recommendation", tmp_path / "rec")
    document = report("bench", "mteb", *folders, "--encoder", tiny_encoder, "--out", tmp_path / "out")
    assert {row["task"]: (row["type"], row["main"]) for row in document["tasks"]} == {
        "demo": ("Retrieval", "ndcg_at_10"),
        "rec": ("Reranking", "map_at_1000"),
    }
    values = [row["measures"][row["main"]] for row in document["tasks"]]
    assert document["average"] == pytest.approx(sum(values) / 2, abs=1e-6)
    assert json.loads((tmp_path / "out" / "report.json").read_bytes()) == document
    paths = check_figures(tmp_path / "out", document)
    assert {"average", "tasks.demo.measures.ndcg_at_10", "tasks.rec.measures.map_at_1000"} <= paths
    assert "tasks.demo.measures.mrr_at_10" not in paths, "of which mteb keeps the mean alone"
    twice = ("--local", demo_task, "--recommendation", demo_task)
    failed(invoke("bench", "mteb", *twice, "--out", tmp_path / "out"), 2, "'demo'", "rename the folder")


def test_result_files_are_mtebs_and_a_task_done_stays_done(demo_task, tmp_path, tiny_encoder, monkeypatch, mteb):
    copied, out = tmp_path / "copy", tmp_path / "out"
    corpus = (demo_task / "corpus.jsonl").read_bytes()
    write_task(copied, corpus, {"q": "Why?"}, [("q", "demo_001", 1)])
    arguments = ("bench", "mteb", "--local", copied, "--encoder", tiny_encoder, "--out", out)
    first = report(*arguments)
    (path,) = out.rglob("copy.json")
    kept = mteb.results.TaskResult.from_disk(path)
    assert kept.get_score() == pytest.approx(first["average"], abs=1e-6)
    meta = json.loads((path.parent / "model_meta.json").read_bytes())
    assert (meta["name"], meta["revision"]) == ("biorag/encoder", path.parent.name)
    from biorag.lab.mteb.models import EncoderModel

    calls, encode = [], EncoderModel.encode
    monkeypatch.setattr(EncoderModel, "encode", lambda *texts, **named: calls.append(1) or encode(*texts, **named))
    assert (report(*arguments), calls) == (first, [])
    check_figures(out, first)
    (copied / "queries.jsonl").write_text('{"_id": "q", "text": "atrial fibrillation and stroke"}\n')
    report(*arguments)
    assert calls, "other data is evaluated again"
    assert mteb.results.TaskResult.from_disk(path).dataset_revision != kept.dataset_revision


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ((), ["nothing to measure"]),
        (("--task", "NFCorpuz"), ["'NFCorpuz'", "Did you mean", "'NFCorpus'"]),
        (("--task", "MSCOCOT2IRetrieval"), ["'MSCOCOT2IRetrieval'", "image"]),
        (("--task", "NFCorpus", "--language", "fra"), ["'NFCorpus'", "fra"]),
    ],
)
def test_tasks_are_checked_first(tmp_path, arguments, parts):
    failed(invoke("bench", "mteb", *arguments, "--out", tmp_path), 2, *parts)
