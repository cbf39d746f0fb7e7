"""A report's pictures: bars or dots of tables, what one figure costs in another, and the findings' differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from biorag.lab.recipes.recipe import RecipePlot
from biorag.utils.plots import Interval, IntervalPanel, Panel, PointPanel, write_both

FOLDER = "plots"


def write_pictures(report: Mapping[str, Any], plots: Sequence[RecipePlot], out: Path) -> list[dict[str, str]]:
    """Draw a report's plots into a folder of `out`, each as SVG and PNG, and return their names and titles."""
    panels = [panel for plot in plots if (panel := _panel(plot, report))]
    if findings := findings_panel(report["findings"]):
        panels.append(findings)
    names = []
    for number, panel in enumerate(panels, 1):
        write_both(out / FOLDER, f"plot-{number}", [panel])
        names.append({"name": f"{FOLDER}/plot-{number}", "title": panel.title})
    return names


def _panel(plot: RecipePlot, report: Mapping[str, Any]) -> Panel | None:
    """Return a plot of a report's tables; None where they have no figures of ours."""
    tables = {table["title"]: table for table in report["tables"]}
    if any(column.table not in tables for column in plot.columns):
        return None
    columns = [_column(tables[column.table], column.title) for column in plot.columns]
    if plot.kind == "points":
        xs, ys = columns
        both = {row: (x.value, ys[row].value) for row, x in xs.items() if row in ys}
        points = {row: (x, y) for row, (x, y) in both.items() if x is not None and y is not None}
        x_title, y_title = (column.title for column in plot.columns)
        return PointPanel(plot.title, x_title, y_title, points, log_x=plot.log_x) if points else None
    rows = [row for row in columns[0] if any(column[row].value is not None for column in columns)]
    series = {named.title: [column[row] for row in rows] for named, column in zip(plot.columns, columns, strict=True)}
    return IntervalPanel(plot.title, "", rows, series, bars=plot.kind == "bars") if rows else None


def _column(table: Mapping[str, Any], title: str) -> dict[str, Interval]:
    """Return a table's column by the titles of its rows."""
    place = table["columns"].index(title)
    cells = {row["title"]: row["cells"][place] for row in table["rows"]}
    return {row: Interval(cell["value"], cell["low"], cell["high"], cell["paper"]) for row, cell in cells.items()}


def findings_panel(findings: Sequence[Mapping[str, Any]]) -> Panel | None:
    """Return the differences of findings with their intervals, by verdict; None if none was measured."""
    measured = [finding for finding in findings if finding["difference"] is not None]
    verdicts = dict.fromkeys(finding["verdict"] for finding in measured)
    series = {
        verdict: [
            Interval(finding["difference"], finding["low"], finding["high"])
            if finding["verdict"] == verdict
            else Interval(None)
            for finding in measured
        ]
        for verdict in verdicts
    }
    rows = [finding["text"] for finding in measured]
    return IntervalPanel("Findings", "difference", rows, series, line=0.0) if measured else None
