"""Removing documents from an index: by their ids, by conditions on their fields, or those of a corpus file."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

import numpy as np

from biorag.corpus.blocks import WHOLE, Splitter
from biorag.errors import MissingError, suggestion
from biorag.indexes.manifest import Manifest, SourceRecord
from biorag.indexes.points import SCROLL
from biorag.indexes.progress import IndexingProgress, read_progress, write_progress
from biorag.indexes.source_ledger import SourceLedger, read_ledger, write_ledger
from biorag.indexes.store import Store
from biorag.indexes.updating import EncodeSnippets, PendingChange, Updater
from biorag.indexes.writing import end_writing
from biorag.types import Deletion, Index, IndexQuery, OnProgress, Where, block_id
from biorag.utils.files import sha256_of_json, timestamp
from biorag.utils.progress import batched
from biorag.utils.versions import installed_versions

SHOWN_FILES = 10  # in a message
BY_HAND = "biorag delete"  # the source of such deletions, as the manifest records them


@dataclass(frozen=True, slots=True)
class Selection:
    """The documents to be removed, how many snippets they are, and the ids asked for that are not there."""

    documents: tuple[str, ...]
    snippets: int
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
    return Selection(tuple(documents), _snippets_of(index, manifest, tuple(documents)), tuple(missing))


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
    probe = np.ones(manifest.encoder.dimension, np.float32)
    documents: dict[str, None] = {}
    for ids in batched(index.ids(), SCROLL):
        (hits,) = index.search([IndexQuery(probe, len(ids), where, among=frozenset(ids))])
        matching = [hit.id for hit in hits]
        snippets = index.fetch(matching) if manifest.blocks else {}
        documents |= dict.fromkeys(snippets[id].document if id in snippets else id for id in matching)
    return Selection(tuple(documents), _snippets_of(index, manifest, tuple(documents)))


def _snippets_of(index: Index, manifest: Manifest, documents: Sequence[str]) -> int:
    """Return how many snippets documents are: one each, of a split one its blocks."""
    if manifest.blocks is None:
        return len(documents)
    count = 0
    for batch in batched(documents, SCROLL):
        firsts = index.fetch([block_id(document, 0) for document in batch]).values()
        blocks = {first.document: int(first.metadata["blocks"]) for first in firsts}
        count += sum(blocks.get(document, 1) for document in batch)
    return count


def delete_documents(store: Store, selection: Selection, on_progress: OnProgress) -> DeletionReport:
    """Remove documents from an index, batch by batch; a killed run is completed by the same command.

    Vacuuming afterwards leaves BM25 the frequencies of what remains. The manifest records the deletion.

    Raises `ServiceError` if another process uses the index, or the store fails.
    """
    started = time.perf_counter()
    index = store.open(store.require_manifest(), writable=True)
    try:
        manifest = store.require_manifest()  # under the lock
        before, count = read_progress(store.folder), index.count()
        store.save(replace(manifest, checksums=None))

        def record(progress: IndexingProgress) -> None:
            write_progress(store.folder, replace(progress, done=before.done))
            if progress.torn:
                store.save(replace(manifest, complete=False, checksums=None))

        blocks = manifest.blocks
        split = Splitter(blocks.tokens, blocks.overlap) if blocks else WHOLE
        updater = Updater(index, _no_encoder, split, before, record)
        for batch in batched(selection.documents, store.settings.index.batch_size):
            on_progress(updater.write([PendingChange(Deletion(id), revived=True, source=BY_HAND) for id in batch]))
        on_progress(updater.finish())
        if index.deleted_share():
            index.optimize()
        snippets = index.count()
        only_torn = bool(before.torn) and not before.batch and not before.done
        complete = not updater.torn and (manifest.complete or only_torn)
        finished = replace(_finished(manifest, selection, snippets), complete=complete)
        progress = replace(updater.progress, done=before.done)
        brought = [record for record in finished.sources if record not in manifest.sources]
        end_writing(store, index, updater, finished, progress, brought)
        write_ledger(store.folder, read_ledger(store.folder).without(frozenset(selection.documents)))
    finally:
        index.close()
    seconds = round(time.perf_counter() - started, 3)
    return DeletionReport(manifest.name, updater.deleted, count - snippets, selection.missing, snippets, seconds)


def _no_encoder() -> EncodeSnippets:
    raise AssertionError("a deletion encodes nothing")


def _finished(manifest: Manifest, selection: Selection, snippets: int) -> Manifest:
    """Return the manifest after a deletion, which is recorded among the sources by the hash of what was removed."""
    deletion = SourceRecord(BY_HAND, sha256_of_json(sorted(selection.documents)), 0, 0, len(selection.documents))
    kept = [record for record in manifest.sources if record.sha256 != deletion.sha256]
    return replace(
        manifest,
        sources=(*kept, *([deletion] if selection.documents else [])),
        snippets=snippets,
        updated=timestamp(),
        versions=installed_versions(),
    )
