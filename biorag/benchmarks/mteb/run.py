"""Evaluating tasks one by one, into mteb's result files and a report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import mteb
from mteb.abstasks import AbsTask
from mteb.results import TaskResult

from biorag.benchmarks.mteb.groups import Group
from biorag.benchmarks.mteb.models import EncoderModel
from biorag.benchmarks.mteb.tasks import LocalRetrieval, load

BATCH = 256  # texts that mteb's loader hands over at a time


def measured(
    task: AbsTask, model: EncoderModel, out: Path, offline: bool, group: Group | None = None
) -> dict[str, Any]:
    """Return a task's measures, and those of its subsets, or its parts, if it has several.

    What an earlier run into the same folder found is taken from its result file.

    Parameters
    ----------
    group : whose measure counts in its tasks, in place of their own

    Raises
    ------
    MissingError, ServiceError
        If the task's data is not there; see `load`.
    """
    name = task.metadata.name
    main = (group and group.measures.get(name)) or task.metadata.main_score
    about: dict[str, Any] = {"task": name, "type": task.metadata.type, "main": main}
    if task.is_aggregate:
        parts = {part.metadata.name: measured(part, model, out, offline)["measures"] for part in task.tasks}
    else:
        retrieval = LocalRetrieval.measures if task.metadata.type == "Retrieval" else ()
        names = tuple(dict.fromkeys((main, *getattr(task, "measures", retrieval))))
        parts = _measures(task, _evaluated(task, model, out, offline), names)
    values = {**about, "measures": _rounded(_means(parts.values()))}
    if model.prompts and (instruction := model.prompts.of(name)):
        values["instruction"] = instruction
    if len(parts) > 1:
        values["subsets"] = {name: _rounded(measures) for name, measures in parts.items()}
    return values


def report(
    rows: Sequence[Mapping[str, Any]], identity: Mapping[str, Any], group: Group | None = None
) -> dict[str, Any]:
    """Return what `--json` prints; the average is that of the main measures, as mteb's.

    Of a group there are its averages too, and which of its data sets mteb does not have and no file gave.
    """
    average = math.fsum(row["measures"][row["main"]] for row in rows) / len(rows)
    found = {"model": dict(identity), "tasks": list(rows), "average": round(average, 6)}
    if group:
        found |= {"averages": group.means(rows), "missing": group.missing([row["task"] for row in rows])}
    return found


def _kept(task: AbsTask, model: EncoderModel, out: Path) -> TaskResult | None:
    """Return what an earlier run found on the same data with the same mteb; it may lack parts of the task."""
    found = mteb.ResultCache(out).load_task_result(task.metadata.name, model.mteb_model_meta)
    same = found and (found.dataset_revision, found.mteb_version) == (task.metadata.revision, mteb.__version__)
    return found if same else None


def _evaluated(task: AbsTask, model: EncoderModel, out: Path, offline: bool) -> TaskResult:
    """Evaluate a task, or what is left of it, and write its result file, `out/results/MODEL/REVISION/TASK.json`."""
    kept = _kept(task, model, out)
    if kept and not kept.get_missing_evaluations(task):
        return kept
    datasets.disable_progress_bars()
    load(task, offline)
    found = mteb.evaluate(
        model,
        task,
        cache=mteb.ResultCache(out),
        overwrite_strategy="only-missing" if kept else "always",  # the former would keep results on other data
        co2_tracker=False,
        encode_kwargs={"batch_size": BATCH, "show_progress_bar": False},
        show_progress_bar=False,
    )
    task.unload_data()
    return found.task_results[0]


def _measures(task: AbsTask, result: TaskResult, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return subset -> measure -> mean over the task's splits; a result file may hold more of either."""
    found: dict[str, list[Mapping[str, Any]]] = {subset: [] for subset in task.hf_subsets}
    for split in task.eval_splits:
        for scores in result.scores[split]:
            if scores["hf_subset"] in found:
                found[scores["hf_subset"]].append(scores)
    held = [name for name in names if all(name in scores for listed in found.values() for scores in listed)]
    return {subset: _means({name: each[name] for name in held} for each in listed) for subset, listed in found.items()}


def _means(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    listed = list(rows)
    return {name: math.fsum(row[name] for row in listed) / len(listed) for name in listed[0]}


def _rounded(measures: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in measures.items()}
