"""Tuning one setting of retrieval: its values measured on development questions, and the best one kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from typing_extensions import TypedDict

from biorag.benchmarks.retrieval import check_measure, measure
from biorag.corpus.datasets import Dataset, load_dataset
from biorag.engine import OpenIndex
from biorag.errors import UsageError, check_name
from biorag.lab.tuning.parameters import PARAMETERS, Parameter
from biorag.settings.settings import Settings
from biorag.settings.sources import write_setting
from biorag.training.contamination import ALL, HeldOutSplit
from biorag.types import Progress, Where
from biorag.utils.files import sha256_of_json, sweep
from biorag.utils.plots import LinePanel, write_plot
from biorag.utils.runs import RunDirectory
from biorag.utils.versions import installed_versions

Metrics: TypeAlias = Mapping[str, Mapping[str, float]]  # data set -> measure -> value
Points: TypeAlias = Mapping[float, Metrics]  # by the value of the setting


class RecordedPoint(TypedDict):
    """A value in a tuning run's manifest."""

    value: float
    metrics: dict[str, dict[str, float]]


class RecordedPoints(TypedDict):
    """The part of a tuning run's manifest that is read."""

    points: list[RecordedPoint]


class TuningRun(RunDirectory):
    """A directory whose manifest has the values measured so far; later runs may add more."""

    kind = "tuning run"
    manifest_name = "points.json"
    facts = RecordedPoints

    def measured(self, values: Sequence[float], measure: Callable[[float], Metrics]) -> dict[float, Metrics]:
        """Measure the values that are new, saving each, and return all of the run.

        Raises MismatchError if the directory holds something else, or a run of another identity.
        """
        recorded = self.finished() or {"points": []}
        points: dict[float, Metrics] = {point["value"]: point["metrics"] for point in recorded["points"]}
        with self.locked():
            for value in sorted({*values} - points.keys()):
                points[value] = measure(value)
                rows = [{"value": value, "metrics": points[value]} for value in sorted(points)]
                self.finish({"points": rows})
        return points


def mean_of(metrics: Metrics, name: str) -> float:
    """Return the unweighted mean of a measure over the data sets."""
    return fmean(values[name] for values in metrics.values())


@dataclass(frozen=True, slots=True)
class TuningPlan:
    """The values of a parameter to measure beside the `current` one; the highest `measure` wins."""

    parameter: Parameter
    measure: str
    current: float
    values: Sequence[float]

    @classmethod
    def of(cls, name: str, measure: str, settings: Settings, values: str | None) -> TuningPlan:
        """Return the plan for a named parameter; `values` are separated by commas, None for the parameter's own.

        Raises UsageError for an unknown parameter or measure, for a value that is not allowed, and if the parameter
        changes nothing with these settings.
        """
        check_name("parameter", name, PARAMETERS)
        check_measure(measure)
        parameter = PARAMETERS[name]
        if fault := parameter.needs(settings):
            raise UsageError(f"--param {name} would change nothing: {fault}")
        planned = parameter.parse(values) if values else parameter.values
        current = settings.flat()[name]
        for value in (*planned, current):
            settings.replace(**{name: value})  # raises if the value is not allowed
        return cls(parameter, measure, current, planned)

    def best(self, points: Points) -> float:
        """Return the best value; of equal ones the current, else the lowest."""
        means = {value: mean_of(metrics, self.measure) for value, metrics in points.items()}
        return min(means, key=lambda value: (-means[value], value != self.current, value))


@dataclass(frozen=True, slots=True)
class DevelopmentData:
    """Data sets to choose values on, the part of their questions, and conditions on the snippets."""

    datasets: Sequence[Dataset]
    part: str
    where: Where


