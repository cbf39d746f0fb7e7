"""`biorag tune`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from biorag.benchmarks.tuning.parameters import POINTS
from biorag.commands import options, show
from biorag.commands.completion import choices_in
from biorag.commands.groups import CommandLine, Flags, expanded
from biorag.engine import open_index
from biorag.settings.settings import Settings
from biorag.settings.sources import PREFIX, load_settings

if TYPE_CHECKING:
    from biorag.benchmarks.tuning.run import DevelopmentData, TuningPlan


@dataclass(frozen=True, slots=True)
class Tuned:
    """Which setting to choose, among which values, by which measure."""

    param: Annotated[
        str,
        Option(
            help="lambda, k_init, interpolation or cross_interpolation.",
            **choices_in("biorag.benchmarks.tuning.parameters:PARAMETERS"),
        ),
    ]
    low: Annotated[float | None, Option("--from", help="Lowest value. Default: the parameter's own.")] = None
    high: Annotated[float | None, Option("--to", help="Highest value.")] = None
    points: Annotated[int | None, Option(min=2, max=1000, help=f"Number of values. Default: {POINTS}.")] = None
    values: Annotated[str | None, Option(help="Values to measure, separated by commas, instead of a range.")] = None
    by: options.Measure = "nDCG@10"
    write: Annotated[bool, Option("--write/--no-write", help="Set the best value in the configuration file.")] = True


@expanded
def tune(
    dataset: Annotated[list[Path], Argument(help="Folders in BEIR layout; the mean of several counts.")],
    tuned: Tuned,
    out: Annotated[Path, Option(help="Folder for the curve and the points; an interrupted run resumes.")],
    settings: Annotated[
        Settings, options.INDEX, options.RANKING_OF_ALL, Flags("seed"), Flags("train_validation", panel=None)
    ],
    line: CommandLine,
    development: options.Development,
    filters: options.Filters,
    as_json: options.Json = False,
) -> None:
    """Choose one setting of retrieval on development questions, and write it to the configuration file.

    Tune with --training, measure with bench retrieval --held-out: measures on the questions chosen on are too high.
    'biorag tune prompt' chooses the instruction before a query; write a folder of that name as ./prompt.

    Examples:

      biorag tune data/bioasq --param lambda --no-rerank --name pubmed --out runs/lambda
      biorag tune data/bioasq data/pubmedqa --param interpolation --training --from 0 --to 1 --out runs/weight
      biorag tune data/bioasq --param k_init --values 10,20,50,100 --out runs/k_init --no-write --json
    """
    from biorag.benchmarks.tuning import run
    from biorag.benchmarks.tuning.study import load_development

    spread = tuned.low, tuned.high, tuned.points
    plan = run.TuningPlan.of(tuned.param, tuned.by, settings, spread, tuned.values)
    for value in (*plan.values, plan.current) if tuned.write else ():
        load_settings({plan.parameter.setting: value}, line.file)  # the file may name another chain of rerankers
    split = development.split(settings, line)
    data = run.DevelopmentData(load_development(dataset, split), split.part, filters.conditions)
    report = _tuned(plan, data, settings, out)
    _write(report, out, line.configuration if tuned.write else None)
    show.result(report, as_json, _print)


def _tuned(plan: TuningPlan, chosen_on: DevelopmentData, settings: Settings, out: Path) -> dict[str, Any]:
    from biorag.benchmarks.tuning.run import tune
    from biorag.utils.plots import require_matplotlib

    require_matplotlib()
    with open_index(settings) as opened:
        opened.checked(chosen_on.where)
        return tune(plan, chosen_on, opened, out, show.progress)


def _write(report: dict[str, Any], out: Path, configuration: Path | None) -> None:
    """Write the report, and the best value into a configuration file."""
    from biorag.benchmarks.tuning.run import write_best
    from biorag.utils.files import write_json

    report["written"] = str(configuration) if configuration else None
    if configuration:
        write_best(configuration, report)
        if os.environ.get(variable := PREFIX + report["param"].upper()):
            show.err.print(f"note: the variable {variable} is set, and takes precedence over {configuration}")
    write_json(out / "report.json", report)


def _print(report: Mapping[str, Any]) -> None:
    names = list(report["datasets"])
    current, best = report["current"]["value"], report["best"]["value"]
    marks = {current: "in use", best: "best, in use" if best == current else "best"}
    several = ["mean"] if len(names) > 1 else []
    rows = []
    for point in report["points"]:
        means = [*(point["datasets"][name] for name in names), *(point[mean] for mean in several)]
        rows.append((f"{point['value']:g}", *(f"{mean:.4f}" for mean in means), marks.get(point["value"], "")))
    show.table(f"{report['measure']}, {report['side']} questions", [report["param"], *names, *several, ""], rows)
    if len(rows) > 1 and len({point["mean"] for point in report["points"]}) == 1:
        show.err.print("note: all values measure the same")
    elif best in (report["points"][0]["value"], report["points"][-1]["value"]):
        show.err.print("note: the best value is the first or the last one: a wider range may hold a better one")
    if report["written"]:
        show.err.print(f"{report['param']} = {best:g} is written to {report['written']}")
