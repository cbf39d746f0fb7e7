"""`biorag bench mteb`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from biorag.commands import options, show
from biorag.commands.groups import CommandLine, Flags, expanded
from biorag.errors import UsageError, unknown_name
from biorag.indexes.store import Store
from biorag.settings.settings import Settings
from biorag.utils.files import write_json
from biorag.utils.outputs import begins_with_key, results_folder
from biorag.utils.versions import require

# The settings of each system; `reranker` orders the encoder's candidates by its own scores alone.
SYSTEMS: Mapping[str, Mapping[str, Any]] = {
    "encoder": {"mode": "dense", "rerank": False},
    "reranker": {"mode": "dense", "rerank": True, "interpolation": 0.0, "cross_interpolation": 0.0},
    "pipeline": {},
}
RERANKED = 100  # candidates that the reranker alone orders, unless --k-init says otherwise
PIPELINE_ONLY = ("mode", "fusion", "lambda", "rerank", "interpolation", "cross_interpolation")
# The settings that do not change a system.
IDLE = {"encoder": (*PIPELINE_ONLY, "reranker", "k_init"), "reranker": PIPELINE_ONLY, "pipeline": ()}


@dataclass(frozen=True, slots=True)
class _Tasks:
    """Tasks of mteb, and files."""

    task: Annotated[list[str] | None, Option(help="A task by mteb's name (downloads its data). Repeatable.")] = None
    group: Annotated[str | None, Option(help="A group of tasks: medical, stm, bmretriever, beir-14 or lotte.")] = None
    language: Annotated[list[str] | None, Option(help="Only tasks in this language (eng, fra …). Repeatable.")] = None
    local: Annotated[
        list[Path] | None, Option(help="BEIR folder: corpus.jsonl, queries.jsonl and qrels/test.tsv. Repeatable.")
    ] = None
    similarity: Annotated[list[Path] | None, Option(help="Scored sentence pairs, .tsv or .jsonl. Repeatable.")] = None
    linking: Annotated[list[Path] | None, Option(help="Folder of concepts.jsonl, mentions.jsonl. Repeatable.")] = None
    recommendation: Annotated[
        list[Path] | None, Option(help="Folder in BEIR layout whose judged snippets are ranked. Repeatable.")
    ] = None
    instructions: Annotated[
        str | None, Option(help='Instructions of the tasks: bmretriever, or a TOML file of lines NAME = "TASK".')
    ] = None

    @property
    def paths(self) -> dict[str, Sequence[Path]]:
        """The files of each kind of local task."""
        kinds = ("local", "similarity", "linking", "recommendation")
        return {kind: getattr(self, kind) or () for kind in kinds}


@expanded
def mteb(
    settings: Annotated[Settings, Flags("encoder", "name"), options.RANKING_OF_ALL],
    line: CommandLine,
    tasks: _Tasks,
    out: Annotated[
        Path, Option(help="Folder of mteb's result files and report.json; finished tasks are not repeated.")
    ],
    system: Annotated[
        str, Option(help="encoder (searched exactly), reranker (its scores alone) or pipeline.")
    ] = "encoder",
    as_json: options.Json = False,
) -> None:
    """Measure an encoder, a reranker or the whole pipeline with mteb, on its tasks or on your files.

    Result files are mteb's own: out/results/MODEL/REVISION/TASK.json. The pipeline's rankings are 100 deep.

    Examples:

      biorag bench mteb --local data/mine --similarity pairs.tsv --out runs/mteb
      biorag bench mteb --task NFCorpus --task SciFact --encoder models/retriever --out runs/mteb --json
      biorag bench mteb --group medical --system pipeline --mode hybrid --rerank --out runs/mteb
      biorag bench mteb --recommendation data/relish --system reranker --reranker cross:models/ce --out runs/mteb
    """
    require("mteb")
    settings = _configured(settings, line, tasks, system)
    document = _measured(settings, tasks, system, bool(line.value("name")), out)
    show.result(document, as_json, _print)


def _measured(settings: Settings, tasks: _Tasks, system: str, of_index: bool, out: Path) -> dict[str, Any]:
    """Measure every task and write the report; `of_index`: with the encoder of the named index."""
    from biorag.benchmarks.mteb.models import model_of
    from biorag.benchmarks.mteb.run import chosen_tasks, find_group, measured, report
    from biorag.training.instructions import read_tasks

    group = find_group(tasks.group) if tasks.group else None
    instructions = read_tasks(tasks.instructions) if tasks.instructions else None
    chosen = chosen_tasks(tasks.task or (), group, tasks.language or (), tasks.paths)
    manifest = Store(settings).require_manifest() if of_index else None
    with results_folder(out, {"report.json": begins_with_key("model")}), show.progress("Texts", None) as advance:
        model, identity = model_of(settings, manifest, system, out, advance, instructions)
        rows = [measured(task, model, out, settings.services.offline, group) for task in chosen]
        document = report(rows, identity, group)
        write_json(out / "report.json", document)
    return document


def _configured(settings: Settings, line: CommandLine, tasks: _Tasks, system: str) -> Settings:
    """Return the settings of a system; UsageError if an option has no effect, or no task is named."""
    if system not in SYSTEMS:
        raise unknown_name("system", system, SYSTEMS)
    if option := line.first(*IDLE[system]):
        raise UsageError(f"{option} has no effect with --system {system}: leave it out, or use --system pipeline")
    if not (tasks.task or tasks.group or any(tasks.paths.values())):
        raise UsageError("nothing to measure: use --local FOLDER, --task NAME or another kind of task")
    depth = {"k_init": RERANKED} if system == "reranker" and line.value("k_init") is None else {}
    return settings.replace(**SYSTEMS[system], **depth)


def _print(document: Mapping[str, Any]) -> None:
    tasks = document["tasks"]
    rows = [
        (row["task"], row["type"], name, f"{value:.4f}") for row in tasks for name, value in row["measures"].items()
    ]
    show.table(f"mteb, average {document['average']:.4f}", ["task", "type", "measure", "value"], rows)
    subsets = [
        (row["task"], subset, f"{measures[row['main']]:.4f}")
        for row in tasks
        for subset, measures in row.get("subsets", {}).items()
    ]
    if subsets:
        show.table("Subsets, by the main measure", ["task", "subset", "value"], subsets)
    for name, mean in document.get("averages", {}).items():
        show.err.print(f"average {name}: {'not all measured' if mean is None else f'{mean:.4f}'}")
    for name, option in document.get("missing", {}).items():
        show.err.print(f"note: mteb does not have the group's task {name}: add its files with {option}")
