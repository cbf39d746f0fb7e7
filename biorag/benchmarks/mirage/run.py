"""Running MIRAGE: answer what is not answered yet, then score the files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from biorag.benchmarks.mirage.questions import Benchmark
from biorag.benchmarks.mirage.results import Layout, claim, read_result, write_result
from biorag.benchmarks.mirage.scoring import (
    Comparison,
    Scoring,
    average,
    paired_bootstrap,
    score_reply,
    stored_reply,
    task_score,
)
from biorag.errors import BadInputError, MissingError
from biorag.files import write_json
from biorag.filters import exclude_pmids
from biorag.pipeline import Answerer, PromptTooLongError
from biorag.types import Condition, OnProgress, Question

TIMINGS = "timings.jsonl"


@dataclass(frozen=True, slots=True)
class Plan:
    """How the questions are answered: by which method, with which evidence left out, into which files."""

    method: str
    exclude_source: bool
    where: tuple[Condition, ...]
    layout: Layout
    identity: Mapping[str, Any]


def answer_all(benchmark: Benchmark, answerer: Answerer, plan: Plan, on_progress: OnProgress) -> dict[str, Any]:
    """Answer every question that has no result file yet; each file is written as its question ends.

    Every question is encoded and answered by itself, so that an interrupted run gives the same bytes.

    Returns
    -------
    How many were answered now and before, and the seconds each stage took, earlier runs included.
    """
    claim(plan.layout.out, plan.identity)
    answered = resumed = 0
    with (plan.layout.out / TIMINGS).open("a", encoding="utf-8") as log:
        for task, questions in benchmark.items():
            for question in questions:
                path = plan.layout.file(task, question.id)
                if read_result(path) is not None:
                    resumed += 1
                else:
                    reply, timings = _answer(answerer, question, plan)
                    log.write(json.dumps({"task": task, "id": question.id, "ms": dict(timings)}) + "\n")
                    log.flush()
                    write_result(path, reply)
                    answered += 1
                on_progress(1)
    return {"answered": answered, "resumed": resumed, "seconds": _seconds(plan.layout.out / TIMINGS)}


def _seconds(log: Path) -> dict[str, float]:
    """Return the seconds each stage took over all questions of a run, however often it was interrupted."""
    last: dict[tuple[str, str], Mapping[str, float]] = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:  # torn by a kill
            continue
        last[row["task"], row["id"]] = row["ms"]
    total: dict[str, float] = {}
    for timings in last.values():
        for stage, milliseconds in timings.items():
            total[stage] = total.get(stage, 0.0) + milliseconds / 1000
    return {stage: round(seconds, 3) for stage, seconds in total.items()}


def _answer(answerer: Answerer, question: Question, plan: Plan) -> tuple[str, Mapping[str, float]]:
    where = plan.where + (exclude_pmids(question.pmids) if plan.exclude_source else ())
    try:
        answer = answerer.answer(question, where, plan.method)
    except PromptTooLongError as error:
        return str(error), {}
    return stored_reply(answer.choice, answer.reply), answer.timings_ms


def score_all(benchmark: Benchmark, layout: Layout) -> dict[str, list[Scoring]]:
    """Score the result files of all questions.

    Raises
    ------
    BadInputError
        If a question has no result file.
    """
    return {task: [_score(task, question, layout) for question in questions] for task, questions in benchmark.items()}


def _score(task: str, question: Question, layout: Layout) -> Scoring:
    path = layout.file(task, question.id)
    reply = read_result(path)
    if reply is None:
        raise BadInputError(f"question {question.id} of {task} has no result file {path}: run it first")
    return score_reply(question, reply)


def report(
    scorings: Mapping[str, Sequence[Scoring]], config: Mapping[str, Any], manifest: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the report of a run as JSON values."""
    scores = {task: task_score(scored) for task, scored in scorings.items() if scored}
    return {
        "tasks": {task: asdict(score) for task, score in scores.items()},
        "average": average(scores),
        "config": dict(config),
        "manifest": dict(manifest),
    }


def compare(ours: Mapping[str, Sequence[Scoring]], theirs: Mapping[str, Sequence[Scoring]], seed: int) -> Comparison:
    """Compare the scored questions of two runs, the same questions in the same order."""
    right = [{task: [scoring.correct for scoring in scored] for task, scored in run.items()} for run in (ours, theirs)]
    return paired_bootstrap(right[0], right[1], seed)


def score_finished(benchmark: Benchmark, out: Path) -> dict[str, list[Scoring]]:
    """Score another run's questions from its output folder.

    Raises
    ------
    MissingError
        If the folder holds no finished run.
    BadInputError
        If its report is damaged, or the run lacks one of the questions.
    """
    if not (out / "report.json").is_file():
        raise MissingError(f"{out} holds no report.json of a finished 'bench mirage' run to compare with")
    try:
        recorded = json.loads((out / "report.json").read_text(encoding="utf-8"))["manifest"]["layout"]
        layout = Layout(out, **recorded)
    except (OSError, ValueError, KeyError, TypeError):
        raise BadInputError(f"{out / 'report.json'} is not the report of a finished 'bench mirage' run") from None
    return score_all(benchmark, layout)


def write_report(out: Path, values: Mapping[str, Any]) -> None:
    """Write `report.json` into the output folder."""
    write_json(out / "report.json", values)
