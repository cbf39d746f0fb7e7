"""A recipe from its file to its tables: the estimate, the checks before the first step, the steps, the report."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from biorag.errors import BioragError, MissingError, ServiceError, UsageError
from biorag.lab.recipes import PAPERS, SUFFIX, papers
from biorag.lab.recipes.estimates import Estimator, StepEstimate, totals
from biorag.lab.recipes.page import html_report
from biorag.lab.recipes.plan import RecipePlan
from biorag.lab.recipes.report import report_markdown, write_plots
from biorag.lab.recipes.steps import HOME, StepRunner
from biorag.lab.recipes.tables import Figures
from biorag.lab.scale.planning import MachineKind
from biorag.models.finding import require_access
from biorag.settings.services import announce
from biorag.settings.settings import checked
from biorag.settings.sources import load_settings
from biorag.types import Progress
from biorag.utils.files import disk_bytes, write_json, write_text
from biorag.utils.http import excerpt
from biorag.utils.network import without_credentials
from biorag.utils.parsing import parsed
from biorag.utils.registry import or_list
from biorag.utils.versions import lacking

REPORT = "report"
SECONDS = 20.0  # to wait for a server's answer


@dataclass(frozen=True, slots=True)
class _Models:
    data: tuple[dict[str, Any], ...] = ()


def recipe_of(paper: str) -> Path:
    """Return the packaged recipe of a paper.

    Raises UsageError if there is none.
    """
    if paper not in papers():
        raise UsageError(f"there is no recipe of {paper!r}: use {or_list(papers())}, or `biorag run` with a file")
    return PAPERS / f"{paper}{SUFFIX}"


def preview(plan: RecipePlan, out: Path, machine: MachineKind | None = None, jobs: int = 1) -> dict[str, Any]:
    """Return the steps of a run as JSON, with commands and estimates, the servers, and the missing inputs."""
    runner, estimates = runner_of(plan, out), Estimator(plan, machine).all()
    steps = [{"name": step.name, **asdict(estimates[step.key]), "command": runner.command(step)} for step in plan.steps]
    return {
        "scale": plan.scale_name,
        "departures": list(plan.scale.departures),
        "hardware": plan.choices.hardware,
        "machine": machine.name if machine else None,
        "steps": steps,
        "missing": {wanted.name: wanted.path for wanted in plan.missing()},
        "gated": plan.gated,
        **totals(plan, estimates, jobs),
    }


def runner_of(plan: RecipePlan, out: Path, jobs: int = 1) -> StepRunner:
    """Return what runs the steps of a plan in a folder."""
    return StepRunner(out, plan.settings, plan.urls, jobs)


def run_recipe(plan: RecipePlan, out: Path, jobs: int, progress: Progress) -> dict[str, Any]:
    """Run the steps that have not finished, and write `report.json`, `report.md`, `report.html` and plots into `out`.

    Raises the BioragError of the first step that fails.
    """
    runner = runner_of(plan, out, jobs)
    with runner.held():
        for name, url in plan.urls.items():
            announce(url, plan.servers[name].option.removeprefix("--"))  # which the steps say in their logs alone
        times = runner.run(plan.steps, progress)
        report = _report(plan, runner, times)
        report["plots"] = write_plots(report, plan.recipe.plots, out)
        write_json(out / f"{REPORT}.json", report)
        write_text(out / f"{REPORT}.md", report_markdown(report))
        write_text(out / f"{REPORT}.html", html_report(report, out))
    return report


def _report(plan: RecipePlan, runner: StepRunner, times: Mapping[str, Any]) -> dict[str, Any]:
    figures = Figures(plan, runner, checked(plan.scale.settings).seed)
    records = [runner.record(step) for step in plan.steps]
    tables = map(figures.table, plan.recipe.tables)
    questions = {step.name: count for step in plan.steps if (count := figures.questions(step))}
    measured = (_measured(record["name"], record["report"], questions.get(record["name"], 0)) for record in records)
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
        "findings": figures.findings(plan.recipe.compared()),
        "questions": questions,
        "measured": list(dict.fromkeys(filter(None, measured))),
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
    tasks = report.get("tasks", {})
    if isinstance(tasks, list):  # of `bench mteb`
        return f"{count:,} of {', '.join(task['task'] for task in tasks)}"
    counts = {task: values.get("n") for task, values in tasks.items() if isinstance(values, dict)}
    return ", ".join(f"{total:,} of {task}" for task, total in counts.items() if total) or f"{count:,} in {name!r}"


def check(plan: RecipePlan, estimates: Mapping[str, StepEstimate]) -> None:
    """Check a plan.

    Raises MissingError if inputs, packages or the licence of a model are not there; ServiceError if a server or the
    memory does not do.
    """
    if listed := ", ".join(wanted.description for wanted in plan.missing()):
        raise MissingError(f"inputs are not there: {listed}: put them there, or name their folder by --data")
    extras = {extra: packages for extra in plan.extras if (packages := lacking(extra))}
    if extras:
        listed = ", ".join(sorted({package for packages in extras.values() for package in packages}))
        raise MissingError(f"these steps need {listed}: run pip install 'biorag[{','.join(extras)}]'")
    for id in (id for id, loaded in plan.gated.items() if loaded):
        require_access(id)
    too_large = [(step.name, estimates[step.key].fault) for step in plan.steps if estimates[step.key].fault]
    if too_large:
        name, fault = too_large[0]
        others = f", and so for {len(too_large) - 1} other steps" if len(too_large) > 1 else ""
        raise ServiceError(f"step {name!r}: {fault}{others}: name a profile by --hardware, or take a larger machine")
    for name in plan.servers:
        _check_server(plan, name)


def _check_server(plan: RecipePlan, name: str) -> None:
    """Ask a server which models it has."""
    described, url = plan.recipe.servers[name], plan.urls[name]
    kind, root = described.option.removeprefix("--"), url.rstrip("/")
    server = load_settings({}).services.server(url, kind)
    path = "einfo.fcgi?retmode=json" if kind != "llm" else "models" if root.endswith("/v1") else "v1/models"
    headers = {"Authorization": f"Bearer {server.api_key}"} if server.api_key else {}
    try:
        response = httpx.get(f"{root}/{path}", headers=headers, auth=server.auth, timeout=SECONDS)
        if not response.is_success:
            raise ValueError(f"{response.status_code}: {excerpt(response)}")
        models = parsed(_Models, response.content, "ignore")
    except (httpx.HTTPError, BioragError, ValueError) as error:
        raise ServiceError(
            f"server {name!r} ({described.what}) does not answer at {without_credentials(url)} ({error}): "
            f"{described.get or 'start it'}, or name another by --server {name}=URL"
        ) from None
    listed = [str(model.get("id")) for model in models.data]
    if described.model and described.model not in listed:
        raise ServiceError(
            f"server {name!r} at {without_credentials(url)} does not have the model {described.model!r} but "
            f"{', '.join(listed[:9]) or 'none'}: start it with that model, or name another by --server {name}=URL"
        )
