"""A sweep from its file to the report: the plan, the steps, the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from biorag.recipes.ablation.plan import AblationPlan
from biorag.recipes.ablation.report import Row, rows_of, write_report
from biorag.recipes.ablation.sweep import BASELINES, Sweep, cells, load_sweep
from biorag.recipes.files import write_settings
from biorag.recipes.steps import Workshop, held
from biorag.settings.services import announce
from biorag.types import Progress
from biorag.utils.network import is_server


def run_sweep(path: Path, out: Path, jobs: int, progress: Progress) -> tuple[dict[str, Any], dict[str, list[Row]]]:
    """Do the steps of a sweep that are not done yet, and write its report into `out`.

    Returns
    -------
    facts of the run, and the rows of each data set
    """
    sweep = load_sweep(path)
    with held(out):
        return _run(sweep, out, jobs, progress)


def _run(sweep: Sweep, out: Path, jobs: int, progress: Progress) -> tuple[dict[str, Any], dict[str, list[Row]]]:
    """Do the steps of a sweep in a folder that is held; see `run_sweep`."""
    if sweep.mirage and is_server(sweep.mirage.llm):
        announce(sweep.mirage.llm, "llm")  # which the steps say in their logs alone
    seed = int(sweep.settings.get("seed", 0))
    plan = AblationPlan(sweep)
    measurements = [plan.measurement(cell) for cell in (*BASELINES, *cells(sweep))]
    workshop = Workshop(out, write_settings(sweep.settings, out), jobs)
    steps = [step for measurement in measurements for step in measurement.steps]
    times = workshop.run_timed(steps, progress)
    tables = {name: rows_of(measurements, workshop, name, seed) for name in measurements[0].retrieval}
    facts = {
        "sweep": sweep.model_dump(mode="json"),
        "seed": seed,
        **times,
    }
    write_report(out, tables, facts)
    return facts, tables
