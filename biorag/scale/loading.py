"""Vectors that were made beforehand into an index, as a direct run would have written them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from biorag.errors import MissingError
from biorag.indexes.manifest import Manifest
from biorag.indexes.store import Store
from biorag.indexes.updating import Winner
from biorag.indexes.writing import Incoming, IndexReport, write_index
from biorag.scale.parquet import NAMES
from biorag.scale.snippet_folder import Export, SnippetFile, SnippetFolder
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


def load_vectors(
    store: Store,
    current: Manifest | None,
    made: Manifest,
    snippets: SnippetFolder,
    vectors: StoredVectors,
    progress: Progress,
) -> IndexReport:
    """Bring an export and its vectors into an index; see `write_index`.

    Raises `MissingError` if snippets that the index does not hold have no vectors.

    `current`: the manifest of the index, None if it is yet to be made; `made`: that of the vectors.
    """
    export = snippets.export()
    held = {record.sha256 for record in current.sources} if current else set()
    # Files that the index has taken in before, and that later files may have changed since.
    skipped = {n for n, source in enumerate(export.sources) if source.incremental and source.record.sha256 in held}
    parts = [part for part in export.parts if part.source not in skipped]
    _check_vectors(store, current, snippets, parts, vectors)
    new = store.new_manifest(made.encoder, 0.0, made.tokens)
    planned = current or replace(new, bm25=made.bm25, similarity=made.similarity, blocks=made.blocks)
    blocks = GivenBlocks(export.blocks.tokens if export.blocks else 0, {})
    taken = [source for number, source in enumerate(export.sources) if number not in skipped]
    incoming = Incoming(
        winners=_winners(snippets, export, parts, skipped, blocks),
        split=blocks,
        sources=tuple(source.record for source in taken),
        rejected=export.rejected,
        duplicates=sum(source.duplicates for source in taken),
        known=sum(export.sources[number].record.snippets for number in skipped),
    )

    def encode(snippets: Sequence[Snippet]) -> Encoded:
        """Return vectors, with BM25 terms where they were counted as this index counts them."""
        encoded = vectors(snippets)
        return encoded if planned.bm25 == made.bm25 else encoded._replace(terms=())

    with progress("Indexing", sum(source.changes for source in taken)) as advance:
        report = write_index(store, planned, incoming, lambda: encode, advance)
    return replace(report, files=export.files)


def _check_vectors(
    store: Store,
    current: Manifest | None,
    snippets: SnippetFolder,
    parts: Sequence[SnippetFile],
    vectors: StoredVectors,
) -> None:
    """Check that every snippet has a vector, or is in the index as it is."""
    missing: dict[str, str] = {}
    for part in parts:
        lacks = ~among(snippets.keys(part), vectors.keys)
        if lacks.any():
            rows = snippets.rows(part, NAMES).take(np.flatnonzero(lacks))
            missing |= dict(zip(rows.column("id").to_pylist(), rows.column("digest").to_pylist(), strict=True))
    if missing and current:
        with closing(store.open(current)) as index:
            held = index.digests(list(missing))
        missing = {id: digest for id, digest in missing.items() if held.get(id) != digest}
    if missing:
        raise MissingError(
            f"{len(missing):,} snippets of {snippets.path} have no vectors ({next(iter(missing))!r} for one): "
            f"run 'biorag embed {snippets.path}' to the end"
        )


def _winners(
    snippets: SnippetFolder,
    export: Export,
    parts: Sequence[SnippetFile],
    skipped: AbstractSet[int],
    blocks: GivenBlocks,
) -> Iterator[Winner]:
    """Yield the documents of parts, whose blocks are given, then the deletions."""
    changed = snippets.changed_documents()
    restored = {document.id for document in changed if document.restored}
    names = [source.record.name for source in export.sources]
    for part in parts:
        for own in snippets.documents(part):
            document = replace(own[0], id=own[0].document)
            blocks.blocks[document.id] = own
            yield Winner(document, document.id in restored, names[part.source])
    for gone in changed:
        if not gone.restored and gone.source not in skipped:
            yield Winner(Deletion(gone.id), False, names[gone.source])
