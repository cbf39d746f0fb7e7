"""`biorag generate pairs`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from biorag.commands import options, show
from biorag.commands.groups import Flags, Given, expanded
from biorag.settings.settings import Settings

SCENARIOS = 100
PASSAGE, LONG_PASSAGE = 128, 768  # tokens; BMRetriever's passages have up to 400 words


@expanded
def pairs(
    out: options.GeneratedOut,
    settings: Annotated[Settings, Flags("seed"), options.GENERATOR],
    given: Given,
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
    attributes: Annotated[
        str | None,
        typer.Option(
            help="Draw attributes of each pair into its prompt: bmretriever, or a TOML file of lists.",
            rich_help_panel=options.ROWS,
        ),
    ] = None,
    template: options.TemplateFile = None,
    temperature: options.Temperature = options.TEMPERATURE,
    passage_tokens: options.PassageTokens = PASSAGE,
    as_json: options.Json = False,
) -> None:
    """Generate pairs from retrieval scenarios: a query, a passage that answers it, and a hard negative.

    The model lists the scenarios first, into OUT.scenarios.txt; or they come from --scenario-file. The rows are of
    kind 'synthetic'. Left out and counted are pairs with a text that is empty, cut or short, passages that are copies
    or near-copies of each other, and duplicate queries or positives in the file.

    --attributes bmretriever draws for each pair what BMRetriever draws: type, length and clarity of the query, words of
    the passages, difficulty of both; --max-tokens is 768 then, unless it is given.

    Examples:

      biorag generate pairs --scenarios 100 --per-scenario 5 --out pairs.jsonl

      biorag generate pairs --attributes bmretriever --llm http://localhost:8080 --out pairs.jsonl

      biorag generate pairs --scenario-file tasks.txt --llm http://localhost:8080 --out pairs.jsonl --json
    """
    from biorag.training.synthesis.attributes import read_attributes
    from biorag.training.synthesis.run import GenerationJob, generate_pairs
    from biorag.training.synthesis.writers import Draws

    longer = attributes and "passage_tokens" not in given.parameters
    tokens = LONG_PASSAGE if longer else passage_tokens
    draws = Draws(per_scenario, tokens, temperature, settings.seed)
    job = GenerationJob(settings, out, draws, template, show.progress)
    drawn = read_attributes(attributes, settings.seed) if attributes else None
    show.outcome(
        "Generated pairs",
        out,
        lambda: asdict(generate_pairs(job, scenario_file, count or (None if scenario_file else SCENARIOS), drawn)),
        as_json,
    )
