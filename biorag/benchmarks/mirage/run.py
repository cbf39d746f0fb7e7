"""Running MIRAGE: answer what is not answered yet, then score the files."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from typing_extensions import TypedDict

from biorag.answering.answerer import Answerer, PromptTooLongError
from biorag.benchmarks.mirage.questions import Benchmark
from biorag.benchmarks.mirage.records import QUESTIONS, evidence_of, question_row, verdicts_of
from biorag.benchmarks.mirage.results import Layout, ResultDirectory, read_result, write_result
from biorag.benchmarks.mirage.scoring import (
    AccuracyComparison,
    Scoring,
    average,
    paired_bootstrap,
    score_reply,
    stored_reply,
    task_score,
)
from biorag.engine import OpenIndex
from biorag.errors import BadInputError, MissingError
from biorag.generators.source import generator_source
from biorag.prompts.template import templates_hash
from biorag.registries import generator_of
from biorag.retrieval.batches import in_batches
from biorag.retrieval.filters import exclude_pmids
from biorag.retrieval.retriever import Ranking
from biorag.settings.settings import Settings
from biorag.types import Answer, FieldFilter, Generator, OnProgress, Question
from biorag.utils.files import json_line, write_json
from biorag.utils.http import heed
from biorag.utils.parsing import opened_regular, parsed, read_regular
from biorag.utils.runs import whole_lines
from biorag.utils.versions import installed_versions

logger = logging.getLogger(__name__)

TIMINGS = "timings.jsonl"
Item = TypeVar("Item")
Result = TypeVar("Result")


class Timings(TypedDict):
    """A line of the timings: the milliseconds that each stage of a question took."""

    task: str
    id: str
    ms: dict[str, float]


class RecordedLayout(TypedDict):
    """A layout as a report has it."""

    llm: str
    k: int
    corpus: str
    retriever: str | None


class RecordedManifest(TypedDict):
    """What is read of a report's manifest."""

    layout: RecordedLayout


class RecordedReport(TypedDict):
    """What is read of another run's report."""

    manifest: RecordedManifest


@dataclass(frozen=True, slots=True)
class MirageRun:
    """How the questions are answered: by which method, with which evidence left out, into which files.

    `at_a_time` is how many the generator is asked at a time.
    """

    method: str
    exclude_source: bool
    where: tuple[FieldFilter, ...]
    layout: Layout
    identity: Mapping[str, Any]
    at_a_time: int = 1


@dataclass(frozen=True, slots=True)
class Asking:
    """How questions are answered: by which method, without the records they were made from, by which evidence."""

    method: str
    exclude_source: bool
    where: tuple[FieldFilter, ...]


def plan_run(
    settings: Settings, opened: OpenIndex | None, generator: Generator | None, out: Path, asking: Asking
) -> MirageRun:
    """Return how the questions are answered and what that depends on; without an index from the model alone.

    Without a generator the method stands in its place.
    """
    retrieval = settings.retrieval
    retriever = retrieval.mode + (f"+{retrieval.reranker}" if retrieval.rerank else "")
    corpus = opened.manifest.name if opened else ""
    return MirageRun(
        asking.method,
        asking.exclude_source,
        asking.where,
        Layout(out, generator.name if generator else asking.method, retrieval.k, corpus, retriever if opened else None),
        _identity(settings, opened, generator, asking),
        generator_of(settings.generation.generator).at_a_time(settings.generation.concurrency) if generator else 1,
    )


def _identity(
    settings: Settings, opened: OpenIndex | None, generator: Generator | None, asking: Asking
) -> dict[str, Any]:
    """Return what determines the answers; a result folder belongs to one of these."""
    return {
        "settings": {
            **settings.generation.identity(),
            **(settings.retrieval.identity() if opened else {}),
        },
        "answer": asking.method,
        "exclude_source": asking.exclude_source,
        "filter": [asdict(condition) for condition in asking.where],
        "prompts": templates_hash(settings.generation.prompt),
        "generator": _model(settings, generator),
        "reranker": settings.retrieval.rerankers_hash() if opened else None,
        "index": opened.fingerprint() if opened else None,
        "versions": installed_versions(),
    }


def _model(settings: Settings, generator: Generator | None) -> dict[str, str] | None:
    if generator is None:
        return None
    return {"name": generator.name, "sha256": generator_source(settings.generation.generator).sha256()}


