"""Removing documents from an index: by their ids, by conditions on their fields, or those of a corpus file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

import numpy as np

from biorag.corpus.blocks import WHOLE, Splitter
from biorag.errors import MissingError, suggestion
from biorag.indexes.manifest import Manifest, SourceRecord
from biorag.indexes.points import SCROLL
from biorag.indexes.records import SourceLedger, read_progress
from biorag.indexes.store import Store
from biorag.indexes.updating import EncodeSnippets, PendingChange, count_snippets
from biorag.indexes.writing import Incoming, write_index
from biorag.types import Deletion, Index, IndexQuery, OnProgress, Where, block_id
from biorag.utils.files import sha256_of_json
from biorag.utils.progress import batched

SHOWN_FILES = 10  # in a message
BY_HAND = "biorag delete"  # the source of such deletions, as the manifest records them


@dataclass(frozen=True, slots=True)
class Selection:
    """The documents to be removed, their snippets and those held of the index, and the ids asked for but not there."""

    documents: tuple[str, ...]
    snippets: int
    held: int
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeletionReport:
    """What was removed, as `biorag delete --json` prints it; `snippets` is what the index holds in the end."""

    name: str
    documents: int
    deleted: int
    missing: tuple[str, ...]
    snippets: int
    seconds: float


def select_ids(index: Index, manifest: Manifest, ids: Iterable[str]) -> Selection:
    """Return the documents of these ids, each that of a snippet, a block of a document or a document in blocks."""
    asked = tuple(dict.fromkeys(ids))
    documents: dict[str, None] = {}
    missing: list[str] = []
    for batch in batched(asked, SCROLL):
        snippets = index.fetch(batch)
        firsts = index.fetch([block_id(id, 0) for id in batch if id not in snippets]) if manifest.blocks else {}
        for id in batch:
            snippet = snippets.get(id) or firsts.get(block_id(id, 0))
            if snippet is None:
                missing.append(id)
            else:
                documents[snippet.document] = None
    return _selected(index, manifest, documents, missing)


def select_source(index: Index, manifest: Manifest, ledger: SourceLedger, name: str) -> Selection:
    """Return the documents of a corpus file or folder, by its path or the end of it, and of no other file.

    The file need not exist any more. Raises `MissingError`, naming the files, if none of that name went in.
    """
    if not (keys := ledger.named(name)):
        files = sorted({PurePath(key).name for key in ledger.files})
        known = f"it holds {', '.join(files[:SHOWN_FILES])}" if files else "its files are not recorded"
        meant = suggestion(PurePath(name).name, files)
        raise MissingError(f"no file {name!r} went into index {manifest.name!r}{meant}; {known}")
    others = ledger.documents_of(ledger.files.keys() - set(keys))
    documents = [document for document in ledger.documents_of(keys) if document not in others]
    return replace(select_ids(index, manifest, documents), missing=())  # some may have been deleted before


def select_where(index: Index, manifest: Manifest, where: Where) -> Selection:
    """Return the documents of which a snippet fulfils all conditions."""
    probe = np.ones(index.dimension, np.float32)
    documents: dict[str, None] = {}
    for ids in batched(index.ids(), SCROLL):
        (hits,) = index.search([IndexQuery(probe, len(ids), where, among=frozenset(ids))])
        matching = [hit.id for hit in hits]
        snippets = index.fetch(matching) if manifest.blocks else {}
        documents |= dict.fromkeys(snippets[id].document if id in snippets else id for id in matching)
    return _selected(index, manifest, documents)


def _selected(index: Index, manifest: Manifest, documents: Iterable[str], missing: Sequence[str] = ()) -> Selection:
    """Return documents with their number of snippets: one each, of a split one its blocks."""
    names = tuple(documents)
    count = count_snippets(index, names) if manifest.blocks else len(names)
    return Selection(names, count, index.count(), tuple(missing))


def delete_documents(store: Store, selection: Selection, on_progress: OnProgress) -> DeletionReport:
    """Remove documents from an index, batch by batch, and those that a killed run has deleted in part.

    Vacuuming afterwards leaves BM25 the frequencies of what remains. The manifest records the deletion among the
    sources, by the hash of what was removed.

    Raises `ServiceError` if another process uses the index, or the store fails.
    """
    manifest = store.require_manifest()
    blocks = manifest.blocks
    half_deleted = (id for id, source in read_progress(store.folder).torn.items() if source == BY_HAND)
    documents = tuple(dict.fromkeys((*selection.documents, *half_deleted)))
    record = SourceRecord(BY_HAND, sha256_of_json(sorted(documents)), 0, 0, len(documents))
    incoming = Incoming(
        winners=[PendingChange(Deletion(id), revived=True, source=BY_HAND) for id in documents],
        split=Splitter(blocks.tokens, blocks.overlap) if blocks else WHOLE,
        sources=(record,) if documents else (),
        completes=False,
        after=lambda ledger: ledger.without(frozenset(documents)),
    )
    report = write_index(store, manifest, incoming, _no_encoder, on_progress)
    removed = selection.held - report.snippets
    return DeletionReport(manifest.name, report.deleted, removed, selection.missing, report.snippets, report.seconds)


def _no_encoder() -> EncodeSnippets:
    raise AssertionError("a deletion encodes nothing")
