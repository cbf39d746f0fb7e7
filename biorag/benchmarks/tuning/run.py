"""Tuning one setting of retrieval: the values to measure, the measuring, the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from biorag.benchmarks.retrieval import check_measure, measure
from biorag.benchmarks.tuning.parameters import PARAMETERS, POINTS, Parameter
from biorag.benchmarks.tuning.study import Point, Study, dataset_hash, write_curve
from biorag.corpus.datasets import Dataset
from biorag.engine import OpenIndex
from biorag.errors import UsageError, unknown_name
from biorag.settings.settings import Settings
from biorag.settings.sources import write_setting
from biorag.training.held_out import ALL
from biorag.types import FieldFilter, Progress
from biorag.utils.versions import installed_versions


@dataclass(frozen=True, slots=True)
class TuningPlan:
    """The values of a parameter to measure, beside the `current` one, to find that of the highest `measure`."""

    parameter: Parameter
    measure: str
    current: float
    values: Sequence[float]

    @classmethod
    def of(
        cls,
        name: str,
        measure: str,
        settings: Settings,
        spread: tuple[float | None, float | None, int | None],
        values: str | None,
    ) -> TuningPlan:
        """Return the plan for a parameter of this name.

        `spread` is the lowest value, the highest and their number, None for the parameter's own; `values` a list with
        commas in its place.

        Raises UsageError if something is not one of its choices, two do not go together, a value is not allowed, or the
        parameter changes nothing with these settings.
        """
        if name not in PARAMETERS:
            raise unknown_name("parameter", name, PARAMETERS)
        check_measure(measure)
        parameter = PARAMETERS[name]
        if fault := parameter.needs(settings):
            raise UsageError(f"--param {name} would change nothing: {fault}")
        if values and spread != (None, None, None):
            raise UsageError("--values lists the values to measure: leave --from, --to and --points out")
        low, high, points = spread
        parameter = parameter.within(low, high)
        planned = parameter.parse(values) if values else parameter.grid(points or POINTS)
        current = getattr(settings.retrieval, parameter.setting)
        for value in (*planned, current):
            settings.replace(**{parameter.setting: value})  # says what is allowed
        return cls(parameter, measure, current, tuple(planned))

    def best(self, study: Study[float]) -> float:
        """Measure the values; return the best in the study: of equal ones the current, else the lowest."""
        for value in (self.current, *self.values):
            study.at(value)
        means = {value: point.mean(self.measure) for value, point in study.points.items()}
        return min(means, key=lambda value: (-means[value], value != self.current, value))


@dataclass(frozen=True, slots=True)
class DevelopmentData:
    """The data that values are chosen on: data sets with a part of their questions, and conditions on the snippets."""

    datasets: Sequence[Dataset]
    part: str
    where: tuple[FieldFilter, ...]


def tune(
    plan: TuningPlan, development: DevelopmentData, opened: OpenIndex, out: Path, progress: Progress
) -> dict[str, Any]:
    """Measure the values of a plan, resuming an earlier run in `out`; write the curve and return the report."""
    retriever, index, parameter = opened.retriever.with_cache(), opened.fingerprint(), plan.parameter
    counts = {dataset.name: len(dataset.questions) for dataset in development.datasets}

    def measured(value: float) -> dict[str, Mapping[str, float]]:
        variant = retriever.variant(**{parameter.setting: value})
        with progress(f"Questions, {parameter.name} = {value:g}", sum(counts.values())) as advance:
            return {
                dataset.name: measure(dataset, variant, development.where, advance).metrics
                for dataset in development.datasets
            }

    study = Study(out, {**_identity(parameter, opened.settings, development), "index": index}, measured)
    study.run.check_nothing_else()
    with study.run.locked():
        best = plan.best(study)
    write_curve(out, parameter, study.ordered(), plan.measure)

    def shown(point: Point[float]) -> dict[str, float]:
        return {"value": point.value, "mean": point.mean(plan.measure)}

    return {
        "param": parameter.name,
        "measure": plan.measure,
        "method": "grid",
        "best": shown(study.points[best]),
        "current": shown(study.points[plan.current]),
        "points": [{"value": point.value, **point.summary(plan.measure)} for point in study.ordered()],
        "datasets": counts,
        "side": development.part,
        "config": opened.settings.public(),
        "index": index,
    }


def _identity(parameter: Parameter, settings: Settings, development: DevelopmentData) -> dict[str, Any]:
    """Return all that determines the measures besides the parameter's value and the index."""
    determining = settings.retrieval.identity().items()
    return {
        "parameter": parameter.name,
        "settings": {key: value for key, value in determining if key not in (parameter.name, "k")},
        "reranker": settings.retrieval.rerankers_hash(),
        "datasets": {dataset.name: dataset_hash(dataset) for dataset in development.datasets},
        "versions": installed_versions(),
        "filter": [asdict(condition) for condition in development.where],
    }


def write_best(path: Path, report: Mapping[str, Any]) -> None:
    """Write the best value into a configuration file, saying how it was found."""
    best, index = report["best"], report["index"]["name"]
    sets = " and ".join(f"{name} ({count} questions)" for name, count in report["datasets"].items())
    part = "" if report["side"] == ALL else f", {report['side']} side"
    mean = "mean " if len(report["datasets"]) > 1 else ""
    write_setting(
        path,
        report["param"],
        best["value"],
        f"{datetime.now(UTC):%Y-%m-%d}: {mean}{report['measure']} {best['mean']:.4f} on {sets}{part}, index {index}, "
        f"{report['method']} of {len(report['points'])} values",
    )
