"""A report as Markdown, its tables as text, and its plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from biorag.lab.recipes.recipe import RecipePlot
from biorag.utils.plots import Interval, IntervalPanel, Panel, PointPanel, write_both

FOLDER = "plots"
FINDING_COLUMNS = (
    *("finding", "paper", "difference", "95 % interval", "by seed"),
    *("questions", "needed", "p, corrected", "verdict"),
)


def report_markdown(report: Mapping[str, Any]) -> str:
    """Return a report as Markdown: what was run and measured and what it takes on disk, plots, tables, findings."""
    scale, *others = report_head(report)
    changes = [
        f"{change['step']}: `{change['name']}` = {change['value']} (recipe: {change['was']})"
        for change in report["deviations"]
    ]
    lines = [
        f"# {report['title']}",
        "",
        scale,
        "",
        *_listed("Where this scale departs from the paper:", report["departures"]),
        *_listed("Deviations from the recipe:", changes),
        *chain.from_iterable((sentence, "") for sentence in others),
        *(f"![{plot['title']}]({plot['name']}.png)\n" for plot in report["plots"]),
        *map(markdown, report["tables"]),
        *([findings_markdown(report["findings"])] if report["findings"] else []),
    ]
    return "\n".join(lines)


def report_head(report: Mapping[str, Any]) -> list[str]:
    """Return what is said before the tables: what was run, the questions measured, what a cell has, and disk used."""
    disk = report["disk"]
    return [
        f"Scale {report['scale']}: {report['about']} Encoder {report['backbone']}. {len(report['steps'])} steps, "
        f"{report['seconds_of_steps'] / 60:.1f} minutes on {report['cpus']} cores.",
        *([f"Questions measured: {'; '.join(report['measured'])}."] if report["measured"] else []),
        "Each cell: our figure (95 % interval over questions) / the paper's, if it has one.",
        f"Disk: {disk['out'] / 1e6:,.1f} MB, {disk['indexes'] / 1e6:,.1f} of them for indexes and their encoders; "
        f"'{report['freed_by']}' removes indexes and models.",
    ]


def _listed(title: str, items: Sequence[str]) -> list[str]:
    """Return the lines of a list in Markdown under its title; none without items."""
    return [title, "", *(f"- {item}" for item in items), ""] if items else []


def columns_of(table: Mapping[str, Any]) -> list[str]:
    """Return the titles of a table's columns, each followed by that of its difference if there is one."""
    pairs = [(title, f"Δ {title}") if table["against"] else (title,) for title in table["columns"]]
    return list(chain.from_iterable(pairs))


def row_texts(table: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
    """Return a row's cells as tables show them, each followed by its difference if the table has some."""
    texts: list[str] = []
    for cell in row["cells"]:
        texts.append(cell_text(cell))
        if table["against"]:
            texts.append(cell_text(cell["difference"], "+") if "difference" in cell else "")
    return texts


def cell_text(cell: Mapping[str, Any], sign: str = "") -> str:
    """Return ours with its interval, and after a slash the paper's if it has one."""
    ours = "–" if cell["value"] is None else f"{cell['value']:{sign}.3f}"
    interval = "" if cell["low"] is None else f" ({cell['low']:{sign}.3f} – {cell['high']:{sign}.3f})"
    paper = "" if cell["paper"] is None else f" / {cell['paper']:{'+.3f' if sign else 'g'}}"
    return f"{ours}{interval}{paper}"


def markdown(table: Mapping[str, Any]) -> str:
    """Return a table in Markdown."""
    columns = columns_of(table)
    lines = [f"**{table['title']}**", "", f"| | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    lines += [f"| {' | '.join([row['title'], *row_texts(table, row)])} |" for row in table["rows"]]
    against = [f"Δ: against {table['against']}.", ""] if table["against"] else []
    return "\n".join([*lines, "", *against, *([table["note"], ""] if table["note"] else [])])


def finding_texts(finding: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of a finding as tables show them."""
    interval = "–" if finding["low"] is None else f"{finding['low']:+.3f} – {finding['high']:+.3f}"
    verdict = f"{finding['verdict']} ({finding['reason']})" if finding["reason"] else finding["verdict"]
    return (
        finding["text"],
        *(_shown(finding[key], "+.3f") for key in ("paper", "difference")),
        interval,
        ", ".join(f"{difference:+.3f}" for difference in finding["by_seed"]) or "–",
        *(_shown(finding[key], ",") for key in ("questions", "needed")),
        _shown(finding["p_corrected"], ".3f"),
        verdict,
    )


def _shown(value: float | None, form: str) -> str:
    return "–" if value is None else f"{value:{form}}"


def findings_markdown(findings: Sequence[Mapping[str, Any]]) -> str:
    """Return findings as a table in Markdown."""
    lines = [f"| {' | '.join(FINDING_COLUMNS)} |", "|---|" + "---:|" * (len(FINDING_COLUMNS) - 2) + "---|"]
    return "\n".join([*lines, *(f"| {' | '.join(finding_texts(finding))} |" for finding in findings), ""])


def write_plots(report: Mapping[str, Any], plots: Sequence[RecipePlot], out: Path) -> list[dict[str, str]]:
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
    """Return a plot of a report's tables; None where the scale leaves out a column, or they have no figures of ours."""
    tables = {table["title"]: table for table in report["tables"]}
    if any(column.title not in tables.get(column.table, {}).get("columns", ()) for column in plot.columns):
        return None
    columns = [_column(tables[column.table], column.title) for column in plot.columns]
    if plot.kind == "points":
        xs, ys = columns
        both = {row: (x.value, ys[row].value) for row, x in xs.items() if row in ys}
        points = {row: (x, y) for row, (x, y) in both.items() if x is not None and y is not None}
        x_title, y_title = (column.title for column in plot.columns)
        return PointPanel(plot.title, x_title, y_title, points, log_x=plot.log_x) if points else None
    named_rows = plot.rows or tuple(columns[0])
    rows = [row for row in named_rows if any(column[row].value is not None for column in columns if row in column)]
    series = {named.title: [column[row] for row in rows] for named, column in zip(plot.columns, columns, strict=True)}
    return IntervalPanel(plot.title, "", rows, series, bars=plot.kind == "bars") if rows else None


def _column(table: Mapping[str, Any], title: str) -> dict[str, Interval]:
    """Return a table's column by the titles of its rows."""
    number = table["columns"].index(title)
    cells = {row["title"]: row["cells"][number] for row in table["rows"]}
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
