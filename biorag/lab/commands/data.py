"""`biorag data get`, `convert` and `sample`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from biorag.commands import options, show
from biorag.commands.application import Application
from biorag.commands.groups import Flags, expanded
from biorag.commands.outputs import FOLDER
from biorag.lab.recipes import SUFFIX, papers
from biorag.registries import FORMATS
from biorag.settings.settings import Settings
from biorag.utils.registry import or_list

if TYPE_CHECKING:
    from biorag.lab.recipes.getting import WantedInput

app = Application(help="Published data sets as the files that the other commands read.")

Out = Annotated[Path, Option(help="Folder to write; a complete one of the same inputs is left as it is."), FOLDER]


@dataclass(frozen=True, slots=True)
class Parts:
    """The part of a set to convert, and how a set is divided into parts."""

    split: Annotated[
        str | None, Option(help="Only this part, as qrels/test.tsv: train, test or dev.", show_default="all")
    ] = None
    test_ids: Annotated[Path | None, Option(help="pubmedqa: test_ground_truth.json, PMIDs of the test set.")] = None
    last: Annotated[int | None, Option(min=1, help="bioasq: last questions to keep for development.")] = None
    id_prefix: Annotated[str, Option(help="pubmedqa, bioasq: prefix of a PMID in ids of snippets.")] = ""


@app.command()
@expanded
def get(
    recipe: Annotated[str, Argument(help=f"Recipe: {or_list(papers())}, or a TOML file of yours.")],
    settings: Annotated[Settings, Flags()],
    inputs: Annotated[
        list[str] | None, Argument(metavar="[INPUT]...", help="Inputs, by name. Default: all that are missing.")
    ] = None,
    scale: Annotated[str, Option(help="Size of the recipe whose inputs are got.")] = "full",
    data: Annotated[Path, Option(help="Folder of the inputs, {data} in recipes."), FOLDER] = Path("data"),
    dry_run: Annotated[bool, Option("--dry-run", help="Only list what is missing.")] = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> None:
    """Get the missing inputs of a recipe: list them with size and licence, ask, and download.

    Files and data sets of the Hugging Face hub are downloaded; what was interrupted of the latter resumes. For the
    others it prints the page that a person opens.

    Examples:

      biorag data get modernbert-colbert --dry-run
      biorag data get modernbert-colbert mirage --data data
      biorag data get bmretriever --scale full --yes --json
    """
    from biorag.lab.recipes.getting import get_input, require_room_for, wanted_inputs
    from biorag.lab.recipes.recipe import load_recipe
    from biorag.lab.recipes.run import recipe_of

    started = time.perf_counter()
    loaded = load_recipe(Path(recipe) if recipe.endswith(SUFFIX) else recipe_of(recipe))
    wanted = wanted_inputs(loaded, scale, data, inputs or ())
    ours = [one for one in wanted if one.way != "by hand"]
    if not as_json:
        _print_wanted(wanted, f"Missing inputs of {recipe} at {scale}")
    if ours and not dry_run:
        require_room_for(ours, data)
        options.confirm(f"Get {', '.join(one.name for one in ours)}, {sum(one.gigabytes for one in ours):g} GB?", yes)
        for one in ours:
            get_input(one, settings.services, show.progress)
            show.err.print(f"{one.name}: {one.path}", soft_wrap=True)
    if as_json:
        listed = [{**asdict(one), "got": one in ours and not dry_run} for one in wanted]
        seconds = round(time.perf_counter() - started, 3)
        show.print_json({"recipe": recipe, "scale": scale, "inputs": listed, "seconds": seconds})


def _print_wanted(wanted: Sequence[WantedInput], title: str) -> None:
    """Print missing inputs, and on stderr what a person has to do."""
    if not wanted:
        show.err.print("no input is missing")
        return
    sizes = [f"{one.gigabytes:g}" if one.gigabytes else "unknown" for one in wanted]
    rows = [(one.name, size, one.licence, one.way, one.path, one.what) for one, size in zip(wanted, sizes, strict=True)]
    show.table(title, ["input", "GB", "licence", "way", "path", "what"], rows)
    for one in wanted:
        if one.way == "by hand":
            show.err.print(
                f"{one.name}, by hand: put it at {one.path}; {one.get or 'no page is known'}", soft_wrap=True
            )


@app.command()
@expanded
def convert(
    format: Annotated[str, Argument(help=f"{FORMATS.listed()}.")],
    files: Annotated[list[str], Argument(help="Files or folders, as they are published (.gz too).")],
    out: Out,
    settings: Annotated[Settings, Flags()],
    parts: Annotated[Parts, "Formats"],
    bad_lines: options.BadLines,
    as_json: options.Json = False,
) -> None:
    """Convert a published data set: corpus, questions, judgements, answers, golden files, training rows.

    The format decides what is written (docs/data.md); manifest.json names the inputs. A set with parts gets judgements
    for each, qrels/PART.tsv.

    Examples:

      biorag data convert pubmedqa ori_pqal.json --test-ids test_ground_truth.json --split test --out data/pqal
      biorag data convert bioasq training8b.json --last 200 --split dev --out data/bioasq8-dev
      biorag data convert beir nfcorpus/ --split dev --out data/nfcorpus-dev --json
    """
    from biorag.lab.conversion.run import convert, request_of

    started = time.perf_counter()
    kind = FORMATS.named(format)
    request = request_of(kind, files, settings.home, **asdict(parts))
    rejects = bad_lines.file(out)
    with show.progress("Converting", None) as advance:
        manifest = convert(kind.name, request, out, rejects, advance)
    _print(f"Converted {kind.name}", out, manifest, started, as_json)
    show.rejected(rejects, "skipped", "converted")


@app.command()
@expanded
def sample(
    files: Annotated[
        list[str], Argument(help="Files or folders of a corpus, files of training rows, or one BEIR folder.")
    ],
    sizes: Annotated[str, Option(help="Sizes of the samples, separated by commas: 10000,1000000.")],
    out: Out,
    settings: Annotated[Settings, Flags("seed")],
    bad_lines: options.BadLines,
    exclude: Annotated[
        list[Path] | None,
        Option(help="Draw none of these records (JSONL, or a data folder), by id and PMID. Repeatable."),
    ] = None,
    keep: Annotated[
        list[Path] | None,
        Option(help="Draw all snippets that this BEIR folder judges, into the first sample. Repeatable."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Draw disjoint random samples, each into a folder sample-N.

    A record's id and the seed decide whether it is drawn, not the order of the files. Of a BEIR folder questions are
    drawn, with their judgements, their answers and the snippets relevant to them.

    Examples:

      biorag data sample data/pqaa --sizes 10000 --out data/pqaa-10k
      biorag data sample pubmed/chunk/ --sizes 1000000,10000 --exclude data/pqaa-10k/sample-1 --out data/mc --json
      biorag data sample pubmed/chunk/ --sizes 5000 --keep data/bioasq --out data/small
    """
    from biorag.lab.conversion.sampling import SampleRequest, sizes_of
    from biorag.lab.conversion.sampling import sample as draw

    started = time.perf_counter()
    rejects = bad_lines.file(out)
    chosen = tuple(exclude or ()), tuple(keep or ())
    request = SampleRequest(tuple(files), sizes_of(sizes), settings.seed, settings.home, *chosen, rejects)
    with show.progress("Sampling", None) as advance:
        manifest = draw(request, out, advance)
    _print("Sampled", out, manifest, started, as_json)
    show.rejected(rejects, "skipped", "sampled")


def _print(title: str, out: Path, manifest: Mapping[str, Any], started: float, as_json: bool) -> None:
    seconds = round(time.perf_counter() - started, 3)
    report = {"out": str(out), **manifest["counts"], "files": sorted(manifest["files"]), "seconds": seconds}
    show.report(title, report, as_json)
