"""A run of MIRAGE: answer the questions without a result file, then score the files."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from biorag.answering.answerer import Answerer, PromptTooLongError
from biorag.benchmarks.mirage.questions import Benchmark
from biorag.benchmarks.mirage.records import (
    QUESTIONS,
    Layout,
    QuestionRow,
    arrange_rows,
    question_row,
    read_result,
    write_result,
)
from biorag.benchmarks.mirage.scoring import (
    Scoring,
    Scorings,
    average,
    compared,
    score_reply,
    stored_reply,
    task_score,
)
from biorag.benchmarks.per_question import PER_QUESTION, QuestionFigures, write_figures
from biorag.engine import OpenIndex
from biorag.errors import BadInputError, MissingError
from biorag.generators.source import generator_source
from biorag.prompts.template import templates_hash
from biorag.registries import generator_of
from biorag.retrieval.batches import in_batches
from biorag.retrieval.filters import exclude_pmids
from biorag.retrieval.retriever import Ranking
from biorag.settings.settings import Settings
from biorag.types import Answer, Generator, OnProgress, Question, Where
from biorag.utils.files import json_line, write_json
from biorag.utils.http import asking_threads
from biorag.utils.parsing import opened_regular, parse_json, read_regular, validated
from biorag.utils.runs import RunDirectory
from biorag.utils.versions import installed_versions

logger = logging.getLogger(__name__)

REPORT = "report.json"
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class MirageMethod:
    """A method of answering, whether it sees the records that questions were made from, and filters of the evidence.

    `reader` is the identity of the check's reader, if it has one.
    """

    name: str
    exclude_source: bool
    where: Where
    reader: str | None = None


@dataclass(frozen=True)
class MirageRun(RunDirectory):
    """A directory of result files; it is never complete: more questions may be asked into it.

    `at_a_time` is the number of questions that the generator answers at a time.
    """

    method: MirageMethod
    layout: Layout
    at_a_time: int = 1

    kind = "MIRAGE run"
    manifest_name = "run.json"

    def file(self, task: str, question: Question) -> Path:
        """Return the result file of a question."""
        return self.layout.file(self.path, task, question.id)


def plan_run(
    settings: Settings, opened: OpenIndex | None, generator: Generator | None, out: Path, method: MirageMethod
) -> MirageRun:
    """Return the run with its identity: everything that its answers depend on.

    Without an index the model answers alone; without a generator the method names the result files.
    """
    retrieval = settings.retrieval
    retriever = retrieval.mode + (f"+{retrieval.reranker}" if retrieval.rerank else "")
    llm, corpus = generator.name if generator else method.name, opened.manifest.name if opened else ""
    layout = Layout(llm, retrieval.k, corpus, retriever if opened else None)
    chosen = settings.generation.generator
    at_a_time = generator_of(chosen).at_a_time(settings.generation.concurrency) if generator else 1
    identity = {
        "settings": {**settings.generation.identity(), **(retrieval.identity() if opened else {})},
        "answer": method.name,
        "exclude_source": method.exclude_source,
        "reader": method.reader,
        "filter": [asdict(condition) for condition in method.where],
        "prompts": templates_hash(settings.generation.prompt),
        "generator": {"name": generator.name, "sha256": generator_source(chosen).sha256()} if generator else None,
        "reranker": retrieval.rerankers_hash() if opened else None,
        "index": opened.fingerprint() if opened else None,
        "versions": installed_versions(),
    }
    return MirageRun(out, identity, method, layout, at_a_time)


PreparedQuestion: TypeAlias = tuple[str, Question, Ranking | None]  # of a task, with its evidence if there is any


def answer_all(benchmark: Benchmark, answerer: Answerer, run: MirageRun, on_progress: OnProgress) -> dict[str, Any]:
    """Answer every question without a result file; each file is written when its question is answered.

    Evidence is retrieved for `BATCH` questions of a task at a time, the same ones however often a run is interrupted,
    and no answer depends on the questions beside it, so that an interrupted run gives the same bytes as another. After
    an error nothing new is asked, and the answers under way are kept.

    Returns the numbers of questions answered now, before, and of all these by kept replies; how many were asked at a
    time; and, earlier runs included, the retries of each task and the seconds of each stage, which with several at a
    time exceed those of the run.
    """
    run.finished()
    with run.locked():
        run.begin({})
        todo = {
            task: {question.id for question in questions if read_result(run.file(task, question)) is None}
            for task, questions in benchmark.items()
        }
        answered = sum(map(len, todo.values()))
        resumed = sum(map(len, benchmark.values())) - answered
        if resumed:
            on_progress(resumed)
        arrange_rows(run.path, benchmark)
        _answer_rest(benchmark, todo, answerer, run, on_progress)
        rows = arrange_rows(run.path, benchmark)
    return {
        "answered": answered,
        "resumed": resumed,
        "cached": sum("cached" in row["timings_ms"] for row in rows),
        "concurrency": run.at_a_time,
        "retries": {task: sum(row.get("retries", 0) for row in rows if row["task"] == task) for task in benchmark},
        "seconds": _seconds(rows),
    }


def _answer_rest(
    benchmark: Benchmark, todo: Mapping[str, set[str]], answerer: Answerer, run: MirageRun, on_progress: OnProgress
) -> None:
    def retrieve(questions: Sequence[Question]) -> Sequence[Ranking | None]:
        sources = [exclude_pmids(question.pmids) if run.method.exclude_source else () for question in questions]
        return answerer.retrieve(questions, [run.method.where + source for source in sources])

    def prepared() -> Iterator[PreparedQuestion]:
        for task, questions in benchmark.items():
            for question, ranking in in_batches(retrieve, questions, wanted=todo[task]):
                yield task, question, ranking

    with opened_regular(run.path / QUESTIONS, "ab") as stream:

        def save(prepared: PreparedQuestion, replied: tuple[str, Answer | None]) -> None:
            (task, question, ranking), (reply, answer) = prepared, replied
            stream.write(json_line(question_row(task, question, reply, ranking.hits if ranking else None, answer)))
            stream.flush()
            write_result(run.file(task, question), reply)
            on_progress(1)

        each_answered(prepared(), lambda asked: _replied(answerer, asked, run.method.name), save, run.at_a_time)


def _replied(answerer: Answerer, prepared: PreparedQuestion, method: str) -> tuple[str, Answer | None]:
    """Return the text of a question's result file, and the answer; None if the prompt was too long."""
    try:
        _, question, ranking = prepared
        answer = answerer.answer_from(question, ranking, method)
    except PromptTooLongError as error:
        return str(error), None
    return stored_reply(answer.choice, answer.reply), answer


