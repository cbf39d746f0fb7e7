"""`bench retrieval` on run files: scoring another system's, comparing two, and the questions that training left out."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from functools import partial

import pytest

from biorag.corpus.datasets import load_dataset
from biorag.training.contamination import learnt_note
from biorag.training.rows import is_held_out, read_rows, split
from tests.cli import done, failed, invoke
from tests.conftest import write_judged

bench = partial(invoke, "bench", "retrieval")
QUESTIONS = {f"q{n}": f"What is drug number {n}?" for n in range(60)}


@pytest.fixture
def dataset(tmp_path):
    """Twelve questions, question n with the relevant snippets dn and en."""
    texts = {f"q{n}": f"question [{n}]?" for n in range(12)}
    return write_judged(tmp_path / "tiny", texts, [(f"q{n}", f"{letter}{n}", 1) for n in range(12) for letter in "de"])


def write_run(path, rankings):
    """Write rankings with the lines shuffled and senseless ranks: the scores alone give the order."""
    ranked = [(question, rank, id) for question, ids in rankings.items() for rank, id in enumerate(ids)]
    rows = [f"{question} Q0 {id} 0 {10 - rank} other\n" for question, rank, id in ranked]
    random.Random(0).shuffle(rows)
    path.write_text("".join(rows))
    return path


@pytest.fixture
def good(tmp_path):
    """Both snippets of every question first, but for the last question, which has no ranking."""
    return write_run(tmp_path / "good.trec", {f"q{n}": [f"d{n}", f"e{n}", "x"] for n in range(11)} | {"unknown": ["x"]})


# --- comparing ----------------------------------------------------------------------------------------------


def test_an_index_is_compared_with_its_own_run(demo_home, tmp_path):
    folder = tmp_path / "demo"
    (folder / "qrels").mkdir(parents=True)
    queries = {"a": "isoniazid and pyridoxine", "b": "how does aspirin work"}
    (folder / "queries.jsonl").write_text("\n".join(json.dumps({"_id": id, "text": queries[id]}) for id in queries))
    arguments = [folder, "--mode", "bm25", "--no-rerank", "--json"]
    env = {"BIORAG_HOME": str(demo_home)}
    searched = invoke("search", queries["a"], *arguments[1:], **env)
    best = [hit["id"] for hit in json.loads(searched.stdout)["hits"]]
    (folder / "qrels" / "test.tsv").write_text(f"a\t{best[0]}\t1\nb\t{best[1]}\t1\n")
    run = tmp_path / "run.trec"
    first = done(bench(*arguments, "--run-file", run, **env))
    assert "comparison" not in first
    again = done(bench(*arguments, "--compare", run, **env))
    assert again["metrics"] == first["metrics"] == done(bench(folder, "--run", run, "--json"))["metrics"]
    assert {result["p_value"] for result in again["comparison"]["measures"].values()} == {1.0}
    assert (again["comparison"]["wins"], again["config"]["mode"]) == ([], "bm25")


# --- refused ------------------------------------------------------------------------------------------------


def test_options_that_do_not_go_together(dataset, good, tmp_path):
    failed(bench(dataset, "--run", good, "--run-file", tmp_path / "x", "--k-init", 3), 2, "--k-init, --run-file has no")
    failed(bench(dataset, "--run", good, "--per-question", tmp_path), 2, f"{tmp_path} is a folder")


# --- held out ----------------------------------------------------------------------------------------------


@pytest.fixture
def trained(tmp_path):
    """Sixty questions with one snippet each, that training reads too."""
    folder = write_judged(tmp_path / "judged", QUESTIONS, [(id, f"d{id}", 1) for id in QUESTIONS])
    corpus = [json.dumps({"_id": f"d{id}", "title": "", "text": f"It is {id}."}) for id in QUESTIONS]
    (folder / "corpus.jsonl").write_text("\n".join(corpus))
    return folder


@pytest.fixture
def mixed(tmp_path):
    """A run with the snippet of question n at rank 1 + n % 4."""
    path = tmp_path / "run.trec"
    rows = []
    for number, id in enumerate(QUESTIONS):
        ids = [f"x{n}" for n in range(number % 4)] + [f"d{id}"]
        rows += [f"{id} Q0 {other} 0 {10 - rank} mine\n" for rank, other in enumerate(ids)]
    path.write_text("".join(rows))
    return path


def test_the_questions_are_those_that_training_holds_out(trained, mixed, tmp_path):
    each = tmp_path / "each.jsonl"
    arguments = [trained, "--run", mixed, "--held-out", "--validation", "0.3", "--seed", "0"]
    found = done(bench(*arguments, "--per-question", each, "--json"))
    rows = [json.loads(line) for line in each.read_text().splitlines()]
    rows_held_out = split(read_rows([trained])[0], 0.3, 0)[1]
    expected = {row.query_id for row in rows_held_out}
    assert [row["id"] for row in rows] == [id for id in QUESTIONS if id in expected]
    assert 0 < found["questions"] == len(expected) < 60
    ranks = [1 + int(id[1:]) % 4 for id in expected]
    assert found["metrics"]["MRR@10"] == pytest.approx(sum(1 / rank for rank in ranks) / len(ranks), abs=1e-6)
    assert found["metrics"]["success@3"] == pytest.approx(sum(rank <= 3 for rank in ranks) / len(ranks), abs=1e-6)


@pytest.mark.models
@pytest.mark.slow
def test_questions_that_the_encoder_was_trained_on_are_counted(trained, tiny_encoder, tmp_path):
    out, home = tmp_path / "mine", tmp_path / "home"
    words = ["--base", tiny_encoder, "--validation", 0.3, "--max-steps", 1, "--batch-size", 4, "--max-tokens", 16]
    done(invoke("train", "retriever", trained, *words, "--out", out, "--json", home=home))
    done(invoke("index", trained, "--name", "mine", "--encoder", out, "--json", home=home))
    number = len({row.query_id for row in split(read_rows([trained])[0], 0.3, 0)[0]})
    note = (
        f"{out.resolve()} was trained on {number} of these 60 questions, so that its figures are too high: measure the "
        "others with --held-out --validation 0.3\n"
    )
    asked = partial(bench, trained, "--name", "mine", "--no-rerank", "--json", home=home)
    assert note in asked().stderr
    held_out = asked("--held-out", "--validation", 0.3)
    assert done(held_out)["questions"] == 60 - number
    for other in (held_out, asked("--mode", "bm25"), asked("--training", "--validation", 0.3)):
        assert "was trained on" not in other.stderr


def test_of_the_packaged_encoder_the_questions_of_bioasq_are_known_by_their_ids(trained):
    data = load_dataset(trained)
    learnt = [question for question in data.questions if not is_held_out(question.text, 0.2, 0)]
    ids = [*(f"5e0000000000000000000{n:03}" for n in range(60))]
    of_bioasq = replace(data, questions=[replace(one, id=id) for one, id in zip(data.questions, ids, strict=True)])
    assert learnt_note("biorag-starter", data) == learnt_note("all-MiniLM-L6-v2", of_bioasq) == ""
    expected = f"trained on {len(learnt)} of these 60 questions, .* --held-out --validation 0.2"
    assert re.search(expected, learnt_note("biorag-starter", of_bioasq))
