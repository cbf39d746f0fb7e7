"""Values of settings measured on development sets, kept as they are found."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from biorag.benchmarks.tuning.parameters import Parameter
from biorag.corpus.datasets import Dataset
from biorag.errors import MismatchError
from biorag.utils.files import write_json, write_text
from biorag.utils.plots import Panel, write_plot

POINTS = "points.json"
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


class Study(Generic[Value]):
    """Values that were measured, each once; those of an earlier run into the same folder are there already.

    Parameters
    ----------
    identity : all that determines the measures besides the value; JSON
    measure : gives the measures of every data set at a value

    Raises
    ------
    MismatchError
        If the folder holds the points of another study.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any], measure: Callable[[Value], Metrics]) -> None:
        self._path = folder / POINTS
        self._identity = json.loads(json.dumps(identity))  # as it is read back
        self._measure: Callable[[Value], Metrics] = measure
        self.points: dict[Value, Point[Value]] = {}
        if self._path.is_file():
            self._resume()

    def _resume(self) -> None:
        try:
            found = json.loads(self._path.read_bytes())
            identity = dict(found["identity"])
            measured = [Point(_hashable(point["value"]), point["metrics"]) for point in found["points"]]
            self.points = {point.value: point for point in measured}
        except (ValueError, KeyError, TypeError):
            raise MismatchError(f"{self._path} holds no points of a tuning run: choose another --out") from None
        if changed := [key for key in self._identity if identity.get(key) != self._identity[key]]:
            raise MismatchError(f"{self._path} has points of another {', '.join(changed)}: choose another --out")

    def at(self, value: Value) -> Point[Value]:
        """Return the measures at a value; what is measured anew is saved before it is returned."""
        if value not in self.points:
            self.points[value] = Point(value, self._measure(value))
            points = [asdict(self.points[each]) for each in sorted(self.points)]
            write_json(self._path, {"identity": self._identity, "points": points})
        return self.points[value]


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def dataset_hash(data: Dataset) -> str:
    """Return the SHA-256 of a data set's questions and judgements."""
    asked = [(question.id, question.text) for question in data.questions]
    return hashlib.sha256(json.dumps([asked, data.qrels], sort_keys=True).encode()).hexdigest()


def write_curve(folder: Path, parameter: Parameter, points: Sequence[Point[float]], name: str) -> None:
    """Write `curve.csv` and `curve.png`: a measure of each data set, and its mean, at the values measured."""
    ordered = sorted(points, key=lambda point: point.value)
    datasets = list(ordered[0].metrics)
    lines = {each: [(point.value, point.metrics[each][name]) for point in ordered] for each in datasets}
    if len(datasets) > 1:
        lines["mean"] = [(point.value, point.mean(name)) for point in ordered]
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([parameter.name, *(f"{name} {line}" for line in lines)])
    rows.writerows([point.value, *(line[place][1] for line in lines.values())] for place, point in enumerate(ordered))
    write_text(folder / "curve.csv", text.getvalue())
    logarithmic = parameter.logarithmic and ordered[0].value > 0
    write_plot(folder / "curve.png", [Panel(parameter.name, parameter.name, name, lines, logarithmic_x=logarithmic)])
