"""The rows that the starter is trained on hold nothing that it is measured on."""

import json

import pytest

from biorag.corpus.datasets import load_dataset
from biorag.training.contamination import ContaminationDetector
from biorag.training.rows import is_held_out, normalised
from scripts import fit_starter


@pytest.mark.slow
@pytest.mark.long
def test_rows_of_a_seed_hold_no_question_that_is_measured_on(shared_data, tmp_path):
    fit_starter.prepare(shared_data, tmp_path)
    folder = fit_starter.draw(shared_data, tmp_path, seed=fit_starter.SEEDS[0]).parent
    rows = {path.stem: list(fit_starter.read(path)) for path in folder.glob("*.jsonl")}
    claims, questions = {"checkcovid", "citint", "scifact", "scifact_again"}, {"bioasq", "pubmedqa", "written"}
    titles = {"conclusions", "titles", "pubmed_conclusions", "whole_titles"}
    assert rows.keys() == claims | questions | titles | set(fit_starter.ASKED)
    assert len(rows["bioasq_1_6"]) > 3500 and all(row["negative"] != row["positive"] for row in rows["bioasq_1_6"])
    queries = {normalised(row["query"]) for own in rows.values() for row in own}

    held_out = {
        normalised(row["text"])
        for name in ("bioasq", "pubmedqa")
        for row in fit_starter.read(shared_data / name / "queries.jsonl")
        if is_held_out(row["text"], fit_starter.SHARE, fit_starter.SPLIT_SEED)
    }
    assert len(held_out) > 400
    assert not queries & held_out

    guards = [shared_data / path for path in fit_starter.GUARDS]
    dropped = {normalised(match.query) for match in ContaminationDetector(guards).matches(sorted(queries))}
    for name, texts in measured(shared_data).items():
        assert texts
        assert not (queries - dropped) & {normalised(text) for text in texts}, name

    left_out = held_out | {normalised(text) for text in measured(shared_data)["mirage"]}
    answers = {
        normalised(answer[: fit_starter.ANSWER])
        for name in ("bioasq", "pubmedqa")
        for row in fit_starter.read(shared_data / name / "answers.jsonl.gz")
        for answer in (row.get("long_answer") or row["ideal_answer"][0],)
        if normalised(row["question"]) in left_out
    }
    assert len(answers) > 500
    assert not queries & answers

    cited = {row["text"] for row in fit_starter.read(tmp_path / "cited/sample-1/corpus.jsonl")}
    drawn = [row["positive"] for name in ("titles", "conclusions") for row in rows[name]]
    assert not any(abstract[:60] in text for text in drawn for abstract in cited)

    texts = {row["id"]: row["content"] for row in fit_starter.read(shared_data / "pubmed/snippets.jsonl.gz")}
    judged = {
        texts[id]
        for data in (load_dataset(shared_data / "bioasq"), load_dataset(shared_data / "pubmedqa"))
        for question in data.questions
        for id in data.qrels[question.id]
        if normalised(question.text) in left_out and id in texts
    }
    assert len(judged) > 2000
    assert not any(row["query"] in text for row in rows["pubmed_conclusions"] for text in judged)


def measured(data):
    """Return the texts of MIRAGE's questions, BEIR's test claims and the claims for development."""
    mirage = json.loads((data / "mirage/benchmark.json").read_bytes())
    sets = {"mirage": [question["question"] for task in mirage.values() for question in task.values()]}
    sets["scifact"] = [row["text"] for row in fit_starter.read(data / "scifact/queries.jsonl")]
    for path in (data / "claims/dev").glob("*.jsonl.gz"):
        if claims := [row["claim"] for row in fit_starter.read(path) if "claim" in row]:
            sets[path.name] = claims
    return sets