def each_answered(
    items: Iterable[Item], answer: Callable[[Item], Result], save: Callable[[Item, Result], None], at_a_time: int
) -> None:
    """Answer the items in up to `at_a_time` threads; items are drawn and answers saved in the calling thread.

    Raises the first error, or an interruption, once the answers under way are saved.
    """
    if at_a_time == 1:
        for item in items:
            save(item, answer(item))
        return
    under_way: dict[Future[Result], Item] = {}

    def save_ended() -> None:
        for future in wait(under_way, return_when=FIRST_COMPLETED).done:
            save(under_way.pop(future), future.result())

    with asking_threads(at_a_time) as (pool, stop):
        try:
            for item in items:
                under_way[pool.submit(answer, item)] = item
                if len(under_way) >= 2 * at_a_time:  # so that no thread waits for the next item
                    save_ended()
            while under_way:
                save_ended()
        except BaseException:
            stop.set()
            _save_begun(under_way, save)
            raise


def _save_begun(under_way: Mapping[Future[Result], Item], save: Callable[[Item, Result], None]) -> None:
    """Drop the items that no thread has begun, and save the answers of the others that do not fail."""
    begun = {future: item for future, item in under_way.items() if not future.cancel()}
    if begun:
        logger.warning("stopping: the questions being answered (%d) are finished first", len(begun))
    for future in wait(begun).done:
        if future.exception() is None:
            save(begun[future], future.result())


def _seconds(rows: Iterable[QuestionRow]) -> dict[str, float]:
    """Return the seconds of each stage over all questions."""
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row["timings_ms"])
    return {stage: round(milliseconds / 1000, 3) for stage, milliseconds in total.items()}


def score_all(benchmark: Benchmark, out: Path, layout: Layout) -> dict[str, list[Scoring]]:
    """Score the result files of all questions.

    Raises BadInputError if a question has no result file.
    """

    def scored(task: str, question: Question) -> Scoring:
        path = layout.file(out, task, question.id)
        if (reply := read_result(path)) is None:
            raise BadInputError(f"question {question.id} of {task} has no result file {path}: run it first")
        return score_reply(question, reply)

    return {task: [scored(task, question) for question in questions] for task, questions in benchmark.items()}


def write_report(
    benchmark: Benchmark, run: MirageRun, config: Mapping[str, Any], work: Mapping[str, Any], others: Scorings | None
) -> dict[str, Any]:
    """Score a finished run, and write and return its report.

    `work` is as `answer_all` returns it; `others` are the same questions of a run to compare with.
    """
    scorings, facts = score_all(benchmark, run.path, run.layout), dict(work)
    retries = facts.pop("retries")
    scores = {task: task_score(scored, retries[task]) for task, scored in scorings.items() if scored}
    report: dict[str, Any] = {
        "tasks": {task: asdict(score) for task, score in scores.items()},
        "average": average(scores),
        "chance": average(scores, "chance"),
        "config": {**config, "answer": run.method.name, "exclude_source": run.method.exclude_source},
        "manifest": {**run.identity, "layout": asdict(run.layout), **facts},
    }
    write_figures(run.path / PER_QUESTION, question_rows(benchmark, scorings))
    if others:
        report["comparison"] = asdict(compared(scorings, others, int(config["seed"])))
    write_json(run.path / REPORT, report)
    return report


def question_rows(benchmark: Benchmark, scorings: Scorings) -> Iterator[QuestionFigures]:
    """Yield every question with whether it was answered right, 1 or 0, under the report's accuracies."""
    for task, scored in scorings.items():
        for question, scoring in zip(benchmark[task], scored, strict=True):
            metrics = dict.fromkeys(("average", f"tasks.{task}.accuracy"), float(scoring.correct))
            yield {"id": question.id, "set": task, "metrics": metrics}


def score_finished(benchmark: Benchmark, out: Path) -> dict[str, list[Scoring]]:
    """Score another run's questions from its output folder.

    Raises MissingError if the folder holds no finished run; BadInputError if its report is damaged, or the run lacks
    one of the questions.
    """
    path = out / REPORT
    if not path.is_file():
        raise MissingError(f"{out} holds no report.json of a finished 'bench mirage' run to compare with")
    try:
        layout: Layout = validated(Layout, dict(parse_json(read_regular(path)))["manifest"]["layout"])
    except (ValueError, KeyError, TypeError):
        raise BadInputError(f"{path} is not the report of a finished 'bench mirage' run") from None
    return score_all(benchmark, out, layout)
