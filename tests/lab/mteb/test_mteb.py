"""Local tasks and the encoder for mteb: rankings and measures against slow, obvious ones."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from biorag.errors import UsageError
from biorag.training.instructions import dataset_key, read_tasks
from biorag.types import Snippet
from tests.conftest import write_judged, write_medrag
from tests.fakes import HashEncoder

pytestmark = pytest.mark.models

TASK = SimpleNamespace(name="task")


@pytest.fixture(autouse=True)
def mteb():
    """Import it late, as all that needs it: that takes seconds, in each process that collects these tests."""
    return pytest.importorskip("mteb", reason="mteb is not installed: pip install 'biorag[mteb]'")


class Instructed(HashEncoder):
    """Puts its query prompt before a query, as a bi-encoder does."""

    def __init__(self, query_prompt=""):
        super().__init__()
        self.query_prompt = query_prompt

    def encode_queries(self, texts):
        return super().encode_queries([self.query_prompt + text for text in texts])


def evaluated(model, task):
    """Return a task's scores as mteb computes them, without files."""
    (scores,) = task.evaluate(model, "test", encode_kwargs={"batch_size": 2, "show_progress_bar": False}).values()
    return scores


def model_of(encoder, *instructions):
    from biorag.lab.mteb.models import EncoderModel, model_meta

    return EncoderModel(encoder, model_meta("fake/hash", {}), lambda count: None, *instructions)


@pytest.fixture
def model():
    return model_of(Instructed())


@pytest.fixture
def groups(mteb):
    from biorag.lab.mteb.run import GROUPS

    return GROUPS


def test_documents_are_encoded_as_they_are_indexed(model, mteb):
    query, document = mteb.types.PromptType.query, mteb.types.PromptType.document
    batches = [
        {"text": ["A b c", "d"], "title": ["A", ""], "body": ["b c", "d"]},
        {"text": ["E? f"], "title": ["E?"], "body": ["f"]},
    ]
    found = model.encode(batches, task_metadata=TASK, prompt_type=document)
    texts = ["A. b c", "d", "E? f"]
    assert texts == [s.contents for s in (Snippet("", "A", "b c"), Snippet("", "", "d"), Snippet("", "E?", "f"))]
    assert np.array_equal(found, HashEncoder().encode_snippets(texts))
    queries = model.encode([{"text": ["A b"]}], task_metadata=TASK, prompt_type=query)
    assert np.array_equal(queries, HashEncoder().encode_queries(["A b"]))


def test_what_determines_results_determines_the_revision():
    from biorag.lab.mteb.models import model_meta

    first, same, other = (model_meta("/models/mine", identity) for identity in ({"a": 1}, {"a": 1}, {"a": 2}))
    assert (first.name, first.revision) == ("biorag/mine", same.revision)
    assert first.revision != other.revision
    assert model_meta("owner/model", {}).name == "owner/model"


def test_recommendation_is_map_and_ndcg_over_the_judged(tmp_path, snippets, model):
    from biorag.lab.mteb.local import LocalRetrieval

    queries = {"q1": "aspirin fever pain", "q2": "liver glucose"}
    judged = {
        "q1": {s.id: grade for s, grade in zip(snippets[:6], [0, 2, 0, 1, 0, 0], strict=True)},
        "q2": {s.id: grade for s, grade in zip(snippets[4:8], [1, 0, 0, 2], strict=True)},
    }
    write_judged(
        tmp_path, queries, [(query, id, grade) for query, grades in judged.items() for id, grade in grades.items()]
    )
    write_medrag(tmp_path / "corpus.jsonl", snippets)
    scores = evaluated(model, LocalRetrieval(tmp_path, judged_only=True))
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


def test_groups_name_tasks_that_mteb_has(groups):
    from biorag.lab.mteb.run import find_group, named_tasks

    sizes = {"medical": 12, "stm": 12, "bmretriever": 5, "beir-14": 14, "lotte": 1}
    assert {name: len(group.tasks) for name, group in groups.items()} == sizes
    assert "MSMARCO" not in groups["beir-14"].tasks
    for group in groups.values():
        for tasks in group.averages.values():
            assert set(tasks) <= set(group.tasks)
        assert [task.metadata.name for task in named_tasks(group.tasks, (), group)] == list(group.tasks)
    with pytest.raises(UsageError, match="medical, stm"):
        find_group("surgical")


def test_a_groups_averages_are_those_of_its_paper(groups):
    """BM25's row of Table 11 of Synthesize-Train-Merge."""
    row = (0.563, 0.458, 0.355, 0.718, 0.321, 0.623, 0.686, 0.158, 0.809, 0.492, 0.863, 0.251)
    group = groups["stm"]
    rows = [{"task": task, "main": "m", "measures": {"m": value}} for task, value in zip(group.tasks, row, strict=True)]
    found = {name: round(value, 3) for name, value in group.means(rows).items()}
    assert found == {"medical": 0.532, "general": 0.515, "all": 0.525}
    assert group.means(rows[1:]) == {"medical": None, "general": pytest.approx(0.5146), "all": None}


def test_an_aggregate_is_the_mean_of_its_parts(model, tmp_path, monkeypatch):
    from biorag.lab.mteb.run import measured

    values = {"one": {"ndcg_at_10": 0.2, "ndcg_at_20": 0.3}, "two": {"ndcg_at_10": 0.6, "ndcg_at_20": 0.5}}

    def task(name, **more):
        metadata = SimpleNamespace(name=name, type="Retrieval", main_score="ndcg_at_10")
        return SimpleNamespace(metadata=metadata, hf_subsets=["default"], eval_splits=["test"], **more)

    def evaluated(part, *_):
        return SimpleNamespace(scores={"test": [{"hf_subset": "default", **values[part.metadata.name]}]})

    monkeypatch.setattr("biorag.lab.mteb.run._evaluated", evaluated)
    both = task("both", is_aggregate=True, tasks=[task(name, is_aggregate=False) for name in values])
    found = measured(both, model, tmp_path, True)
    assert found["measures"] == {"ndcg_at_10": pytest.approx(0.4), "ndcg_at_20": pytest.approx(0.4)}
    assert (found["subsets"], found["main"]) == (values, "ndcg_at_10")


def test_a_task_is_searched_with_its_own_instruction(groups):
    instructions = read_tasks("bmretriever")
    model = model_of(Instructed("Find passages\nQuery: "), instructions)
    batch = [{"text": ["statins"]}]
    for task, prompt in (
        ("TRECCOVID", "Given a query on COVID-19, retrieve documents that answer the query\nQuery: "),
        ("CUREv1", "Find passages\nQuery: "),
    ):
        found = model.encode(batch, task_metadata=SimpleNamespace(name=task))
        assert np.array_equal(found, HashEncoder().encode_queries([prompt + "statins"]))
    assert {dataset_key(name) for name in groups["bmretriever"].tasks} <= instructions.keys()
