"""Local tasks and models for mteb: rankings and measures against slow, obvious ones."""

from __future__ import annotations

import json
import math
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from biorag.errors import BadInputError, UsageError
from biorag.settings.settings import Settings
from biorag.types import ScoredDoc, Snippet
from tests.fakes import HashEncoder

pytest.importorskip("mteb", reason="mteb is not installed: pip install 'biorag[mteb]'")

from biorag.benchmarks.mteb.local import LocalLinking, LocalRecommendation, LocalSimilarity, read_pairs
from biorag.benchmarks.mteb.models import EncoderModel, PipelineModel, Searchable, TaskPrompts, model_meta
from biorag.benchmarks.mteb.run import GROUPS, find_group, measured, named_tasks
from biorag.retrieval.retriever import Retriever
from biorag.training.instructions import dataset_key, read_tasks

pytestmark = pytest.mark.models

META = model_meta("fake/hash", {})


def write_jsonl(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def write_task(folder, snippets, queries, judged):
    """Write a folder in BEIR's layout with its corpus."""
    write_jsonl(folder / "corpus.jsonl", [{"_id": s.id, "title": s.title, "text": s.content} for s in snippets])
    write_jsonl(folder / "queries.jsonl", [{"_id": id, "text": text} for id, text in queries.items()])
    (folder / "qrels").mkdir()
    rows = "".join(f"{query}\t{id}\t{grade}\n" for query, found in judged.items() for id, grade in found.items())
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    return folder


def evaluated(model, task):
    """Return a task's scores as mteb computes them, without files."""
    (scores,) = task.evaluate(model, "test", encode_kwargs={"batch_size": 2, "show_progress_bar": False}).values()
    return scores


@pytest.fixture
def model():
    return EncoderModel(HashEncoder(), META, lambda count: None)


@pytest.mark.parametrize("kind", ["tsv", "jsonl"])
def test_pairs_are_read_from_both_formats(tmp_path, kind):
    pairs = [
        {"sentence1": "β-blocker", "sentence2": "a b", "score": 6.0},
        {"sentence1": "c", "sentence2": "d", "score": 7},
    ]
    path = tmp_path / f"pairs.{kind}"
    if kind == "tsv":
        path.write_text("sentence1\tsentence2\tscore\nβ-blocker\ta b\t6.0\nc\td\t7\n", encoding="utf-8")
    else:
        write_jsonl(path, pairs)
    assert read_pairs(path) == pairs


@pytest.mark.parametrize("line", ["a\tb", "a\tb\tlike", "a\tb\tnan", "\tb\t1"])
def test_a_bad_pair_is_named_with_its_line(tmp_path, line):
    path = tmp_path / "pairs.tsv"
    path.write_text(f"sentence1\tsentence2\tscore\nfever\tpyrexia\t4\n{line}\n")
    with pytest.raises(BadInputError, match=r"pairs\.tsv, line 3: .*two sentences"):
        read_pairs(path)


@pytest.mark.parametrize(
    ("mention", "reason"),
    [
        ({"_id": "a", "text": "fever", "concept": "C9"}, "'C9' is not in concepts.jsonl"),
        ({"_id": "a", "text": "fever", "concept": []}, "concept"),
        ({"_id": "a", "text": " ", "concept": "C1"}, "text"),
        ({"_id": "0", "text": "fever", "concept": "C1"}, "second time"),
    ],
)
def test_a_bad_mention_is_named_with_its_line(tmp_path, mention, reason):
    write_jsonl(tmp_path / "concepts.jsonl", [{"_id": "C1", "names": ["fever"]}])
    write_jsonl(tmp_path / "mentions.jsonl", [{"_id": "0", "text": "fever", "concept": "C1"}, mention])
    with pytest.raises(BadInputError, match=rf"mentions\.jsonl, line 2: .*{reason}"):
        LocalLinking(tmp_path).load_data()


def test_documents_are_encoded_as_they_are_indexed(model):
    from mteb.types import PromptType

    batches = [
        {"text": ["A b c", "d"], "title": ["A", ""], "body": ["b c", "d"]},
        {"text": ["E? f"], "title": ["E?"], "body": ["f"]},
    ]
    found = model.encode(batches, prompt_type=PromptType.document)
    texts = ["A. b c", "d", "E? f"]
    assert texts == [s.contents for s in (Snippet("", "A", "b c"), Snippet("", "", "d"), Snippet("", "E?", "f"))]
    assert np.array_equal(found, HashEncoder().encode_snippets(texts))
    queries = model.encode([{"text": ["A b"]}], prompt_type=PromptType.query)
    assert np.array_equal(queries, HashEncoder().encode_queries(["A b"]))


class WordIndex:
    """Scores snippets by the words they share with a query; a block is `document#n`."""

    def __init__(self, snippets):
        self.snippets = {snippet.id: snippet for snippet in snippets}

    def ids(self):
        return iter(self.snippets)

    def fetch(self, ids):
        return {id: self.snippets[id] for id in ids}

    def search(self, probes):
        def rank(probe):
            words = set(probe.query.lower().split())
            among = self.snippets if probe.among is None else probe.among
            scores = {id: len(words & set(self.snippets[id].contents.lower().split())) for id in among}
            found = sorted((-score, id) for id, score in scores.items() if score)
            return [ScoredDoc(id, -score) for score, id in found[: probe.limit]]

        return [rank(probe) for probe in probes]


def pipeline(snippets, **settings):
    index = WordIndex(snippets)

    @contextmanager
    def open_corpus(key, corpus):
        keys.append((key, [snippet.id for snippet in corpus]))
        yield Searchable(
            index, Retriever(index, None, None, Settings.of(mode="bm25", rerank=False, **settings).retrieval)
        )

    keys = []
    return PipelineModel(HashEncoder(), META, lambda count: None, open_corpus), keys


def test_the_pipeline_ranks_the_corpus_or_the_candidates_and_leaves_no_query_out():
    snippets = [Snippet(f"s{n}", "", text) for n, text in enumerate(["a b c", "a b", "a", "d"])]
    model, keys = pipeline(snippets)
    corpus = [{"id": s.id, "title": "", "text": s.content} for s in snippets]
    queries = [{"id": "q", "text": "a b c"}, {"id": "none", "text": "zzz"}]
    metadata = SimpleNamespace(name="task", revision="r")
    where = {"task_metadata": metadata, "hf_split": "test", "hf_subset": "en", "encode_kwargs": {}, "num_proc": None}
    model.index(corpus, **where)
    assert model.search(queries, top_k=2, **where) == {"q": {"s0": 1.0, "s1": 0.5}, "none": {}}
    found = model.search(queries, top_k=9, top_ranked={"q": ["s2", "s1"]}, **where)
    assert found == {"q": {"s1": 1.0, "s2": 0.5}, "none": {}}
    assert keys == [("task-r-test-en", ["s0", "s1", "s2", "s3"])] * 2


def test_candidates_are_searched_by_their_blocks():
    blocks = [
        Snippet(f"d#{n}", "", text, metadata={"document": "d", "block": n}) for n, text in enumerate(["x", "a b"])
    ]
    model, _ = pipeline([*blocks, Snippet("e", "", "a"), Snippet("f", "", "a b c")])
    model.index([{"id": id, "text": "t"} for id in "def"])
    metadata = SimpleNamespace(name="task", revision="r")
    where = {"task_metadata": metadata, "hf_split": "test", "hf_subset": "en"}
    found = model.search([{"id": "q", "text": "a b c"}], top_k=9, top_ranked={"q": ["d", "e"]}, **where)
    assert found == {"q": {"d": 1.0, "e": 0.5}}


def test_what_determines_results_determines_the_revision():
    first, same, other = (model_meta("/models/mine", identity) for identity in ({"a": 1}, {"a": 1}, {"a": 2}))
    assert (first.name, first.revision) == ("biorag/mine", same.revision)
    assert first.revision != other.revision
    assert model_meta("owner/model", {}).name == "owner/model"


def test_recommendation_is_map_and_ndcg_over_the_judged(tmp_path, snippets, model):
    queries = {"q1": "aspirin fever pain", "q2": "liver glucose"}
    judged = {
        "q1": {s.id: grade for s, grade in zip(snippets[:6], [0, 2, 0, 1, 0, 0], strict=True)},
        "q2": {s.id: grade for s, grade in zip(snippets[4:8], [1, 0, 0, 2], strict=True)},
    }
    scores = evaluated(model, LocalRecommendation(write_task(tmp_path / "rec", snippets, queries, judged)))
    encoder, by_id = HashEncoder(), {snippet.id: snippet.contents for snippet in snippets}
    precisions, gains = [], []
    for id, text in queries.items():
        query = encoder.encode_queries([text])[0]
        score = {found: float(query @ encoder.encode_snippets([by_id[found]])[0]) for found in judged[id]}
        order = sorted(score, key=lambda found: (score[found], found), reverse=True)  # ties as trec_eval has them
        grades = [judged[id][found] for found in order]
        relevant = [rank for rank, grade in enumerate(grades, 1) if grade]
        precisions.append(sum(n / rank for n, rank in enumerate(relevant, 1)) / len(relevant))
        dcg, best = (
            sum(grade / math.log2(rank + 1) for rank, grade in enumerate(listed, 1))
            for listed in (grades, sorted(grades, reverse=True))
        )
        gains.append(dcg / best)
    assert scores["map_at_1000"] == pytest.approx(sum(precisions) / 2, abs=1e-5) == scores["main_score"]
    assert scores["ndcg_at_1000"] == pytest.approx(sum(gains) / 2, abs=1e-5)


def test_linking_takes_the_best_name_of_a_concept(tmp_path, model):
    names = {"C1": ["aspirin", "acetylsalicylic acid"], "C2": ["warfarin"], "C3": ["heparin sodium", "heparin"]}
    mentions = {
        "m1": ("acetylsalicylic acid tablet", ["C1"]),
        "m2": ("warfarin", ["C3"]),
        "m3": ("heparin", ["C2", "C3"]),
    }
    write_jsonl(tmp_path / "link" / "concepts.jsonl", [{"_id": id, "names": listed} for id, listed in names.items()])
    rows = [{"_id": id, "text": text, "concept": meant} for id, (text, meant) in mentions.items()]
    write_jsonl(tmp_path / "link" / "mentions.jsonl", rows)
    scores = evaluated(model, LocalLinking(tmp_path / "link"))
    encoder, reciprocal, first, five = HashEncoder(), [], [], []
    for text, meant in mentions.values():
        query = encoder.encode_queries([text])[0]
        best = {id: max(float(query @ v) for v in encoder.encode_snippets(listed)) for id, listed in names.items()}
        order = sorted(best, key=lambda id: -best[id])
        reciprocal.append(1 / min(order.index(id) + 1 for id in meant))
        first.append(len({order[0]} & set(meant)) / len(meant))
        five.append(1.0)
    assert scores["concept_mrr_at_5"] == pytest.approx(sum(reciprocal) / 3)
    assert scores["concept_recall_at_1"] == pytest.approx(sum(first) / 3) == scores["main_score"]
    assert scores["concept_recall_at_5"] == pytest.approx(sum(five) / 3)
    assert 0 < scores["concept_recall_at_1"] < 1, "the case tells good from bad"


def test_similarity_is_spearmans_correlation(tmp_path, model):
    from scipy.stats import spearmanr

    rows = [("aspirin lowers fever", "aspirin fever", 3.5), ("gene", "liver", 0.0), ("heart pain", "heart lung", 2.0)]
    rows += [("kidney", "kidney", 5.0), ("aspirin", "gene therapy of the liver", 4.0)]
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\t{score}\n" for a, b, score in rows))
    scores = evaluated(model, LocalSimilarity(tmp_path / "pairs.tsv"))
    encode = HashEncoder().encode_queries
    cosines = []
    for a, b, _ in rows:
        u, v = encode([a])[0], encode([b])[0]
        cosines.append(float(u @ v / np.linalg.norm(u) / np.linalg.norm(v)))
    expected = spearmanr(cosines, [score for *_, score in rows]).statistic
    assert scores["cosine_spearman"] == pytest.approx(expected) == scores["main_score"]
    assert abs(expected) < 1


def test_groups_name_tasks_that_mteb_has():
    sizes = {"medical": 12, "stm": 12, "bmretriever": 5, "beir-14": 14, "lotte": 1}
    assert {name: len(group.tasks) for name, group in GROUPS.items()} == sizes
    assert "MSMARCO" not in GROUPS["beir-14"].tasks
    for group in GROUPS.values():
        for tasks in group.averages.values():
            assert set(tasks) <= set(group.tasks)
        assert [task.metadata.name for task in named_tasks(group.tasks, (), group)] == list(group.tasks)
    with pytest.raises(UsageError, match="medical, stm"):
        find_group("surgical")


def test_a_groups_averages_are_those_of_its_paper():
    """BM25's row of Table 11 of Synthesize-Train-Merge."""
    row = (0.563, 0.458, 0.355, 0.718, 0.321, 0.623, 0.686, 0.158, 0.809, 0.492, 0.863, 0.251)
    group = GROUPS["stm"]
    rows = [{"task": task, "main": "m", "measures": {"m": value}} for task, value in zip(group.tasks, row, strict=True)]
    found = {name: round(value, 3) for name, value in group.means(rows).items()}
    assert found == {"medical": 0.532, "general": 0.515, "all": 0.525}
    assert group.means(rows[1:]) == {"medical": None, "general": pytest.approx(0.5146), "all": None}


def test_an_aggregate_is_the_mean_of_its_parts(model, tmp_path, monkeypatch):
    values = {"one": {"ndcg_at_10": 0.2, "ndcg_at_20": 0.3}, "two": {"ndcg_at_10": 0.6, "ndcg_at_20": 0.5}}

    def task(name, **more):
        metadata = SimpleNamespace(name=name, type="Retrieval", main_score="ndcg_at_10")
        return SimpleNamespace(metadata=metadata, hf_subsets=["default"], eval_splits=["test"], **more)

    def evaluated(part, *_):
        return SimpleNamespace(scores={"test": [{"hf_subset": "default", **values[part.metadata.name]}]})

    monkeypatch.setattr("biorag.benchmarks.mteb.run._evaluated", evaluated)
    both = task("both", is_aggregate=True, tasks=[task(name, is_aggregate=False) for name in values])
    found = measured(both, model, tmp_path, True)
    assert found["measures"] == {"ndcg_at_10": pytest.approx(0.4), "ndcg_at_20": pytest.approx(0.4)}
    assert (found["subsets"], found["main"]) == (values, "ndcg_at_10")


class Instructed(HashEncoder):
    """Puts its query prompt before a query, as a bi-encoder does."""

    query_prompt = "Find passages\nQuery: "

    def encode_queries(self, texts):
        return super().encode_queries([self.query_prompt + text for text in texts])


def test_a_task_is_searched_with_its_own_instruction():
    encoder = Instructed()
    instructions = read_tasks("bmretriever")
    model = EncoderModel(encoder, META, lambda count: None, TaskPrompts(encoder, instructions))
    batch = [{"text": ["statins"]}]
    for task, prompt in (
        ("TRECCOVID", "Given a query on COVID-19, retrieve documents that answer the query\nQuery: "),
        ("CUREv1", "Find passages\nQuery: "),
    ):
        found = model.encode(batch, task_metadata=SimpleNamespace(name=task))
        assert np.array_equal(found, HashEncoder().encode_queries([prompt + "statins"]))
    assert {dataset_key(name) for name in GROUPS["bmretriever"].tasks} <= instructions.keys()
    assert {dataset_key(name) for name in GROUPS["bmretriever"].local} <= instructions.keys()
