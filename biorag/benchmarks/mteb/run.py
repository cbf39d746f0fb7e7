"""Evaluating tasks one by one, into mteb's result files and a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import datasets
import mteb
from mteb.abstasks import AbsTask
from mteb.results import TaskResult

from biorag.benchmarks.mteb.groups import GROUPS, TaskGroup, named_tasks
from biorag.benchmarks.mteb.local import LocalRetrieval, local_tasks
from biorag.benchmarks.mteb.models import EncoderModel
from biorag.errors import MissingError, ServiceError, UsageError, unknown_name

BATCH = 256  # texts that mteb's loader hands over at a time


def find_group(name: str) -> TaskGroup:
    """Return a group of tasks; UsageError for an unknown name."""
    if name not in GROUPS:
        raise unknown_name("group of tasks", name, GROUPS)
    return GROUPS[name]


def chosen_tasks(
    names: Sequence[str], group: TaskGroup | None, languages: Sequence[str], paths: Mapping[str, Sequence[Path]]
) -> list[Any]:
    """Return the tasks, local ones first, since these fail at once if they do.

    Raises `UsageError` if a local task has the name of one of mteb's.
    """
    local = local_tasks(paths)
    listed = named_tasks(names, languages)
    if group:
        listed += named_tasks([name for name in group.tasks if name not in names], languages, group)
    taken = {task.metadata.name for task in listed}
    for task in local:
        if task.metadata.name in taken:
            raise UsageError(f"{task.metadata.name!r} is a task of mteb's too: rename the folder")
    return [*local, *listed]


def measured(
    task: AbsTask, model: EncoderModel, out: Path, offline: bool, group: TaskGroup | None = None
) -> dict[str, Any]:
    """Return a task's measures, and those of its subsets, or its parts, if it has several.

    The group's measure counts in its tasks, in place of their own. A task that has its result file in `out` is not run
    again.

    Raises `MissingError` or `ServiceError` if the task's data cannot be loaded.
    """
    name = task.metadata.name
    main = group.measure if group and group.measure and name in group.tasks else task.metadata.main_score
    if task.is_aggregate:
        parts = {part.metadata.name: measured(part, model, out, offline)["measures"] for part in task.tasks}
    else:
        retrieval = LocalRetrieval.measures if task.metadata.type == "Retrieval" else ()
        names = tuple(dict.fromkeys((main, *getattr(task, "measures", retrieval))))
        parts = _measures(task, _evaluated(task, model, out, offline), names)
    measures = {name: fmean(part[name] for part in parts.values()) for name in next(iter(parts.values()))}
    row: dict[str, Any] = {"task": name, "type": task.metadata.type, "main": main, "measures": _rounded(measures)}
    if model.prompts and (instruction := model.prompts.of(name)):
        row["instruction"] = instruction
    if len(parts) > 1:
        row["subsets"] = {name: _rounded(part) for name, part in parts.items()}
    return row


def report(
    rows: Sequence[Mapping[str, Any]], identity: Mapping[str, Any], group: TaskGroup | None = None
) -> dict[str, Any]:
    """Return the document of `--json`: the average is that of the main measures, as mteb's; a group has its own too."""
    average = fmean(row["measures"][row["main"]] for row in rows)
    values = {"model": dict(identity), "tasks": list(rows), "average": round(average, 6)}
    if group:
        values |= {"averages": group.means(rows), "missing": group.missing([row["task"] for row in rows])}
    return values


def _evaluated(task: AbsTask, model: EncoderModel, out: Path, offline: bool) -> TaskResult:
    """Evaluate the missing parts of a task and write its result file, `out/results/MODEL/REVISION/TASK.json`."""
    cache, name = mteb.ResultCache(out), task.metadata.name
    kept = cache.load_task_result(name, model.mteb_model_meta)
    same = kept and (kept.dataset_revision, kept.mteb_version) == (task.metadata.revision, mteb.__version__)
    datasets.disable_progress_bars()
    try:
        results = mteb.evaluate(
            model,
            task,
            cache=cache,
            overwrite_strategy="only-missing" if same else "always",  # the former would keep results on other data
            co2_tracker=False,
            encode_kwargs={"batch_size": BATCH, "show_progress_bar": False},
            show_progress_bar=False,
        )
    except OSError as error:
        if task.data_loaded:
            raise
        if offline:
            raise MissingError(
                f"task {name!r} needs data that is not on this machine: run it once without --offline, or use files "
                "of your own with --local"
            ) from error
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ServiceError(
            f"the data of task {name!r} could not be downloaded ({reason}): try again with a connection, or "
            "use files of your own with --local"
        ) from error
    return results.task_results[0]


def _measures(task: AbsTask, result: TaskResult, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return subset -> measure -> mean over the task's splits; a result file may hold more of either."""
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
