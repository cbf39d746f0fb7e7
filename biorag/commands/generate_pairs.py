"""`biorag generate pairs`."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from biorag.commands import generating, options, show
from biorag.commands.generating import ROWS
from biorag.commands.groups import Flags, expanded
from biorag.settings.settings import Settings

if TYPE_CHECKING:
    from biorag.training.synthesis.scenarios import Listed


SCENARIOS = 100
SCENARIO_TOKENS = 40


@expanded
def pairs(
    out: generating.Out,
    settings: Annotated[Settings, Flags("seed"), options.GENERATOR],
    count: Annotated[
        int | None,
        typer.Option(
            "--scenarios",
            min=1,
            max=100_000,
            help="Number of scenarios.",
            show_default=f"{SCENARIOS}; with --scenario-file all",
            rich_help_panel=ROWS,
        ),
    ] = None,
    scenario_file: Annotated[
        Path | None,
        typer.Option(help="Text file with one scenario a line, instead of asking the model.", rich_help_panel=ROWS),
    ] = None,
    per_scenario: Annotated[int, typer.Option(min=1, max=1000, help="Pairs of a scenario.", rich_help_panel=ROWS)] = 1,
    template: options.TemplateFile = None,
    temperature: options.Temperature = generating.TEMPERATURE,
    passage_tokens: generating.PassageTokens = 128,
    as_json: options.Json = False,
) -> None:
    """Generate pairs from retrieval scenarios: a query, a passage that answers it, and a hard negative.

    The model lists the scenarios first, into OUT.scenarios.txt; or they come from --scenario-file. The rows are of
    kind 'synthetic'. Left out and counted are pairs with a text that is empty, cut or short, passages that are copies
    or near-copies of each other, and duplicate queries or positives in the file.

    Examples:

      biorag generate pairs --scenarios 100 --per-scenario 5 --out pairs.jsonl

      biorag generate pairs --scenario-file tasks.txt --llm http://localhost:8080 --out pairs.jsonl --json
    """
    from biorag.prompts.template import load_template
    from biorag.training.synthesis import pairs as written
    from biorag.training.synthesis import scenarios
    from biorag.training.synthesis.writers import Draws

    started = time.perf_counter()
    draws = Draws(per_scenario, passage_tokens, temperature, settings.seed)
    generating.check_draws(out, draws, "--per-scenario")
    prompt = load_template("pair", template, "scenario", ("scenario",))
    given = None if scenario_file is None else scenarios.read_scenarios(scenario_file, count)
    wanted: str | int = scenarios.fingerprint(given) if given else count or SCENARIOS
    model = generating.language_model(settings)
    identity = {**asdict(draws), "scenarios": wanted, "generator": model.identity, "prompt": prompt.sha256}
    file = written.PairFile(out, identity, prompt.system)
    counts = file.finished()
    if counts is None:
        source = scenarios.Listed(given) if given else _listed(out, count or SCENARIOS, model, settings.seed)
        tokens = {"prompt_tokens": source.prompt_tokens, "completion_tokens": source.completion_tokens}
        with show.progress("Writing pairs", len(source.scenarios)) as advance:
            writer = model.writer(written.draft_form(prompt), draws)
            counts = file.generate(
                source.scenarios, written.PairCounts(len(source.scenarios), **tokens), writer, advance
            )
    generating.report_counts("Generated pairs", out, counts, started, as_json)


def _listed(out: Path, count: int, model: generating.LanguageModel, seed: int) -> Listed:
    """Return the scenarios that the model lists for pairs in `out`, or those that it has."""
    from biorag.prompts.template import load_template
    from biorag.training.synthesis.scenarios import ScenarioFile, draft_form
    from biorag.training.synthesis.writers import Draws

    prompt = load_template("scenario", needed="count", known=("count",))
    identity = {"scenarios": count, "seed": seed, "generator": model.identity, "prompt": prompt.sha256}
    file = ScenarioFile(out.with_name(f"{out.name}.scenarios.txt"), identity, prompt.system)
    with show.progress("Listing scenarios", count) as advance:
        writer = model.writer(draft_form(prompt), Draws(1, SCENARIO_TOKENS, generating.TEMPERATURE, seed))
        return file.listed(count, writer, advance)
