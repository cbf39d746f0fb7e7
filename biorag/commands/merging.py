"""`biorag merge`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from biorag.commands import options, show
from biorag.engine import open_snippets
from biorag.errors import UsageError
from biorag.models.finding import find_encoder

SEARCH = "Search of the weights"


def merge(
    ctx: typer.Context,
    expert: Annotated[
        list[str],
        typer.Argument(help="Encoders of one base: directories or ids; with --base LoRA adapters too."),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the merged encoder; an interrupted run resumes.")],
    method: Annotated[str, typer.Option(help="linear (weighted mean), or ties (task vectors without conflicts).")],
    base: Annotated[
        str | None, typer.Option(help="What the experts were trained from: 'starter', a directory, or an id.")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="One an expert, with commas; else equal ones.")] = None,
    density: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="ties: share of each task vector's values that is kept.")
    ] = 0.5,
    scale: Annotated[float, typer.Option(help="ties: λ, the weight of the merged task vector.")] = 1.0,
    search: Annotated[
        list[Path] | None,
        typer.Option(
            help="Choose weights, and ties' density, on a folder in BEIR layout. Repeatable: the mean counts.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    corpus: Annotated[
        list[str] | None,
        typer.Option(
            help="File or folder of the snippets to search in; else --name. Repeatable.", rich_help_panel=SEARCH
        ),
    ] = None,
    name: options.Name = None,
    by: Annotated[str, typer.Option("--measure", help="What is to be highest.", rich_help_panel=SEARCH)] = "nDCG@10",
    held_out: options.HeldOutPart = False,
    training: options.TrainingPart = False,
    dropped: options.DroppedPart = False,
    guard: options.PartGuards = None,
    train_validation: options.PartValidation = None,
    seed: options.Seed = None,
    as_json: options.Json = False,
) -> None:
    """Merge encoders that were trained from one base into one, which loads and costs as any of them does.

    With --search the weights are chosen on development questions, by exact dense retrieval. Then measure with bench
    retrieval on questions that neither training nor the search has seen.

    Examples:

      biorag merge runs/bioasq runs/synthetic --method linear --weights 0.3,0.7 --out runs/merged

      biorag merge runs/a runs/b runs/c --method ties --base starter --density 0.2 --out runs/merged --json

      biorag merge runs/a runs/b --method linear --search data/bioasq --name pubmed --held-out --out runs/merged
    """
    from biorag.benchmarks.retrieval import check_measure
    from biorag.benchmarks.tuning.merging import Corpus, WeightSearch
    from biorag.benchmarks.tuning.study import load_development
    from biorag.training.merging.arithmetic import TIES, recipe_of
    from biorag.training.merging.encoder import open_experts
    from biorag.training.merging.run import merge_experts
    from biorag.utils.plots import require_matplotlib

    settings = options.configured(ctx)
    recipe = recipe_of(method, len(expert), weights, density, scale)
    if method == TIES and base is None:
        raise UsageError("--method ties merges what training changed: give what the experts were trained from, --base")
    if search and (weights or len(expert) < 2):
        raise UsageError("--search chooses the weights of two experts or more: leave --weights out")
    experts = open_experts([find_encoder(spec) for spec in expert], find_encoder(base) if base else None)
    part = options.question_part(held_out, training, dropped)
    if not search:
        asked = {"--corpus": corpus, "--name": name, f"--{part}": part != "all"}
        if idle := next((flag for flag, value in asked.items() if value), None):
            raise UsageError(f"{idle} is of the questions of --search DATASET: give that too")
    needed = "--training, --held-out or --dropped" if search else "--search DATASET"
    split = options.held_out_split(settings, part, guard, train_validation, needed)
    choice = None
    if search:
        check_measure(by)
        require_matplotlib()
        datasets = load_development(search, split)
        with open_snippets(settings, corpus or (), name) as (source, snippets):
            passages = Corpus.of(snippets, source)
        passages.check(datasets)
        choice = WeightSearch(datasets, passages, split.part, by, settings.retrieval.precision)
    report = merge_experts(out, experts, recipe, choice, show.progress)
    if as_json:
        show.print_json({"out": str(out), **report})
    else:
        _print(out, report)


def _print(out: Path, report: Mapping[str, Any]) -> None:
    rows: list[tuple[str, object]] = [(expert["id"], f"weight {expert['weight']:g}") for expert in report["experts"]]
    if report["base"]:
        rows.append((report["base"]["id"], "base"))
    if search := report["search"]:
        chosen = report["weights"], report["density"]
        best = next(each["mean"] for each in search["points"] if (each["weights"], each["density"]) == chosen)
        rows.append((search["measure"], f"{best:.4f}, the best of {len(search['points'])}"))
    show.table(f"{report['method']} merge {out}", ["", ""], rows)
    show.err.print(f"everything else: {out / 'merge.json'}; index with it: biorag index CORPUS --encoder {out}")
