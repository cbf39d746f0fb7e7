"""mteb's tasks, the groups of tasks in papers, and their evaluation into mteb's result files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import datasets
import mteb
from mteb.abstasks import AbsTask
from mteb.results import TaskResult

from biorag.benchmarks.per_question import NESTED, QuestionFigures, read_figures, write_figures
from biorag.errors import MissingError, ServiceError, UsageError, check_name
from biorag.lab.mteb.local import LocalRetrieval
from biorag.lab.mteb.models import EncoderModel

BATCH = 256  # texts of a batch of mteb's loader
NDCG, SUCCESS = "ndcg_at_10", "hit_rate_at_5"
# The measures reported beside the main one, by the type of a task.
MEASURES = {
    "Retrieval": (
        *("ndcg_at_10", "map_at_10", "mrr_at_10", "recall_at_10", "recall_at_100", "ndcg_at_20", "recall_at_5"),
        *("recall_at_20", "hit_rate_at_5", "recall_at_1", "mrr_at_5"),
    ),
    "Reranking": ("map_at_1000", "ndcg_at_1000", "ndcg_at_10"),
}
# Of a question, by pytrec_eval's names, which are the keys; mteb keeps no question's reciprocal rank.
OF_QUESTIONS = {"ndcg_cut": "ndcg_at", "map_cut": "map_at", "recall": "recall_at", "success": "hit_rate_at"}


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """Tasks by mteb's names, and how they are run."""

    tasks: Sequence[str]
    languages: Sequence[str] = ()  # ISO 639-3 codes; only subsets wholly in these; empty for all
    measure: str = ""  # that counts in each task; empty for the task's own main measure
    splits: Sequence[str] = ()  # of the tasks; empty for all
    subsets: Sequence[str] = ()  # of the tasks; empty for all
    averages: Mapping[str, Sequence[str]] = field(default_factory=dict)  # name -> the tasks of a mean

    def means(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
        """Return the averages of the main measures of rows; None if a task of an average was not measured."""
        main = {row["task"]: row["measures"][row["main"]] for row in rows}
        return {
            name: round(math.fsum(main[task] for task in tasks) / len(tasks), 6) if main.keys() >= set(tasks) else None
            for name, tasks in self.averages.items()
        }


def _of_benchmark(name: str, but: str = "") -> list[str]:
    """Return the tasks of one of mteb's own benchmarks."""
    names = [task.metadata.name for task in mteb.get_benchmark(name).tasks]
    return [task for task in names if task != but]


# Synthesize-Train-Merge (Khattab et al. 2026, arXiv 2602.04731), Table 11: nDCG@10 of twelve tasks in English.
STM_MEDICAL = (
    *("FeedbackQARetrieval", "MedicalQARetrieval", "CUREv1", "PublicHealthQA", "NFCorpus", "TRECCOVID", "SciFact"),
)
STM_GENERAL = ("SCIDOCS", "NanoFEVERRetrieval", "ArguAna", "NanoQuoraRetrieval", "FiQA2018")
# BMRetriever (Xu et al. 2024, arXiv 2404.18443), Tables 2, 3 and 10; of the eleven data sets mteb has five.
BMRETRIEVER_RETRIEVAL = ("NFCorpus", "SciFact", "SCIDOCS", "TRECCOVID")
# BiCA (Sinha et al. 2025, arXiv 2511.08029), Tables 1 and 10: BEIR's fourteen without MS MARCO.
BEIR_14 = _of_benchmark("BEIR", but="MSMARCO")
# BiCA, Tables 2 and 9: Success@5 of four of LoTTE's five topics, on its test questions.
LOTTE = tuple(
    f"{topic}_{kind}" for kind in ("search", "forum") for topic in ("writing", "recreation", "science", "lifestyle")
)
GROUPS: Mapping[str, TaskGroup] = {
    "medical": TaskGroup(_of_benchmark("MTEB(Medical, v1)")),
    "stm": TaskGroup(
        (*STM_MEDICAL, *STM_GENERAL),
        languages=("eng",),
        measure=NDCG,
        averages={"medical": STM_MEDICAL, "general": STM_GENERAL, "all": (*STM_MEDICAL, *STM_GENERAL)},
    ),
    "bmretriever": TaskGroup(
        (*BMRETRIEVER_RETRIEVAL, "BIOSSES"),
        averages={"retrieval": BMRETRIEVER_RETRIEVAL, "all": (*BMRETRIEVER_RETRIEVAL, "BIOSSES")},
    ),
    "beir-14": TaskGroup(BEIR_14, measure=NDCG, averages={"all": BEIR_14}),
    "lotte": TaskGroup(("LoTTE",), measure=SUCCESS, splits=("test",), subsets=LOTTE),
}


def named_tasks(names: Sequence[str], languages: Sequence[str], group: TaskGroup | None = None) -> list[AbsTask]:
    """Return mteb's own tasks, not yet loaded; those of a group in its languages unless `languages` are named.

    Raises `UsageError` if mteb has no task of a name, or it is not of text alone, or has nothing in the languages.
    """
    tasks = []
    group = group or TaskGroup(())
    options = {
        "languages": list(languages or group.languages) or None,
        "exclusive_language_filter": bool(group.languages) and not languages,
        "eval_splits": list(group.splits) or None,
        "hf_subsets": list(group.subsets) or None,
    }
    for name in dict.fromkeys(names):
        try:
            task = mteb.get_task(name, **options)
        except KeyError as error:
            raise UsageError(f"mteb has no task {name!r}: {error.args[0].strip().splitlines()[0]}") from None
        except ValueError:
            codes = ", ".join(languages or group.languages)
            raise UsageError(
                f"task {name!r} has nothing in the language {codes}: use codes of three letters, such as eng"
            ) from None
        if task.metadata.modalities != ["text"]:
            raise UsageError(f"task {name!r} is of {', '.join(task.metadata.modalities)}: biorag encodes text alone")
        tasks.append(task)
    return tasks


def find_group(name: str) -> TaskGroup:
    """Return a group of tasks; UsageError for an unknown name."""
    check_name("group of tasks", name, GROUPS)
    return GROUPS[name]


def chosen_tasks(
    names: Sequence[str],
    group: TaskGroup | None,
    languages: Sequence[str],
    local: Sequence[Path],
    judged_only: Sequence[Path],
) -> list[AbsTask]:
    """Return the tasks, those of local folders first: they fail at once if they do.

    Raises `UsageError` if two have the same name.
    """
    tasks = [*map(LocalRetrieval, local), *(LocalRetrieval(folder, judged_only=True) for folder in judged_only)]
    tasks += named_tasks(names, languages)
    if group:
        tasks += named_tasks([name for name in group.tasks if name not in names], languages, group)
    taken = [task.metadata.name for task in tasks]
    if twice := next((name for name in taken if taken.count(name) > 1), None):
        raise UsageError(f"two tasks are named {twice!r}: rename the folder")
    return tasks


def measured(
    task: AbsTask, model: EncoderModel, out: Path, offline: bool, group: TaskGroup | None = None
) -> dict[str, Any]:
    """Return a task's measures, and those of its subsets or parts, if it has several.

    A group's measure replaces the main measure of its tasks. A task with a result file in `out` is not run again.

    Raises `MissingError` or `ServiceError` if the task's data cannot be loaded.
    """
    name = task.metadata.name
    main = group.measure if group and group.measure and name in group.tasks else task.metadata.main_score
    if task.is_aggregate:
        parts = {part.metadata.name: measured(part, model, out, offline)["measures"] for part in task.tasks}
    else:
        names = tuple(dict.fromkeys((main, *MEASURES.get(task.metadata.type, ()))))
        parts = _measures(task, _evaluated(task, model, out, offline), names)
    measures = {name: fmean(part[name] for part in parts.values()) for name in next(iter(parts.values()))}
    row: dict[str, Any] = {"task": name, "type": task.metadata.type, "main": main, "measures": _rounded(measures)}
    if instruction := model.instruction(name):
        row["instruction"] = instruction
    if len(parts) > 1:
        row["subsets"] = {name: _rounded(part) for name, part in parts.items()}
    return row


def report(
    rows: Sequence[Mapping[str, Any]], identity: Mapping[str, Any], group: TaskGroup | None = None
) -> dict[str, Any]:
    """Return the document of `--json`; the average is that of the main measures, as mteb has it."""
    average = fmean(row["measures"][row["main"]] for row in rows)
    values = {"model": dict(identity), "tasks": list(rows), "average": round(average, 6)}
    if group:
        values["averages"] = group.means(rows)
    return values


def question_rows(
    tasks: Sequence[AbsTask],
    rows: Sequence[Mapping[str, Any]],
    model: EncoderModel,
    out: Path,
    group: TaskGroup | None = None,
) -> Iterator[QuestionFigures]:
    """Yield the questions of measured tasks, with what each adds to the figures of the report.

    Tasks that are not of retrieval, such as sentence similarity, keep no questions, nor do averages that include one.
    """
    kept = {row["task"]: list(_kept(task, model, out)) for task, row in zip(tasks, rows, strict=True)}
    means = {f"averages.{name}": names for name, names in (group.averages if group else {}).items()}
    means = {path: names for path, names in {"average": [*kept], **means}.items() if all(map(kept.get, names))}
    for row in rows:
        name, main = row["task"], row["main"]
        for question in kept[name]:
            values = question["metrics"]
            metrics = {
                f"tasks.{name}.measures.{measure}": values[measure] for measure in row["measures"] & values.keys()
            }
            if main in values:
                metrics |= {path: values[main] for path, names in means.items() if name in names}
            yield {**question, "metrics": metrics}


def _kept(task: AbsTask, model: EncoderModel, out: Path) -> Iterator[QuestionFigures]:
    """Yield what was kept of a task's questions, of one of several parts under the names of both."""
    if task.is_aggregate:
        for part in task.tasks:
            for row in _kept(part, model, out):
                yield {**row, "set": f"{task.metadata.name}{NESTED}{row['set']}"}
    else:
        yield from read_figures(_questions_file(task, model, out))


def _questions_file(task: AbsTask, model: EncoderModel, out: Path) -> Path:
    """Return the file of a task's questions, beside its result file."""
    result: Path = mteb.ResultCache(out).get_task_result_path(task.metadata.name, model.mteb_model_meta)
    return result.with_suffix(".jsonl")


def _keep_questions(task: AbsTask, rows: dict[tuple[str, str], QuestionFigures]) -> None:
    """Have a retrieval task put each question's measures into `rows`, by its set and id, when they are computed."""
    own, name = getattr(task, "task_specific_scores", None), task.metadata.name
    if own is None:
        return

    def keep(scores: Any, qrels: Any, results: Any, hf_split: str, hf_subset: str) -> Any:
        part = NESTED.join((name, hf_subset, hf_split))
        for id, values in scores.items():
            named = (((*measure.rsplit("_", 1), value)) for measure, value in values.items())
            metrics = {f"{OF_QUESTIONS[kind]}_{at}": value for kind, at, value in named if kind in OF_QUESTIONS}
            rows[part, id] = {"id": id, "set": part, "metrics": metrics}
        return own(scores, qrels, results, hf_split=hf_split, hf_subset=hf_subset)

    task.task_specific_scores = keep


def _evaluated(task: AbsTask, model: EncoderModel, out: Path, offline: bool) -> TaskResult:
    """Evaluate the missing parts of a task and write its result file, `out/results/MODEL/REVISION/TASK.json`.

    The measures of its questions stand beside it, in TASK.jsonl.
    """
    cache, name = mteb.ResultCache(out), task.metadata.name
    questions = _questions_file(task, model, out)
    kept = cache.load_task_result(name, model.mteb_model_meta)
    same = kept and (kept.dataset_revision, kept.mteb_version) == (task.metadata.revision, mteb.__version__)
    rows = {(row["set"], row["id"]): row for row in read_figures(questions)} if same else {}
    before = len(rows)
    _keep_questions(task, rows)
    datasets.disable_progress_bars()
    try:
        results = mteb.evaluate(
            model,
            task,
            cache=cache,
            overwrite_strategy="only-missing" if same else "always",
            co2_tracker=False,
            encode_kwargs={"batch_size": BATCH, "show_progress_bar": False},
            show_progress_bar=False,
        )
    except OSError as error:
        if task.data_loaded:
            raise
        if offline:
            raise MissingError(
                f"task {name!r} needs data that is not on this machine: run it once without --offline"
            ) from error
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ServiceError(
            f"the data of task {name!r} could not be downloaded ({reason}): try again with a connection"
        ) from error
    if len(rows) > before:
        write_figures(questions, rows.values())
    return results.task_results[0]


def _measures(task: AbsTask, result: TaskResult, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return subset -> measure -> mean over the task's splits."""
    rows = [
        scores
        for split in task.eval_splits
        for scores in result.scores[split]
        if scores["hf_subset"] in task.hf_subsets
    ]
    known = [name for name in names if all(name in scores for scores in rows)]
    return {
        subset: {name: fmean(scores[name] for scores in rows if scores["hf_subset"] == subset) for name in known}
        for subset in task.hf_subsets
    }


def _rounded(measures: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in measures.items()}
