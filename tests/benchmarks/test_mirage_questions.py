"""MIRAGE's benchmark file: the real one, the demonstration, and what may be wrong with one."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from biorag.benchmarks.mirage.questions import described, load_benchmark, select
from biorag.errors import BadInputError
from biorag.types import Question

COUNTS = {"medqa": 1273, "medmcqa": 4183, "pubmedqa": 500, "bioasq": 618, "mmlu": 1089}
GOOD = {"question": "Which?", "options": {"A": "yes", "B": "no"}, "answer": "A", "PMID": [12]}


@pytest.fixture(scope="module")
def real_path(shared_data):
    return shared_data / "mirage" / "benchmark.json"


@pytest.fixture(scope="module")
def real(real_path):
    return load_benchmark(real_path)


@pytest.fixture
def numbered():
    return {task: [Question(f"{task}-{place:03}", "?") for place in range(50)] for task in ("one", "two")}


def ids(benchmark):
    return {task: [question.id for question in questions] for task, questions in benchmark.items()}


def write(tmp_path, value):
    path = tmp_path / "benchmark.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def test_real_questions_say_what_the_file_says(real, real_path):
    assert {task: len(questions) for task, questions in real.items()} == COUNTS
    recorded = json.loads(real_path.read_text(encoding="utf-8"))
    for task, questions in real.items():
        assert [question.id for question in questions] == sorted(recorded[task])
        for question in questions:
            record = recorded[task][question.id]
            assert (question.text, dict(question.options)) == (record["question"], record["options"])
            assert (question.answer, list(question.pmids)) == (record["answer"], record.get("PMID", []))


def test_a_larger_limit_keeps_what_a_smaller_one_chose(numbered):
    samples = [set(ids(select(numbered, ["one"], limit, 42))["one"]) for limit in (1, 2, 5, 20, 49, 50)]
    assert [len(sample) for sample in samples] == [1, 2, 5, 20, 49, 50]
    assert all(small < large for small, large in pairwise(samples))


@pytest.mark.parametrize("content", [b"", b"[" * 100_000, b'{"t": {"q": "\xff"}}'])
def test_no_json_is_refused(tmp_path, content):
    path = tmp_path / "benchmark.json"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match="is not JSON") as caught:
        load_benchmark(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("value", [[], {"t": []}, {"t": {"q": GOOD}, "u": None}])
def test_another_shape_is_refused(tmp_path, value):
    with pytest.raises(BadInputError, match="not MIRAGE's format"):
        load_benchmark(write(tmp_path, value))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"question": "  "}, "question: "),
        ({"options": {"A": "alone"}}, "options: "),
        ({"options": {"A": "yes", "E": "no"}}, "options.E"),
        ({"answer": "C"}, r"the answer 'C' is none of the options A, B"),
        ({"PMID": [-1]}, "PMID.0: "),
    ],
)
def test_bad_question_is_refused_naming_file_task_question_and_reason(tmp_path, change, reason):
    path = write(tmp_path, {"fine": {"q0": GOOD}, "medqa": {"q1": GOOD, "q2": {**GOOD, **change}}})
    with pytest.raises(BadInputError, match=reason) as caught:
        load_benchmark(path)
    assert f"benchmark {path}, task medqa, question q2: " in str(caught.value)


@pytest.mark.parametrize("id", ["../x", ".hidden", "", "q\n", "x" * 129])
def test_an_id_that_is_no_safe_file_name_is_refused(tmp_path, id):
    path = write(tmp_path, {"medqa": {id: GOOD}})
    with pytest.raises(BadInputError, match="names a result file") as caught:
        load_benchmark(path)
    assert str(caught.value).startswith(f"benchmark {path}, task medqa, question {id}")


def test_a_task_that_is_no_safe_folder_name_is_refused(tmp_path):
    """A task names a folder of result files as an id names a file."""
    with pytest.raises(BadInputError, match="task"):
        load_benchmark(write(tmp_path, {"../x": {"q": GOOD}}))


def test_what_is_asked_is_described_by_the_number_of_each_task(numbered):
    assert described(select(numbered, [], 10, 0)) == "20 questions: 10 of each of 2 tasks"
    assert described(select(numbered, ["two"], None, 0)) == "50 questions of two"
    uneven = {"one": numbered["one"], "two": numbered["two"][:3], "none": []}
    assert described(uneven) == "53 questions: 50 of one, 3 of two"
