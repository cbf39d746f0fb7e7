"""`biorag merge`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from biorag.commands import options, show
from biorag.commands.groups import CommandLine, Flags, expanded
from biorag.commands.outputs import FOLDER
from biorag.errors import UsageError
from biorag.models.finding import find_encoder
from biorag.settings.settings import Settings

if TYPE_CHECKING:
    from biorag.lab.merging.search import WeightSearch
    from biorag.lab.merging.weights import MergeRecipe


@dataclass(frozen=True, slots=True)
class Method:
    """How experts are merged."""

    method: Annotated[
        str,
        Option(help="linear (weighted mean), or ties (task vectors without conflicts)."),
    ]
    base: Annotated[str | None, Option(help="Base of the experts: 'starter', 'minilm', a directory, or an id.")] = None
    weights: Annotated[str | None, Option(help="Comma-separated weights of the experts. Default: equal.")] = None
    density: Annotated[float, Option(min=0.0, max=1.0, help="ties: share of each task vector's values to keep.")] = 0.5
    scale: Annotated[float, Option(help="ties: λ, the weight of the merged task vector.")] = 1.0

    def recipe(self, experts: int) -> MergeRecipe:
        """Return the recipe for so many experts."""
        from biorag.lab.merging.weights import TIES, recipe_of

        recipe = recipe_of(self.method, experts, self.weights, self.density, self.scale)
        if self.method == TIES and self.base is None:
            raise UsageError(
                "--method ties merges what training changed: name the model that the experts were trained from with "
                "--base"
            )
        return recipe


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Data to choose weights on."""

    search: Annotated[
        list[Path] | None, Option(help="Choose the weights on a BEIR folder. Repeatable: the mean counts.")
    ] = None
    corpus: Annotated[
        list[str] | None,
        Option(help="File or folder of snippets to search. Repeatable. Default: the corpus.jsonl of each data set."),
    ] = None
    split: Annotated[str, Option(help="Use the judgements in qrels/NAME.tsv, such as dev.", metavar="NAME")] = "test"
    sample_questions: Annotated[int | None, Option(min=1, help="Questions drawn of each data set, with --seed.")] = None
    sample_passages: Annotated[int | None, Option(min=0, help="Passages drawn beside judged ones, with --seed.")] = None
    measure: Annotated[
        list[str] | None, Option(help="Measure to maximise. Repeatable: the mean counts. Default: nDCG@10.")
    ] = None
    grid: Annotated[
        bool, Option("--grid", help="Measure every combination of weights 0 to 0.9, and of densities 0.1 to 0.9.")
    ] = False
    grid_sample: Annotated[
        int | None, Option(min=1, help="Measure so many combinations of the grid instead, drawn with --seed.")
    ] = None


@expanded
def merge(
    expert: Annotated[list[str], Argument(help="Encoders of one base: directories or ids.")],
    out: Annotated[Path, Option(help="Folder for the merged encoder; an interrupted run resumes."), FOLDER],
    settings: Annotated[Settings, Flags("seed", "train_validation")],
    line: CommandLine,
    how: Method,
    search: Annotated[SearchOptions, "Search of the weights"],
    development: options.Development,
    as_json: options.Json = False,
) -> None:
    """Merge encoders trained from one base into one that is as large and as fast as each of them.

    With --search the weights are chosen on development questions, by exact dense retrieval. Then measure with bench
    retrieval on questions that neither training nor the search has seen.

    Examples:

      biorag merge runs/bioasq runs/synthetic --method linear --weights 0.3,0.7 --out runs/merged
      biorag merge runs/a runs/b runs/c --method ties --base starter --density 0.2 --out runs/merged --json
      biorag merge runs/a runs/b --method linear --search data/bioasq --corpus pubmed/ --held-out --out runs/merged
    """
    from biorag.lab.merging.experts import load_experts
    from biorag.lab.merging.search import merge_experts

    recipe = how.recipe(len(expert))
    if not search.search:
        _refuse_idle(search, development, settings, line)
    weights = _search_of(search, how, recipe, development, settings, line) if search.search else None
    experts = load_experts([find_encoder(spec) for spec in expert], find_encoder(how.base) if how.base else None)
    report = {"out": str(out), **merge_experts(out, experts, recipe, weights, show.progress)}
    show.result(report, as_json, _print)


def _refuse_idle(
    search: SearchOptions, development: options.Development, settings: Settings, line: CommandLine
) -> None:
    """Refuse options that only a search of the weights needs."""
    flags = [f"--{field.name.replace('_', '-')}" for field in fields(search) if field.name in line.parameters]
    if development.part != "all":
        flags.append(f"--{development.part}")
    if flags:
        raise UsageError(f"{flags[0]} needs --search DATASET: add it")
    development.split(settings, line, "--search DATASET")


def _search_of(
    search: SearchOptions,
    how: Method,
    recipe: MergeRecipe,
    development: options.Development,
    settings: Settings,
    line: CommandLine,
) -> WeightSearch:
    """Return the search of the weights, its passages in memory."""
    from biorag.benchmarks.retrieval import check_measure
    from biorag.lab.merging.search import WeightSearch, draw_questions, read_corpora
    from biorag.lab.tuning.run import load_development

    if how.weights or len(recipe.weights) < 2:
        raise UsageError("--search chooses the weights of two experts or more: leave --weights out")
    split, folders = development.split(settings, line), search.search or []
    measured = search.measure or ["nDCG@10"]
    for measure in measured:
        check_measure(measure)
    datasets = [
        draw_questions(data, search.sample_questions, settings.seed)
        for data in load_development(folders, split, search.split)
    ]
    corpora = read_corpora(folders, datasets, search.corpus or (), search.sample_passages, settings)
    full, drawn = search.grid or search.grid_sample is not None, (search.grid_sample, settings.seed)
    weights = WeightSearch(corpora, split.part, measured, settings.retrieval.precision, full, *drawn)
    number = len(weights.candidates(recipe, how.base is not None))
    show.err.print(f"{number:,} candidates, each of which encodes the passages once")
    return weights


def _print(report: Mapping[str, Any]) -> None:
    out = Path(report["out"])
    rows: list[tuple[str, object]] = [(expert["id"], f"weight {expert['weight']:g}") for expert in report["experts"]]
    if report["base"]:
        rows.append((report["base"]["id"], "base"))
    if search := report["search"]:
        chosen = ", ".join(f"{measure} {value:.4f}" for measure, value in search["best"].items())
        rows.append((f"best of {len(search['points'])}", chosen))
    show.table(f"{report['method']} merge {out}", ["", ""], rows)
    show.err.print(f"everything else: {out / 'merge.json'}; index with it: biorag index CORPUS --encoder {out}")
