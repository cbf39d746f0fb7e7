"""Evaluating tasks one by one, into mteb's result files and a report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import mteb
from mteb.abstasks import AbsTask
from mteb.results import TaskResult

from biorag.benchmarks.mteb.models import EncoderModel
from biorag.benchmarks.mteb.tasks import load

BATCH = 256  # texts that mteb's loader hands over at a time


def measured(task: AbsTask, model: EncoderModel, out: Path, offline: bool) -> dict[str, Any]:
    """Return a task's measures; what an earlier run into the same folder found is taken from its result file.

    Raises
    ------
    MissingError, ServiceError
        If the task's data is not there; see `load`.
    """
    about = {"task": task.metadata.name, "type": task.metadata.type, "main": task.metadata.main_score}
    names = dict.fromkeys((about["main"], *getattr(task, "measures", ())))
    result = _evaluated(task, model, out, offline)
    return {**about, "measures": {name: round(_mean(result, name), 6) for name in names}}


def report(rows: Sequence[Mapping[str, Any]], identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `--json` prints; the average is that of the main measures, as mteb's."""
    average = math.fsum(row["measures"][row["main"]] for row in rows) / len(rows)
    return {"model": dict(identity), "tasks": list(rows), "average": round(average, 6)}


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


def _mean(result: TaskResult, name: str) -> float:
    """Return a measure's mean over a task's splits and subsets."""
    return float(result.get_score(getter=lambda scores: scores[name]))
