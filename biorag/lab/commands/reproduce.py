"""`biorag reproduce`, `biorag run`, `biorag ablate` and `biorag train pipeline`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Context, Option, confirm

from biorag.commands import options, show
from biorag.commands.groups import expanded
from biorag.commands.outputs import FOLDER
from biorag.errors import UsageError
from biorag.lab.recipes import papers
from biorag.settings.settings import FIELDS
from biorag.utils.network import is_server
from biorag.utils.registry import or_list

if TYPE_CHECKING:
    from biorag.lab.recipes.plan import CommandUse, RecipePlan

LONG = 86_400  # seconds from which a run is asked about


@dataclass(frozen=True, slots=True)
class Variation:
    """What differs from the recipe, and the machine."""

    set_: Annotated[
        list[str] | None,
        Option(
            "--set", help="NAME=VALUE: a setting or a value of the recipe; STEP:NAME=VALUE for one step. Repeatable."
        ),
    ] = None
    server: Annotated[list[str] | None, Option(help="NAME=URL of a server that the recipe names. Repeatable.")] = None
    hardware: Annotated[
        str | None, Option(help="Profile of the recipe. Default: the largest that fits.", show_default=False)
    ] = None
    machine: Annotated[
        Path | None, Option(help="With --dry-run: TOML file of the machine to plan for. Default: this one.")
    ] = None


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to run a recipe."""

    out: Annotated[
        Path | None,
        Option(help="Folder for models, indexes and the report; finished steps are reused. [required]"),
        FOLDER,
    ] = None
    scale: Annotated[str, Option(help="Size: smoke (minutes), cpu (hours) or full (the paper's).")] = "smoke"
    backbone: Annotated[str | None, Option(help="Model to train, one of the recipe's. Default: the scale's.")] = None
    data: Annotated[Path, Option(help="Folder of the inputs, {data} in recipes.")] = Path("data")
    jobs: Annotated[int, Option(min=1, help="Steps that run in parallel, each in its own process, on one GPU.")] = 1
    dry_run: Annotated[bool, Option("--dry-run", help="Only list the steps with estimated time and memory.")] = False
    yes: Annotated[bool, Option("--yes", help="Do not ask before paid calls, or a run of days.")] = False


@expanded
def reproduce(
    paper: Annotated[str, Argument(help=f"Recipe: {or_list(papers())}.")],
    asked: RunOptions,
    variation: Annotated[Variation, "Variation"],
    ctx: Context,
    as_json: options.Json = False,
) -> None:
    """Run a paper's recipe and set its tables beside the paper's own.

    Every step is a command of biorag; report.json lists them. The same command resumes an interrupted run.

    Examples:

      biorag reproduce modernbert-colbert --out runs/mc
      biorag reproduce modernbert-colbert --scale full --dry-run --machine docs/machines/h200.toml
    """
    from biorag.lab.recipes.run import recipe_of

    _run(recipe_of(paper), asked, variation, ctx, as_json)


@expanded
def run(
    recipe: Annotated[Path, Argument(help="TOML file of the recipe; docs/recipes.md explains it.")],
    asked: RunOptions,
    variation: Annotated[Variation, "Variation"],
    ctx: Context,
    as_json: options.Json = False,
) -> None:
    """Run a recipe of your own: steps, the values they are repeated for, and tables.

    Examples:

      biorag run recipe.toml --scale cpu --out runs/mine
      biorag run recipe.toml --scale full --dry-run --json
    """
    _run(recipe, asked, variation, ctx, as_json)


def _run(recipe: Path, asked: RunOptions, variation: Variation, ctx: Context, as_json: bool) -> None:
    from biorag.lab.recipes.estimates import device_bytes
    from biorag.lab.recipes.plan import Change, Choices, RecipePlan
    from biorag.lab.recipes.recipe import load_recipe
    from biorag.lab.recipes.run import preview
    from biorag.lab.scale.planning import load_machine

    loaded, profile = load_recipe(recipe), variation.hardware
    machine = load_machine(variation.machine) if variation.machine else None
    if profile is None and loaded.hardware:
        profile = loaded.profile_for(asked.scale, device_bytes(machine))
    changes, urls = tuple(map(Change.parsed, variation.set_ or ())), dict(map(_named_url, variation.server or ()))
    choices = Choices(asked.data, asked.backbone, profile, changes, urls=urls, read=partial(read_line, ctx.find_root()))
    plan = RecipePlan(loaded, asked.scale, choices)
    if asked.dry_run:
        show.result(preview(plan, asked.out or Path("OUT"), machine, asked.jobs), as_json, _print_preview)
        for wanted in plan.missing():
            show.err.print(f"not there: {wanted.description}", soft_wrap=True)
        return
    if asked.out is None:
        raise UsageError("a run needs a folder for its models and report: give --out, or --dry-run to list the steps")
    if machine:
        raise UsageError("--machine is what --dry-run plans for: a run takes the machine that it is on")
    _check(plan, asked.jobs, asked.yes)
    _report(plan, asked.out, asked.jobs, as_json)


