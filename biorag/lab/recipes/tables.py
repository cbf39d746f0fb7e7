"""A recipe's tables, our figures beside the paper's, and its findings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from biorag.benchmarks.per_question import (
    PER_QUESTION,
    QuestionFigures,
    QuestionValues,
    averaged,
    read_figures,
    together,
    values_of,
)
from biorag.benchmarks.significance import Paired, holm
from biorag.lab.recipes.plan import RecipePlan
from biorag.lab.recipes.recipe import AxisValue, Column, Figure, FigurePath, Known, PaperTable, RecipeFinding, TableRow
from biorag.lab.recipes.steps import METRICS, Step, StepRunner

HOLDS, FAILS, UNTESTED = "holds", "does not hold", "not tested"
LEVEL = 0.05  # probability of one false verdict among a recipe's findings
SEED = "seed"  # the axis of repetitions
DECIDES = 2.80  # standard errors: a difference so large is found in 80 % of samples, at 0.05 on both sides
CEILING = 0.95  # a mean above which little is left to gain


class Figures:
    """Tables and findings, from the reports of finished steps."""

    def __init__(self, plan: RecipePlan, runner: StepRunner, seed: int) -> None:
        self._plan, self._runner, self._seed = plan, runner, seed
        self._rows: dict[str, list[QuestionFigures]] = {}  # by the step's key

    def table(self, table: PaperTable) -> dict[str, Any]:
        """Return a table with our figures; rows without any, and without the paper's, are left out.

        Raises BadInputError if a report does not have a figure.
        """
        figures = self._plan.recipe.rows(table)
        shown = [
            n for n, column in enumerate(table.columns) if not column.scales or self._plan.scale_name in column.scales
        ]
        columns = [table.columns[number] for number in shown]
        reference = next((row for row in figures if row.title == table.against), None)
        rows: list[dict[str, Any]] = [
            {
                "title": row.title,
                "cells": self._cells(columns, [row.paper[number] for number in shown if row.paper], row),
            }
            for row in figures
        ]
        if reference:
            beside = next(row["cells"] for row in rows if row["title"] == reference.title)
            for row, ours in zip(figures, rows, strict=True):
                for column, cell, other in zip(columns, ours["cells"], beside, strict=True):
                    if row is not reference:
                        cell["difference"] = self._difference(row, reference, column, cell, other)
        known = [row for row in rows if any(cell["runs"] or cell["paper"] is not None for cell in row["cells"])]
        return {
            **table.model_dump(include={"title", "note", "against"}),
            "columns": [column.title for column in columns],
            "rows": known,
        }

    def findings(self, findings: Sequence[RecipeFinding]) -> list[dict[str, Any]]:
        """Return whether each finding holds, by a paired comparison of the same questions, or why it was not tested.

        One rule for all: a finding holds if its figure is higher and p, corrected by Holm's method for all findings
        that were tested, is at most 0.05; it does not hold if it is lower by the same rule. Anything else is not
        tested, for a reason: the scale does not compare what the paper does, there are no questions in common, the
        lower figure is at a ceiling, or the questions do not decide.
        """
        pairs = [self._compared(finding) for finding in findings]
        reasons = [self._untested(finding, pair) for finding, pair in zip(findings, pairs, strict=True)]
        tested = [pair.p_value for pair, reason in zip(pairs, reasons, strict=True) if pair and not reason]
        corrected = iter(holm(tested))
        return [
            self._finding(finding, pair, reason, None if reason else next(corrected))
            for finding, pair, reason in zip(findings, pairs, reasons, strict=True)
        ]

    def questions(self, step: Step) -> int:
        """Return how many questions a step measured one by one; 0 where it keeps none."""
        return len(self._rows_of(step))

    def _untested(self, finding: RecipeFinding, pair: Paired | None) -> str:
        """Return why a finding cannot be tested, whatever its figures; empty if it can."""
        if not self._steps(finding.higher) or not self._steps(finding.lower):
            return "not measured at this scale"
        named = finding.not_tested.get(self._plan.scale_name, "")
        return named or ("" if pair else "no measures of the same questions")

    def _finding(
        self, finding: RecipeFinding, pair: Paired | None, reason: str, corrected: float | None
    ) -> dict[str, Any]:
        higher, lower = map(self._figure, finding.both)
        verdict = UNTESTED
        if pair and corrected is not None and corrected <= LEVEL:
            verdict = HOLDS if pair.difference > 0 else FAILS
        elif pair and not reason:
            ceiling = lower is not None and lower >= CEILING
            reason = f"ceiling: {lower:.3f}" if ceiling else f"{pair.questions:,} questions do not decide"
        return {
            "text": finding.text,
            "paper": finding.paper,
            "difference": pair.difference if pair else _minus(higher, lower),
            "by_seed": self._by_seed(finding),
            "low": pair.low if pair else None,
            "high": pair.high if pair else None,
            "questions": pair.questions if pair else None,
            "needed": _needed(pair, finding.paper) if pair else None,
            "p": pair.p_value if pair else None,
            "p_corrected": corrected,
            "verdict": verdict,
            "reason": reason,
        }

    def _compared(self, finding: RecipeFinding) -> Paired | None:
        """Return the paired comparison; None without questions in common."""
        sides = [self._by_question(figure) for figure in finding.both]
        return sides[0].against(sides[1], self._seed) if sides[0] and sides[1] else None

    def _by_seed(self, finding: RecipeFinding) -> list[float]:
        """Return the difference at each seed, a side of one seed alone being the same at each; none of one seed."""
        differences = []
        for seed in self._plan.axes.get(SEED, ()):
            higher, lower = (self._figure(self._at_seed(figure, seed)) for figure in finding.both)
            differences.append(_minus(higher, lower))
        known = [difference for difference in differences if difference is not None]
        return known if len(known) > 1 else []

    def _at_seed(self, figure: Figure, seed: AxisValue) -> Figure:
        seeds = {dict(instance.at).get(SEED, seed) for instance in self._plan.at(figure.step, figure.at)}
        return figure if len(seeds) == 1 else figure.model_copy(update={"at": {**figure.at, SEED: seed}})

    def _cells(self, columns: Sequence[Column], published: Sequence[Known], row: TableRow) -> list[dict[str, Any]]:
        """Return our figures, averaged over `runs` steps, their 95 % intervals over questions, and the paper's."""
        cells = []
        for column, paper in zip(columns, published or [""] * len(columns), strict=True):
            figure = row.figure(column)
            values = self._by_question(figure) if figure else None
            low, high = values.interval(self._seed) if values else (None, None)
            known = None if paper == "" else paper
            value, runs = (self._figure(figure), len(self._steps(figure))) if figure else (None, 0)
            cells.append({"value": value, "low": low, "high": high, "runs": runs, "paper": known})
        return cells

    def _difference(
        self, row: TableRow, reference: TableRow, column: Column, cell: Mapping[str, Any], other: Mapping[str, Any]
    ) -> dict[str, float | None]:
        """Return how far a cell is from that of the row to compare with: ours, its interval, and the paper's."""
        ours, theirs = (
            figure and self._by_question(figure) for figure in (row.figure(column), reference.figure(column))
        )
        pair = ours.against(theirs, self._seed) if ours and theirs else None
        return {
            "value": _minus(cell["value"], other["value"]),
            "low": pair.low if pair else None,
            "high": pair.high if pair else None,
            "paper": _minus(cell["paper"], other["paper"]),
        }

    def _rows_of(self, step: Step) -> list[QuestionFigures]:
        if step.key not in self._rows:
            self._rows[step.key] = read_figures(self._runner.out(step) / PER_QUESTION)
        return self._rows[step.key]

    def _steps(self, figure: Figure) -> list[Step]:
        if figure.scales and self._plan.scale_name not in figure.scales:
            return []
        return [instance.step for instance in self._plan.at(figure.step, figure.at)]

    def _figure(self, figure: Figure) -> float | None:
        """Return the mean of a figure, or of several, over the steps; None if there are none."""
        reported = [self._runner.reported(step, key) for step in self._steps(figure) for key in _paths(figure.value)]
        known = [value for value in reported if value is not None]
        return fmean(known) if known and len(known) == len(reported) else None

    def _by_question(self, figure: Figure) -> QuestionValues | None:
        """Return a figure by question, averaged over the steps that measured the same questions.

        Those of steps with other questions are sets of their own, which count alike. None where steps keep no figures
        of questions.
        """
        names = [key.removeprefix(METRICS) for key in _paths(figure.value)]
        of_steps = [values_of(self._rows_of(step), names) for step in self._steps(figure)]
        same: dict[tuple[tuple[str, ...], ...], list[QuestionValues]] = {}
        for values in of_steps:
            if values is None:
                return None
            same.setdefault(values.ids, []).append(values)
        return together([averaged(runs) for runs in same.values()]) if same else None


def _paths(path: FigurePath) -> tuple[str, ...]:
    return (path,) if isinstance(path, str) else path


def _minus(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or theirs is None else ours - theirs


def _needed(pair: Paired, paper: float | None) -> int | None:
    """Return how many such questions find a difference as large as the paper's, or as ours, in four samples of five.

    By the standard error of a normal distribution that has this interval.
    """
    error, difference = (pair.high - pair.low) / (2 * 1.96), pair.difference if paper is None else paper
    return math.ceil(pair.questions * (DECIDES * error / difference) ** 2) if difference else None
