"""`biorag delete`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from biorag.commands import options, show
from biorag.commands.groups import Flags, expanded
from biorag.engine import open_stored
from biorag.errors import MissingError, UsageError
from biorag.indexes.store import Store
from biorag.retrieval.filters import parse_filters
from biorag.settings.settings import Settings


@expanded
def delete(
    settings: Annotated[Settings, Flags("name", "qdrant", finds_index=True)],
    ids: Annotated[
        list[str] | None, typer.Option("--id", help="Remove this snippet, or document with all its blocks. Repeatable.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--filter", help="Remove matching snippets, as in 'year<2000'. Repeated, all must hold."),
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Remove what a corpus file, or a folder, brought in; it need not exist any more.")
    ] = None,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> None:
    """Remove snippets from an index, whole documents at a time, after saying how many.

    Indexing their corpus again brings them back, but for PubMed's own files, which an index takes in once: remove the
    files too. A filter that matches nothing ends with exit code 0, ids and a file of which nothing is there with 4.

    Examples:

      biorag delete --id 12345678 --name pubmed
      biorag delete --filter 'year<2000' --name pubmed --yes --json
      biorag delete --source smith2019.pdf --name papers
    """
    from biorag.indexes.deleting import DeletionReport, delete_documents, select_ids, select_source, select_where
    from biorag.indexes.fields import checked_fields
    from biorag.indexes.records import read_ledger

    if sum(map(bool, (ids, where, source))) != 1:
        raise UsageError("a deletion is by --id, by --filter or by --source: give one of them")
    conditions = parse_filters(where or ())
    with open_stored(settings) as (manifest, index):
        conditions = checked_fields(index, manifest, conditions)
        if source:
            selection = select_source(index, manifest, read_ledger(Store(settings).folder), source)
        else:
            selection = select_where(index, manifest, conditions) if where else select_ids(index, manifest, ids or ())
    if selection.missing:
        show.err.print(f"Not in index {manifest.name!r}: {', '.join(selection.missing[:10])}", soft_wrap=True)
    if not selection.documents and manifest.checksums:
        _require_something(manifest.name, bool(selection.missing), source)
        show.err.print("Nothing is removed: no snippet matches", soft_wrap=True)
        report = DeletionReport(manifest.name, 0, 0, (), selection.held, 0.0)
    else:
        options.confirm(
            f"Remove {selection.snippets:,} of {selection.held:,} snippets from index {manifest.name!r}?", yes
        )
        with show.progress("Removing", len(selection.documents)) as advance:
            report = delete_documents(Store(settings), selection, advance)
        show.err.print("Indexing the same files again brings them back: remove the files too", soft_wrap=True)
    show.report(f"Index {report.name}", asdict(report), as_json, hidden=("name", "missing"))


def _require_something(name: str, missing: bool, source: str | None) -> None:
    """Raise `MissingError` if ids or a file were named of which an index has nothing."""
    if missing:
        advice = "'biorag search' shows the ids of hits; --source takes the name of a file"
        raise MissingError(f"index {name!r} has none of these ids: {advice}")
    if source:
        raise MissingError(
            f"index {name!r} holds nothing of {source!r} any more: 'biorag index' with the file brings it back"
        )
