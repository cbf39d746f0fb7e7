"""A recipe's tables, our figures beside the paper's, and its findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from biorag.benchmarks.significance import bootstrap_interval, paired
from biorag.recipes.plan import RecipePlan
from biorag.recipes.recipe import Figure, Finding, Known, PaperTable, TableRow
from biorag.recipes.steps import METRICS, PER_QUESTION, Step, Workshop
from biorag.utils.runs import whole_rows

HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot be seen at this size"
HIGHER, LOWER, ABSENT = "higher, without an interval", "not higher, without an interval", "not measured at this scale"


class Figures:
    """Tables and findings, from the reports of finished steps."""

    def __init__(self, plan: RecipePlan, workshop: Workshop, seed: int) -> None:
        self._plan, self._workshop, self._seed = plan, workshop, seed

    def table(self, table: PaperTable) -> dict[str, Any]:
        """Return a table with our figures; rows without any, and without the paper's, are left out.

        Raises BadInputError if a report does not have a figure.
        """
        rows: list[dict[str, Any]] = [{"title": row.title, "cells": self._cells(table, row)} for row in table.rows]
        known = [row for row in rows if any(cell["runs"] or cell["paper"] is not None for cell in row["cells"])]
        return {
            **table.model_dump(include={"title", "note"}),
            "columns": [c.title for c in table.columns],
            "rows": known,
        }

    def finding(self, finding: Finding) -> dict[str, Any]:
        """Return whether a finding holds, by a paired bootstrap over questions.

        Without questions in common there is no interval, and the difference alone cannot decide.
        """
        higher, lower = self._steps(finding.higher), self._steps(finding.lower)
        difference = low = high = None
        if not higher or not lower:
            verdict = ABSENT
        else:
            paths = finding.higher.value, finding.lower.value
            ours, theirs = by_question(self._workshop, higher, paths[0]), by_question(self._workshop, lower, paths[1])
            if ours is None or theirs is None or len(ours) != len(theirs):
                difference = self._mean(higher, paths[0]) - self._mean(lower, paths[1])
                verdict = HIGHER if difference > 0 else LOWER
            else:
                compared = paired(ours.tolist(), theirs.tolist(), self._seed)
                difference, low, high = compared.difference, compared.low, compared.high
                verdict = HOLDS if low > 0 else FAILS if high < 0 else OPEN
        return {"text": finding.text, "difference": difference, "low": low, "high": high, "verdict": verdict}

    def _cells(self, table: PaperTable, row: TableRow) -> list[dict[str, Any]]:
        """Return our figures, averaged over `runs` steps, their 95 % intervals over questions, and the paper's."""
        papers: Sequence[Known] = row.paper or [""] * len(table.columns)
        steps, cells = self._steps(row), []
        for column, paper in zip(table.columns, papers, strict=True):
            value = low = high = None
            if steps:
                value, values = self._mean(steps, column.value), by_question(self._workshop, steps, column.value)
                low, high = (None, None) if values is None else bootstrap_interval(values.tolist(), self._seed)
            known = None if paper == "" else paper
            cells.append({"value": value, "low": low, "high": high, "runs": len(steps), "paper": known})
        return cells

    def _steps(self, figure: Figure) -> list[Step]:
        return [instance.step for instance in self._plan.at(figure.step, figure.at)]

    def _mean(self, steps: Sequence[Step], path: str) -> float:
        return fmean(reported(self._workshop, step, path) for step in steps)


def reported(workshop: Workshop, step: Step, path: str) -> float:
    """Return a number of a finished step's report; its path is keys joined by dots.

    Raises BadInputError if the report does not have it.
    """
    return workshop.reported(step, path)


class QuestionMeasures(TypedDict):
    """The part of a question's row of measures that is read."""

    id: str
    metrics: dict[str, float]


def by_question(workshop: Workshop, steps: Sequence[Step], path: str) -> NDArray[np.float64] | None:
    """Return a measure by question, (questions,), averaged over steps.

    None where they do not keep it, or searched different questions.
    """
    name = path.removeprefix(METRICS)
    rows = [_measures(workshop.out(step) / PER_QUESTION) for step in steps]
    if name == path or not all(rows) or len({tuple(measures) for measures in rows}) > 1:
        return None
    if not all(name in metrics for measures in rows for metrics in measures.values()):
        return None
    values = np.array([[metrics[name] for metrics in measures.values()] for measures in rows], np.float64)
    means: NDArray[np.float64] = values.mean(axis=0)
    return means


def _measures(path: Path) -> dict[str, Mapping[str, float]]:
    """Return the measures of each question by its id; empty if they are not kept."""
    if not path.is_file():
        return {}
    return {row["id"]: row["metrics"] for _, row in whole_rows(path, QuestionMeasures)}


def markdown(table: Mapping[str, Any]) -> str:
    """Return a table in Markdown: of each column our figure, its interval, and the paper's after a slash."""
    columns = table["columns"]
    lines = [f"**{table['title']}**", "", f"| | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    lines += [f"| {row['title']} | {' | '.join(map(cell_text, row['cells']))} |" for row in table["rows"]]
    return "\n".join([*lines, "", *([table["note"], ""] if table["note"] else [])])


def cell_text(cell: Mapping[str, Any]) -> str:
    """Return a cell as tables show it: ours with its interval, and after a slash the paper's if it has one."""
    ours = "–" if cell["value"] is None else f"{cell['value']:.3f}"
    interval = "" if cell["low"] is None else f" ({cell['low']:.3f} – {cell['high']:.3f})"
    paper = "" if cell["paper"] is None else f" / {cell['paper']:g}"
    return f"{ours}{interval}{paper}"


def finding_texts(finding: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Return the text, difference, interval and verdict of a finding, as tables show them."""
    difference = "–" if finding["difference"] is None else f"{finding['difference']:+.3f}"
    interval = "–" if finding["low"] is None else f"{finding['low']:+.3f} – {finding['high']:+.3f}"
    return finding["text"], difference, interval, finding["verdict"]


def findings_markdown(findings: Sequence[Mapping[str, Any]]) -> str:
    """Return findings as a table in Markdown."""
    lines = ["| finding | difference | 95 % interval | |", "|---|---:|---:|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(finding_texts(finding))} |" for finding in findings), ""])