def read_line(root: Any, words: Sequence[str]) -> CommandUse:
    """Return what the words after `biorag` ask of the program whose context is `root`.

    Raises UsageError if they name a command or an option that it does not have, or lack one that it needs.
    """
    from biorag.lab.recipes.plan import CommandUse

    command, rest, path = root.command, list(words), []
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(root, rest)
        path.append(name)
    context = command.make_context(" ".join(path), rest, parent=root)
    values = {name.removesuffix("_"): value for name, value in context.params.items()}
    sources = {name: context.get_parameter_source(name) for name in context.params}
    typed = {name.removesuffix("_") for name, source in sources.items() if source and source.name == "COMMANDLINE"}
    given = {name: value for name, value in values.items() if name in FIELDS and name in typed}
    return CommandUse(" ".join(path), frozenset(values.keys() & FIELDS.keys()), given, values)


def _named_url(text: str) -> tuple[str, str]:
    name, _, url = text.partition("=")
    if not is_server(url):
        raise UsageError(f"--server {text!r} is not NAME=URL: write for example generator=http://localhost:8000")
    return name, url


def _check(plan: RecipePlan, jobs: int, yes: bool) -> None:
    """Check what a run needs, and ask before one that costs money or days; raises UsageError if nobody can be asked."""
    from biorag.lab.recipes.estimates import Estimator, totals
    from biorag.lab.recipes.run import check
    from biorag.utils.progress import duration

    estimates = Estimator(plan).all()
    check(plan, estimates)
    total = totals(plan, estimates, jobs)
    if yes or (not total["cost"] and total["seconds"] < LONG):
        return
    told = (
        f"{len(plan.steps)} steps take {duration(total['seconds'])} or more, and paid calls about ${total['cost']:,.0f}"
    )
    if not sys.stdin.isatty():
        raise UsageError(f"{told}: add --yes to begin")
    if not confirm(f"{told}. Begin?", err=True):
        raise UsageError("nothing was begun; --dry-run lists the steps")


def _report(plan: RecipePlan, out: Path, jobs: int, as_json: bool) -> None:
    from biorag.lab.recipes.run import run_recipe

    show.result(run_recipe(plan, out, jobs, show.progress), as_json, _print)
    show.err.print(f"report and the commands of every step: {out}")


def _print(report: Mapping[str, Any]) -> None:
    from biorag.lab.recipes.report import FINDING_COLUMNS, columns_of, finding_texts, row_texts

    for table in report["tables"]:
        rows = [(row["title"], *row_texts(table, row)) for row in table["rows"]]
        show.table(table["title"], ["", *columns_of(table)], rows)
    if report["findings"]:
        show.table("Findings", FINDING_COLUMNS, [finding_texts(finding) for finding in report["findings"]])


def _print_preview(planned: Mapping[str, Any]) -> None:
    from biorag.models.finding import accept_licence
    from biorag.models.resources import gib
    from biorag.utils.progress import duration

    for step in planned["steps"]:
        known = step["seconds"] is not None and step["bytes"] is not None
        estimate = f": {duration(step['seconds'])} or more, about {gib(step['bytes'])}" if known else ""
        show.out.print(f"{step['name']}{estimate}", soft_wrap=True)
        words, place = step["command"], step["command"].index("biorag")
        show.out.print(f"  {shlex.join([*words[: place + 1], *words[place + 3 : -1]])}", soft_wrap=True)
        if step["fault"]:
            show.out.print(f"  does not fit: {step['fault']}", soft_wrap=True)
    for departure in planned["departures"]:
        show.err.print(f"departs from the paper: {departure}", soft_wrap=True)
    for server in planned["servers"]:
        calls = f", {server['calls']:,} calls" if server["calls"] else ""
        cost = f", about ${server['cost']:,.0f}" if server["cost"] else ""
        show.err.print(f"server {server['name']} at {server['url']}: {server['what']}{calls}{cost}", soft_wrap=True)
    for id in planned["gated"]:
        show.err.print(f"{id} is gated: {accept_licence(id)}", soft_wrap=True)
    disk = f", {gib(planned['disk'])} of disk" if planned["disk"] else ""
    host = f", {gib(planned['host'])} of the machine's memory for rows" if planned["host"] else ""
    show.err.print(f"{len(planned['steps'])} steps, {duration(planned['seconds'])} or more{disk}{host}")


