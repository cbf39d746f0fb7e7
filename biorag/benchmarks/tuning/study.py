"""Values of settings measured on development sets, each saved as soon as it is measured."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from typing_extensions import TypedDict

from biorag.benchmarks.tuning.parameters import Parameter
from biorag.corpus.datasets import Dataset, load_dataset
from biorag.errors import UsageError
from biorag.training.held_out import HeldOutSplit
from biorag.utils.files import sha256_of_json, write_json, write_text
from biorag.utils.parsing import validated
from biorag.utils.plots import PlotPanel, write_plot
from biorag.utils.runs import ResumableRun

Value = TypeVar("Value", float, tuple[float, ...])  # a setting's, or several's
Metrics: TypeAlias = Mapping[str, Mapping[str, float]]  # data set -> measure -> value


@dataclass(frozen=True, slots=True)
class Point(Generic[Value]):
    """The measures of every data set at one value."""

    value: Value
    metrics: Metrics

    def mean(self, name: str) -> float:
        """Return the unweighted mean of a measure over the data sets."""
        return float(np.mean([metrics[name] for metrics in self.metrics.values()]))

    def summary(self, name: str) -> dict[str, Any]:
        """Return a measure's mean and its value by data set, as reports have them."""
        return {"mean": self.mean(name), "datasets": {data: metrics[name] for data, metrics in self.metrics.items()}}


class RecordedStudy(TypedDict):
    """The manifest of a study."""

    identity: dict[str, Any]
    points: list[Point[float] | Point[tuple[float, ...]]]  # of several settings the value is a tuple


class TuningRun(ResumableRun):
    """A directory whose manifest has the points measured so far."""

    kind = "tuning run"
    manifest_name = "points.json"
    head = RecordedStudy

    def points(self) -> list[Point[Any]]:
        """Return the points."""
        values = self.finished()
        points: list[Point[Any]] = validated(RecordedStudy, values, extra="ignore")["points"] if values else []
        return points


class Study(Generic[Value]):
    """Values that were measured, each once; those of an earlier run into the same folder are there already.

    `identity` is all that determines the measures besides the value; `measure` gives those of every data set at one.

    Raises MismatchError if the folder holds the points of another study.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any], measure: Callable[[Value], Metrics]) -> None:
        self.run = TuningRun(folder, identity)
        self._measure: Callable[[Value], Metrics] = measure
        self.points: dict[Value, Point[Value]] = {point.value: point for point in self.run.points()}

    def at(self, value: Value) -> Point[Value]:
        """Return the measures at a value; new ones are saved before they are returned."""
        if value not in self.points:
            self.points[value] = Point(value, self._measure(value))
            points = [asdict(point) for point in self.ordered()]
            write_json(self.run.manifest, {"identity": self.run.identity, "points": points})
        return self.points[value]

    def ordered(self) -> list[Point[Value]]:
        """Return the points by rising value."""
        return [self.points[value] for value in sorted(self.points)]

    def best(self, values: Iterable[Value], measure: str) -> Value:
        """Measure values; return the one of highest mean, of equals the first."""
        return max(values, key=lambda value: self.at(value).mean(measure))


def load_development(folders: Sequence[Path], split: HeldOutSplit, judgements: str = "test") -> list[Dataset]:
    """Return data sets in BEIR layout, judged by qrels/NAME.tsv, with the questions that values are chosen on.

    Raises UsageError if two folders have the same name, which curves go by.
    """
    data = [load_dataset(folder, judgements) for folder in folders]
    names = [dataset.name for dataset in data]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"two folders are named {twice}, which curves go by: rename one")
    return [split.select(dataset) for dataset in data]


def dataset_hash(data: Dataset) -> str:
    """Return the SHA-256 of a data set's questions and judgements."""
    questions = [(question.id, question.text) for question in data.questions]
    return sha256_of_json([questions, data.qrels])


def write_curve(folder: Path, parameter: Parameter, points: Sequence[Point[float]], name: str) -> None:
    """Write `curve.csv` and `curve.png`: a measure of each data set, and its mean, at the values measured."""
    datasets = list(points[0].metrics)
    lines = {data: [(point.value, point.metrics[data][name]) for point in points] for data in datasets}
    if len(datasets) > 1:
        lines["mean"] = [(point.value, point.mean(name)) for point in points]
    rows = [[point.value, *(line[row][1] for line in lines.values())] for row, point in enumerate(points)]
    write_csv(folder / "curve.csv", [parameter.name, *(f"{name} {line}" for line in lines)], rows)
    logarithmic = parameter.logarithmic and points[0].value > 0
    panel = PlotPanel(parameter.name, parameter.name, name, lines, log_x=logarithmic)
    write_plot(folder / "curve.png", [panel])


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[float]]) -> None:
    """Write a table of numbers, unrounded."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_text(path, text.getvalue())
