"""A corpus as Parquet: of each document what the corpus says of it last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa

from biorag.corpus.blocks import Splitter
from biorag.corpus.sources import FoundFiles, reader_of
from biorag.indexes.surveying import Survey
from biorag.indexes.writing import Incoming, surveyed_changes
from biorag.scale.parquet import snippet_table, write_table
from biorag.scale.snippet_folder import (
    DELETION_COLUMNS,
    DELETIONS,
    PARTS,
    SAMPLE,
    ChangedDocument,
    Export,
    ExportedSource,
    ExportForm,
    SnippetFile,
    SnippetFolder,
)
from biorag.types import Deletion, OnProgress, Snippet
from biorag.utils.files import timestamp
from biorag.utils.versions import installed_versions

PART_ROWS = 16_384


def export_corpus(
    out: Path,
    files: FoundFiles,
    surveyed: Survey,
    split: Splitter,
    form: ExportForm,
    skips: bool,
    on_progress: OnProgress,
) -> Export:
    """Write the snippets of a surveyed corpus as Parquet; a killed export begins anew.

    Raises `MismatchError` if the folder holds an export made otherwise, or something else.

    `skips`: whether bad lines are left out.
    """
    folder = SnippetFolder(out, asdict(form))
    folder.finished()
    with folder.locked():
        folder.begin({})
        for name in (PARTS, DELETIONS, SAMPLE):  # what killed runs left of the files that they were writing
            for path in out.glob(f".{name}.*"):
                path.unlink()
        incoming = surveyed_changes(files.sources, surveyed, (lambda _: None) if skips else None, split)
        parts, changed = _write_parts(out, incoming, on_progress)
        for path in out.glob(PARTS):
            if path.name not in {part.name for part in parts}:
                path.unlink()
        rows = [document._asdict() for document in changed]
        write_table(out / DELETIONS, pa.Table.from_pylist(rows, DELETION_COLUMNS))
        write_table(out / SAMPLE, snippet_table(surveyed.sample))
        export = _described(files, surveyed, form, parts, changed)
        folder.finish({"export": asdict(export), "made": timestamp(), "versions": installed_versions()})
    return export


def _described(
    files: FoundFiles,
    surveyed: Survey,
    form: ExportForm,
    parts: Sequence[SnippetFile],
    changed: Sequence[ChangedDocument],
) -> Export:
    deletions = sum(not document.restored for document in changed)
    return Export(
        sources=_sources(files, surveyed),
        parts=tuple(parts),
        documents=surveyed.changes - deletions,
        rows=sum(part.rows for part in parts),
        deletions=deletions,
        duplicates=len(surveyed.superseded),
        rejected=surveyed.rejected,
        avg_len=surveyed.avg_len,
        blocks=form.blocks,
        terms=form.terms,
        encoder=form.encoder,
        files={"taken": dict(files.taken), "left": dict(files.left)},
    )


def _sources(files: FoundFiles, surveyed: Survey) -> tuple[ExportedSource, ...]:
    """Return the files, each with the number of its changes that others take the place of."""
    ends = np.cumsum([record.snippets + record.deletions for record in surveyed.sources])
    owners = np.searchsorted(ends, sorted(surveyed.superseded), side="right")
    duplicates = np.bincount(owners, minlength=len(ends)).tolist()
    return tuple(
        ExportedSource(record, reader_of(source).incremental, count)
        for record, source, count in zip(surveyed.sources, files.sources, duplicates, strict=True)
    )


def _write_parts(
    out: Path, incoming: Incoming, on_progress: OnProgress
) -> tuple[list[SnippetFile], list[ChangedDocument]]:
    """Write the changes that count, and return the parts, and the documents that are deleted or there again."""
    numbers = {record.name: number for number, record in reversed(list(enumerate(incoming.sources)))}
    parts: list[SnippetFile] = []
    changed: list[ChangedDocument] = []
    blocks: list[Snippet] = []
    current = 0

    def close() -> None:
        if blocks:
            name = PARTS.replace("*", f"{current:05d}-{len(parts):05d}")
            parts.append(_write_part(out / name, blocks, current))
            blocks.clear()

    for winner in incoming.winners:
        number = numbers[winner.source]
        if number != current or len(blocks) >= PART_ROWS:
            close()
            current = number
        if isinstance(winner.change, Deletion):
            changed.append(ChangedDocument(winner.change.id, number, restored=False))
        else:
            blocks += incoming.split(winner.change)
            if winner.revived:
                changed.append(ChangedDocument(winner.change.document, number, restored=True))
        on_progress(1)
    close()
    return parts, changed


def _write_part(path: Path, blocks: Sequence[Snippet], source: int) -> SnippetFile:
    write_table(path, snippet_table(blocks))
    return SnippetFile(path.name, len(blocks), source)
