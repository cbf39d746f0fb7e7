"""A recipe from its file to its tables: the estimate, the steps, the report."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from biorag.errors import UsageError
from biorag.lab.recipes import PAPERS, SUFFIX, papers, sweep
from biorag.lab.recipes.estimates import Estimator, totals
from biorag.lab.recipes.grid import Sweep, load_sweep
from biorag.lab.recipes.page import html_report
from biorag.lab.recipes.pictures import write_pictures
from biorag.lab.recipes.plan import Choices, RecipePlan
from biorag.lab.recipes.steps import HOME, Shared, StepRunner
from biorag.lab.recipes.tables import Figures, findings_markdown, markdown
from biorag.lab.scale.planning import MachineKind
from biorag.settings.services import announce
from biorag.settings.settings import checked
from biorag.types import Progress
from biorag.utils.files import disk_bytes, write_json, write_text
from biorag.utils.registry import or_list

REPORT = "report"
MADE = {"retriever": "retriever", "reranker": "aligned"}  # by a pipeline: what, and the step


def recipe_of(paper: str) -> Path:
    """Return the packaged recipe of a paper.

    Raises UsageError if there is none.
    """
    if paper not in papers():
        raise UsageError(f"there is no recipe of {paper!r}: use {or_list(papers())}, or `biorag run` with a file")
    return PAPERS / f"{paper}{SUFFIX}"


def sweep_plan(path: Path, choices: Choices) -> RecipePlan:
    """Read a sweep and return the plan of its grid; raises as `load_sweep` does."""
    return RecipePlan(sweep.recipe_of(load_sweep(path)), sweep.SCALE, choices)


def pipeline_plan(values: Mapping[str, Any], name: str, choices: Choices) -> RecipePlan:
    """Return the plan of a training pipeline, a sweep of one cell by its values, whose last step makes an index.

    Raises UsageError for a value that a sweep may not have.
    """
    asked = {key: value for key, value in values.items() if value is not None}
    return RecipePlan(sweep.pipeline_of(Sweep.of(asked), name), sweep.SCALE, choices)


def made(plan: RecipePlan, out: Path) -> dict[str, str]:
    """Return the folders of a pipeline's retriever and reranker."""
    runner = workshop_of(plan, out)
    return {kind: str(runner.out(plan.at(step, {})[0].step)) for kind, step in MADE.items()}


def preview(plan: RecipePlan, out: Path, machine: MachineKind | None = None, jobs: int = 1) -> dict[str, Any]:
    """Return the steps of a run as JSON, with commands and estimates, the servers, and the missing inputs."""
    runner, found = workshop_of(plan, out), Estimator(plan, machine).all()
    steps = [{"name": step.name, **asdict(found[step.key]), "command": runner.command(step)} for step in plan.steps]
    return {
        "scale": plan.scale_name,
        "departures": list(plan.scale.departures),
        "hardware": plan.choices.hardware,
        "machine": machine.name if machine else None,
        "steps": steps,
        "missing": plan.missing(),
        "gated": plan.gated,
        **totals(plan, found, jobs),
    }


def workshop_of(plan: RecipePlan, out: Path, jobs: int = 1) -> StepRunner:
    """Return what runs the steps of a plan in a folder."""
    return StepRunner(out, Shared(plan.settings, plan.urls, jobs))


def run_recipe(plan: RecipePlan, out: Path, jobs: int, progress: Progress) -> dict[str, Any]:
    """Run the steps that have not finished, and write `report.json`, `report.md`, `report.html` and plots into `out`.

    Raises the BioragError of the first step that fails.
    """
    runner = workshop_of(plan, out, jobs)
    with runner.held():
        for name, url in plan.urls.items():
            announce(url, plan.servers[name].option.removeprefix("--"))  # which the steps say in their logs alone
        times = runner.run(plan.steps, progress)
        report = _report(plan, runner, times)
        report["plots"] = write_pictures(report, plan.recipe.plots, out)
        write_json(out / f"{REPORT}.json", report)
        write_text(out / f"{REPORT}.md", report_markdown(report))
        write_text(out / f"{REPORT}.html", html_report(report, report_head(report), out))
    return report


