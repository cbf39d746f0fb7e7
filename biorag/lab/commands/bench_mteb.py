"""`biorag bench mteb`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from biorag.commands import options, show
from biorag.commands.groups import Flags, expanded
from biorag.commands.outputs import FOLDER
from biorag.errors import UsageError, check_name
from biorag.models.finding import PLAIN_STARTER
from biorag.models.published import published
from biorag.settings.section import STARTER
from biorag.settings.settings import Settings
from biorag.utils.files import write_json
from biorag.utils.outputs import begins_with_key, check_results, is_per_question
from biorag.utils.versions import require

BM25 = "bm25"


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
        Path, Option(help="Folder of mteb's result files and report.json; finished tasks are not repeated."), FOLDER
    ],
    instruct: options.Instruct = None,
    baseline: Annotated[
        list[str] | None,
        Option(
            help="Measure bm25, or a published encoder by its name, in place of --encoder or beside it. Repeatable."
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Measure an encoder with mteb, on its tasks or on your folders; the search is exact.

    Result files are mteb's own: out/results/MODEL/REVISION/TASK.json. 'biorag bench retrieval' measures rerankers and
    whole pipelines.

    Examples:

      biorag bench mteb --local data/mine --out runs/mteb
      biorag bench mteb --task NFCorpus --task SciFact --encoder models/retriever --out runs/mteb --json
      biorag bench mteb --group medical --recommendation data/relish --out runs/mteb
      biorag bench mteb --local data/mine --encoder models/mine --baseline bm25 --baseline medcpt --out runs/beside
    """
    require("mteb")
    if not (tasks.task or tasks.group or tasks.local or tasks.recommendation):
        raise UsageError("nothing to measure: use --local FOLDER, --task NAME or --group NAME")
    known = (BM25, STARTER, PLAIN_STARTER, *published())
    for name in baseline or ():
        check_name("baseline", name, known)
    models = {name: settings.replace(encoder=name, similarity=None) for name in dict.fromkeys(baseline or ())}
    if settings.index.encoder or not models:
        own = options.instructed(options.published(settings), instruct) if instruct else settings
        models = {"": own, **models}
    show.result(_measured(models, tasks, out), as_json, _print)


def _measured(models: Mapping[str, Settings], tasks: Tasks, out: Path) -> dict[str, Any]:
    """Measure the tasks with each model, the first one's report being that of the command, and write it."""
    from biorag.benchmarks.per_question import PER_QUESTION, write_figures
    from biorag.lab.mteb.run import bm25, measure_task, model_of, question_rows, report
    from biorag.lab.mteb.tasks import chosen_tasks, find_group
    from biorag.training.instructions import read_tasks

    group = find_group(tasks.group) if tasks.group else None
    instructions = read_tasks(tasks.instructions) if tasks.instructions else None
    documents: list[dict[str, Any]] = []
    figures = {str(Path(name, PER_QUESTION)): is_per_question for name in models}
    check_results(out, {"report.json": begins_with_key("model"), **figures})
    for name, settings in models.items():
        chosen = chosen_tasks(
            tasks.task or (), group, tasks.language or (), tasks.local or (), tasks.recommendation or ()
        )
        with show.progress("Texts", None) as advance:
            model = bm25() if name == BM25 else model_of(options.published(settings), advance, instructions)
            results = [measure_task(task, model, out, settings.services.offline, group) for task in chosen]
            documents.append(report(results, model.identity, group) | ({"baseline": name} if name else {}))
            place = out if len(documents) == 1 else out / name
            write_figures(place / PER_QUESTION, question_rows(results, group))
    document = documents[0] | ({"beside": documents[1:]} if documents[1:] else {})
    write_json(out / "report.json", document)
    return document


def _print(document: Mapping[str, Any]) -> None:
    """Print a row for each measure of a task, and a column for each model."""
    models = [document, *document.get("beside", ())]
    titles = [model.get("baseline", "value") for model in models]
    rows: dict[tuple[str, str, str], list[str]] = {}
    for place, model in enumerate(models):
        for row in model["tasks"]:
            for name, value in row["measures"].items():
                cells = rows.setdefault((row["task"], row["type"], name), ["–"] * len(models))
                cells[place] = _shown(value)
        for name, mean in {"": model["average"], **model.get("averages", {})}.items():
            cells = rows.setdefault((f"average {name}".strip(), "", ""), ["–"] * len(models))
            cells[place] = _shown(mean)
    show.table("mteb", ["task", "type", "measure", *titles], [(*head, *cells) for head, cells in rows.items()])


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
