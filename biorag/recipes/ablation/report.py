"""What a sweep found: results.json, tables in the shape of the paper's, and plots."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator
from typing_extensions import TypedDict

from biorag.benchmarks.significance import bootstrap_interval, paired
from biorag.errors import MismatchError
from biorag.recipes.ablation.plan import Measurement
from biorag.recipes.ablation.sweep import BASELINES
from biorag.recipes.steps import PER_QUESTION, Step, Workshop
from biorag.utils.files import write_json, write_text
from biorag.utils.parsing import validated
from biorag.utils.plots import PlotPanel, write_plot
from biorag.utils.runs import whole_rows

METRICS = ("success@3", "success@5", "success@10", "nDCG@10")
MAIN = "nDCG@10"
SUCCESS = (3, 5, 10, 20, 100)

Row = dict[str, Any]


def rows_of(measurements: Sequence[Measurement], workshop: Workshop, dataset: str, seed: int) -> list[Row]:
    """Return one row per cell: measures with 95 % intervals, and paired tests against the base and the best cell.

    The best cell is that of the highest nDCG@10; both tests are on nDCG@10 of the same questions.
    """
    rows, values = [], []
    for measurement in measurements:
        step = measurement.retrieval[dataset]
        report = _report(workshop, step, RetrievalReport)
        per_question = _per_question(workshop.out(step) / PER_QUESTION)
        values.append([metrics[MAIN] for metrics in per_question])
        rows.append(_row(measurement, report, per_question, seed))
    base = next(place for place, row in enumerate(rows) if row["configuration"] == BASELINES[1].name)
    best = max(range(len(rows)), key=lambda place: rows[place]["metrics"][MAIN])
    for place, row in enumerate(rows):
        row["against_base"] = asdict(paired(values[place], values[base], seed))
        row["against_best"] = asdict(paired(values[place], values[best], seed))
        row["best"] = place == best
        mirage = measurements[place].mirage
        row["mirage"] = _report(workshop, mirage, MirageReport)["average"] if mirage else None
        row["commands"] = [" ".join(workshop.command(step)) for step in measurements[place].steps]
    return rows


def _having(*names: str) -> AfterValidator:
    """Return the check that measures have these names."""

    def check(measures: dict[str, float]) -> dict[str, float]:
        if missing := set(names) - measures.keys():
            raise ValueError(f"there is no {min(missing)}")
        return measures

    return AfterValidator(check)


class MeasuredQuestion(TypedDict):
    """What is read of a question's row of measures."""

    metrics: Annotated[dict[str, float], _having(*METRICS)]


class Total(TypedDict):
    """The milliseconds of a question, all stages together."""

    p50: float


class Timed(TypedDict):
    """What is read of a report's timings."""

    total: Total


class RetrievalReport(TypedDict):
    """What is read of the report of 'bench retrieval'."""

    metrics: Annotated[dict[str, float], _having(*METRICS, *(f"success@{k}" for k in SUCCESS))]
    timings_ms: Timed


class MirageReport(TypedDict):
    """What is read of the report of 'bench mirage'."""

    average: float


def _report(workshop: Workshop, step: Step, kind: Any) -> Any:
    """Return what is read of a finished step's report.

    Raises
    ------
    MismatchError
        If it is damaged.
    """
    try:
        return validated(kind, workshop.record(step)["report"], extra="ignore")
    except ValueError as error:
        raise MismatchError(
            f"the record of step {step.name!r}, {step.key}.json, is damaged ({error}): delete it, then run the sweep "
            "again"
        ) from None


def _row(
    measurement: Measurement, report: Mapping[str, Any], per_question: Sequence[Mapping[str, float]], seed: int
) -> Row:
    cell = measurement.cell
    intervals = {name: bootstrap_interval([metrics[name] for metrics in per_question], seed) for name in METRICS}
    return {
        "configuration": cell.name,
        **cell._asdict(),
        "questions": len(per_question),
        "metrics": {name: report["metrics"][name] for name in (*METRICS, *(f"success@{k}" for k in SUCCESS))},
        "intervals": intervals,
        "ms_per_query": report["timings_ms"]["total"]["p50"],
    }


