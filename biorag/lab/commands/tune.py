"""`biorag tune`: a setting of retrieval, chosen on questions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from biorag.commands import options, show
from biorag.commands.groups import CommandLine, Flags, expanded
from biorag.commands.outputs import FOLDER
from biorag.engine import open_index
from biorag.retrieval.filters import parse_filters
from biorag.settings.settings import Settings
from biorag.settings.sources import PREFIX, load_settings
from biorag.utils.files import write_json


@dataclass(frozen=True, slots=True)
class Tuned:
    """Which setting to choose, among which values, by which measure."""

    param: Annotated[
        str,
        Option(help="lambda, k_init, interpolation or cross_interpolation."),
    ]
    values: Annotated[
        str | None, Option(help="Values to measure, separated by commas. Default: nine of the parameter's range.")
    ] = None
    by: options.Measure = "nDCG@10"
    write: Annotated[bool, Option("--write/--no-write", help="Set the best value in the configuration file.")] = True


@expanded
def tune(
    dataset: Annotated[list[Path], Argument(help="Folders in BEIR layout; the mean of several counts.")],
    tuned: Tuned,
    out: Annotated[Path, Option(help="Folder for the curve and the points; an interrupted run resumes."), FOLDER],
    settings: Annotated[Settings, options.INDEX, options.RANKING_OF_ALL, Flags("seed", "train_validation")],
    line: CommandLine,
    development: options.Development,
    filter: options.Filters = None,
    as_json: options.Json = False,
) -> None:
    """Choose one setting of retrieval on development questions, and write it to the configuration file.

    Tune with --training, measure with bench retrieval --held-out: measures on the questions chosen on are too high.
    'biorag tune prompt' chooses the instruction before a query; write a folder of that name as ./prompt.

    Examples:

      biorag tune data/bioasq --param lambda --no-rerank --name pubmed --out runs/lambda
      biorag tune data/bioasq data/pubmedqa --param interpolation --training --values 0,0.25,0.5,1 --out runs/weight
      biorag tune data/bioasq --param k_init --values 10,20,50,100 --out runs/k_init --no-write --json
    """
    from biorag.lab.tuning import run
    from biorag.utils.plots import require_matplotlib

    plan = run.TuningPlan.of(tuned.param, tuned.by, settings, tuned.values)
    for value in (*plan.values, plan.current) if tuned.write else ():
        load_settings({tuned.param: value}, line.file)  # the file may name another chain of rerankers
    split = development.split(settings, line)
    data = run.DevelopmentData(run.load_development(dataset, split), split.part, parse_filters(filter or ()))
    require_matplotlib()
    with open_index(settings) as opened:
        data = replace(data, where=opened.checked(data.where))
        report = run.tune(plan, data, opened, out, show.progress)
    report["written"] = str(line.configuration) if tuned.write else None
    if tuned.write:
        run.write_best(line.configuration, report)
    write_json(out / "report.json", report)
    show.result(report, as_json, _print)


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
        if os.environ.get(variable := PREFIX + report["param"].upper()):
            show.err.print(f"note: the variable {variable} is set, and takes precedence over the file")
