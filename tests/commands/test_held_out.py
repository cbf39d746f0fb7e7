"""`bench retrieval --held-out`: measured are the questions that training left out, and no others."""

from __future__ import annotations

import json
from functools import partial

import pytest

from biorag.training.rows import read_rows, split
from tests.cli import done, failed, invoke
from tests.conftest import write_judged

bench = partial(invoke, "bench", "retrieval")
QUESTIONS = {f"q{n}": f"What is drug number {n}?" for n in range(60)}


@pytest.fixture
def dataset(tmp_path):
    """Sixty questions with one snippet each, that training reads too."""
    folder = write_judged(tmp_path / "judged", QUESTIONS, [(id, f"d{id}", 1) for id in QUESTIONS])
    corpus = [json.dumps({"_id": f"d{id}", "title": "", "text": f"It is {id}."}) for id in QUESTIONS]
    (folder / "corpus.jsonl").write_text("\n".join(corpus))
    return folder


@pytest.fixture
def run(tmp_path):
    """A run with the snippet of question n at rank 1 + n % 4."""
    path = tmp_path / "run.trec"
    rows = []
    for place, id in enumerate(QUESTIONS):
        ids = [f"x{n}" for n in range(place % 4)] + [f"d{id}"]
        rows += [f"{id} Q0 {other} 0 {10 - rank} mine\n" for rank, other in enumerate(ids)]
    path.write_text("".join(rows))
    return path


def held_out(dataset, fraction, seed) -> set[str]:
    rows, _ = read_rows([dataset])
    return {row.query_id for row in split(rows, fraction, seed)[1]}


@pytest.mark.parametrize(("fraction", "seed"), [(0.1, 7), (0.3, 0)])
def test_the_questions_are_those_that_training_holds_out(dataset, run, tmp_path, fraction, seed):
    each = tmp_path / "each.jsonl"
    arguments = [dataset, "--run", run, "--held-out", "--validation", fraction, "--seed", seed]
    found = done(bench(*arguments, "--per-question", each, "--json"))
    rows = [json.loads(line) for line in each.read_text().splitlines()]
    expected = held_out(dataset, fraction, seed)
    assert [row["id"] for row in rows] == [id for id in QUESTIONS if id in expected]
    assert 0 < found["questions"] == len(expected) < 60
    ranks = [1 + int(id[1:]) % 4 for id in expected]
    assert found["metrics"]["MRR@10"] == pytest.approx(sum(1 / rank for rank in ranks) / len(ranks), abs=1e-6)
    assert found["metrics"]["success@3"] == pytest.approx(sum(rank <= 3 for rank in ranks) / len(ranks), abs=1e-6)


def test_none_held_out_is_an_error(dataset, run):
    failed(bench(dataset, "--run", run, "--held-out", "--validation", "0"), 3, "judged", "--validation 0.0")
    (dataset / "queries.jsonl").write_text(json.dumps({"_id": "q0", "text": QUESTIONS["q0"]}))
    seed = next(seed for seed in range(100) if not held_out(dataset, 0.1, seed))
    failed(bench(dataset, "--run", run, "--held-out", "--seed", seed), 3, "no question of judged", "--validation 0.1")
