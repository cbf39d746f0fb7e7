"""`biorag corpus export`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from biorag.commands import options, show
from biorag.commands.application import Application
from biorag.commands.groups import Flags, expanded
from biorag.corpus.tables import parse_columns
from biorag.registries import READERS
from biorag.settings.settings import Settings
from biorag.utils.versions import require

app = Application(help="A corpus on its way to many machines.")


@app.callback()
def corpus() -> None:
    """Give the group its name though it has one command."""


@app.command("export")
@expanded
def export_(
    corpus: Annotated[
        list[str],
        typer.Argument(help=f"Files or folders of {READERS.names()} (.gz too), 'demo', or - for standard input."),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    settings: Annotated[Settings, Flags("encoder", "revision", "block_tokens", "block_overlap", "bm25_terms")],
    bad_lines: options.BadLines,
    columns: options.Columns = None,
    as_json: options.Json = False,
) -> None:
    """Export a corpus as Parquet, each document once, in its latest version.

    Updates and deletions are applied, and documents split if asked; ids, metadata and content digests are kept.

    Examples:

      biorag corpus export baseline/ updatefiles/ --out snippets --on-bad-line skip
      biorag corpus export full-text/ --out snippets --encoder starter --block-tokens 300 --json
    """
    started = time.perf_counter()
    rejected = bad_lines.file(out)
    named = parse_columns(columns) if columns is not None else ()
    require("parquet")
    from biorag.scale.stages import export

    exported = export(settings, corpus, out, rejected, show.progress, named)
    report = {
        "out": str(out),
        "documents": exported.documents,
        "snippets": exported.rows,
        "deletions": exported.deletions,
        "duplicates": exported.duplicates,
        "rejected": exported.rejected,
        "files": len(exported.sources),
        "parts": len(exported.parts),
        "seconds": round(time.perf_counter() - started, 3),
    }
    show.report("Exported", report, as_json)
    show.rejected(rejected, "skipped", "exported")
