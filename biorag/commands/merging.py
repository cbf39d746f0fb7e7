"""`biorag merge`."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biorag.commands import options, show, sides
from biorag.commands.generating import snippets_of
from biorag.commands.tuning import chosen_questions, side_of
from biorag.engine import load_encoder
from biorag.errors import UsageError, unknown_name
from biorag.models.finding import find_encoder
from biorag.settings.settings import Settings
from biorag.utils.network import command_line

if TYPE_CHECKING:
    from biorag.benchmarks.tuning.merging import Candidate, Corpus
    from biorag.benchmarks.tuning.study import Study
    from biorag.corpus.datasets import Dataset
    from biorag.training.merging.arithmetic import Recipe
    from biorag.training.merging.encoder import Experts

SEARCH = "Search of the weights"
CANDIDATE = "candidate"  # the folder of the encoder that is being measured


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
    held_out: sides.HeldOut = False,
    training: sides.Training = False,
    dropped: sides.Dropped = False,
    guard: sides.Guards = None,
    train_validation: sides.Validation = None,
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
    from biorag.training.merging.encoder import MergeRun, open_experts

    started = time.perf_counter()
    settings = options.configured(ctx)
    recipe = _recipe(ctx.params)
    files = [find_encoder(each) for each in expert]
    experts = open_experts(files, find_encoder(base) if base else None)
    development = _development(ctx.params, settings)
    identity = development.identity if development else {}
    run = MergeRun(out, {**asdict(recipe), **experts.hashes, **identity})
    report = run.finished()
    if report is None:
        experts.check_memory(recipe)
        with run.locked():
            run.begin({})
            best, found = development.chosen(out, experts, recipe) if development else (recipe, None)
            with show.progress("Merging", experts.tensors) as advance:
                experts.write(out, best, advance)
            report = run.finish(_facts(experts, best, found, started))
    if as_json:
        show.print_json({"out": str(out), **report})
    else:
        _print(out, report)


def _recipe(given: Mapping[str, Any]) -> Recipe:
    """Return what is asked for, with equal weights where none are given.

    Raises
    ------
    UsageError
        If a value is not allowed, or two options do not go together.
    """
    from biorag.training.merging.arithmetic import METHODS, TIES, Recipe

    method, experts = given["method"], len(given["expert"])
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)
    if method == TIES and given["base"] is None:
        raise UsageError("--method ties merges what training changed: give what the experts were trained from, --base")
    if given["search"] and (given["weights"] or experts < 2):
        raise UsageError("--search chooses the weights of two experts or more: leave --weights out")
    if not 0 < given["density"] <= 1 or not math.isfinite(given["scale"]):
        raise UsageError("--density is a share above 0, up to 1, and --scale a finite number")
    weights = _weights(given["weights"], experts) if given["weights"] else (1 / experts,) * experts
    return Recipe(method, weights, given["density"], given["scale"])


def _weights(text: str, experts: int) -> tuple[float, ...]:
    try:
        weights = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--weights {text!r}: write numbers with commas between them, such as 0.3,0.7") from None
    if len(weights) != experts:
        raise UsageError(f"--weights names {len(weights)} and there are {experts} experts: one weight each")
    if not all(0 <= weight < math.inf for weight in weights) or not any(weights):
        raise UsageError(f"--weights {text!r}: none may be negative or infinite, and one must be above 0")
    return weights


@dataclass(frozen=True, slots=True)
class Development:
    """The questions and the corpus that weights are chosen on; `identity` is what determines their measures."""

    datasets: Sequence[Dataset]
    corpus: Corpus
    settings: Settings
    by: str
    free: bool
    identity: Mapping[str, Any]

    def chosen(self, out: Path, experts: Experts, recipe: Recipe) -> tuple[Recipe, dict[str, Any]]:
        """Return the recipe with the best weights and density, and the report of the search."""
        from biorag.benchmarks.tuning.merging import DENSITIES, Search, write_curve
        from biorag.benchmarks.tuning.study import Study
        from biorag.training.merging.arithmetic import TIES

        def measured(candidate: Candidate) -> Mapping[str, Mapping[str, float]]:
            return self._measured(out / CANDIDATE, experts, _with(recipe, candidate))

        study: Study[Candidate] = Study(out, {**experts.hashes, **self.identity, "scale": recipe.scale}, measured)
        densities = DENSITIES if recipe.method == TIES else ()
        best = Search(len(experts.experts), self.by, recipe.density, densities, self.free).best(study)
        shutil.rmtree(out / CANDIDATE, ignore_errors=True)
        write_curve(out, list(study.points.values()), self.by)
        return _with(recipe, best), {**self.identity, "points": _points(study, self.by)}

    def _measured(self, folder: Path, experts: Experts, recipe: Recipe) -> Mapping[str, Mapping[str, float]]:
        experts.write(folder, recipe, lambda _: None)
        files = find_encoder(str(folder))
        encoder = load_encoder(files, files.similarity() or "cosine", self.settings.retrieval.precision)
        weights = ", ".join(f"{weight:g}" for weight in recipe.weights)
        with show.progress(f"Passages, weights {weights}", len(self.corpus.texts)) as advance:
            return self.corpus.measures(self.datasets, encoder, advance)


def _development(given: Mapping[str, Any], settings: Settings) -> Development | None:
    """Read what weights are to be chosen on; None if no search is asked for.

    Raises
    ------
    UsageError
        If an option has no use, or is not one of its choices.
    """
    if not given["search"]:
        unused = [name for name in ("corpus", "name", "held_out", "training", "dropped") if given[name]]
        if unused:
            raise UsageError(f"--{unused[0].replace('_', '-')} is of the questions of --search DATASET: give that too")
        sides.check_needed(given, "--search DATASET")
        return None
    from biorag.benchmarks.retrieval import MEASURES
    from biorag.benchmarks.tuning.merging import Corpus
    from biorag.benchmarks.tuning.study import dataset_hash
    from biorag.training.merging.arithmetic import LINEAR
    from biorag.utils.plots import require_matplotlib
    from biorag.utils.versions import installed_versions

    require_matplotlib()
    if given["by"] not in MEASURES:
        raise unknown_name("measure", given["by"], MEASURES)
    datasets = chosen_questions({**given, "dataset": given["search"]}, settings)
    with snippets_of(settings, given["corpus"] or (), given["name"]) as (source, snippets):
        corpus = Corpus.of(snippets)
    corpus.check(datasets)
    identity = {
        "method": given["method"],
        "measure": given["by"],
        "side": side_of(given),
        "datasets": {each.name: dataset_hash(each) for each in datasets},
        "questions": {each.name: len(each.questions) for each in datasets},
        "corpus": source,
        "snippets": len(corpus.texts),
        "precision": settings.retrieval.precision,
        "versions": installed_versions(),
    }
    free = given["method"] == LINEAR and given["base"] is not None
    return Development(datasets, corpus, settings, given["by"], free, identity)


def _with(recipe: Recipe, candidate: Candidate) -> Recipe:
    return replace(recipe, weights=candidate[:-1], density=candidate[-1])


def _points(study: Study[Candidate], by: str) -> list[dict[str, Any]]:
    return [
        {
            "weights": list(point.value[:-1]),
            "density": point.value[-1],
            "mean": point.mean(by),
            "datasets": {name: found[by] for name, found in point.metrics.items()},
        }
        for point in (study.points[value] for value in sorted(study.points))
    ]


def _facts(experts: Experts, recipe: Recipe, search: Mapping[str, Any] | None, started: float) -> dict[str, Any]:
    """Return what the manifest says of a merge."""
    from biorag.utils.versions import installed_versions

    return {
        **asdict(recipe),
        "experts": [
            {"id": expert.files.id, "sha256": expert.files.sha256, "adapter": expert.adapted, "weight": weight}
            for expert, weight in zip(experts.experts, recipe.weights, strict=True)
        ],
        "base": {"id": experts.base.files.id, "sha256": experts.base.files.sha256} if experts.base else None,
        "search": search,
        "command": command_line(),
        "versions": installed_versions(),
        "seconds": round(time.perf_counter() - started, 3),
    }


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
