"""`biorag embed`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from biorag.commands import options, show
from biorag.commands.groups import Flags, expanded, overridden
from biorag.indexes.store import Store
from biorag.settings.settings import Settings


@expanded
def embed(
    snippets: Annotated[Path, typer.Argument(help="Folder that 'biorag corpus export' wrote.")],
    out: Annotated[Path, typer.Option(help="Folder of vectors to write; what it holds is not encoded again.")],
    settings: Annotated[
        Settings,
        Flags("encoder", "revision", "similarity", "store_tokens", "token_pooling", "batch_size", "precision"),
        Flags("reranker", panel=None),
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
        from biorag.scale.stages import embed
        from biorag.scale.vector_folder import VectorFolder

        if settings.index.store_tokens is None and index is None and VectorFolder(out, {}).made() is None:
            settings = overridden(settings, store_tokens="none")
        report = embed(settings, snippets, out, encode, show.progress, index)
    show.report("Embedded", asdict(report), as_json)
