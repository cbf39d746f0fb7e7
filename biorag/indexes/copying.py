"""Copying an index into another store, its vectors as they are."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np

from biorag.errors import MismatchError, UsageError
from biorag.indexes.manifest import Manifest
from biorag.indexes.source_ledger import read_ledger, write_ledger
from biorag.indexes.store import Store
from biorag.types import Index, OnProgress, Snippet
from biorag.utils.progress import batched

SNIPPETS = 256  # that are read and written at once


def copy_index(source: Store, target: Store, on_progress: OnProgress) -> Manifest:
    """Copy an index, and return the manifest of the copy; what a killed run has copied is not copied again.

    Raises `UsageError` if there is another index of the copy's name, or a whole copy; `MismatchError` if the index is
    incomplete.
    """
    if source.folder == target.folder:
        raise UsageError("a copy needs another name than the index")
    manifest = source.require_manifest()
    if not manifest.complete:
        raise MismatchError(f"index {manifest.name!r} is incomplete: run 'biorag index' with its corpus again first")
    planned = replace(target.renewed(manifest), complete=False, checksums=None)
    there = target.manifest()
    if there and (there.complete or there.identity != planned.identity):
        raise UsageError(f"index {there.name!r} exists already: choose another name, or delete it")
    with closing(source.open(manifest)) as index, closing(target.open(planned, writable=True)) as copy:
        target.save(planned, planned.sources, there.sources if there else ())
        for ids in batched(index.ids(), SNIPPETS):
            _copy(index, copy, ids)
            on_progress(len(ids))
        for ids in batched(copy.ids(), SNIPPETS):  # of a killed run, whose source has lost some since
            held = index.digests(ids)
            if gone := [id for id in ids if id not in held]:
                copy.delete(gone)
        copy.optimize()
        snippets = copy.count()
        if snippets != manifest.snippets:
            raise MismatchError(f"index {manifest.name!r} changed meanwhile: repeat the command")
        finished = replace(planned, complete=True, checksums=copy.seal())
        target.save(finished)
    write_ledger(target.folder, read_ledger(source.folder))
    return finished


def _copy(index: Index, copy: Index, ids: Sequence[str]) -> None:
    """Copy those of these snippets that the copy does not hold as they are."""
    held = copy.digests(ids)
    snippets: list[Snippet] = [one for one in index.fetch(ids).values() if held.get(one.id) != one.digest]
    if not snippets:
        return
    vectors = index.vectors([snippet.id for snippet in snippets])
    dense, tokens = zip(*(vectors[snippet.id] for snippet in snippets), strict=True)
    copy.upsert(snippets, np.stack(dense), [rows for rows in tokens if rows is not None])
