"""Reading MIRAGE's `benchmark.json` and choosing questions from it."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from biorag.errors import BadInputError, MissingError, UsageError, check_name
from biorag.types import Question
from biorag.utils.parsing import parse_json, read_regular, validated

LARGEST = 1 << 30  # bytes
SAFE = "letters, digits, '.', '_' and '-'"
_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")

Benchmark = Mapping[str, Sequence[Question]]


def load_benchmark(path: Path) -> Benchmark:
    """Return the questions by task, in the order of their ids, as MIRAGE orders them.

    Raises MissingError if the file is not there; BadInputError naming task, question and reason if it does not
    have MIRAGE's format.
    """
    if not path.is_file():
        raise MissingError(f"benchmark {path} is not there: name MIRAGE's benchmark.json, or 'demo'")
    try:
        tasks = parse_json(read_regular(path, LARGEST))
    except ValueError as error:
        raise BadInputError(f"benchmark {path} is not JSON: {error}") from None
    if not isinstance(tasks, dict) or not all(isinstance(questions, dict) for questions in tasks.values()):
        raise BadInputError(f"benchmark {path} is not MIRAGE's format: an object of tasks, each an object of questions")
    for task in tasks:
        if not _SAFE_ID.match(task):
            raise BadInputError(f"benchmark {path}, task {task!r}: the name must be {SAFE}, since it names a folder")
    return {
        task: [
            _question(id, record, f"benchmark {path}, task {task}, question {id}")
            for id, record in sorted(asked.items())
        ]
        for task, asked in tasks.items()
    }


class BenchmarkQuestion(TypedDict):
    """A question of the file; those of the literature tasks name the records that they were made from."""

    question: Annotated[str, Field(pattern=r"\S")]
    options: Annotated[dict[Literal["A", "B", "C", "D"], str], Field(min_length=2)]
    answer: str
    PMID: NotRequired[list[Annotated[int, Field(ge=0, lt=2**63)]]]


def _question(id: str, record: Any, where: str) -> Question:
    """Return a question of a benchmark; raises BadInputError naming where it stands if it is invalid."""
    if not _SAFE_ID.match(id):
        raise BadInputError(f"{where}: the id must be {SAFE}, since it names a result file")
    try:
        values: BenchmarkQuestion = validated(BenchmarkQuestion, record, extra="ignore")
    except ValueError as error:
        raise BadInputError(f"{where}: {error}") from None
    options: dict[str, str] = dict(values["options"].items())
    answer = values["answer"]
    if answer not in options:
        raise BadInputError(f"{where}: the answer {answer!r} is none of the options {', '.join(options)}")
    return Question(id, values["question"], options, answer, tuple(values.get("PMID", ())))


def select(benchmark: Benchmark, tasks: Sequence[str], limit: int | None, seed: int) -> Benchmark:
    """Return some tasks (none named: all), each reduced to `limit` questions drawn with `seed`.

    A larger limit keeps the questions of a smaller one.

    Raises UsageError if a task is unknown, or no question is left.
    """
    for task in tasks:
        check_name("task", task, benchmark)
    chosen = {task: _sample(benchmark[task], limit, seed) for task in (tasks or benchmark)}
    if not any(chosen.values()):
        raise UsageError("there is no question to ask: raise --limit or choose other tasks")
    return chosen


def described(benchmark: Benchmark) -> str:
    """Return how many questions there are, and of which tasks: "50 questions: 10 of each of 5 tasks"."""
    numbers = {task: len(questions) for task, questions in benchmark.items() if questions}
    total, least = sum(numbers.values()), min(numbers.values())
    if len(numbers) == 1:
        return f"{total:,} questions of {next(iter(numbers))}"
    if total == least * len(numbers):
        return f"{total:,} questions: {least:,} of each of {len(numbers)} tasks"
    return f"{total:,} questions: {', '.join(f'{number:,} of {task}' for task, number in numbers.items())}"


def _sample(questions: Sequence[Question], limit: int | None, seed: int) -> list[Question]:
    if limit is None or limit >= len(questions):
        return list(questions)
    order = random.Random(seed).sample(range(len(questions)), len(questions))
    return [questions[number] for number in sorted(order[:limit])]
