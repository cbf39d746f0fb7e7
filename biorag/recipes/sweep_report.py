"""Running a sweep, and its report: results.json, tables in the shape of the paper's, and plots."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from biorag.benchmarks.significance import bootstrap_interval, paired
from biorag.errors import BadInputError
from biorag.recipes.plan import RecipePlan
from biorag.recipes.steps import Step, Workshop
from biorag.recipes.sweep import (
    BASE,
    BASELINES,
    PIPELINES,
    SCALE,
    Cell,
    Sweep,
    cells,
    load_sweep,
    pipeline_of,
    recipe_of,
)
from biorag.recipes.tables import METRICS, by_question, reported
from biorag.settings.services import announce
from biorag.types import Progress
from biorag.utils.files import write_json, write_text
from biorag.utils.network import is_server
from biorag.utils.plots import PlotPanel, write_plot

SHOWN = ("success@3", "success@5", "success@10", "nDCG@10")
MAIN = "nDCG@10"
SUCCESS = (3, 5, 10, 20, 100)

SweepRow = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CellSteps:
    """The steps that measure one cell: one for each data set, and MIRAGE's where the sweep asks for it."""

    cell: Cell
    retrieval: Mapping[str, Step]
    mirage: Step | None

    @property
    def steps(self) -> tuple[Step, ...]:
        """All of them."""
        return (*self.retrieval.values(), *([self.mirage] if self.mirage else []))


def measurements_of(sweep: Sweep) -> list[CellSteps]:
    """Return the steps that measure each cell of a sweep, the baselines first."""
    plan = RecipePlan(recipe_of(sweep), SCALE, None, Path("data"))
    measurements = []
    for cell in cells(sweep):
        name = pipeline_of(cell)
        point = {axis: getattr(cell, axis) for axis in PIPELINES[name][0]}
        measured = plan.at(f"retrieval-{name}", point)
        retrieval = {Path(str(dict(instance.at)["dataset"])).name: instance.step for instance in measured}
        mirage = [instance.step for instance in plan.at(f"mirage-{name}", point)]
        measurements.append(CellSteps(cell, retrieval, mirage[0] if mirage else None))
    return measurements


def run_sweep(path: Path, out: Path, jobs: int, progress: Progress) -> tuple[dict[str, Any], dict[str, list[SweepRow]]]:
    """Run the steps of a sweep that have not finished, and write its report into `out`.

    Returns facts of the run, and the rows of each data set.
    """
    sweep = load_sweep(path)
    workshop = Workshop(out, jobs, sweep.settings)
    with workshop.held():
        if sweep.mirage and is_server(sweep.mirage.llm):
            announce(sweep.mirage.llm, "llm")  # which the steps say in their logs alone
        seed = int(sweep.settings.get("seed", 0))
        measurements = measurements_of(sweep)
        times = workshop.run([step for measurement in measurements for step in measurement.steps], progress)
        tables = {name: rows_of(measurements, workshop, name, seed) for name in measurements[0].retrieval}
        facts = {"sweep": sweep.model_dump(mode="json"), "seed": seed, **times}
        write_report(out, tables, facts)
    return facts, tables


def rows_of(measurements: Sequence[CellSteps], workshop: Workshop, dataset: str, seed: int) -> list[SweepRow]:
    """Return one row per cell: measures with 95 % intervals, and paired tests against the base and the best cell.

    The best cell is that of the highest nDCG@10; both tests are on nDCG@10 of the same questions.

    Raises BadInputError if a step's report or its measures by question lack a figure.
    """
    values = [_values(workshop, measurement.retrieval[dataset]) for measurement in measurements]
    ranked = [measures[MAIN] for measures in values]
    means = [reported(workshop, measurement.retrieval[dataset], METRICS + MAIN) for measurement in measurements]
    best, base = means.index(max(means)), BASELINES.index(BASE)
    rows = []
    for place, (measurement, measures) in enumerate(zip(measurements, values, strict=True)):
        cell, step, mirage = measurement.cell, measurement.retrieval[dataset], measurement.mirage
        names = (*SHOWN, *(f"success@{k}" for k in SUCCESS))
        row = {
            "configuration": cell.name,
            **cell._asdict(),
            "questions": len(ranked[place]),
            "metrics": {name: reported(workshop, step, METRICS + name) for name in names},
            "intervals": {name: bootstrap_interval(measured, seed) for name, measured in measures.items()},
            "ms_per_query": reported(workshop, step, "timings_ms.total.p50"),
            "against_base": asdict(paired(ranked[place], ranked[base], seed)),
            "against_best": asdict(paired(ranked[place], ranked[best], seed)),
            "best": place == best,
            "mirage": reported(workshop, mirage, "average") if mirage else None,
            "commands": [" ".join(workshop.command(needed)) for needed in measurement.steps],
        }
        rows.append(row)
    return rows


