"""Vectors that were made beforehand into an index, as a direct run would have written them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from biorag.errors import MissingError
from biorag.indexes.manifest import Manifest
from biorag.indexes.store import Store
from biorag.indexes.updating import EncodeSnippets, Winner
from biorag.indexes.writing import Incoming, IndexReport, write_index
from biorag.scale.parquet import NAMES
from biorag.scale.snippet_folder import Export, SnippetFolder
from biorag.scale.vector_folder import StoredVectors, among
from biorag.types import Deletion, Encoded, Progress, Snippet


@dataclass(frozen=True, slots=True)
class GivenBlocks:
    """Gives the blocks that documents were split into before: a `BlockSplit` of the documents that are written next."""

    tokens: int
    blocks: dict[str, list[Snippet]]

    def __call__(self, document: Snippet) -> list[Snippet]:
        """Return the blocks of a document, once."""
        return self.blocks.pop(document.id)


@dataclass(frozen=True, slots=True)
class Loading:
    """An export and its vectors on their way into an index, whose manifest is None if it is yet to be made."""

    store: Store
    manifest: Manifest | None
    made: Manifest
    snippets: SnippetFolder
    vectors: StoredVectors

    def write(self, progress: Progress) -> IndexReport:
        """Bring them into the index; see `write_index`.

        Raises `MissingError` if snippets that the index does not hold have no vectors.
        """
        export = self.snippets.export()
        skipped = self._skipped(export)
        self._check_vectors(export, skipped)
        planned = self.manifest or replace(
            self.store.new_manifest(self.made.encoder, 0.0, self.made.tokens),
            bm25=self.made.bm25,
            similarity=self.made.similarity,
            blocks=self.made.blocks,
        )
        blocks = GivenBlocks(export.blocks.tokens if export.blocks else 0, {})
        taken = [source for number, source in enumerate(export.sources) if number not in skipped]
        incoming = Incoming(
            winners=self._winners(export, skipped, blocks),
            split=blocks,
            sources=tuple(source.record for source in taken),
            rejected=export.rejected,
            duplicates=sum(source.duplicates for source in taken),
            known=sum(export.sources[number].record.snippets for number in skipped),
        )
        with progress("Indexing", sum(source.changes for source in taken)) as advance:
            report = write_index(self.store, planned, incoming, lambda: self._encode(planned), advance)
        return replace(report, files=export.files)

    def _skipped(self, export: Export) -> frozenset[int]:
        """Return the files that the index has taken in before, and that later files may have changed since."""
        taken = {record.sha256 for record in self.manifest.sources} if self.manifest else set()
        sources = enumerate(export.sources)
        return frozenset(number for number, one in sources if one.incremental and one.record.sha256 in taken)

    def _check_vectors(self, export: Export, skipped: frozenset[int]) -> None:
        missing: dict[str, str] = {}
        for part in export.parts:
            if part.source in skipped:
                continue
            lacks = ~among(self.snippets.keys(part), self.vectors.keys)
            if lacks.any():
                rows = self.snippets.rows(part, NAMES).take(np.flatnonzero(lacks))
                missing |= dict(zip(rows.column("id").to_pylist(), rows.column("digest").to_pylist(), strict=True))
        if missing and self.manifest:
            with closing(self.store.open(self.manifest)) as index:
                held: Mapping[str, str] = index.digests(list(missing))
            missing = {id: digest for id, digest in missing.items() if held.get(id) != digest}
        if missing:
            raise MissingError(
                f"{len(missing):,} snippets of {self.snippets.path} have no vectors ({next(iter(missing))!r} for one): "
                f"run 'biorag embed {self.snippets.path}' to the end"
            )

    def _encode(self, planned: Manifest) -> EncodeSnippets:
        """Return what gives vectors, with BM25 terms where they were counted as this index counts them."""
        if planned.bm25 == self.made.bm25:
            return self.vectors

        def encode(snippets: Sequence[Snippet]) -> Encoded:
            return self.vectors(snippets)._replace(terms=())

        return encode

    def _winners(self, export: Export, skipped: frozenset[int], blocks: GivenBlocks) -> Iterator[Winner]:
        changed = self.snippets.changed_documents()
        restored = {document.id for document in changed if document.restored}
        names = [source.record.name for source in export.sources]
        for part in export.parts:
            if part.source in skipped:
                continue
            for parts in self.snippets.documents(part):
                document = replace(parts[0], id=parts[0].document)
                blocks.blocks[document.id] = parts
                yield Winner(document, document.id in restored, names[part.source])
        for gone in changed:
            if not gone.restored and gone.source not in skipped:
                yield Winner(Deletion(gone.id), False, names[gone.source])
