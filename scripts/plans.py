"""Plans of the papers' recipes at full scale, as the table of docs/recipes.md.

    python -m scripts.plans

It takes what `biorag reproduce PAPER --scale full --dry-run` says of one H200, and of eight with `--jobs 8`.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

from typer.main import get_command

from biorag.cli import app
from biorag.lab.commands.reproduce import read_line
from biorag.lab.recipes import papers
from biorag.lab.recipes.estimates import device_bytes
from biorag.lab.recipes.plan import Choices, RecipePlan
from biorag.lab.recipes.recipe import load_recipe, packaged
from biorag.lab.recipes.run import preview, recipe_of
from biorag.lab.scale.planning import load_machine
from biorag.models.resources import gib
from biorag.utils.progress import duration

ROOT = Path(__file__).resolve().parents[1]
SCALE = "full"
MACHINES = (("h200", 1), ("eight-h200", 8))  # files of docs/machines with the steps at a time
HEAD = (
    "| recipe, model | steps | disk | calls | rows | H200: memory | time | eight: time |",
    "|---|--:|--:|--:|--:|--:|--:|--:|",
)


def planned(paper: str, backbone: str, name: str, jobs: int) -> dict[str, Any]:
    """Return what a dry run says of a recipe on a machine, with the profile that it would take."""
    recipe = load_recipe(recipe_of(paper))
    machine = load_machine(ROOT / "docs" / "machines" / f"{name}.toml")
    read = partial(read_line, get_command(app).make_context("biorag", ["version"]))
    profile = recipe.profile_for(SCALE, device_bytes(machine))
    plan = RecipePlan(recipe, SCALE, Choices(backbone=backbone, hardware=profile, read=read))
    return preview(plan, Path("OUT"), machine, jobs)


def row(paper: str, backbone: str) -> str:
    """Return the row of a recipe with a backbone."""
    one, eight = (planned(paper, backbone, *machine) for machine in MACHINES)
    calls = sum(server["calls"] or 0 for server in one["servers"])
    cost = f" (${one['cost']:,.0f})" if one["cost"] else ""
    cells = [
        f"{paper}, {backbone}",
        str(len(one["steps"])),
        gib(one["disk"]),
        f"{calls:,}{cost}",
        gib(one["host"]),
        _memory(one),
    ]
    cells += [duration(one["seconds"]), duration(eight["seconds"])]
    return f"| {' | '.join(cells)} |"


def _memory(plan: dict[str, Any]) -> str:
    """Return the memory of the largest step, and how many steps would be refused."""
    refused = sum(bool(step["fault"]) for step in plan["steps"])
    largest = gib(max(step["bytes"] or 0 for step in plan["steps"]))
    return f"{largest}; {refused} refused" if refused else largest


def table() -> str:
    """Return the table: a row for each recipe and each model whose shape is known."""
    rows = [
        row(paper, name)
        for paper in papers()
        for recipe in [load_recipe(recipe_of(paper))]
        if SCALE in recipe.scales
        for name, backbone in recipe.backbones.items()
        if backbone.model in packaged()
    ]
    return "\n".join([*HEAD, *rows])


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