@expanded
def ablate(
    ctx: Context,
    sweep: Annotated[Path, Argument(help="TOML file of the grid; --init writes one to start from.")],
    out: Annotated[
        Path | None, Option(help="Folder of models, indexes and results; finished steps are reused. [required]"), FOLDER
    ] = None,
    jobs: Annotated[int, Option(min=1, help="Steps that run in parallel, each in its own process, on one GPU.")] = 1,
    init: Annotated[
        Path | None, Option(help="Write the file, for the data sets and corpora of this folder, and run nothing.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Train, index and measure every cell of a grid: negatives, similarity, reranker, k_init, and more.

    Every step is a command of biorag; report.json lists them. The same sweep resumes where it stopped.

    Examples:

      biorag ablate sweep.toml --init data/
      biorag ablate sweep.toml --out runs/ablation
      biorag ablate sweep.toml --out runs/ablation --jobs 4 --json
    """
    from biorag.lab.recipes.plan import Choices, RecipePlan
    from biorag.lab.recipes.sweep import SCALE, load_sweep, recipe_of

    if init:
        _write_sweep(sweep, init)
        return
    if out is None:
        raise UsageError("a sweep needs a folder for its models and report: give --out")
    choices = Choices(read=partial(read_line, ctx.find_root()))
    plan = RecipePlan(recipe_of(load_sweep(sweep)), SCALE, choices)
    _check(plan, jobs, yes=True)
    _report(plan, out, jobs, as_json)


def _write_sweep(path: Path, data: Path) -> None:
    from biorag.lab.recipes.sweep import sweep_text
    from biorag.utils.files import check_output, write_text

    check_output(path)
    if path.exists():
        raise UsageError(f"{path} is there already: name another file, or remove it")
    write_text(path, sweep_text(data))
    show.err.print(f"{path}: read it, then run `biorag ablate {path} --out runs/ablation`", soft_wrap=True)


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """What a pipeline reads, trains and measures."""

    corpus: Annotated[list[str], Option(help="Corpus to search and mine from, or demo. Repeatable.")]
    pretraining: Annotated[
        str, Option(help="Corpus whose titles and abstracts the retriever reads first, or none.")
    ] = "none"
    evaluate: Annotated[
        list[Path] | None, Option(help="BEIR folder whose held-out questions are measured. Repeatable.")
    ] = None
    mirage: Annotated[Path | None, Option(help="MIRAGE's benchmark.json, to answer from the evidence found.")] = None
    guard: Annotated[
        list[Path] | None, Option(help="Benchmark whose questions must not be trained on. Repeatable.")
    ] = None
    base: Annotated[str, Option(help="Encoder to start from, of retriever and reranker.")] = "starter"
    reranker_base: Annotated[str | None, Option(help="A ColBERT for the reranker to start from.")] = None
    negatives: Annotated[str, Option(help="The retriever's: in-batch, bm25, bm25-hits or random.")] = "in-batch"
    similarity: Annotated[str, Option(help="cosine or dot.")] = "cosine"
    hard_negatives: Annotated[int, Option(min=1, max=64, help="Mistakes of the retriever for each row.")] = 4
    max_positives: Annotated[int | None, Option(min=1, help="Maximum training rows of one question.")] = None


@expanded
def pipeline(
    train: Annotated[list[Path], Argument(help="Rows of query and positive, or BEIR folders.", metavar="TRAIN...")],
    asked: PipelineOptions,
    ctx: Context,
    out: Annotated[Path, Option("--out", help="Folder of models and report; finished steps are reused."), FOLDER],
    name: Annotated[str, Option("--name", help="Index to make, with the reranker's token vectors.")],
    set_: Annotated[
        list[str] | None, Option("--set", help="NAME=VALUE of a setting, as in biorag.toml. Repeatable.")
    ] = None,
    jobs: Annotated[int, Option(min=1, help="Steps that run in parallel.")] = 1,
    as_json: options.Json = False,
) -> None:
    """Train a retriever and a reranker fitted to it: retriever, index, its mistakes, reranker, index with tokens.

    Its parts are commands, which report.json lists; the same command resumes where it stopped. 'biorag ablate'
    compares such pipelines.

    Examples:

      biorag train pipeline data/bioasq --corpus pubmed/ --name pubmed --out runs/pipeline
      biorag train pipeline rows.jsonl --corpus pubmed/ --evaluate data/bioasq --name pubmed --out runs/pipeline
    """
    from biorag.lab.recipes.plan import Change, Choices, RecipePlan
    from biorag.lab.recipes.run import runner_of
    from biorag.lab.recipes.sweep import SCALE, Sweep, pipeline_of

    values = {key: value for key, value in asdict(asked).items() if value is not None}
    axes = {"negatives": (asked.negatives,), "similarity": (asked.similarity,), "reranker": ("none", "aligned")}
    recipe = pipeline_of(Sweep.of({**values, **axes, "train": train, "k_init": 20}), name)
    changes = tuple(map(Change.parsed, set_ or ()))
    plan = RecipePlan(recipe, SCALE, Choices(changes=changes, read=partial(read_line, ctx.find_root())))
    _check(plan, jobs, yes=True)
    _report(plan, out, jobs, as_json)
    retriever, reranker = (runner_of(plan, out).out(plan.at(step, {})[0].step) for step in ("retriever", "aligned"))
    show.err.print(f"retriever: {retriever}\nreranker: {reranker}", soft_wrap=True)
    ask = f'biorag ask "..." --name {name} --reranker {reranker}'
    show.err.print(f"index: {name}; {ask}", soft_wrap=True)