class Asked(NamedTuple):
    """A question of a task with what was retrieved for it; None without retrieval."""

    task: str
    question: Question
    ranking: Ranking | None


class Replied(NamedTuple):
    """The text of a question's result file, the milliseconds of each stage, and the answer, if one could be asked for.

    It is None where the prompt was too long.
    """

    reply: str
    timings_ms: Mapping[str, float]
    answer: Answer | None = None


def answer_all(benchmark: Benchmark, answerer: Answerer, plan: MirageRun, on_progress: OnProgress) -> dict[str, Any]:
    """Answer every question that has no result file yet; each file is written as its question ends.

    Evidence is retrieved for `BATCH` questions of a task at a time, the same ones however often a run was
    interrupted, and no answer depends on what is asked beside it, so that an interrupted run gives the same bytes as
    another of the same selection on the same number of threads. After an error nothing new is asked, and what was being
    answered is kept.

    Returns
    -------
    How many were answered now and before, how many of all of these by kept replies, how many were asked at a time
    now, and the seconds each stage took for these questions, earlier runs included; with several at a time, that is
    longer than the run.
    """
    with ResultDirectory(plan.layout.out, plan.identity).claimed():
        return _answer_all(benchmark, answerer, plan, on_progress)


def _answer_all(benchmark: Benchmark, answerer: Answerer, plan: MirageRun, on_progress: OnProgress) -> dict[str, Any]:
    """Answer what has no result file in a directory that is held; see `answer_all`."""
    todo = {task: _unanswered(task, questions, plan.layout) for task, questions in benchmark.items()}
    answered = sum(map(len, todo.values()))
    resumed = sum(map(len, benchmark.values())) - answered
    if resumed:
        on_progress(resumed)
    out = plan.layout.out
    with opened_regular(out / TIMINGS, "ab") as log, opened_regular(out / QUESTIONS, "ab") as rows:

        def save(asked: Asked, replied: Replied) -> None:
            log.write(json_line({"task": asked.task, "id": asked.question.id, "ms": dict(replied.timings_ms)}))
            log.flush()
            evidence = evidence_of(asked.ranking.hits) if asked.ranking else None
            verdicts = verdicts_of(replied.answer)
            rows.write(json_line(question_row(asked.task, asked.question, replied.reply, evidence, verdicts)))
            rows.flush()
            write_result(plan.layout.file(asked.task, asked.question.id), replied.reply)
            on_progress(1)

        questions = _asked(benchmark, todo, answerer, plan)
        each_answered(questions, lambda asked: _reply(_answer(answerer, asked, plan)), save, plan.at_a_time)
    timings = _timings(out / TIMINGS, benchmark)
    return {
        "answered": answered,
        "resumed": resumed,
        "cached": sum("cached" in stages for stages in timings),
        "concurrency": plan.at_a_time,
        "seconds": _seconds(timings),
    }


def _unanswered(task: str, questions: Sequence[Question], layout: Layout) -> set[str]:
    """Return the ids of the questions without a result file."""
    return {question.id for question in questions if read_result(layout.file(task, question.id)) is None}


def _asked(benchmark: Benchmark, todo: Mapping[str, set[str]], answerer: Answerer, plan: MirageRun) -> Iterator[Asked]:
    """Yield what is to be answered with its evidence, retrieved when the first of a batch is wanted."""

    def retrieve(questions: Sequence[Question]) -> Sequence[Ranking | None]:
        sources = [exclude_pmids(question.pmids) if plan.exclude_source else () for question in questions]
        return answerer.retrieve(questions, [plan.where + source for source in sources])

    for task, questions in benchmark.items():
        for question, ranking in in_batches(retrieve, questions, wanted=todo[task]):
            yield Asked(task, question, ranking)


