"""`biorag generate negatives`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from biorag.commands import generating, options, show
from biorag.commands.generating import ROWS
from biorag.commands.groups import Flags, Given, expanded
from biorag.engine import open_stored
from biorag.settings.settings import Settings

if TYPE_CHECKING:
    from biorag.training.synthesis.negatives import Pair


@expanded
def negatives(
    rows: Annotated[
        list[Path], typer.Argument(help="JSONL as 'biorag mine' writes it (.gz too), or folders in BEIR layout.")
    ],
    out: generating.Out,
    settings: Annotated[Settings, Flags("name", "seed"), options.GENERATOR],
    given: Given,
    per_row: Annotated[int, typer.Option(min=1, max=100, help="Negatives of a row.", rich_help_panel=ROWS)] = 1,
    keep_mined: Annotated[
        bool,
        typer.Option("--keep-mined", help="Append a row's own negatives to the generated ones.", rich_help_panel=ROWS),
    ] = False,
    template: options.TemplateFile = None,
    temperature: options.Temperature = generating.TEMPERATURE,
    passage_tokens: generating.PassageTokens = 128,
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
    from biorag.prompts.template import load_template
    from biorag.training.synthesis import negatives as written
    from biorag.training.synthesis.writers import Draws

    started = time.perf_counter()
    draws = Draws(per_row, passage_tokens, temperature, settings.seed)
    generating.check_draws(out, draws, "--per-row")
    read = _pairs(settings, rows, given.value("name"))
    prompt = load_template("negative", template)
    model = generating.language_model(settings)
    identity = {
        **asdict(draws),
        "keep_mined": keep_mined,
        "rows": written.fingerprint(read),
        "generator": model.identity,
        "prompt": prompt.sha256,
    }
    file = written.NegativeFile(out, identity, prompt.system)
    counts = file.finished()
    if counts is None:
        unmined = sum(not pair.row.negatives for pair in read)
        with show.progress("Writing negatives", len(read)) as advance:
            writer = model.writer(written.draft_form(prompt), draws)
            counts = file.generate(read, written.NegativeCounts(len(read), unmined), writer, advance)
    generating.report_counts("Generated negatives", out, counts, started, as_json)


def _pairs(settings: Settings, paths: Sequence[Path], name: str | None) -> list[Pair]:
    """Return the rows to write negatives for; with a name, passages may come from the index."""
    from biorag.training.rows import read_rows
    from biorag.training.synthesis.negatives import Pair

    if name is None:
        rows, _ = read_rows(paths)
    else:
        with open_stored(settings) as (_, index):
            rows, _ = read_rows(paths, index.fetch)
    return [Pair(row) for row in rows]
