"""A recipe from its file to its tables: the estimate, the steps, the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biorag.errors import MissingError, UsageError
from biorag.models.resources import FORWARD, WEIGHT_BYTES
from biorag.recipes import PAPERS, SUFFIX, papers, sweep
from biorag.recipes.plan import Instance, RecipePlan
from biorag.recipes.recipe import load_recipe
from biorag.recipes.steps import Workshop
from biorag.recipes.tables import Figures, findings_markdown, markdown
from biorag.settings.services import announce
from biorag.settings.settings import Settings, checked
from biorag.settings.training import RETRIEVER, TRAINED
from biorag.types import Progress
from biorag.utils.files import write_json, write_text
from biorag.utils.network import is_server
from biorag.utils.registry import or_list
from biorag.utils.versions import lacking

if TYPE_CHECKING:
    from biorag.training.estimating import Machine

REPORT = "report"
PROGRAM_BYTES = 700_000_000  # Python with its libraries
DEFAULT_TOKENS = 128  # of a text, where a recipe does not say
QUERY_TOKENS = 32


def recipe_of(paper: str) -> Path:
    """Return the packaged recipe of a paper.

    Raises UsageError if there is none.
    """
    if paper not in papers():
        raise UsageError(f"there is no recipe of {paper!r}: use {or_list(papers())}, or `biorag run` with a file")
    return PAPERS / f"{paper}{SUFFIX}"


def plan_of(path: Path, scale: str, backbone: str | None, data: Path) -> RecipePlan:
    """Read a recipe and return its plan at a scale; raises as `load_recipe` and `RecipePlan` do."""
    return RecipePlan(load_recipe(path), scale, backbone, data)


def sweep_plan(path: Path) -> RecipePlan:
    """Read a sweep and return the plan of its grid; raises as `load_sweep` does."""
    return RecipePlan(sweep.recipe_of(sweep.load_sweep(path)), sweep.SCALE, None, Path("data"))


def preview(plan: RecipePlan, out: Path) -> dict[str, Any]:
    """Return the steps of a run as JSON, with commands and estimates, and the missing inputs."""
    workshop = Workshop(out)
    steps = [
        {"name": step.name, "seconds": seconds, "bytes": needed, "command": workshop.command(step)}
        for step, (seconds, needed) in zip(plan.steps, estimates(plan), strict=True)
    ]
    return {"scale": plan.scale_name, "steps": steps, "missing": plan.missing()}


def estimates(plan: RecipePlan) -> list[tuple[float | None, int | None]]:
    """Return the seconds and bytes of each step, None if not known.

    The seconds are a lower bound, at the speed of large matrix products; options of a command count.
    """
    from biorag.training.estimating import this_machine

    settings = checked(plan.scale.settings)
    machine = this_machine(settings.retrieval.precision)
    return [_estimate(plan, instance, settings, machine) for instance in plan.instances]


def _estimate(
    plan: RecipePlan, instance: Instance, settings: Settings, machine: Machine
) -> tuple[float | None, int | None]:
    from biorag.models.loading import uses_bf16
    from biorag.training.estimating import TrainingWork, epochs_of, estimate, rough_shape, training_settings

    work, model, words = instance.template.work, plan.backbone, instance.step.arguments
    if work is None or not model.parameters:
        return None, None
    source = None if isinstance(work.of, int) else plan.recipe.inputs[work.of]
    rows = source.size.get(plan.scale_name) if source else int(work.of)
    tokens = work.tokens or (source.tokens if source else DEFAULT_TOKENS)
    if work.kind == "encode":
        seconds = None if rows is None else FORWARD * model.multiplied * rows * work.texts * tokens / machine.operations
        return seconds, PROGRAM_BYTES + int(WEIGHT_BYTES * model.parameters)
    settings = training_settings(words, settings)
    training, kind = settings.training, next((word for word in words[1:2] if word in TRAINED), RETRIEVER)
    tokens = min(tokens, training.max_tokens)
    columns = (tokens,) * max(1, round(work.texts) - 1)
    read = TrainingWork(kind, round((rows or 0) * work.texts * tokens), QUERY_TOKENS, columns, "--lora" in words)
    shape = rough_shape(model.parameters, model.multiplied, model.layers, model.hidden)
    machine = replace(machine, bf16=uses_bf16(settings.retrieval.precision))
    found = estimate(shape, read, training, machine, epochs_of(training, rows or 1))
    return (None if rows is None else found.seconds), PROGRAM_BYTES + found.peak


def run_recipe(plan: RecipePlan, out: Path, jobs: int, progress: Progress) -> dict[str, Any]:
    """Run the steps that have not finished, and write `report.json` and `report.md` into `out`.

    Raises MissingError if inputs or packages are not there; the BioragError of the first step that fails.
    """
    if lacking_inputs := plan.lacking():
        listed = ", ".join(lacking_inputs)
        raise MissingError(f"inputs are not there: {listed}: put them there, or name their folder by --data")
    if packages := sorted({package for extra in plan.scale.extras for package in lacking(extra)}):
        raise MissingError(
            f"these steps need {', '.join(packages)}: run pip install 'biorag[{','.join(plan.scale.extras)}]'"
        )
    workshop = Workshop(out, jobs, plan.scale.settings)
    with workshop.held():
        for name, value in {**plan.backbone.values, **plan.scale.values, **plan.scale.settings}.items():
            if isinstance(value, str) and is_server(value):
                announce(value, name)  # which the steps say in their logs alone
        times = workshop.run(plan.steps, progress)
        report = _report(plan, workshop, times)
        write_json(out / f"{REPORT}.json", report)
        write_text(out / f"{REPORT}.md", report_markdown(report))
    return report


def _report(plan: RecipePlan, workshop: Workshop, times: Mapping[str, Any]) -> dict[str, Any]:
    figures = Figures(plan, workshop, checked(plan.scale.settings).seed)
    records = [workshop.record(step) for step in plan.steps]
    tables = map(figures.table, plan.recipe.tables)
    return {
        "title": plan.recipe.title,
        "paper": plan.recipe.paper,
        "scale": plan.scale_name,
        "about": plan.scale.about,
        "backbone": plan.backbone.model,
        **times,
        "steps": [{key: record[key] for key in ("name", "command", "seconds")} for record in records],
        "tables": [table for table in tables if table["rows"]],
        "findings": figures.findings(plan.recipe.findings),
    }


def report_markdown(report: Mapping[str, Any]) -> str:
    """Return a report as Markdown: ours / the paper's."""
    head = [
        f"# {report['title']}",
        "",
        f"Scale {report['scale']}: {report['about']} Encoder {report['backbone']}. {len(report['steps'])} steps, "
        f"{report['seconds_of_steps'] / 60:.1f} minutes on {report['cpus']} cores.",
        "",
        "Each cell: our figure (95 % interval over questions) / the paper's.",
        "",
    ]
    findings = [findings_markdown(report["findings"])] if report["findings"] else []
    return "\n".join([*head, *map(markdown, report["tables"]), *findings])
