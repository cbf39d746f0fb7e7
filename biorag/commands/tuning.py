"""`biorag tune`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biorag.commands import options, show
from biorag.commands.bench import rerankers_hash
from biorag.engine import open_index
from biorag.errors import UsageError, unknown_name
from biorag.settings.settings import Settings
from biorag.settings.sources import DEFAULT_FILE, PREFIX, load_settings

if TYPE_CHECKING:
    from biorag.benchmarks.tuning.parameters import Parameter
    from biorag.benchmarks.tuning.search import TuningPlan
    from biorag.benchmarks.tuning.study import Study
    from biorag.corpus.datasets import Dataset

ALL = "all"
POINTS = 9


def tune(
    ctx: typer.Context,
    dataset: Annotated[list[Path], typer.Argument(help="Folders in BEIR layout; of several, the mean counts.")],
    param: Annotated[str, typer.Option(help="lambda, k_init, interpolation or cross_interpolation.")],
    out: Annotated[Path, typer.Option(help="Folder of the curve and the points; an interrupted run resumes.")],
    low: Annotated[float | None, typer.Option("--from", help="Lowest value; else the parameter's own.")] = None,
    high: Annotated[float | None, typer.Option("--to", help="Highest value.")] = None,
    points: Annotated[
        int | None, typer.Option(min=2, max=1000, help=f"Values that are measured; else {POINTS}.")
    ] = None,
    values: Annotated[str | None, typer.Option(help="These values, with commas, in place of a range.")] = None,
    method: Annotated[
        str, typer.Option(help="grid, or golden: a golden-section search, for curves with one peak.")
    ] = "grid",
    by: Annotated[str, typer.Option("--measure", help="What is to be highest.")] = "nDCG@10",
    write: Annotated[
        bool, typer.Option("--write/--no-write", help="Set the best value in --config FILE, or ./biorag.toml.")
    ] = True,
    held_out: options.HeldOutPart = False,
    training: options.TrainingPart = False,
    dropped: options.DroppedPart = False,
    guard: options.PartGuards = None,
    train_validation: options.PartValidation = None,
    name: options.Name = None,
    mode: options.Mode = None,
    fusion: options.Fusion = None,
    lambda_: options.Lambda = None,
    rerank: options.Rerank = None,
    reranker: options.Reranker = None,
    interpolation: options.Interpolation = None,
    cross_interpolation: options.CrossInterpolation = None,
    k_init: options.KInit = None,
    where: options.Where = None,
    encoder: options.Encoder = None,
    qdrant: options.Qdrant = None,
    seed: options.Seed = None,
    as_json: options.Json = False,
) -> None:
    """Choose one setting of retrieval on development questions, and write it to the configuration file.

    The value in use is measured too. Tune with --training and measure with bench retrieval --held-out: a measure on
    the questions that a value was chosen on is too high.

    'biorag tune prompt' chooses the instruction before a query; write a folder of that name as ./prompt.

    Examples:

      biorag tune data/bioasq --param lambda --no-rerank --name pubmed --out runs/lambda

      biorag tune data/bioasq data/pubmedqa --param interpolation --training --from 0 --to 1 --out runs/weight

      biorag tune data/bioasq --param k_init --values 10,20,50,100 --out runs/k_init --no-write --json

      biorag tune prompt data/bioasq --budget light --name decoder --out runs/prompt
    """
    from biorag.benchmarks.retrieval import measure
    from biorag.benchmarks.tuning.study import Study, load_development, write_curve
    from biorag.utils.files import write_json
    from biorag.utils.plots import require_matplotlib

    settings = options.configured(ctx)
    plan = _plan(ctx.params, settings, ctx.obj["config"])
    require_matplotlib()
    part = options.question_part(held_out, training, dropped)
    split = options.held_out_split(settings, part, guard, train_validation, "--training, --held-out or --dropped")
    data = load_development(dataset, split)
    conditions = options.conditions(where, None)
    with open_index(settings) as ready:
        retriever, index = ready.retriever.with_cache(), ready.fingerprint()
        questions = sum(len(each.questions) for each in data)

        def measured(value: float) -> dict[str, Mapping[str, float]]:
            variant = retriever.variant(**{plan.parameter.setting: value})
            with show.progress(f"Questions, {plan.parameter.name} = {value:g}", questions) as advance:
                return {each.name: measure(each, variant, conditions, advance).metrics for each in data}

        identity = {**_identity(plan.parameter, settings, data), "filter": [asdict(each) for each in conditions]}
        study = Study(out, {**identity, "index": index}, measured)
        with study.run.locked():
            best = plan.best(study)
    write_curve(out, plan.parameter, list(study.points.values()), by)
    report = {
        **_report(plan, best, study),
        "datasets": {each.name: len(each.questions) for each in data},
        "side": split.part,
        "config": settings.public(),
        "index": index,
    }
    report["written"] = _written(ctx.obj["config"], plan.parameter, report) if write else None
    write_json(out / "report.json", report)
    if as_json:
        show.print_json(report)
    else:
        _print(plan, report)


def _plan(given: Mapping[str, Any], settings: Settings, file: Path | None) -> TuningPlan:
    """Return which values are to be measured.

    Raises
    ------
    UsageError
        If an option is not one of its choices, two do not go together, a value is not allowed, or the parameter
        changes nothing in this configuration.
    """
    from biorag.benchmarks.retrieval import MEASURES
    from biorag.benchmarks.tuning.parameters import PARAMETERS
    from biorag.benchmarks.tuning.search import GRID, METHODS, TuningPlan

    for kind, value, known in (
        ("parameter", given["param"], PARAMETERS),
        ("method", given["method"], METHODS),
        ("measure", given["by"], MEASURES),
    ):
        if value not in known:
            raise unknown_name(kind, value, known)
    parameter = PARAMETERS[given["param"]]
    if fault := parameter.needs(settings):
        raise UsageError(f"--param {parameter.name} would change nothing: {fault}")
    ranged = any(given[name] is not None for name in ("low", "high", "points"))
    if given["values"] and (given["method"] != GRID or ranged):
        raise UsageError("--values names what is measured: leave --from, --to, --points and --method out")
    points = given["points"] or POINTS
    parameter = parameter.within(given["low"], given["high"])
    values = parameter.parse(given["values"]) if given["values"] else parameter.grid(points)
    current = getattr(settings.retrieval, parameter.setting)
    for value in (*values, current):
        settings.replace(**{parameter.setting: value})  # says what is allowed
        if given["write"]:
            load_settings({parameter.setting: value}, file)  # the file may name another chain of rerankers
    return TuningPlan(parameter, given["by"], current, tuple(values), points if given["method"] != GRID else None)


def _identity(parameter: Parameter, settings: Settings, data: Sequence[Dataset]) -> dict[str, Any]:
    """Return what determines the measures besides the parameter's value."""
    from biorag.benchmarks.tuning.study import dataset_hash
    from biorag.utils.versions import installed_versions

    determining = settings.retrieval.identity().items()
    return {
        "parameter": parameter.name,
        "settings": {key: value for key, value in determining if key not in (parameter.name, "k")},
        "reranker": rerankers_hash(settings),
        "datasets": {each.name: dataset_hash(each) for each in data},
        "versions": installed_versions(),
    }