def each_answered(
    items: Iterable[Item], answer: Callable[[Item], Result], save: Callable[[Item, Result], None], at_a_time: int
) -> None:
    """Answer the items in up to `at_a_time` threads; items are drawn and answers saved in the calling thread.

    Raises
    ------
    BaseException
        The first that an answer raised, or an interruption, once the answers under way have ended and are saved.
    """
    if at_a_time == 1:
        for item in items:
            save(item, answer(item))
        return
    under_way: dict[Future[Result], Item] = {}
    stop = threading.Event()  # of waits for a server that fails
    with ThreadPoolExecutor(at_a_time, initializer=heed, initargs=(stop,)) as pool:
        try:
            for item in items:
                under_way[pool.submit(answer, item)] = item
                if len(under_way) >= 2 * at_a_time:  # so that no thread waits for the next item
                    _save_ended(under_way, save)
            while under_way:
                _save_ended(under_way, save)
        except BaseException:
            stop.set()
            _save_begun(under_way, save)
            raise


def _save_ended(under_way: dict[Future[Result], Item], save: Callable[[Item, Result], None]) -> None:
    """Wait for an answer, and save what has ended by then."""
    for future in wait(under_way, return_when=FIRST_COMPLETED).done:
        save(under_way.pop(future), future.result())


def _save_begun(under_way: dict[Future[Result], Item], save: Callable[[Item, Result], None]) -> None:
    """Drop what no thread has begun, and save the rest but for what fails too."""
    begun = {future: item for future, item in under_way.items() if not future.cancel()}
    if begun:
        logger.warning("stopping: the questions being answered (%d) are finished first", len(begun))
    for future in wait(begun).done:
        if future.exception() is None:
            save(begun[future], future.result())


def _timings(log: Path, benchmark: Benchmark) -> list[Mapping[str, float]]:
    """Return the milliseconds a stage of the benchmark's questions over all runs, the last where one ran again."""
    selected = {(task, question.id) for task, questions in benchmark.items() for question in questions}
    last: dict[tuple[str, str], Mapping[str, float]] = {}
    for line in whole_lines(log):
        try:
            row = parsed(Timings, line)
        except ValueError:  # torn by a kill, and another run's line after it
            continue
        if (row["task"], row["id"]) in selected:
            last[row["task"], row["id"]] = row["ms"]
    return list(last.values())


def _seconds(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the seconds each stage took over all questions."""
    total: dict[str, float] = {}
    for timings in rows:
        for stage, milliseconds in timings.items():
            total[stage] = total.get(stage, 0.0) + milliseconds / 1000
    return {stage: round(seconds, 3) for stage, seconds in total.items()}


def _answer(answerer: Answerer, asked: Asked, plan: MirageRun) -> Answer | PromptTooLongError:
    try:
        return answerer.answer_from(asked.question, asked.ranking, plan.method)
    except PromptTooLongError as error:
        return error


def _reply(answer: Answer | PromptTooLongError) -> Replied:
    if isinstance(answer, PromptTooLongError):
        return Replied(str(answer), {})
    return Replied(stored_reply(answer.choice, answer.reply), answer.timings_ms, answer)


def full_report(
    benchmark: Benchmark, plan: MirageRun, settings: Mapping[str, Any], work: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, list[Scoring]]]:
    """Return the report of a run that is at its end, and the scored questions.

    Parameters
    ----------
    settings : what the report shows as the configuration
    work : as `answer_all` gives it
    """
    layout = {key: value for key, value in asdict(plan.layout).items() if key != "out"}
    scorings = score_all(benchmark, plan.layout)
    shown = {**settings, "answer": plan.method, "exclude_source": plan.exclude_source}
    return report(scorings, shown, {**plan.identity, "layout": layout, **work}), scorings


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
    scorings: Mapping[str, Sequence[Scoring]], settings: Mapping[str, Any], manifest: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the report of a run as JSON values."""
    scores = {task: task_score(scored) for task, scored in scorings.items() if scored}
    return {
        "tasks": {task: asdict(score) for task, score in scores.items()},
        "average": average(scores),
        "config": dict(settings),
        "manifest": dict(manifest),
    }


def compare(
    ours: Mapping[str, Sequence[Scoring]], theirs: Mapping[str, Sequence[Scoring]], seed: int
) -> AccuracyComparison:
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
        report = parsed(RecordedReport, read_regular(out / "report.json"), extra="ignore")
    except ValueError:
        raise BadInputError(f"{out / 'report.json'} is not the report of a finished 'bench mirage' run") from None
    return score_all(benchmark, Layout(out, **report["manifest"]["layout"]))


def write_report(out: Path, values: Mapping[str, Any]) -> None:
    """Write `report.json` into the output folder."""
    write_json(out / "report.json", values)
