"""`biorag generate filter`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from biorag.commands import options, show
from biorag.commands.groups import Given, expanded
from biorag.engine import open_index
from biorag.settings.settings import Settings
from biorag.utils.files import check_replaceable


@expanded
def keep_consistent(
    rows: Annotated[Path, typer.Argument(help="JSONL of query and positive (.gz too).", metavar="FILE")],
    out: Annotated[Path, typer.Option("--out", help="JSONL file to write the kept rows to.")],
    settings: Annotated[Settings, options.INDEX],
    given: Given,
    keep_top: Annotated[int, typer.Option(min=1, max=1000, help="Rank within which the positive must be found.")] = 3,
    mode: Annotated[str | None, typer.Option(help="dense or hybrid.", show_default=options.DENSE_MODES[0])] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Keep the rows whose positive is among the top 3 that the index's encoder retrieves for their query.

    The positive is recognised by its positive_id, or by its text. Rows are kept unchanged. Those left out are counted:
    with the positive below these ranks, absent from the index, or with an empty query.

    Examples:

      biorag generate filter queries.jsonl --name pubmed --out kept.jsonl

      biorag generate filter queries.jsonl --name pubmed --mode hybrid --keep-top 1 --out kept.jsonl --json
    """
    from biorag.training.synthesis import consistency

    searched = settings.replace(mode=options.dense_mode(mode), rerank=False)
    check_replaceable(
        out, "file of training rows", consistency.is_kept, [rows, settings.indexes, given.configuration], force
    )

    def work() -> dict[str, Any]:
        with open_index(searched) as ready, show.progress("Filtering", None) as advance:
            counts = consistency.keep_consistent(rows, out, ready.index, ready.retriever, keep_top, advance)
        share = round(counts.kept / counts.read, 4) if counts.read else 0.0
        return {"keep_top": keep_top, **asdict(counts), "share_kept": share}

    show.outcome("Consistency filter", out, work, as_json)
