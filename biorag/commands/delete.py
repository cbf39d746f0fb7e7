"""`biorag delete`."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from biorag.commands import options, show
from biorag.commands.groups import Flags, expanded
from biorag.engine import open_stored
from biorag.errors import MissingError, UsageError
from biorag.retrieval.filters import parse_filters
from biorag.settings.settings import Settings

if TYPE_CHECKING:
    from biorag.indexes.deleting import RemovedDocuments
    from biorag.indexes.manifest import Manifest
    from biorag.types import Index


@dataclass(frozen=True, slots=True)
class Removed:
    """Which snippets to remove."""

    ids: Annotated[
        list[str] | None, typer.Option("--id", help="Remove this snippet, or document with all its blocks. Repeatable.")
    ] = None
    where: Annotated[
        list[str] | None,
        typer.Option("--filter", help="Remove what fulfils this: 'year<2000'. Repeated, all must hold."),
    ] = None
    source: Annotated[
        str | None, typer.Option(help="Remove the records of this corpus file, wherever they came from last.")
    ] = None

    def check(self) -> None:
        """Hold that one way is given, and that filters can be read.

        Raises `UsageError` if none or several are.
        """
        named = [
            flag for flag, value in (("--id", self.ids), ("--filter", self.where), ("--source", self.source)) if value
        ]
        if len(named) != 1:
            fault = f"{' and '.join(named)} exclude each other" if named else "nothing says what to remove"
            raise UsageError(f"{fault}: give --id, --filter or --source")
        parse_filters(self.where or ())

    def select(self, index: Index, manifest: Manifest, settings: Settings) -> RemovedDocuments:
        """Return what to remove of an open index."""
        from biorag.corpus.sources import find_sources
        from biorag.indexes.deleting import select_ids, select_source, select_where
        from biorag.indexes.fields import check_fields

        if self.ids:
            return select_ids(index, manifest, self.ids)
        if self.where:
            conditions = parse_filters(self.where)
            check_fields(index, manifest.encoder.dimension, conditions)
            return select_where(index, manifest, conditions)
        assert self.source, "checked before"
        with tempfile.TemporaryDirectory(prefix="biorag-") as spool:
            sources = find_sources([self.source], Path(spool) / "standard-input", settings.home)
            if len(sources) != 1:
                raise UsageError(f"--source {self.source!r} is a folder of {len(sources)} files: name one of them")
            return select_source(index, manifest, sources[0])


@expanded
def delete(
    removed: Removed,
    settings: Annotated[Settings, Flags("name", "qdrant", finds_index=True)],
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> None:
    """Remove snippets from an index, whole documents at a time, after saying how many.

    Indexing their corpus again brings them back, but for PubMed's own files, which an index takes in once.

    Examples:

      biorag delete --id 12345678 --name pubmed
      biorag delete --filter 'year<2000' --name pubmed --yes --json
      biorag delete --source old-snippets.jsonl.gz --name mine
    """
    from biorag.indexes.deleting import DeletionReport, delete_documents
    from biorag.indexes.store import Store

    removed.check()
    with open_stored(settings) as (manifest, index):
        selection = removed.select(index, manifest, settings)
        held = index.count()
    if selection.missing:
        show.err.print(f"Not in index {manifest.name!r}: {', '.join(selection.missing[:10])}", soft_wrap=True)
    if not selection.documents and manifest.checksums:
        if selection.missing:
            raise MissingError(f"index {manifest.name!r} has none of these ids: 'biorag search' shows the ids of hits")
        report = DeletionReport(manifest.name, 0, 0, (), held, 0.0)
    else:
        options.confirm(f"Remove {selection.snippets:,} of {held:,} snippets from index {manifest.name!r}?", yes)
        with show.progress("Removing", len(selection.documents)) as advance:
            report = delete_documents(Store(settings), selection, advance)
    show.report(f"Index {report.name}", asdict(report), as_json, hidden=("name", "missing"))