def _report(plan: TuningPlan, best: float, study: Study[float]) -> dict[str, Any]:
    means = {value: study.points[value].mean(plan.measure) for value in sorted(study.points)}
    return {
        "param": plan.parameter.name,
        "measure": plan.measure,
        "method": plan.method,
        "best": {"value": best, "mean": means[best]},
        "current": {"value": plan.current, "mean": means[plan.current]},
        "points": [
            {
                "value": value,
                "mean": mean,
                "datasets": {name: found[plan.measure] for name, found in study.points[value].metrics.items()},
            }
            for value, mean in means.items()
        ],
    }


def _written(named: Path | None, parameter: Parameter, report: Mapping[str, Any]) -> str:
    """Write the best value into the configuration file, saying how it was found; return the file's path."""
    from biorag.settings.file import write_setting

    path = named or DEFAULT_FILE
    best, index = report["best"], report["index"]["name"]
    sets = " and ".join(f"{name} ({count} questions)" for name, count in report["datasets"].items())
    side = "" if report["side"] == ALL else f", {report['side']} side"
    mean = "mean " if len(report["datasets"]) > 1 else ""
    write_setting(
        path,
        parameter.name,
        best["value"],
        f"{datetime.now(UTC):%Y-%m-%d}: {mean}{report['measure']} {best['mean']:.4f} on {sets}{side}, index {index}, "
        f"{report['method']} of {len(report['points'])} values",
    )
    if os.environ.get(variable := PREFIX + parameter.name.upper()):
        show.err.print(f"note: the variable {variable} is set, and takes precedence over {path}")
    return str(path)


def _print(plan: TuningPlan, report: Mapping[str, Any]) -> None:
    names = list(report["datasets"])
    several = ["mean"] if len(names) > 1 else []
    current, best = report["current"]["value"], report["best"]["value"]
    marks = {current: "in use", best: "best, in use" if best == current else "best"}
    rows = [
        (
            f"{point['value']:g}",
            *(f"{point['datasets'][name]:.4f}" for name in names),
            *(f"{point[mean]:.4f}" for mean in several),
            marks.get(point["value"], ""),
        )
        for point in report["points"]
    ]
    show.table(f"{report['measure']}, {report['side']} questions", [report["param"], *names, *several, ""], rows)
    if len(rows) > 1 and len({point["mean"] for point in report["points"]}) == 1:
        show.err.print("note: all values measure the same")
    elif best in (report["points"][0]["value"], report["points"][-1]["value"]):
        show.err.print("note: the best value is the first or the last one: a wider range may hold a better one")
    if report["written"]:
        show.err.print(f"{report['param']} = {best:g} is written to {report['written']}")
