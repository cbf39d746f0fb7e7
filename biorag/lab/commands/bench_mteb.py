"""`biorag bench mteb`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from biorag.commands import options, show
from biorag.commands.groups import Flags, expanded
from biorag.errors import UsageError
from biorag.settings.settings import Settings
from biorag.utils.files import write_json
from biorag.utils.outputs import begins_with_key, check_results, is_per_question
from biorag.utils.versions import require


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks of mteb, and of local folders."""

    task: Annotated[list[str] | None, Option(help="A task by mteb's name (downloads its data). Repeatable.")] = None
    group: Annotated[str | None, Option(help="A group of tasks: medical, stm, bmretriever, beir-14 or lotte.")] = None
    language: Annotated[list[str] | None, Option(help="Only tasks in this language (eng, fra …). Repeatable.")] = None
    local: Annotated[
        list[Path] | None, Option(help="BEIR folder: corpus.jsonl, queries.jsonl and qrels/test.tsv. Repeatable.")
    ] = None
    recommendation: Annotated[
        list[Path] | None, Option(help="BEIR folder whose judged snippets are ranked. Repeatable.")
    ] = None
    instructions: Annotated[
        str | None, Option(help='Instructions of the tasks: bmretriever, or a TOML file of lines NAME = "TASK".')
    ] = None


@expanded
def mteb(
    settings: Annotated[Settings, Flags("encoder")],
    tasks: Tasks,
    out: Annotated[
        Path, Option(help="Folder of mteb's result files and report.json; finished tasks are not repeated.")
    ],
    instruct: options.Instruct = None,
    as_json: options.Json = False,
) -> None:
    """Measure an encoder with mteb, on its tasks or on your folders; the search is exact.

    Result files are mteb's own: out/results/MODEL/REVISION/TASK.json. 'biorag bench retrieval' measures rerankers and
    whole pipelines.

    Examples:

      biorag bench mteb --local data/mine --out runs/mteb
      biorag bench mteb --task NFCorpus --task SciFact --encoder models/retriever --out runs/mteb --json
      biorag bench mteb --group medical --recommendation data/relish --out runs/mteb
    """
    require("mteb")
    if not (tasks.task or tasks.group or tasks.local or tasks.recommendation):
        raise UsageError("nothing to measure: use --local FOLDER, --task NAME or --group NAME")
    settings = options.instructed(settings, instruct) if instruct else settings
    show.result(_measured(settings, tasks, out), as_json, _print)


def _measured(settings: Settings, tasks: Tasks, out: Path) -> dict[str, Any]:
    """Measure every task and write the report."""
    from biorag.benchmarks.per_question import PER_QUESTION, write_figures
    from biorag.lab.mteb.run import measure_task, model_of, question_rows, report
    from biorag.lab.mteb.tasks import chosen_tasks, find_group
    from biorag.training.instructions import read_tasks

    group = find_group(tasks.group) if tasks.group else None
    instructions = read_tasks(tasks.instructions) if tasks.instructions else None
    chosen = chosen_tasks(tasks.task or (), group, tasks.language or (), tasks.local or (), tasks.recommendation or ())
    files = {"report.json": begins_with_key("model"), PER_QUESTION: is_per_question}
    check_results(out, files)
    with show.progress("Texts", None) as advance:
        model, identity = model_of(settings, advance, instructions)
        results = [measure_task(task, model, out, settings.services.offline, group) for task in chosen]
        document = report(results, identity, group)
        write_figures(out / PER_QUESTION, question_rows(results, group))
        write_json(out / "report.json", document)
    return document


def _print(document: Mapping[str, Any]) -> None:
    tasks = document["tasks"]
    rows = [
        (row["task"], row["type"], name, f"{value:.4f}") for row in tasks for name, value in row["measures"].items()
    ]
    show.table(f"mteb, average {document['average']:.4f}", ["task", "type", "measure", "value"], rows)
    for name, mean in document.get("averages", {}).items():
        show.err.print(f"average {name}: {'not all measured' if mean is None else f'{mean:.4f}'}")
