"""`biorag tune prompt`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from biorag.commands import options, show
from biorag.commands.groups import CommandLine, Flags, expanded
from biorag.engine import encoder_files, open_generator, open_index
from biorag.errors import UsageError
from biorag.settings.section import GENERATION
from biorag.settings.settings import Settings

if TYPE_CHECKING:
    from biorag.benchmarks.tuning.evolution import Spending

COPY = "encoder"


@dataclass(frozen=True, slots=True)
class SearchEffort:
    """Where the search starts, how long it takes, and what becomes of the winner."""

    budget: Annotated[str, Option(help="light, medium or heavy.")] = "light"
    calls: Annotated[int | None, Option(min=1, help="Metric calls (a question each) instead of --budget.")] = None
    seed_prompt: Annotated[
        str | None, Option(help="Instruction to start with. Default: the encoder's own.", show_default=False)
    ] = None
    questions: Annotated[
        int | None, Option(min=2, help="Questions to draw: half to reflect on, half to choose by. Default: 200.")
    ] = None
    recipe: Annotated[
        str | None,
        Option(
            help="stm: questions, questions shown at a time, temperature and cap of Synthesize-Train-Merge's budgets."
        ),
    ] = None
    write: Annotated[
        bool,
        Option(
            "--write/--no-write",
            help="Set the winner as the encoder's query prompt: in its directory, else in a copy, OUT/encoder.",
        ),
    ] = True
    dropped: options.DroppedPart = False


@dataclass(frozen=True, slots=True)
class ReflectionOptions:
    """How a language model writes instructions."""

    template: options.TemplateFile = None
    temperature: Annotated[
        float | None, Option(min=0.0, max=2.0, help="Temperature of the model. Default: 1.", rich_help_panel=GENERATION)
    ] = None
    instruction_tokens: Annotated[
        int | None,
        Option("--max-tokens", min=8, max=256, help="Cap on an instruction. Default: 96.", rich_help_panel=GENERATION),
    ] = None


@expanded
def prompt(
    dataset: Annotated[Path, Argument(help="Folder in BEIR layout.")],
    out: Annotated[Path, Option(help="Folder for the report; an interrupted run resumes.")],
    settings: Annotated[
        Settings, options.INDEX, options.GENERATOR, Flags("seed"), Flags("train_validation", panel=None)
    ],
    line: CommandLine,
    effort: SearchEffort,
    divided: options.Divided,
    reflection: ReflectionOptions,
    as_json: options.Json = False,
) -> None:
    """Optimise the instruction before a query by GEPA, and write the winner into the encoder's configuration.

    A language model sees which passages an instruction found and writes a better one. Instructions are chosen by
    nDCG@10 on the questions that training with this --validation and --seed saw, and measured on the others.

    Examples:

      biorag tune prompt data/bioasq --name decoder --out runs/prompt
      biorag tune prompt data/bioasq --name decoder --llm http://localhost:8080 --budget medium --out runs/prompt --json
      biorag tune prompt data/bioasq --name decoder --recipe stm --budget heavy --out runs/prompt
      biorag tune prompt data/bioasq --seed-prompt "Retrieve abstracts that answer" --no-write --out runs/prompt
    """
    report = _tuned(dataset, out, settings, line, effort, divided, reflection)
    show.result(report, as_json, _print)


def _tuned(
    dataset: Path,
    out: Path,
    settings: Settings,
    line: CommandLine,
    effort: SearchEffort,
    divided: options.Divided,
    reflection: ReflectionOptions,
) -> dict[str, Any]:
    from biorag.benchmarks.tuning.evolution import metric_calls, require_gepa, spending
    from biorag.benchmarks.tuning.instruction import PromptTarget
    from biorag.benchmarks.tuning.prompt import PromptQuestions, PromptTuning, ReflectionModel
    from biorag.corpus.datasets import load_dataset
    from biorag.prompts.template import load_template
    from biorag.training.held_out import DROPPED, TRAINING
    from biorag.training.synthesis.writers import Draws
    from biorag.utils.plots import require_matplotlib

    work = _overridden(spending(effort.recipe, effort.budget), effort, reflection)
    if effort.seed_prompt is not None and not effort.seed_prompt.strip():
        raise UsageError("--seed-prompt is empty: write an instruction, or leave it out")
    require_gepa()
    require_matplotlib()
    settings = settings.replace(mode="dense", rerank=False)
    split = divided.split(DROPPED if effort.dropped else TRAINING, settings, line, "")
    questions = PromptQuestions.draw(load_dataset(dataset), split, work.questions)
    with open_index(settings) as opened:
        target = PromptTarget.of(encoder_files(settings, opened.manifest), out / COPY) if effort.write else None
        template = load_template("reflection", reflection.template, "examples", ("instruction", "examples"))
        draws = Draws(1, work.max_tokens, work.temperature, settings.seed)
        model = ReflectionModel.of(open_generator(settings), template, draws, settings.retrieval.precision)
        calls = effort.calls or metric_calls(effort.budget, len(questions.validation))
        tuning = PromptTuning(out, opened, questions, model, effort.seed_prompt, calls, work.minibatch)
        show.err.print(
            f"about {calls:,} metric calls, one searched question each, and at most {tuning.most_replies:,} replies of "
            f"{model.name}"
        )
        return tuning.run(None if effort.calls else effort.budget, target, show.progress)


def _overridden(work: Spending, effort: SearchEffort, reflection: ReflectionOptions) -> Spending:
    return replace(
        work,
        questions=effort.questions or work.questions,
        temperature=work.temperature if reflection.temperature is None else reflection.temperature,
        max_tokens=reflection.instruction_tokens or work.max_tokens,
    )


def _print(report: Mapping[str, Any]) -> None:
    held_out, questions = report["held_out"], report["questions"]
    columns = {"": "{use} ({count} questions)", "before": "{before:.4f}", "after": "{after:.4f}"}
    development = {"use": "development", "count": questions["validation"], **report["development"]}
    rows = [development, {"use": "held out", "count": questions["held_out"], **held_out}]
    show.listing("nDCG@10, dense retrieval", columns, rows)
    show.listing("Candidates", {"instruction": "instruction", "nDCG@10": "{score:.4f}"}, report["candidates"])
    show.err.print(
        f"held out: {held_out['difference']:+.4f} (95 % interval {held_out['low']:+.4f} to {held_out['high']:+.4f}); "
        f"{report['calls']:,} metric calls, {report['lm_calls']:,} replies of {report['llm']}"
    )
    if held_out["difference"] < 0:
        show.err.print(
            "note: on the held-out questions the winner is worse than the encoder's own prompt, which stays: try a "
            "stronger --llm or more --questions"
        )
    elif report["prompt"]["before"] == report["prompt"]["after"]:
        show.err.print("note: no candidate is better than the encoder's own prompt, which stays")
    elif written := report["written"]:
        indexed = report["encoder"] == report["index"]["encoder"]["id"] == str(Path(written).resolve())
        use = "this index's questions use it from now on" if indexed else f"search with --encoder {written}"
        show.err.print(f"the query prompt is written to {written}: {use}", soft_wrap=True)
