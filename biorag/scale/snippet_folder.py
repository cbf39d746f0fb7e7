"""A folder of exported snippets: what it is of, and its parts.

- `export.json`: what was exported, and how
- `part-00000-00000.parquet`: snippets, or blocks of them, in the order of the files; a document is in one part
- `deletions.parquet`: documents that the corpus deletes
- `sample.parquet`: some snippets, by the hash of their ids
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import Field

from biorag.errors import MismatchError, MissingError
from biorag.indexes.manifest import BlockParameters, SourceRecord
from biorag.scale.parquet import EXPORT_AGAIN, KEY, KEYS, SNIPPETS, read_table, snippets_of
from biorag.types import Count, Label, Snippet
from biorag.utils.parsing import validated
from biorag.utils.runs import RunDirectory

PARTS, DELETIONS, SAMPLE = "part-*.parquet", "deletions.parquet", "sample.parquet"
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

    name: Annotated[str, Field(pattern=r"^part-\d+-\d+\.parquet$")]
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
    """What was exported: `documents` of them, after `duplicates` changes that others take the place of.

    `rows` is how many snippets, blocks counted each, the parts have; `avg_len` their mean length in BM25 terms, as a
    survey counts it; `terms` are those, words or word pieces of the encoder with the hash `encoder`. `files` are counts
    of those that were taken, and of folders those that were left, by kind.
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
            state = "is not finished" if values else "is not there"
            raise MissingError(f"the export {self.path} {state}: run 'biorag corpus export CORPUS --out {self.path}'")
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
