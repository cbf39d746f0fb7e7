"""The parts of a data set that training held out, dropped for a benchmark, or trained on."""

from __future__ import annotations

import json
import re

import pytest

from biorag.corpus.datasets import Dataset
from biorag.errors import BadInputError, UsageError
from biorag.training.held_out import ALL, DROPPED, HELD_OUT, TRAINING, HeldOutSplit
from biorag.training.rows import split
from biorag.types import Question, TrainingRow

TEXTS = {f"q{n}": f"Does substance {n:02} relieve complaint {n * n}?" for n in range(40)}
DATA = Dataset("asked", [Question(id, text) for id, text in TEXTS.items()], {id: {f"d{id}": 1, "d": 2} for id in TEXTS})
OF_BENCHMARK = {f"q{n}" for n in range(10)}
HELD = {row.query_id for row in split([TrainingRow(text, "p", query_id=id) for id, text in TEXTS.items()], 0.3, 5)[1]}


@pytest.fixture
def benchmark(tmp_path):
    path = tmp_path / "benchmark.jsonl"
    path.write_text("".join(json.dumps({"question": TEXTS[id].upper()}) + "\n" for id in sorted(OF_BENCHMARK)))
    return path


def test_each_part_has_its_questions_in_their_order_with_their_judgements(benchmark):
    assert OF_BENCHMARK & HELD and OF_BENCHMARK - HELD and HELD - OF_BENCHMARK
    for benchmarks, dropped in (((), set()), ((benchmark,), OF_BENCHMARK)):
        parts = {ALL: TEXTS.keys(), HELD_OUT: HELD | dropped, TRAINING: TEXTS.keys() - HELD - dropped}
        if benchmarks:
            parts[DROPPED] = dropped - HELD
        for part, expected in parts.items():
            found = HeldOutSplit(0.3, 5, benchmarks, part).select(DATA)
            assert [question.id for question in found.questions] == [id for id in TEXTS if id in expected], part
            assert found.qrels == {id: DATA.qrels[id] for id in expected}


def test_another_spelling_of_a_dropped_question_is_dropped_too(benchmark):
    again = Question("again", TEXTS[min(OF_BENCHMARK - HELD)].lower())
    twice = Dataset("asked", [*DATA.questions, again], {**DATA.qrels, again.id: {"d": 1}})
    training = HeldOutSplit(0.3, 5, (benchmark,), TRAINING).select(twice)
    assert {question.id for question in training.questions} == TEXTS.keys() - HELD - OF_BENCHMARK


@pytest.mark.parametrize(
    ("fraction", "part", "reason"),
    [
        (0.0, HELD_OUT, "no question of asked is held out by --validation 0.0"),
        (1.0, TRAINING, "no question of asked is left for training by --validation 1.0"),
        (1.0, DROPPED, "no question of asked was dropped by --guard"),
    ],
)
def test_a_part_without_a_question_is_refused(benchmark, fraction, part, reason):
    with pytest.raises(BadInputError, match=re.escape(reason)):
        HeldOutSplit(fraction, 5, (benchmark,) if part == DROPPED else (), part).select(DATA)


def test_questions_that_were_dropped_need_the_benchmark():
    with pytest.raises(UsageError, match="--guard FILE"):
        HeldOutSplit(0.3, 5, (), DROPPED)
