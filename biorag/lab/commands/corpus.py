"""`biorag corpus export` and `biorag embed`."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from biorag.commands import options, show
from biorag.commands.application import Application
from biorag.commands.groups import Flags, expanded, overridden
from biorag.commands.outputs import FOLDER
from biorag.corpus.tables import parse_columns
from biorag.indexes.store import Store
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
    out: Annotated[Path, typer.Option(help="Folder to write."), FOLDER],
    settings: Annotated[Settings, Flags("encoder", "block_tokens", "block_overlap", "bm25_terms")],
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
    from biorag.lab.scale.stages import export

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


@expanded
def embed(
    snippets: Annotated[Path, typer.Argument(help="Folder that 'biorag corpus export' wrote.")],
    out: Annotated[Path, typer.Option(help="Folder of vectors to write; what it holds is not encoded again."), FOLDER],
    settings: Annotated[
        Settings,
        Flags("encoder", "similarity", "store_tokens", "token_pooling", "batch_size", "precision"),
        Flags("reranker"),
    ],
    cluster: options.EncodingCluster,
    for_index: Annotated[
        str | None, typer.Option(help="Existing index that the vectors are for; it says how they are made.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Encode exported snippets, by this machine or by the workers of a Ray cluster.

    Each batch is written with ids, digests, vectors and BM25 vectors, and with token vectors if asked. An interrupted
    run resumes: what has a vector by the same encoder is not encoded again.

    Examples:

      biorag embed snippets --out vectors
      biorag embed snippets --out vectors --ray local --workers 8
      biorag embed snippets --out vectors --ray auto --gpus 8 --encoder models/pubmed --json
    """
    if for_index:
        settings = settings.replace(name=for_index)
    index = Store(settings).require_manifest() if for_index else None
    with cluster.encoders() as encode:
        from biorag.lab.scale.stages import embed
        from biorag.lab.scale.vectors import VectorFolder

        if settings.index.store_tokens is None and index is None and VectorFolder(out, {}).made() is None:
            settings = overridden(settings, store_tokens="none")
        report = embed(settings, snippets, out, encode, show.progress, index)
    show.report("Embedded", asdict(report), as_json)
