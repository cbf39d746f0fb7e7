"""`biorag tune prompt`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from biorag.commands import options, show
from biorag.commands.groups import CommandLine, Flags, expanded
from biorag.commands.outputs import FOLDER
from biorag.engine import encoder_files, open_index
from biorag.errors import check_name
from biorag.generators.source import open_generator
from biorag.settings.section import GENERATION
from biorag.settings.settings import Settings
from biorag.utils.versions import require


@dataclass(frozen=True, slots=True)
class PromptSearch:
    """The size of the search, how the model is asked, and whether the winner is written."""

    budget: Annotated[str, Option(help="light, medium or heavy.")] = "light"
    calls: Annotated[int | None, Option(min=1, help="Metric calls (a question each) instead of the budget's.")] = None
    questions: Annotated[
        int | None, Option(min=2, help="Questions to draw: half to reflect on, half to choose by.")
    ] = None
    template: options.TemplateFile = None
    temperature: options.Temperature = 1.0
    instruction_tokens: Annotated[
        int, Option("--max-tokens", min=8, max=4096, help="Cap on an instruction.", rich_help_panel=GENERATION)
    ] = 96
    write: Annotated[
        bool, Option("--write/--no-write", help="Write a copy of the encoder with the winner, OUT/encoder.")
    ] = True


@expanded
def prompt(
    dataset: Annotated[Path, Argument(help="Folder in BEIR layout.")],
    out: Annotated[Path, Option(help="Folder for the report; an interrupted run resumes."), FOLDER],
    settings: Annotated[Settings, options.INDEX, options.GENERATOR, Flags("seed", "train_validation")],
    line: CommandLine,
    search: PromptSearch,
    divided: options.Divided,
    as_json: options.Json = False,
) -> None:
    """Optimise the instruction before a query by GEPA, and write an encoder that has it.

    A language model sees the passages that an instruction retrieves and writes a better one. Instructions are chosen by
    nDCG@10 on the questions that training with this --validation and --seed saw, and measured on the others.

    Examples:

      biorag tune prompt data/bioasq --name decoder --out runs/prompt
      biorag tune prompt data/bioasq --name decoder --llm http://localhost:8080 --budget medium --out runs/prompt --json
    """
    show.result(_tuned(dataset, out, settings, line, search, divided), as_json, _print)


def _tuned(
    dataset: Path, out: Path, settings: Settings, line: CommandLine, search: PromptSearch, divided: options.Divided
) -> dict[str, Any]:
    require("prompts")
    from biorag.corpus.datasets import load_dataset
    from biorag.lab.synthesis.drafts import Draws
    from biorag.lab.tuning.prompt import BUDGETS, PromptQuestions, ReflectionModel, SearchEffort, tune_prompt
    from biorag.models.prompted import check_keeps_prompt
    from biorag.prompts.template import load_template
    from biorag.training.contamination import TRAINING

    check_name("--budget", search.budget, BUDGETS)
    budget = BUDGETS[search.budget]
    effort = SearchEffort(search.questions or budget.questions, budget.minibatch, search.calls or budget.calls)
    settings = settings.replace(mode="dense", rerank=False)
    questions = PromptQuestions.draw(
        load_dataset(dataset), divided.split(TRAINING, settings, line, ""), effort.questions
    )
    with open_index(settings) as opened:
        if search.write:
            check_keeps_prompt(encoder_files(settings, opened.manifest), "give --no-write")
        template = load_template("reflection", search.template, "examples", ("instruction", "examples"))
        draws = Draws(1, search.instruction_tokens, search.temperature, settings.seed)
        reflection = ReflectionModel(open_generator(settings), template, draws)
        show.err.print(
            f"about {effort.calls:,} metric calls, one searched question each, and at most "
            f"{-(-effort.calls // (2 * effort.minibatch)):,} replies of {reflection.model.generator.name}"
        )
        return tune_prompt(out, opened, questions, reflection, effort, search.write, show.progress)


def _print(report: Mapping[str, Any]) -> None:
    held_out, questions = report["held_out"], report["questions"]
    columns = {"": "{use} ({count} questions)", "before": "{before:.4f}", "after": "{after:.4f}"}
    development = {"use": "development", "count": questions["validation"], **report["development"]}
    rows = [development, {"use": "held out", "count": questions["held_out"], **held_out}]
    show.listing("nDCG@10, dense retrieval", columns, rows)
    show.listing("Candidates", {"instruction": "instruction", "nDCG@10": "{score:.4f}"}, report["candidates"])
    show.err.print(
        f"held out: {held_out['difference']:+.4f} (95 % interval {held_out['low']:+.4f} to {held_out['high']:+.4f}); "
        f"{report['calls']:,} metric calls"
    )
    if held_out["difference"] < 0:
        show.err.print(
            "note: on the held-out questions the winner is worse than the encoder's own prompt, which stays: try a "
            "stronger --llm or more --questions"
        )
    elif report["prompt"]["before"] == report["prompt"]["after"]:
        show.err.print("note: no candidate is better than the encoder's own prompt, which stays")
    elif written := report["written"]:
        show.err.print(
            f"an encoder with the new query prompt is {written}: search with --encoder {written}", soft_wrap=True
        )