def _values(workshop: Workshop, step: Step) -> dict[str, list[float]]:
    """Return each measure's values by question."""
    values = {}
    for name in SHOWN:
        measured = by_question(workshop, [step], METRICS + name)
        if measured is None:
            raise BadInputError(f"{workshop.out(step)} has no {name} by question: start again with another --out")
        values[name] = measured.tolist()
    return values


def write_report(out: Path, tables: Mapping[str, Sequence[SweepRow]], facts: Mapping[str, Any]) -> None:
    """Write `results.json`, `results.md`, `results.csv`, `success.png` and `k_init.png`; `tables` is by data set."""
    write_json(out / "results.json", {**facts, "datasets": dict(tables)})
    write_text(out / "results.md", "\n".join(markdown(name, rows) for name, rows in tables.items()))
    write_text(out / "results.csv", csv_text(tables))
    write_plot(out / "success.png", [_success(name, rows) for name, rows in tables.items()])
    depths = [panel for name, rows in tables.items() for panel in _depth(name, rows)]
    if depths:
        write_plot(out / "k_init.png", depths)


def markdown(dataset: str, rows: Sequence[SweepRow]) -> str:
    """Return one data set's table; the best cell is bold, Δ is of nDCG@10 against the untrained base encoder."""
    columns = [
        *("configuration", *SHOWN, "95 % interval", "Δ base", "95 % interval of Δ", "p (base)", "p (best)"),
        *("MIRAGE", "ms/query"),
    ]
    lines = [f"**{dataset}**, {rows[0]['questions']} questions", "", f"| {' | '.join(columns)} |"]
    lines.append("|---|" + "---:|" * (len(columns) - 1))
    for row in rows:
        base, (low, high) = row["against_base"], row["intervals"][MAIN]
        row_cells = [
            f"**{row['configuration']}**" if row["best"] else row["configuration"],
            *(f"{row['metrics'][name]:.3f}" for name in SHOWN),
            f"{low:.3f} – {high:.3f}",
            f"{base['difference']:+.3f}",
            f"{base['low']:+.3f} – {base['high']:+.3f}",
            p_text(base["p_value"]),
            "" if row["best"] else p_text(row["against_best"]["p_value"]),
            "" if row["mirage"] is None else f"{row['mirage']:.3f}",
            f"{row['ms_per_query']:.0f}",
        ]
        lines.append(f"| {' | '.join(row_cells)} |")
    return "\n".join(lines) + "\n"


def p_text(p_value: float) -> str:
    """Return a p-value as tables show it."""
    return f"{p_value:.3f}" if p_value >= 0.001 else "<0.001"


def csv_text(tables: Mapping[str, Sequence[SweepRow]]) -> str:
    """Return all data sets' rows as CSV, figures unrounded."""
    text = io.StringIO()
    cell_names = [*Cell._fields, "questions"]
    figures = ["low", "high", "delta", "delta_low", "delta_high", "p_base", "p_best", "mirage", "ms_per_query"]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["dataset", *cell_names, *SHOWN, *figures])
    for dataset, rows in tables.items():
        for row in rows:
            base = row["against_base"]
            writer.writerow(
                [
                    dataset,
                    *(row[name] for name in cell_names),
                    *(row["metrics"][name] for name in SHOWN),
                    *row["intervals"][MAIN],
                    *(base[name] for name in ("difference", "low", "high", "p_value")),
                    row["against_best"]["p_value"],
                    row["mirage"],
                    row["ms_per_query"],
                ]
            )
    return text.getvalue()


def _success(dataset: str, rows: Sequence[SweepRow]) -> PlotPanel:
    lines = {row["configuration"]: [(k, row["metrics"][f"success@{k}"]) for k in SUCCESS[:3]] for row in rows}
    return PlotPanel(f"{dataset}: success@k", "k", "share of questions", lines)


def _depth(dataset: str, rows: Sequence[SweepRow]) -> list[PlotPanel]:
    """Return quality and latency against k_init, a line for each trained pair of stages."""
    quality: dict[str, list[tuple[float, float]]] = {}
    bands: dict[str, list[tuple[float, float]]] = {}
    latency: dict[str, list[tuple[float, float]]] = {}
    for row in sorted((row for row in rows if row["k_init"]), key=lambda row: int(row["k_init"])):
        name = f"{row['negatives']} {row['similarity']}, {row['reranker']}"
        quality.setdefault(name, []).append((row["k_init"], row["metrics"][MAIN]))
        bands.setdefault(name, []).append(tuple(row["intervals"][MAIN]))
        latency.setdefault(name, []).append((row["k_init"], row["ms_per_query"]))
    if not quality:
        return []
    return [
        PlotPanel(f"{dataset}: quality", "k_init", MAIN, quality, bands),
        PlotPanel(f"{dataset}: latency", "k_init", "ms per query, of many at once", latency),
    ]
