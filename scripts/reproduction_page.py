"""Write docs/reproduction.md from what the recipes list of the papers' tables and figures.

python -m scripts.reproduction_page
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from typer.main import get_command

from biorag.cli import app
from biorag.lab.commands.reproduce import read_line
from biorag.lab.recipes import papers
from biorag.lab.recipes.plan import Choices, RecipePlan
from biorag.lab.recipes.recipe import ExperimentRecipe, ReportedItem, load_recipe
from biorag.lab.recipes.run import recipe_of
from biorag.lab.recipes.steps import Step, unique

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reproduction.md"
SCALES = ("full", "generated")  # the first at which a step runs
HEAD = """# Five papers: their tables and figures

    biorag reproduce PAPER --scale full --dry-run       # the steps' command lines, what is missing, memory and time

Each table and figure of a paper: the command that measures it, the steps of [the recipe](recipes.md) that run this
command, and the inputs that they need (`biorag data get PAPER`). *As described* is the computation of the paper's text;
*ours* departs from it or fills a gap, as the last column says. No recipe was run at the papers' sizes; what was
measured on two cores: [experiments/reproduction.md](experiments/reproduction.md). `python -m scripts.reproduction_page`
writes this page.
"""
COLUMNS = ("item", "what", "command", "steps", "data", "how", "why")


def page() -> str:
    """Return the page: a table for each paper."""
    recipes = {paper: load_recipe(recipe_of(paper)) for paper in papers()}
    lines = [HEAD]
    for paper, recipe in recipes.items():
        if recipe.reported:
            lines += [f"## {paper}", "", f"{recipe.title} ({recipe.paper})", ""]
            lines += [_row(COLUMNS), f"|{'---|' * len(COLUMNS)}", *map(_row, rows(recipe)), ""]
    return "\n".join(lines).rstrip() + "\n"


def rows(recipe: ExperimentRecipe) -> list[Sequence[str]]:
    """Return the cells of each item that a paper reports."""
    reader = partial(read_line, get_command(app).make_context("biorag", ["version"]))
    plans = [
        RecipePlan(recipe, scale, Choices(Path("DATA"), read=reader)) for scale in SCALES if scale in recipe.scales
    ]
    return [_cells(item, plans) for item in recipe.reported]


def _cells(item: ReportedItem, plans: Sequence[RecipePlan]) -> Sequence[str]:
    names, commands, data = steps_of(item, plans[0].recipe), dict[str, None](), dict[str, None]()
    for name in names:
        plan = next((plan for plan in plans if plan.at(name, {})), plans[0])
        instances = plan.at(name, {})
        commands |= dict.fromkeys(f"`{instance.use.name}`" for instance in instances)
        data |= dict.fromkeys(inputs_of((instance.step for instance in instances), plan))
    named = [f"`{name}`" for name in names]
    return (item.item, item.what, *(", ".join(words) for words in (commands, named, data)), item.how, item.why)


def steps_of(item: ReportedItem, recipe: ExperimentRecipe) -> list[str]:
    """Return the names of the steps that an item's tables, the tables of its plots, and itself name."""
    plots = {plot.title: [column.table for column in plot.columns] for plot in recipe.plots}
    named = [table for name in item.by for table in plots.get(name, [name])]
    tables = {table.title: [row.step for row in recipe.rows(table)] for table in recipe.tables}
    return list(dict.fromkeys(step for name in named for step in tables.get(name, [name]) if step))


def inputs_of(steps: Iterable[Step], plan: RecipePlan) -> list[str]:
    """Return the names of the inputs that steps and those that they need read, as the recipe orders them."""
    needed = unique(steps)
    words = [word for step in needed for word in (*step.arguments, *(text for _, text in step.files))]
    return [name for name, path in plan.inputs.items() if any(path in word for word in words)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
