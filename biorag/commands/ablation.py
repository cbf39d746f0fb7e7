"""`biorag ablate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from biorag.commands import options, show

SHOWN = ("success@5", "nDCG@10")  # what fits a terminal; the written tables have all


def ablate(
    sweep: Annotated[Path, typer.Argument(help="TOML file of the grid; docs/ablation.md has one to start from.")],
    out: Annotated[Path, typer.Option(help="Folder of models, indexes and results; finished steps are reused.")],
    jobs: Annotated[int, typer.Option(min=1, help="Steps that run in parallel, each in its own process.")] = 1,
    as_json: options.Json = False,
) -> None:
    """Train, index and measure every cell of a grid: negatives, similarity, reranker, k_init.

    Every step is a command of biorag; results.json lists them. The same sweep resumes where it stopped.

    Examples:

      biorag ablate sweep.toml --out runs/ablation
      biorag ablate sweep.toml --out runs/ablation --jobs 4 --json
    """
    from biorag.recipes.sweep_report import run_sweep

    facts, tables = run_sweep(sweep, out, jobs, show.progress)
    if as_json:
        show.print_json({**facts, "datasets": tables})
    else:
        for name, rows in tables.items():
            _print(name, rows)
        show.err.print(f"tables, plots and the commands of every cell: {out}")


def _print(dataset: str, rows: Sequence[Mapping[str, Any]]) -> None:
    from biorag.recipes.sweep_report import p_text

    columns = ["configuration", *SHOWN, "Δ base", "p (best)", "ms"]
    shown = [
        (
            row["configuration"],
            *(f"{row['metrics'][name]:.3f}" for name in SHOWN),
            f"{row['against_base']['difference']:+.3f}",
            "best" if row["best"] else p_text(row["against_best"]["p_value"]),
            f"{row['ms_per_query']:.0f}",
        )
        for row in rows
    ]
    show.table(f"{dataset}: {rows[0]['questions']} questions", columns, shown)
