"""`biorag generate negatives`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from biorag.commands import options, show
from biorag.commands.groups import Flags, Given, expanded
from biorag.settings.settings import Settings


@expanded
def negatives(
    rows: Annotated[
        list[Path], typer.Argument(help="JSONL as 'biorag mine' writes it (.gz too), or folders in BEIR layout.")
    ],
    out: options.GeneratedOut,
    settings: Annotated[Settings, Flags("name", "seed"), options.GENERATOR],
    given: Given,
    per_row: Annotated[int, typer.Option(min=1, max=100, help="Negatives of a row.", rich_help_panel=options.ROWS)] = 1,
    keep_mined: Annotated[
        bool,
        typer.Option(
            "--keep-mined",
            help="Append a row's own negatives to the generated ones.",
            rich_help_panel=options.ROWS,
        ),
    ] = False,
    template: options.TemplateFile = None,
    temperature: options.Temperature = options.TEMPERATURE,
    passage_tokens: options.PassageTokens = 128,
    as_json: options.Json = False,
) -> None:
    """Generate hard negatives: passages of a query's topic and words that do not answer it, for 'biorag train'.

    The model sees each row's query, its positive and, where the row has any, one of its mined negatives after the
    other. The rows are of kind 'synthetic'. Left out and counted are passages that are cut or have fewer than eight
    words, copies and near-copies of the positive or of a mined negative, and duplicates in the file.

    --name is needed only for a BEIR folder without a corpus: that index holds its passages.

    Examples:

      biorag generate negatives hard.jsonl --out synthetic.jsonl

      biorag generate negatives hard.jsonl --llm http://localhost:8080 --per-row 4 --out synthetic.jsonl --json
    """
    from biorag.training.synthesis.run import GenerationJob, generate_negatives
    from biorag.training.synthesis.writers import Draws

    draws = Draws(per_row, passage_tokens, temperature, settings.seed)
    job = GenerationJob(settings, out, draws, template, show.progress)
    show.outcome(
        "Generated negatives",
        out,
        lambda: asdict(generate_negatives(job, rows, given.value("name"), keep_mined)),
        as_json,
    )
