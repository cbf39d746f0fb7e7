"""The indexes under the home: listed, renamed, removed, and copied into other stores."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from biorag.corpus.rejects import REJECTS
from biorag.errors import BioragError, MismatchError, MissingError, UsageError
from biorag.indexes.manifest import MANIFEST, Manifest, read_manifest
from biorag.indexes.records import HOLDINGS, PROGRESS, read_ledger, shortfall, write_ledger
from biorag.indexes.shard_files import CHECKSUMS, MEMORY, SEGMENT_DATA, SHARD, check_files
from biorag.indexes.store import Store, index_names, manifests
from biorag.settings.settings import Settings
from biorag.types import Index, OnProgress
from biorag.utils.files import TEMPORARY, disk_bytes, left_behind, scratch_folder, sweep, sync_folder, write_json
from biorag.utils.locks import LOCK, DirectoryLock, is_written
from biorag.utils.progress import batched

COMPLETE, INCOMPLETE, WRITTEN, DAMAGED = "complete", "incomplete", "being written", "damaged"
FILES = (MANIFEST, CHECKSUMS, PROGRESS, HOLDINGS, LOCK, SHARD, REJECTS)  # what an index's folder has
COPIED = 256  # snippets that are read and written at once


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """One index as the list shows it; what only a manifest says is None where that is damaged.

    `state` is one of `COMPLETE`, `INCOMPLETE`, `WRITTEN` and `DAMAGED`; `bytes` the size of its folder, of an
    index on a server the manifest alone; `updated` is the time of the last change.
    """

    name: str
    snippets: int | None
    bytes: int
    encoder: str | None
    store: str | None
    state: str
    updated: str | None = None


def summaries(settings: Settings) -> list[IndexSummary]:
    """Return a summary of each index under the home, sorted by name; no index is opened."""
    return [_summary(settings.indexes / name, manifest) for name, manifest in manifests(settings)]


def home_bytes(settings: Settings) -> dict[str, int]:
    """Return the bytes on disk of each folder of the home that holds anything, and of its files; the largest first."""
    entries = [*settings.home.iterdir()] if settings.home.is_dir() else []
    sizes = {path.name: disk_bytes(path) for path in entries if path.is_dir()}
    sizes["files"] = sum(disk_bytes(path) for path in entries if not path.is_dir())
    return dict(sorted(((name, size) for name, size in sizes.items() if size), key=lambda item: -item[1]))


def _summary(folder: Path, manifest: Manifest | None) -> IndexSummary:
    if manifest is None:
        return IndexSummary(folder.name, None, disk_bytes(folder), None, None, DAMAGED)
    state = WRITTEN if is_written(folder) else COMPLETE if manifest.complete else INCOMPLETE
    return IndexSummary(
        name=folder.name,
        snippets=manifest.snippets,
        bytes=disk_bytes(folder),
        encoder=manifest.encoder.id,
        store=manifest.store.get("url", manifest.store["kind"]),
        state=DAMAGED if state == COMPLETE and _is_damaged(folder, manifest) else state,
        updated=manifest.updated,
    )


def _is_damaged(folder: Path, manifest: Manifest) -> bool:
    """Return whether files of an index are gone or of another size; nothing is read of them."""
    if "url" in manifest.store:
        return False
    try:
        check_files(folder, quick=True)
    except (BioragError, OSError):
        return True
    return not (folder / SHARD / SEGMENT_DATA).is_dir()


def known_index(settings: Settings) -> Manifest | None:
    """Return the manifest of the configured index; None where it is damaged, but an index's data lies beside it.

    Raises `MissingError` if there is no such folder, naming the indexes there are; `UsageError` if the folder is a
    link, or is not an index.
    """
    name = settings.index.name
    folder = settings.indexes / name
    if folder.is_symlink():
        raise UsageError(f"{folder} is a link: rename or remove it, and what it points to, by hand")
    if not folder.exists():
        names = ", ".join(index_names(settings)) or "none yet"
        raise MissingError(f"index {name!r} is not there (there are: {names}): name one of them")
    try:
        return read_manifest(folder / MANIFEST)
    except (BioragError, OSError):
        if (folder / SHARD / SEGMENT_DATA).is_dir():
            return None
    raise UsageError(f"{folder} is not an index, since it has no manifest that can be read: nothing was touched")


def remove_index(settings: Settings) -> list[Path]:
    """Remove the configured index from the home, and from the server that holds it; return the files left.

    What biorag did not write into the index's folder stays there.

    Its folder leaves the list in one step; a kill after that leaves a hidden folder in the home, which the next
    removal clears away.

    Raises `ServiceError` if another process uses it, or its server does not answer.
    """
    manifest, folder = known_index(settings), settings.indexes / settings.index.name
    with DirectoryLock(folder, exclusive=True):
        if manifest is not None and (collection := Store(settings).collection(manifest.store)):
            collection.remove()
        sweep(settings.home)
        ours = [path for path in folder.iterdir() if path.name in FILES or TEMPORARY.fullmatch(path.name)]
        kept = sorted({*folder.iterdir()} - {*ours})
        with scratch_folder(settings.home, "removed") as grave:
            for path in ours if kept else [folder]:
                path.rename(grave / path.name)
            sync_folder(settings.indexes)
    return kept


def left_temporary(settings: Settings) -> Iterator[tuple[Path, list[Path]]]:
    """Yield the folders in which killed processes left temporary files and folders of biorag's, and these."""
    for folder in (settings.home, Path(tempfile.gettempdir()), MEMORY):
        if left := left_behind(folder, deep=folder == settings.home):
            yield folder, left