def _per_question(path: Path) -> list[dict[str, float]]:
    return [row["metrics"] for _, row in whole_rows(path, MeasuredQuestion)]


def write_report(out: Path, found: Mapping[str, Sequence[Row]], facts: Mapping[str, Any]) -> None:
    """Write `results.json`, `results.md`, `results.csv`, `success.png` and `k_init.png`; `found` is by data set."""
    write_json(out / "results.json", {**facts, "datasets": dict(found)})
    write_text(out / "results.md", "\n".join(markdown(name, rows) for name, rows in found.items()))
    write_text(out / "results.csv", csv_text(found))
    write_plot(out / "success.png", [_success(name, rows) for name, rows in found.items()])
    depths = [panel for name, rows in found.items() for panel in _depth(name, rows)]
    if depths:
        write_plot(out / "k_init.png", depths)


def markdown(dataset: str, rows: Sequence[Row]) -> str:
    """Return one data set's table; the best cell is bold, Δ is of nDCG@10 against the untrained base encoder."""
    columns = [
        *("configuration", *METRICS, "95 % interval", "Δ base", "95 % interval of Δ", "p (base)", "p (best)"),
        *("MIRAGE", "ms/query"),
    ]
    lines = [f"**{dataset}**, {rows[0]['questions']} questions", "", f"| {' | '.join(columns)} |"]
    lines.append("|---|" + "---:|" * (len(columns) - 1))
    for row in rows:
        base, low_high = row["against_base"], row["intervals"][MAIN]
        cells = [
            f"**{row['configuration']}**" if row["best"] else row["configuration"],
            *(f"{row['metrics'][name]:.3f}" for name in METRICS),
            f"{low_high[0]:.3f} – {low_high[1]:.3f}",
            f"{base['difference']:+.3f}",
            f"{base['low']:+.3f} – {base['high']:+.3f}",
            p_text(base["p_value"]),
            "" if row["best"] else p_text(row["against_best"]["p_value"]),
            "" if row["mirage"] is None else f"{row['mirage']:.3f}",
            f"{row['ms_per_query']:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def p_text(p_value: float) -> str:
    """Return a p-value as tables show it."""
    return f"{p_value:.3f}" if p_value >= 0.001 else "<0.001"


def csv_text(found: Mapping[str, Sequence[Row]]) -> str:
    """Return all data sets' rows as CSV, figures unrounded."""
    text = io.StringIO()
    fixed = ["dataset", "negatives", "similarity", "reranker", "k_init", "questions", *METRICS]
    names = [*fixed, "low", "high", "delta", "delta_low", "delta_high", "p_base", "p_best", "mirage", "ms_per_query"]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for dataset, rows in found.items():
        for row in rows:
            base, (low, high) = row["against_base"], row["intervals"][MAIN]
            writer.writerow(
                {
                    "dataset": dataset,
                    **{name: row[name] for name in fixed[1:6]},
                    **{name: row["metrics"][name] for name in METRICS},
                    **{"low": low, "high": high, "delta": base["difference"]},
                    **{"delta_low": base["low"], "delta_high": base["high"]},
                    **{"p_base": base["p_value"], "p_best": row["against_best"]["p_value"]},
                    **{"mirage": row["mirage"], "ms_per_query": row["ms_per_query"]},
                }
            )
    return text.getvalue()


def _success(dataset: str, rows: Sequence[Row]) -> PlotPanel:
    lines = {row["configuration"]: [(k, row["metrics"][f"success@{k}"]) for k in SUCCESS[:3]] for row in rows}
    return PlotPanel(f"{dataset}: success@k", "k", "share of questions", lines)


def _depth(dataset: str, rows: Sequence[Row]) -> list[PlotPanel]:
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
