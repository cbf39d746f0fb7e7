"""A recipe's tables: the figures of its steps with intervals, beside the paper's, and which findings hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from biorag.benchmarks.significance import bootstrap_interval, paired
from biorag.errors import BadInputError
from biorag.recipes.plan import RecipePlan
from biorag.recipes.recipe import Column, Figure, Finding, Known, PaperTable, TableRow
from biorag.recipes.steps import PER_QUESTION, Step, Workshop
from biorag.utils.runs import whole_rows

METRICS = "metrics."
HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot be seen at this size"
HIGHER, LOWER, ABSENT = "higher, without an interval", "not higher, without an interval", "not measured at this scale"


@dataclass(frozen=True, slots=True)
class ReportedValue:
    """A figure of ours, averaged over `runs` steps, its 95 % interval over questions, and the paper's.

    None where no step measures it, where questions are not kept, or where the paper has none.
    """

    value: float | None
    low: float | None
    high: float | None
    runs: int
    paper: float | None


@dataclass(frozen=True, slots=True)
class FilledRow:
    """A row of a table."""

    title: str
    cells: tuple[ReportedValue, ...]


@dataclass(frozen=True, slots=True)
class FilledTable:
    """A table of the paper with our figures beside its own."""

    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[FilledRow, ...]


@dataclass(frozen=True, slots=True)
class CheckedFinding:
    """A comparison of the paper on our figures; the interval is a paired bootstrap over questions.

    Without questions in common there is no interval, and the difference alone cannot decide.
    """

    text: str
    difference: float | None
    low: float | None
    high: float | None
    verdict: str


class Figures:
    """Looks up figures in the reports of finished steps."""

    def __init__(self, plan: RecipePlan, workshop: Workshop, seed: int) -> None:
        self._plan, self._workshop, self._seed = plan, workshop, seed

    def table(self, table: PaperTable) -> FilledTable:
        """Return a table with our figures; rows without any, and without the paper's, are left out.

        Raises BadInputError if a report does not have a figure.
        """
        filled = [FilledRow(row.title, tuple(self._cells(table, row))) for row in table.rows]
        rows = [row for row in filled if any(cell.value is not None or cell.paper is not None for cell in row.cells)]
        return FilledTable(table.title, table.note, tuple(column.title for column in table.columns), tuple(rows))

    def finding(self, finding: Finding) -> CheckedFinding:
        """Return whether a finding holds."""
        higher, lower = self._steps(finding.higher), self._steps(finding.lower)
        if not higher or not lower:
            return CheckedFinding(finding.text, None, None, None, ABSENT)
        paths = finding.higher.value, finding.lower.value
        ours, theirs = by_question(self._workshop, higher, paths[0]), by_question(self._workshop, lower, paths[1])
        if ours is None or theirs is None or len(ours) != len(theirs):
            difference = self._mean(higher, paths[0]) - self._mean(lower, paths[1])
            return CheckedFinding(finding.text, difference, None, None, HIGHER if difference > 0 else LOWER)
        compared = paired(ours.tolist(), theirs.tolist(), self._seed)
        verdict = HOLDS if compared.low > 0 else FAILS if compared.high < 0 else OPEN
        return CheckedFinding(finding.text, compared.difference, compared.low, compared.high, verdict)

    def _cells(self, table: PaperTable, row: TableRow) -> list[ReportedValue]:
        papers: Sequence[Known] = row.paper or [""] * len(table.columns)
        return [self._cell(row, column, paper) for column, paper in zip(table.columns, papers, strict=True)]

    def _cell(self, row: TableRow, column: Column, paper: Known) -> ReportedValue:
        known, steps = None if paper == "" else paper, self._steps(row)
        if not steps:
            return ReportedValue(None, None, None, 0, known)
        values = by_question(self._workshop, steps, column.value)
        low, high = (None, None) if values is None else bootstrap_interval(values.tolist(), self._seed)
        return ReportedValue(self._mean(steps, column.value), low, high, len(steps), known)

    def _steps(self, figure: Figure) -> list[Step]:
        return [instance.step for instance in self._plan.at(figure.step, figure.at)]

    def _mean(self, steps: Sequence[Step], path: str) -> float:
        return fmean(reported(self._workshop, step, path) for step in steps)


def reported(workshop: Workshop, step: Step, path: str) -> float:
    """Return a number of a finished step's report; its path is keys joined by dots.

    Raises BadInputError if the report does not have it.
    """
    value: Any = workshop.record(step)["report"]
    for key in path.split("."):
        if isinstance(value, list):  # rows of `bench mteb`, by their task
            value = next((row for row in value if isinstance(row, dict) and row.get("task") == key), None)
        else:
            value = value.get(key) if isinstance(value, dict) else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise BadInputError(f"the report of step {step.name!r} has no number at {path!r}")
    return float(value)


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


def markdown(table: FilledTable) -> str:
    """Return a table in Markdown: of each column our figure, its interval, and the paper's after a slash."""
    lines = [f"**{table.title}**", "", f"| | {' | '.join(table.columns)} |", "|---|" + "---:|" * len(table.columns)]
    lines += [f"| {row.title} | {' | '.join(map(cell_text, row.cells))} |" for row in table.rows]
    return "\n".join([*lines, "", *([table.note, ""] if table.note else [])])


def cell_text(cell: ReportedValue) -> str:
    """Return a cell as tables show it: ours, its interval, and the paper's after a slash."""
    ours = "–" if cell.value is None else f"{cell.value:.3f}"
    interval = "" if cell.low is None else f" ({cell.low:.3f} – {cell.high:.3f})"
    return f"{ours}{interval} / {'–' if cell.paper is None else f'{cell.paper:g}'}"


def finding_texts(finding: CheckedFinding) -> tuple[str, str, str, str]:
    """Return a finding as tables show it: its text, the difference, the interval and the verdict."""
    difference = "–" if finding.difference is None else f"{finding.difference:+.3f}"
    interval = "–" if finding.low is None else f"{finding.low:+.3f} – {finding.high:+.3f}"
    return finding.text, difference, interval, finding.verdict


def findings_markdown(findings: Sequence[CheckedFinding]) -> str:
    """Return findings as a table in Markdown."""
    lines = ["| finding | difference | 95 % interval | |", "|---|---:|---:|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(finding_texts(finding))} |" for finding in findings), ""])
