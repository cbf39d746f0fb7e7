"""`biorag generate pairs`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from biorag.commands import options, show
from biorag.commands.groups import Flags, expanded
from biorag.settings.settings import Settings

SCENARIOS = 100


@expanded
def pairs(
    out: options.GeneratedOut,
    settings: Annotated[Settings, Flags("seed"), options.GENERATOR],
    count: Annotated[
        int | None,
        typer.Option(
            "--scenarios",
            min=1,
            max=100_000,
            help="Number of scenarios.",
            show_default=f"{SCENARIOS}; with --scenario-file all",
            rich_help_panel=options.ROWS,
        ),
    ] = None,
    scenario_file: Annotated[
        Path | None,
        typer.Option(
            help="Text file with one scenario a line, instead of asking the model.",
            rich_help_panel=options.ROWS,
        ),
    ] = None,
    per_scenario: Annotated[
        int, typer.Option(min=1, max=1000, help="Pairs of a scenario.", rich_help_panel=options.ROWS)
    ] = 1,
    template: options.TemplateFile = None,
    temperature: options.Temperature = options.TEMPERATURE,
    passage_tokens: options.PassageTokens = 128,
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
    from biorag.training.synthesis.run import GenerationJob, generate_pairs
    from biorag.training.synthesis.writers import Draws

    started = time.perf_counter()
    draws = Draws(per_scenario, passage_tokens, temperature, settings.seed)
    job = GenerationJob(settings, out, draws, template, show.progress)
    counts = generate_pairs(job, scenario_file, count or (None if scenario_file else SCENARIOS))
    show.generated_rows("Generated pairs", out, counts, started, as_json)
