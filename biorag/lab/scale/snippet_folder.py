"""A folder of exported snippets: of each document the last version in the corpus, as Parquet.

- `export.json`: what was exported, and how
- `part-00000-00000.parquet`: snippets, or blocks of them, in the order of the files; a document is in one part
- `deletions.parquet`: documents that the corpus deletes
- `sample.parquet`: some snippets, by the hash of their ids
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import Field

from biorag.corpus.blocks import Splitter
from biorag.corpus.sources import FoundFiles, reader_of
from biorag.errors import MismatchError, MissingError
from biorag.indexes.manifest import BlockParameters, SourceRecord
from biorag.indexes.surveying import Survey
from biorag.indexes.writing import Incoming, surveyed_changes
from biorag.lab.scale.parquet import (
    EXPORT_AGAIN,
    KEY,
    KEYS,
    SNIPPETS,
    holds,
    read_table,
    snippet_table,
    snippets_of,
    write_table,
)
from biorag.types import Count, Deletion, Label, OnProgress, Snippet
from biorag.utils.files import remove_left, timestamp
from biorag.utils.parsing import validated
from biorag.utils.runs import RunDirectory
from biorag.utils.versions import installed_versions

PART_ROWS = 16_384  # of a part
DELETIONS, SAMPLE = "deletions.parquet", "sample.parquet"
PART = re.compile(r"part-\d+-\d+\.parquet")
FILES = re.compile(rf"{PART.pattern}|{re.escape(DELETIONS)}|{re.escape(SAMPLE)}")
DELETION_COLUMNS = pa.schema(
    [
        SNIPPETS.field("id"),
        pa.field("source", pa.int64(), nullable=False),
        pa.field("restored", pa.bool_(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class SnippetFile:
    """A file of snippets, and the number of the corpus file that they are of."""

    name: Annotated[str, Field(pattern=f"^{PART.pattern}$")]
    rows: Count
    source: Count


@dataclass(frozen=True, slots=True)
class ExportedSource:
    """A corpus file that went in; of an `incremental` format later files change what earlier ones hold.

    `duplicates` counts those of its changes that others take the place of.
    """

    record: SourceRecord
    incremental: bool
    duplicates: Count

    @property
    def changes(self) -> int:
        """How many of its snippets and deletions count."""
        return self.record.snippets + self.record.deletions - self.duplicates


@dataclass(frozen=True, slots=True)
class Export:
    """The contents of an export: `documents` of them, after `duplicates` changes that others take the place of.

    `rows` counts the snippets of all parts; `avg_len` is their mean length in BM25 `terms`, words or word pieces of the
    encoder with the hash `encoder`. `files` are counts of those that were taken and left, by kind.
    """

    sources: tuple[ExportedSource, ...]
    parts: tuple[SnippetFile, ...]
    documents: Count
    rows: Count
    deletions: Count
    duplicates: Count
    rejected: Count
    avg_len: Annotated[float, Field(ge=0)]
    blocks: BlockParameters | None
    terms: Label
    encoder: str
    files: dict[Label, dict[Label, Count]]


@dataclass(frozen=True, slots=True)
class ExportForm:
    """How documents are split, and what BM25 counts: words, or word pieces of the encoder with this hash."""

    blocks: BlockParameters | None
    terms: str
    encoder: str = ""


class ChangedDocument(NamedTuple):
    """A document that the export deletes, or, if it is `restored`, has again after it was deleted."""

    id: str
    source: int
    restored: bool


class SnippetFolder(RunDirectory):
    """A folder of exported snippets, which grows by the files that are exported to it."""

    kind = "folder of exported snippets"
    manifest_name = "export.json"

    def export(self) -> Export:
        """Return what was exported.

        Raises `MissingError` if there is no finished export; `MismatchError` if its manifest is damaged.
        """
        values = self._read_manifest()
        if values is None or not values["complete"]:
            state = "is not finished" if values else "is a file" if self.path.is_file() else "is not there"
            raise MissingError(f"export {self.path} {state}: 'biorag corpus export CORPUS --out FOLDER' writes one")
        try:
            export: Export = validated(Export, values["export"])
            if any(part.source >= len(export.sources) for part in export.parts):
                raise ValueError("parts: of a file that is not among the sources")
        except (ValueError, KeyError) as error:
            raise self._damaged(error) from None
        return export

    def keys(self, part: SnippetFile) -> np.ndarray:
        """Return the key of each row of a part, uint64."""
        keys: np.ndarray = self.rows(part, KEYS).column(KEY).to_numpy()
        return keys

    def rows(self, part: SnippetFile, columns: pa.Schema) -> pa.Table:
        """Return columns of a part.

        Raises `MismatchError` if it is not there, or not the one that was exported.
        """
        table = read_table(self.path / part.name, columns)
        if table.num_rows != part.rows:
            raise MismatchError(f"{self.path / part.name} is of another export: {EXPORT_AGAIN}")
        return table

    def sample(self) -> list[Snippet]:
        """Return snippets drawn by the hash of their ids."""
        return snippets_of(read_table(self.path / SAMPLE, SNIPPETS))

    def documents(self, part: SnippetFile) -> Iterator[list[Snippet]]:
        """Yield the blocks of each document of a part, in order."""
        snippets = snippets_of(self.rows(part, SNIPPETS))
        return (list(blocks) for _, blocks in groupby(snippets, key=lambda snippet: snippet.document))

    def changed_documents(self) -> list[ChangedDocument]:
        """Return the documents that are deleted, and those that are there again."""
        rows = read_table(self.path / DELETIONS, DELETION_COLUMNS).to_pydict()
        return [ChangedDocument(*row) for row in zip(rows["id"], rows["source"], rows["restored"], strict=True)]


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
        remove_left(out, FILES)
        incoming = surveyed_changes(files.sources, surveyed, (lambda _: None) if skips else None, split)
        parts, changed = _write_parts(out, incoming, on_progress)
        for path in out.iterdir():
            if PART.fullmatch(path.name) and path.name not in {part.name for part in parts} and holds(path, SNIPPETS):
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
            name = f"part-{current:05d}-{len(parts):05d}.parquet"
            write_table(out / name, snippet_table(blocks))
            parts.append(SnippetFile(name, len(blocks), current))
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