def tune(
    plan: TuningPlan, development: DevelopmentData, opened: OpenIndex, out: Path, progress: Progress
) -> dict[str, Any]:
    """Measure the values of a plan, resuming an earlier run in `out`; write the curve and return the report."""
    retriever, index, parameter = opened.retriever.with_cache(), opened.fingerprint(), plan.parameter
    counts = {dataset.name: len(dataset.questions) for dataset in development.datasets}

    def measured(value: float) -> Metrics:
        variant = retriever.variant(**{parameter.name: value})
        with progress(f"Questions, {parameter.name} = {value:g}", sum(counts.values())) as advance:
            return {
                dataset.name: measure(dataset, variant, development.where, advance).metrics
                for dataset in development.datasets
            }

    identity = {**_identity(parameter, opened.settings, development), "index": index}
    points = TuningRun(out, identity).measured([plan.current, *plan.values], measured)
    sweep(out)  # of a run that was killed while it drew
    write_curve(out / "curve.png", parameter, points, plan.measure)
    best = plan.best(points)
    means = {value: mean_of(metrics, plan.measure) for value, metrics in points.items()}
    return {
        "param": parameter.name,
        "measure": plan.measure,
        "best": {"value": best, "mean": means[best]},
        "current": {"value": plan.current, "mean": means[plan.current]},
        "points": [
            {
                "value": value,
                "mean": means[value],
                "datasets": {name: metrics[plan.measure] for name, metrics in points[value].items()},
            }
            for value in sorted(points)
        ],
        "datasets": counts,
        "side": development.part,
        "config": opened.settings.public(),
        "index": index,
    }


def _identity(parameter: Parameter, settings: Settings, development: DevelopmentData) -> dict[str, Any]:
    """Return everything that determines the measures besides the value and the index."""
    determining = settings.retrieval.identity().items()
    return {
        "parameter": parameter.name,
        "settings": {key: value for key, value in determining if key not in (parameter.name, "k")},
        "reranker": settings.retrieval.rerankers_hash(),
        "datasets": {dataset.name: dataset_hash(dataset) for dataset in development.datasets},
        "versions": installed_versions(),
        "filter": [asdict(condition) for condition in development.where],
    }


def write_curve(path: Path, parameter: Parameter, points: Points, name: str) -> None:
    """Draw a measure of each data set, and its mean, over the values."""
    values = sorted(points)
    datasets = list(points[values[0]])
    lines = {data: [(value, points[value][data][name]) for value in values] for data in datasets}
    if len(datasets) > 1:
        lines["mean"] = [(value, mean_of(points[value], name)) for value in values]
    logarithmic = parameter.logarithmic and values[0] > 0
    write_plot(path, [LinePanel(parameter.name, parameter.name, name, lines, log_x=logarithmic)])


def write_best(path: Path, report: Mapping[str, Any]) -> None:
    """Write the best value into a configuration file, with a comment on how it was found."""
    best, index = report["best"], report["index"]["name"]
    sets = " and ".join(f"{name} ({count} questions)" for name, count in report["datasets"].items())
    part = "" if report["side"] == ALL else f", {report['side']} side"
    mean = "mean " if len(report["datasets"]) > 1 else ""
    write_setting(
        path,
        report["param"],
        best["value"],
        f"{datetime.now(UTC):%Y-%m-%d}: {mean}{report['measure']} {best['mean']:.4f} on {sets}{part}, index {index}, "
        f"{len(report['points'])} values",
    )


def load_development(folders: Sequence[Path], split: HeldOutSplit, judgements: str = "test") -> list[Dataset]:
    """Return data sets in BEIR layout, judged by qrels/NAME.tsv, with a part of their questions.

    Raises UsageError if two folders have the same name.
    """
    data = [load_dataset(folder, judgements) for folder in folders]
    names = [dataset.name for dataset in data]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"two folders are named {twice}: rename one, since results are listed by name")
    return [split.select(dataset) for dataset in data]


def dataset_hash(data: Dataset) -> str:
    """Return the SHA-256 of a data set's questions and judgements."""
    questions = [(question.id, question.text) for question in data.questions]
    return sha256_of_json([questions, data.qrels])
