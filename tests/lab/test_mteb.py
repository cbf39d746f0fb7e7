"""`biorag bench mteb`: figures against slow references and `bench retrieval`, mteb's result files, resuming, errors."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from biorag.benchmarks.per_question import PER_QUESTION, read_figures
from biorag.corpus.datasets import load_dataset
from biorag.corpus.readers import read_snippets
from biorag.corpus.sources import Source, demo_file
from biorag.errors import UsageError
from biorag.training.instructions import dataset_key, read_tasks
from tests.benchmarks.test_per_question import check_figures
from tests.cli import done, failed, invoke
from tests.conftest import write_demo_questions, write_judged, write_medrag
from tests.fakes import HashEncoder

pytestmark = pytest.mark.models


@pytest.fixture(autouse=True)
def mteb():
    """Import it late: that takes seconds, in each process that collects these tests."""
    return pytest.importorskip("mteb", reason="mteb is not installed: pip install 'biorag[mteb]'")


class Instructed(HashEncoder):
    """Puts its query prompt before a query, as a bi-encoder does."""

    def __init__(self, query_prompt=""):
        super().__init__()
        self.query_prompt = query_prompt

    def encode_queries(self, texts):
        return super().encode_queries([self.query_prompt + text for text in texts])


def model_of(encoder, *instructions):
    from biorag.lab.mteb.run import EncoderModel, model_meta

    return EncoderModel(encoder, model_meta("fake/hash", {}), lambda count: None, *instructions)


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


def test_documents_are_encoded_as_they_are_indexed_and_queries_with_the_tasks_instruction(mteb):
    from biorag.lab.mteb.tasks import GROUPS

    batches = [
        {"text": ["A b c", "d"], "title": ["A", ""], "body": ["b c", "d"]},
        {"text": ["E? f"], "title": ["E?"], "body": ["f"]},
    ]
    instructions = read_tasks("bmretriever")
    model = model_of(Instructed("Find passages\nQuery: "), instructions)
    document = mteb.types.PromptType.document
    vectors = model.encode(batches, task_metadata=SimpleNamespace(name="task"), prompt_type=document)
    assert np.array_equal(vectors, HashEncoder().encode_snippets(["A. b c", "d", "E? f"]))
    for task, prompt in (
        ("TRECCOVID", "Given a query on COVID-19, retrieve documents that answer the query\nQuery: "),
        ("CUREv1", "Find passages\nQuery: "),
    ):
        queries = model.encode([{"text": ["statins"]}], task_metadata=SimpleNamespace(name=task))
        assert np.array_equal(queries, HashEncoder().encode_queries([prompt + "statins"]))
        assert np.allclose(model.similarity(vectors, queries), vectors @ queries.T)
    assert {dataset_key(name) for name in GROUPS["bmretriever"].tasks} <= instructions.keys()


def test_recommendation_is_map_and_ndcg_over_the_judged(tmp_path, snippets):
    from biorag.lab.mteb.tasks import LocalRetrieval

    queries = {"q1": "aspirin fever pain", "q2": "liver glucose"}
    judged = {
        "q1": {s.id: grade for s, grade in zip(snippets[:6], [0, 2, 0, 1, 0, 0], strict=True)},
        "q2": {s.id: grade for s, grade in zip(snippets[4:8], [1, 0, 0, 2], strict=True)},
    }
    rows = [(query, id, grade) for query, grades in judged.items() for id, grade in grades.items()]
    write_judged(tmp_path, queries, rows)
    write_medrag(tmp_path / "corpus.jsonl", snippets)
    options = {"batch_size": 2, "show_progress_bar": False}
    task = LocalRetrieval(tmp_path, judged_only=True)
    (scores,) = task.evaluate(model_of(Instructed()), "test", encode_kwargs=options).values()
    encoder, by_id = HashEncoder(), {snippet.id: snippet.contents for snippet in snippets}
    precisions, gains = [], []
    for id, text in queries.items():
        documents = encoder.encode_snippets([by_id[other] for other in judged[id]])
        similar = model_of(Instructed()).similarity(encoder.encode_queries([text]), documents)[0].tolist()
        products = dict(zip(judged[id], similar, strict=True))
        order = sorted(products, key=lambda other: (products[other], other), reverse=True)  # ties as in trec_eval
        grades = [judged[id][other] for other in order]
        relevant = [rank for rank, grade in enumerate(grades, 1) if grade]
        precisions.append(sum(n / rank for n, rank in enumerate(relevant, 1)) / len(relevant))
        dcg, best = (
            sum(grade / math.log2(rank + 1) for rank, grade in enumerate(listed, 1))
            for listed in (grades, sorted(grades, reverse=True))
        )
        gains.append(dcg / best)
    assert scores["map_at_1000"] == pytest.approx(sum(precisions) / 2, abs=1e-5) == scores["main_score"]
    assert scores["ndcg_at_1000"] == pytest.approx(sum(gains) / 2, abs=1e-5)


def test_groups_name_tasks_that_mteb_has_and_average_as_their_papers_do():
    from biorag.lab.mteb.tasks import GROUPS, chosen_tasks, find_group

    sizes = {"medical": 12, "stm": 12, "bmretriever": 5, "beir-14": 14, "lotte": 1}
    assert {name: len(group.tasks) for name, group in GROUPS.items()} == sizes
    for group in GROUPS.values():
        assert {task for tasks in group.averages.values() for task in tasks} <= set(group.tasks)
        assert [task.metadata.name for task in chosen_tasks((), group, (), (), ())] == list(group.tasks)
    with pytest.raises(UsageError, match="medical, stm"):
        find_group("surgical")
    bm25 = (0.563, 0.458, 0.355, 0.718, 0.321, 0.623, 0.686, 0.158, 0.809, 0.492, 0.863, 0.251)  # STM, Table 11
    stm = GROUPS["stm"]
    rows = [{"task": task, "main": "m", "measures": {"m": value}} for task, value in zip(stm.tasks, bm25, strict=True)]
    means = {name: round(value, 3) for name, value in stm.means(rows).items()}
    assert means == {"medical": 0.532, "general": 0.515, "all": 0.525}
    assert stm.means(rows[1:]) == {"medical": None, "general": pytest.approx(0.5146), "all": None}


def test_an_aggregate_is_the_mean_of_its_parts(tmp_path, monkeypatch):
    from biorag.lab.mteb import run

    values = {"one": {"ndcg_at_10": 0.2, "ndcg_at_20": 0.3}, "two": {"ndcg_at_10": 0.6, "ndcg_at_20": 0.5}}

    def task(name, **more):
        metadata = SimpleNamespace(name=name, type="Retrieval", main_score="ndcg_at_10")
        return SimpleNamespace(metadata=metadata, hf_subsets=["default"], eval_splits=["test"], **more)

    def evaluated(part, *_):
        name = part.metadata.name
        scores = {"test": [{"hf_subset": "default", **values[name]}]}
        return SimpleNamespace(scores=scores), [{"id": "q", "set": name, "metrics": values[name]}]

    monkeypatch.setattr(run, "_evaluated", evaluated)
    both = task("both", is_aggregate=True, tasks=[task(name, is_aggregate=False) for name in values])
    model = run.MtebModel(model_of(Instructed()), {})
    result = run.measure_task(both, model, tmp_path, True)
    assert result.row["measures"] == {"ndcg_at_10": pytest.approx(0.4), "ndcg_at_20": pytest.approx(0.4)}
    assert (result.row["subsets"], result.row["main"]) == (values, "ndcg_at_10")
    assert [row["set"] for row in result.questions] == ["both/one", "both/two"]


def test_both_kinds_of_folder_are_measured_as_bench_retrieval_does(demo_task, tmp_path, tiny_encoder):
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
    report("index", "demo", "--encoder", tiny_encoder, "--store-tokens", "none")
    retrieval = report("bench", "retrieval", demo_task, "--mode", "dense", "--no-rerank")["metrics"]["nDCG@10"]
    assert 0 < document["tasks"][0]["measures"]["ndcg_at_10"] == pytest.approx(retrieval, abs=1e-5)


def test_result_files_are_mtebs_and_a_task_done_stays_done(demo_task, tmp_path, tiny_encoder, monkeypatch, mteb):
    from biorag.lab.mteb.run import EncoderModel

    copied, out = tmp_path / "copy", tmp_path / "out"
    write_task(copied, (demo_task / "corpus.jsonl").read_bytes(), {"q": "Why?"}, [("q", "demo_001", 1)])
    arguments = ("bench", "mteb", "--local", copied, "--encoder", tiny_encoder, "--out", out)
    first = report(*arguments)
    (path,) = out.rglob("copy.json")
    result = mteb.results.TaskResult.from_disk(path)
    assert result.get_score() == pytest.approx(first["average"], abs=1e-6)
    meta = json.loads((path.parent / "model_meta.json").read_bytes())
    assert (meta["name"], meta["revision"]) == ("biorag/encoder", path.parent.name)
    calls, encode = [], EncoderModel.encode
    monkeypatch.setattr(EncoderModel, "encode", lambda *texts, **named: calls.append(1) or encode(*texts, **named))
    assert (report(*arguments), calls) == (first, [])
    check_figures(out, first)
    (copied / "queries.jsonl").write_text('{"_id": "q", "text": "atrial fibrillation and stroke"}\n')
    report(*arguments)
    assert calls, "other data is evaluated again"
    assert mteb.results.TaskResult.from_disk(path).dataset_revision != result.dataset_revision


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ((), ["nothing to measure"]),
        (("--task", "NFCorpuz"), ["'NFCorpuz'", "Did you mean", "'NFCorpus'"]),
        (("--task", "MSCOCOT2IRetrieval"), ["'MSCOCOT2IRetrieval'", "image"]),
        (("--task", "NFCorpus", "--language", "fra"), ["'NFCorpus'", "fra"]),
        (("--local", "{demo}", "--recommendation", "{demo}"), ["'demo'", "rename the folder"]),
    ],
)
def test_tasks_are_checked_first(demo_task, tmp_path, arguments, parts):
    words = [word.format(demo=demo_task) for word in arguments]
    failed(invoke("bench", "mteb", *words, "--out", tmp_path), 2, *parts)


def test_baselines_are_measured_beside_an_encoder_by_their_names(demo_task, tmp_path, tiny_encoder):
    words = ("bench", "mteb", "--local", demo_task, "--encoder", tiny_encoder, "--out", tmp_path / "out")
    alone = report(*words)
    both = report(*words, "--baseline", "bm25")
    assert both["tasks"] == alone["tasks"] and both["average"] == alone["average"]
    (bm25,) = both["beside"]
    assert bm25["baseline"] == "bm25" and bm25["average"] == pytest.approx(_by_bm25s(demo_task), abs=1e-5)
    assert len(read_figures(tmp_path / "out" / "bm25" / PER_QUESTION)) == len(load_dataset(demo_task, "test").questions)
    failed(invoke(*words, "--baseline", "bm-25"), 2, "bm25")


def _by_bm25s(folder):
    """Return nDCG@10 of bm25s with English stop words and stems, by a loop over questions."""
    bm25s, stemmer = pytest.importorskip("bm25s"), pytest.importorskip("Stemmer").Stemmer("english")
    snippets = list(read_snippets(Source("corpus", folder / "corpus.jsonl")))
    index = bm25s.BM25(k1=1.5, b=0.75, method="lucene")
    asked = {"stopwords": "en", "stemmer": stemmer, "show_progress": False}
    index.index(bm25s.tokenize([f"{one.title}\n{one.content}" for one in snippets], **asked), show_progress=False)
    data, gains = load_dataset(folder, "test"), []
    for question in data.questions:
        places, _ = index.retrieve(bm25s.tokenize(question.text, **asked), k=10, show_progress=False)
        grades = data.qrels[question.id]
        found = [grades.get(snippets[place].id, 0) for place in places[0]]
        best = sorted(grades.values(), reverse=True)[:10]
        dcg, ideal = (sum(grade / math.log2(rank + 2) for rank, grade in enumerate(of)) for of in (found, best))
        gains.append(dcg / ideal)
    return sum(gains) / len(gains)
