"""`biorag bench mteb`: the same nDCG@10 as `bench retrieval`, mteb's result files, resuming, errors."""

from __future__ import annotations

import json

import pytest

from biorag.corpus.readers import read_snippets
from biorag.corpus.sources import Source, demo_file
from tests.cli import done, failed, invoke
from tests.conftest import write_demo_questions, write_judged

pytestmark = pytest.mark.models

pytest.importorskip("mteb", reason="mteb is not installed: pip install 'biorag[mteb]'")

DENSE = ("--mode", "dense", "--no-rerank")


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


def measured_three_ways(task, name, home, out):
    """Return nDCG@10 by `bench retrieval`, by mteb's own exact search, and by mteb of the pipeline."""
    retrieval = report("bench", "retrieval", task, "--name", name, *DENSE, home=home)["metrics"]["nDCG@10"]
    mteb = ("bench", "mteb", "--local", task, "--name", name, "--out", out)
    exact, piped = report(*mteb, home=home), report(*mteb, "--system", "pipeline", *DENSE, home=home)
    return [retrieval, *(found["tasks"][0]["measures"]["ndcg_at_10"] for found in (exact, piped))]


@pytest.mark.slow
def test_ndcg_of_the_demonstration_is_that_of_bench_retrieval(demo_task, demo_home, tmp_path):
    retrieval, exact, piped = measured_three_ways(demo_task, "default", demo_home, tmp_path)
    assert retrieval > 0.9
    assert (exact, piped) == (pytest.approx(retrieval, abs=1e-5), pytest.approx(retrieval, abs=1e-5))


def test_every_kind_of_local_task_by_the_pipeline_that_indexes_them(demo_task, tmp_path, tiny_encoder):
    concepts = [{"_id": "C1", "names": ["fever", "pyrexia"]}, {"_id": "C2", "names": ["aspirin"]}]
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "concepts.jsonl").write_text("\n".join(map(json.dumps, concepts)))
    (tmp_path / "link" / "mentions.jsonl").write_text('{"_id": "m", "text": "pyrexia", "concept": "C1"}\n')
    (tmp_path / "pairs.tsv").write_text("aspirin\taspirin\t5\nfever\tliver\t0\nheart pain\tpain\t3\n")
    judged = [("q", "demo_001", 0), ("q", "demo_002", 1), ("q", "demo_003", 0)]
    corpus = (demo_task / "corpus.jsonl").read_bytes()
    write_task(tmp_path / "rec", corpus, {"q": json.loads(corpus.splitlines()[1])["title"]}, judged)
    out = tmp_path / "out"
    found = report(
        *("bench", "mteb", "--encoder", tiny_encoder, "--system", "pipeline", "--mode", "hybrid", "--rerank"),
        *("--local", demo_task, "--similarity", tmp_path / "pairs.tsv", "--linking", tmp_path / "link"),
        *("--recommendation", tmp_path / "rec", "--out", out),
    )
    main = {row["task"]: (row["type"], row["measures"][row["main"]]) for row in found["tasks"]}
    assert {name: kind for name, (kind, _) in main.items()} == {
        "demo": "Retrieval",
        "pairs": "STS",
        "link": "Retrieval",
        "rec": "Reranking",
    }
    assert (main["link"][1], main["rec"][1]) == (1.0, 1.0), "BM25 and MaxSim know the very words"
    assert found["average"] == pytest.approx(sum(value for _, value in main.values()) / 4, abs=1e-6)
    assert found["model"]["settings"]["mode"] == "hybrid"
    assert json.loads((out / "report.json").read_bytes()) == found
    assert list((out / "indexes").rglob("*.jsonl")) == [], "the indexes are gone"


def test_the_reranker_orders_by_its_own_scores_alone(demo_task, tmp_path, tiny_encoder, tiny_cross_encoder):
    from biorag.models.cross_encoder import CrossEncoderReranker
    from biorag.models.finding import find_encoder

    corpus = (demo_task / "corpus.jsonl").read_bytes()
    snippets = list(read_snippets(Source("corpus", demo_task / "corpus.jsonl")))[:40]
    query = "Which drug lowers glucose?"
    judged = {snippet.id: int(place % 7 == 3) for place, snippet in enumerate(snippets)}
    write_task(tmp_path / "rec", corpus, {"q": query}, [("q", *row) for row in judged.items()])
    found = report(
        *("bench", "mteb", "--recommendation", tmp_path / "rec", "--system", "reranker", "--encoder", tiny_encoder),
        *("--reranker", f"cross:{tiny_cross_encoder}", "--out", tmp_path / "out"),
    )
    (scores,) = CrossEncoderReranker(find_encoder(str(tiny_cross_encoder))).score_all([query], [snippets])
    order = [snippet.id for _, snippet in sorted(zip(scores.tolist(), snippets, strict=True), key=lambda row: -row[0])]
    ranks = [rank for rank, id in enumerate(order, 1) if judged[id]]
    average_precision = sum(place / rank for place, rank in enumerate(ranks, 1)) / len(ranks)
    assert found["tasks"][0]["measures"]["map_at_1000"] == pytest.approx(average_precision, abs=1e-5)


def test_result_files_are_mtebs_and_a_task_done_stays_done(demo_task, tmp_path, tiny_encoder, monkeypatch):
    import mteb

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
    from biorag.benchmarks.mteb.models import EncoderModel

    calls, encode = [], EncoderModel.encode
    monkeypatch.setattr(EncoderModel, "encode", lambda *texts, **named: calls.append(1) or encode(*texts, **named))
    assert (report(*arguments), calls) == (first, [])
    (copied / "queries.jsonl").write_text('{"_id": "q", "text": "atrial fibrillation and stroke"}\n')
    report(*arguments)
    assert calls, "other data is evaluated again"
    assert mteb.results.TaskResult.from_disk(path).dataset_revision != kept.dataset_revision


def test_an_index_of_another_corpus_is_refused(demo_task, tmp_path, tiny_encoder, corpus_file):
    report("index", corpus_file, "--name", "other", "--encoder", tiny_encoder, home=tmp_path)
    result = invoke(
        *("bench", "mteb", "--local", demo_task, "--name", "other", "--system", "pipeline", "--out", tmp_path / "out"),
        home=tmp_path,
    )
    failed(result, 5, "'other'", "12 others", "leave --name out")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ((), ["nothing to measure"]),
        (("--task", "NFCorpuz"), ["'NFCorpuz'", "Did you mean", "'NFCorpus'"]),
        (("--task", "MSCOCOT2IRetrieval"), ["'MSCOCOT2IRetrieval'", "image"]),
        (("--task", "NFCorpus", "--language", "fra"), ["'NFCorpus'", "fra"]),
        (("--local", "nowhere", "--rerank"), ["--rerank", "--system pipeline"]),
        (("--local", "nowhere", "--system", "all"), ["'all'", "encoder", "pipeline"]),
    ],
)
def test_tasks_and_systems_are_checked_first(tmp_path, arguments, parts):
    failed(invoke("bench", "mteb", *arguments, "--out", tmp_path), 2, *parts)