def _report(plan: RecipePlan, runner: StepRunner, times: Mapping[str, Any]) -> dict[str, Any]:
    figures = Figures(plan, runner, checked(plan.scale.settings).seed)
    records = [runner.record(step) for step in plan.steps]
    tables = map(figures.table, plan.recipe.tables)
    questions = {step.name: count for step in plan.steps if (count := figures.questions(step))}
    told = (_measured(record["name"], record["report"], questions.get(record["name"], 0)) for record in records)
    return {
        "title": plan.recipe.title,
        "paper": plan.recipe.paper,
        "scale": plan.scale_name,
        "about": plan.scale.about,
        "departures": list(plan.scale.departures),
        "backbone": plan.backbone.model,
        "hardware": plan.choices.hardware,
        "deviations": plan.changes.deviations(),
        **times,
        "disk": {"out": disk_bytes(runner.folder), "indexes": disk_bytes(runner.folder / HOME)},
        "freed_by": shlex.join(["biorag", "indexes", "clean", "--run", str(runner.folder)]),
        "steps": [{key: record[key] for key in ("name", "command", "seconds")} for record in records],
        "tables": [table for table in tables if table["rows"]],
        "findings": figures.findings(plan.recipe.findings),
        "questions": questions,
        "measured": list(dict.fromkeys(filter(None, told))),
    }


def _measured(name: str, report: Mapping[str, Any], count: int) -> str:
    """Return what questions a step measured, of which data set, and what of it no search could find; "" for none."""
    if not count:
        return ""
    if "part" in report:
        lacks = (report["judged"] or {}).get("missing", 0)
        selected = f"{count:,}" if count == report["of"] else f"{count:,} of {report['of']:,} ({report['part']})"
        missing = f", {lacks:,} of whose judged snippets are not indexed" if lacks else ""
        return f"{selected} in {report['dataset']}{missing}"
    counts = {task: values.get("n") for task, values in report.get("tasks", {}).items() if isinstance(values, dict)}
    return ", ".join(f"{total:,} of {task}" for task, total in counts.items() if total) or f"{count:,} in {name!r}"


def report_markdown(report: Mapping[str, Any]) -> str:
    """Return a report as Markdown."""
    first, *others = report_head(report)
    head = [
        f"# {report['title']}",
        "",
        first,
        "",
        *listed("Where this scale departs from the paper:", report["departures"]),
        *listed("Deviations from the recipe:", list(map(_deviation, report["deviations"]))),
        *(line for one in others for line in (one, "")),
    ]
    plots = [f"![{plot['title']}]({plot['name']}.png)\n" for plot in report["plots"]]
    findings = [findings_markdown(report["findings"])] if report["findings"] else []
    return "\n".join([*head, *plots, *map(markdown, report["tables"]), *findings])


def report_head(report: Mapping[str, Any]) -> list[str]:
    """Return what is said before the tables: what was run, the questions measured, what a cell has, and disk used."""
    published = any(
        cell["paper"] is not None for table in report["tables"] for row in table["rows"] for cell in row["cells"]
    )
    cell = "our figure (95 % interval over questions)" + (" / the paper's" if published else "")
    return [
        f"Scale {report['scale']}: {report['about']} Encoder {report['backbone']}. {len(report['steps'])} steps, "
        f"{report['seconds_of_steps'] / 60:.1f} minutes on {report['cpus']} cores.",
        *([f"Questions measured: {'; '.join(report['measured'])}."] if report["measured"] else []),
        f"Each cell: {cell}.",
        f"Disk: {report['disk']['out'] / 1e6:,.1f} MB, {report['disk']['indexes'] / 1e6:,.1f} of them for indexes and "
        f"their encoders; '{report['freed_by']}' removes indexes and models.",
    ]


def listed(title: str, items: Sequence[str]) -> list[str]:
    """Return the lines of a list in Markdown under its title; none without items."""
    return [title, "", *(f"- {item}" for item in items), ""] if items else []


def _deviation(one: Mapping[str, Any]) -> str:
    return f"{one['step']}: `{one['name']}` = {one['value']} (recipe: {one['was']})"
