"""`biorag bench answers` from the command line."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from biorag.answering.certainty import certainty_model
from tests import cli
from tests.cli import done, failed, succeeded
from tests.conftest import write_judged, write_medrag

TOPICS = ["fever", "vitamin K", "antithrombin", "glucose", "insulin", "malaria", "tuberculosis", "asthma", "penicillin"]


@pytest.fixture(scope="module")
def place(tmp_path_factory, snippets, tiny_encoder) -> Path:
    """A folder with a home, whose index `default` the tests only read, and a data set with answers."""
    place = tmp_path_factory.mktemp("answers")
    corpus = write_medrag(place / "corpus.jsonl", snippets)
    succeeded(cli.invoke("index", corpus, "--encoder", tiny_encoder, home=place / "home"))
    data = place / "asked"
    texts = {f"q{n}": f"What is known about {subject}?" for n, subject in enumerate(TOPICS)}
    write_judged(data, texts, [(id, f"s{n}", 1) for n, id in enumerate(texts)])
    answers = [
        {"_id": f"q{n}", "type": "summary", "ideal_answer": [snippets[n].content]} for n in range(len(TOPICS) - 1)
    ]
    answers.append({"_id": "q8", "type": "factoid", "exact_answer": [["cell wall"]], "ideal_answer": ["It breaks."]})
    (data / "answers.jsonl").write_text("\n".join(map(json.dumps, answers)))
    return place


@pytest.fixture
def invoke(place, tmp_path, monkeypatch):
    """Run a command in an empty folder, with the module's home."""
    monkeypatch.chdir(tmp_path)
    return partial(cli.invoke, home=place / "home")


def test_extracts_are_scored_against_the_ideal_answers_and_a_run_resumes(invoke, place, tmp_path):
    run = partial(invoke, "bench", "answers", place / "asked", "--reader", "none", "--out", "out", "--json")
    report = done(run())
    assert (report["questions"], report["answer"]) == (9, "extract")
    assert (report["abstention"]["n"], report["abstention"]["threshold"]) == (
        9,
        certainty_model(matched=True).answer,
    )
    assert report["ideal"]["n"] == 9
    assert report["ideal"]["ROUGE-2 F1"]["mean"] > 0.3  # eight ideal answers stand in the index
    assert report["sentences"]["supported"] == report["sentences"]["citation_recall"] == 1.0
    rows = (tmp_path / "out" / "answers.jsonl").read_bytes().splitlines(keepends=True)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_bytes())
    (tmp_path / "out" / "manifest.json").write_text(json.dumps({**manifest, "complete": False}))
    (tmp_path / "out" / "answers.jsonl").write_bytes(b"".join(rows[:4]) + rows[4][:20])  # torn by a kill
    again = done(run())
    assert {**again, "answer_ms": None} == {**report, "answer_ms": None}
    assert "other answer" in failed(
        invoke("bench", "answers", place / "asked", "--answer", "generate", "--reader", "none", "--out", "out"), 5
    )


def test_a_golden_file_is_a_dataset(invoke, tmp_path):
    question = {
        "id": "g1",
        "body": "What blocks vitamin K recycling?",
        "type": "factoid",
        "exact_answer": [["warfarin"]],
        "ideal_answer": ["Warfarin blocks vitamin K recycling and thins the blood."],
        "documents": ["http://www.ncbi.nlm.nih.gov/pubmed/1001"],
        "snippets": [],
    }
    (tmp_path / "1B_golden.json").write_text(json.dumps({"questions": [question]}))
    report = done(invoke("bench", "answers", "1B_golden.json", "--out", "out", "--json"))
    assert (report["dataset"], report["ideal"]["ROUGE-2 F1"]["mean"]) == ("1B", 1.0)