def rename_index(settings: Settings, new: str) -> None:
    """Give the configured index another name.

    Raises `UsageError` if there is something of the new name, or the index lies on a server; `MismatchError` if its
    manifest is damaged; `ServiceError` if another process uses it.
    """
    manifest, target = known_index(settings), Store(settings.replace(name=new)).folder
    old = settings.index.name
    if manifest is None:
        raise MismatchError(f"the manifest of index {old!r} is damaged: index the corpus again")
    if "url" in manifest.store:
        raise UsageError(
            f"index {old!r} lies on a server, where it keeps its name: 'biorag indexes copy' gives another"
        )
    folder = settings.indexes / old
    with DirectoryLock(folder, exclusive=True):
        if target.exists() or target.is_symlink():
            advice = f"choose another name, or run 'biorag indexes delete {new}'"
            raise UsageError(f"index {new!r} exists already: {advice}")
        folder.rename(target)
        write_json(target / MANIFEST, replace(manifest, name=new).to_json())
        sync_folder(target.parent)


def copy_index(source: Store, target: Store, on_progress: OnProgress) -> Manifest:
    """Copy an index, and return the manifest of the copy; what a killed run has copied is not copied again.

    Raises `UsageError` if there is another index of the copy's name, or a whole copy; `MismatchError` if the index is
    incomplete.
    """
    if source.folder == target.folder:
        raise UsageError("a copy needs another name than the index")
    manifest = source.require_manifest()
    if not manifest.complete:
        raise MismatchError(f"index {manifest.name!r} is incomplete: {shortfall(source.folder)}")
    planned = replace(target.renewed(manifest), complete=False, checksums=None)
    there = target.manifest()
    if there and (there.complete or there.identity != planned.identity):
        raise UsageError(f"index {there.name!r} exists already: choose another name, or delete it")
    with closing(source.open(manifest)) as index, closing(target.open(planned, writable=True)) as copy:
        target.save(planned, planned.sources, there.sources if there else ())
        for ids in batched(index.ids(), COPIED):
            _copy(index, copy, ids)
            on_progress(len(ids))
        for ids in batched(copy.ids(), COPIED):  # of a killed run, whose source has lost some since
            held = index.digests(ids)
            if gone := [id for id in ids if id not in held]:
                copy.delete(gone)
        copy.optimize()
        if copy.count() != manifest.snippets:
            raise MismatchError(f"index {manifest.name!r} changed meanwhile: repeat the command")
        finished = replace(planned, complete=True, checksums=copy.seal())
        target.save(finished)
    write_ledger(target.folder, read_ledger(source.folder))
    return finished


def _copy(index: Index, copy: Index, ids: Sequence[str]) -> None:
    """Copy those of these snippets that the copy does not hold as they are."""
    import numpy as np  # which importing the command line must not

    held = copy.digests(ids)
    snippets = [snippet for snippet in index.fetch(ids).values() if held.get(snippet.id) != snippet.digest]
    if snippets:
        vectors = index.vectors([snippet.id for snippet in snippets])
        dense, tokens = zip(*(vectors[snippet.id] for snippet in snippets), strict=True)
        copy.upsert(snippets, np.stack(dense), [rows for rows in tokens if rows is not None])
