"""`biorag reproduce`, `biorag run` and `biorag ablate`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from biorag.commands import options, show
from biorag.commands.groups import expanded
from biorag.errors import UsageError
from biorag.recipes import papers
from biorag.utils.registry import or_list

if TYPE_CHECKING:
    from biorag.recipes.plan import RecipePlan


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to run a recipe."""

    out: Annotated[
        Path | None, Option(help="Folder for models, indexes and the report; finished steps are reused. [required]")
    ] = None
    scale: Annotated[str, Option(help="Size: smoke (minutes), cpu (hours) or full (the paper's).")] = "smoke"
    backbone: Annotated[str | None, Option(help="Model to train, one of the recipe's. Default: the scale's.")] = None
    data: Annotated[Path, Option(help="Folder of the inputs, {data} in recipes.")] = Path("data")
    jobs: Annotated[int, Option(min=1, help="Steps that run in parallel, each in its own process.")] = 1
    dry_run: Annotated[bool, Option("--dry-run", help="Only list the steps with estimated time and memory.")] = False


@expanded
def reproduce(
    paper: Annotated[str, Argument(help=f"Recipe: {or_list(papers())}.")],
    asked: RunOptions,
    as_json: options.Json = False,
) -> None:
    """Run a paper's recipe and set its tables beside the paper's own.

    Every step is a command of biorag; report.json lists them. The same command resumes an interrupted run.

    Examples:

      biorag reproduce modernbert-colbert --out runs/mc
      biorag reproduce bioasq8-hybrid --scale cpu --data data --out runs/hybrid --jobs 2
      biorag reproduce modernbert-colbert --scale full --dry-run
    """
    from biorag.recipes.run import recipe_of

    _run(recipe_of(paper), asked, as_json)


@expanded
def run(
    recipe: Annotated[Path, Argument(help="TOML file of the recipe; docs/recipes.md explains it.")],
    asked: RunOptions,
    as_json: options.Json = False,
) -> None:
    """Run a recipe of your own: steps, the values they are repeated for, and tables.

    Examples:

      biorag run recipe.toml --scale cpu --out runs/mine
      biorag run recipe.toml --scale full --dry-run --json
    """
    _run(recipe, asked, as_json)


def _run(recipe: Path, asked: RunOptions, as_json: bool) -> None:
    from biorag.recipes.run import plan_of, preview

    plan = plan_of(recipe, asked.scale, asked.backbone, asked.data)
    if asked.dry_run:
        show.result(preview(plan, asked.out or Path("OUT")), as_json, _print_preview)
        for missing in plan.lacking():
            show.err.print(f"not there: {missing}", soft_wrap=True)
        return
    if asked.out is None:
        raise UsageError("a run needs a folder for its models and report: give --out, or --dry-run to list the steps")
    _report(plan, asked.out, asked.jobs, as_json)


def _report(plan: RecipePlan, out: Path, jobs: int, as_json: bool) -> None:
    from biorag.recipes.run import run_recipe

    show.result(run_recipe(plan, out, jobs, show.progress), as_json, _print)
    show.err.print(f"report and the commands of every step: {out}")


def _print(report: Mapping[str, Any]) -> None:
    from biorag.recipes.tables import FINDING_COLUMNS, columns_of, finding_texts, row_texts

    for table in report["tables"]:
        rows = [(row["title"], *row_texts(table, row)) for row in table["rows"]]
        show.table(table["title"], ["", *columns_of(table)], rows)
    if report["findings"]:
        show.table("Findings", FINDING_COLUMNS, [finding_texts(finding) for finding in report["findings"]])


def _print_preview(planned: Mapping[str, Any]) -> None:
    from biorag.models.resources import duration, gib

    for step in planned["steps"]:
        known = step["seconds"] is not None and step["bytes"] is not None
        estimate = f": {duration(step['seconds'])} or more, about {gib(step['bytes'])}" if known else ""
        show.out.print(f"{step['name']}{estimate}", soft_wrap=True)
        show.out.print(f"  biorag {shlex.join(step['command'][3:-1])}", soft_wrap=True)
    total = sum(step["seconds"] or 0 for step in planned["steps"])
    show.err.print(f"{len(planned['steps'])} steps, {duration(total)} or more")


def ablate(
    sweep: Annotated[Path, Argument(help="TOML file of the grid; docs/ablation.md has one to start from.")],
    out: Annotated[Path, Option(help="Folder of models, indexes and results; finished steps are reused.")],
    jobs: Annotated[int, Option(min=1, help="Steps that run in parallel, each in its own process.")] = 1,
    as_json: options.Json = False,
) -> None:
    """Train, index and measure every cell of a grid: negatives, similarity, reranker, k_init.

    Every step is a command of biorag; report.json lists them. The same sweep resumes where it stopped.

    Examples:

      biorag ablate sweep.toml --out runs/ablation
      biorag ablate sweep.toml --out runs/ablation --jobs 4 --json
    """
    from biorag.recipes.run import sweep_plan

    _report(sweep_plan(sweep), out, jobs, as_json)
