"""The files of a shard: their checksums, so that damage is noticed before a search, and the view that readers open.

The engine writes to some files of a shard that it loads, so readers load another one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from biorag.errors import BadInputError, BioragError, MismatchError, MissingError
from biorag.indexes.manifest import MANIFEST, read_manifest
from biorag.utils.files import copy_sparse, require_room, scratch_folder, sha256_of, sweep, sync_folder, write_json
from biorag.utils.parsing import parse_json, parsed, read_regular
from biorag.utils.versions import installed_versions

CHECKSUMS = "checksums.json"
SHARD = "shard"
SEGMENT_DATA = "segments"  # the folder of a shard without which there is none
ENGINE = "qdrant-edge-py"
SCRATCH = ".atomicwrite"  # begins the folders in which the engine writes a file before that takes its name
BLOCK = 4096
BLOCKS = 64  # read of a file that is larger
MEMORY = Path("/dev/shm")
IN_MEMORY = 64 << 20  # bytes of copies at most
SMALL = 4 << 20  # bytes of a folder that is always copied
# What the engine only reads; it takes links for these, but not for files that it finds by listing a folder.
_READ = re.compile(r"matrix\.dat|quantized\.data|inverted_index\.dat|graph\.bin|links.*\.bin|.*\.mappings")


class FolderTree:
    """The folders below `root`, whose new names are made durable; whoever writes a file syncs its contents."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._synced: dict[str, frozenset[tuple[str, int]]] = {}

    def sync(self) -> None:
        """Sync every folder whose names, or the files behind them, have changed since the last sync."""
        for folder, _, _ in os.walk(self._root):
            with os.scandir(folder) as entries:
                names = frozenset((entry.name, entry.inode()) for entry in entries)
            if self._synced.get(folder) != names:
                sync_folder(Path(folder))
                self._synced[folder] = names


def write_checksums(folder: Path) -> str:
    """Record size and checksum of each of a shard's files; return the SHA-256 of the record.

    Of a file above 256 KiB, 64 blocks go in, evenly spread, the first and the last among them: opening an index of
    many gigabytes takes milliseconds, and a change in between is not noticed.
    """
    write_json(folder / CHECKSUMS, {str(path.relative_to(folder)): _checksum(path) for path in shard_files(folder)})
    return sha256_of(folder / CHECKSUMS)


def check_files(folder: Path, quick: bool = False) -> None:
    """Compare a shard's files, or `quick`ly only their sizes, with the record that the manifest names, if it names one.

    The engine rewrites its configuration whenever it opens a shard, so a record holds for its own version alone.

    Raises `MissingError` if a file is gone; `MismatchError` if a file is not as it was when the last run ended, or
    there is one more.
    """
    manifest = read_manifest(folder / MANIFEST) if (folder / MANIFEST).is_file() else None
    if manifest is None or manifest.checksums is None:
        return
    if (manifest.versions or {}).get(ENGINE) != installed_versions().get(ENGINE):
        return
    recorded = _recorded(folder, manifest.checksums)
    for name, checksum in recorded.items():
        path = folder / name
        if not path.is_file():
            raise _lost(folder, path)
        has_size = path.stat().st_size == checksum.get("bytes", path.stat().st_size)
        if not has_size or (not quick and _checksum(path) != checksum):
            raise _damaged(folder, path)
    for path in () if quick else shard_files(folder):
        if str(path.relative_to(folder)) not in recorded:
            raise _damaged(folder, path)


def forget_checksums(folder: Path) -> None:
    """Let the manifest name no record any more: a shard that is opened to be written to changes at once."""
    path = folder / MANIFEST
    if path.is_file() and (manifest := read_manifest(path)).checksums:
        write_json(path, replace(manifest, checksums=None).to_json())


def _recorded(folder: Path, sha256: str) -> dict[str, dict[str, Any]]:
    """Return the record of a shard's files, which must have this hash."""
    record = folder / CHECKSUMS
    try:
        content = read_regular(record)
        recorded: dict[str, dict[str, Any]] = parsed(dict[str, dict[str, Any]], content)
    except FileNotFoundError:
        raise _lost(folder, record) from None
    except (ValueError, BadInputError):
        raise _damaged(folder, record) from None
    if hashlib.sha256(content).hexdigest() != sha256 or not all(map(is_of_shard, recorded)):
        raise _damaged(folder, record)
    return recorded


def shard_files(folder: Path) -> Iterator[Path]:
    """Yield the files of an index's shard, sorted; not those that an opening process is just writing.

    Raises `MismatchError` at a link, a pipe or a device, at which the engine would leave the folder, or wait.
    """
    paths: list[Path] = []
    for parent, folders, names in os.walk(folder / SHARD):  # which skips what vanishes meanwhile
        folders[:] = [name for name in folders if not name.startswith(SCRATCH)]
        for name in (*folders, *names):
            path = Path(parent, name)
            with suppress(FileNotFoundError):
                mode = path.lstat().st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                    raise MismatchError(f"index {folder.name!r}: {path} is not a regular file: {_again(folder)}")
                paths += [path] * stat.S_ISREG(mode)
    yield from sorted(paths)


def remove_scratch(folder: Path) -> None:
    """Remove what killed processes left of files half written; for a writer, who is alone."""
    for path in (folder / SHARD).rglob(f"{SCRATCH}*"):
        shutil.rmtree(path, ignore_errors=True)


def _checksum(path: Path) -> dict[str, Any]:
    if path.suffix == ".json":  # which the engine writes again at each opening, its fields in any order
        return {"json": _json_sha256(path)}
    size = path.stat().st_size
    if size <= BLOCK * BLOCKS:
        return {"bytes": size, "sha256": sha256_of(path)}
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for block in range(BLOCKS):
            stream.seek((size - BLOCK) * block // (BLOCKS - 1))
            digest.update(stream.read(BLOCK))
    return {"bytes": size, "sha256": digest.hexdigest()}


def _json_sha256(path: Path) -> str | None:
    """Return the hash of a JSON file's values; None if it is not JSON."""
    try:
        values = json.dumps(parse_json(read_regular(path)), sort_keys=True)
    except (ValueError, BadInputError):
        return None
    return hashlib.sha256(values.encode()).hexdigest()


def is_of_shard(name: str) -> bool:
    """Return whether a name is that of a file below the shard's folder."""
    parts = name.split("/")
    return len(parts) > 1 and parts[0] == SHARD and not {"", ".", ".."} & set(parts) and "\0" not in name


def _lost(folder: Path, path: Path) -> BioragError:
    return MissingError(f"index {folder.name!r} has lost {path}: {_again(folder)}")


def _damaged(folder: Path, path: Path) -> BioragError:
    return MismatchError(f"index {folder.name!r} is damaged, {path} is not as it was written: {_again(folder)}")


def _again(folder: Path) -> str:
    return f"delete {folder}, then restore it by 'biorag indexes import', or index the corpus again"


@contextmanager
def reading_view(shard: Path, files: list[Path]) -> Iterator[Path]:
    """Give a folder from which the engine loads a shard and leaves it as it is; `files` are the shard's, sorted.

    It has copies of small files, links to files that the engine only reads, and links to large folders of payloads and
    vectors, whose bytes do not change unless something is added. Where the shard cannot be written to, on a read-only
    mount or as another user, these are copied too.

    Raises `ServiceError` if there is no room for the copies.
    """
    linked = {folder for folder, paths in _by_folder(files) if folder != shard and _is_linked(folder, paths)}
    copied = [path for path in files if path.parent not in linked and not _READ.fullmatch(path.name)]
    with scratch_folder(_room(copied)) as view:
        for folder, paths in _by_folder(files):
            target = view / folder.relative_to(shard)
            if folder in linked:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(folder.resolve())
                continue
            target.mkdir(parents=True, exist_ok=True)
            for path in paths:
                if _READ.fullmatch(path.name):
                    (target / path.name).symlink_to(path.resolve())
                else:
                    copy_sparse(path, target / path.name)
        yield view


def empty(view: Path) -> None:
    """Remove the files of a view whose shard is loaded, so that a killed process leaves nothing in memory.

    Its folders stay: when it closes a shard, the engine writes into them, and an error there costs it a backtrace.
    """
    for folder, folders, names in os.walk(view):
        for name in (*names, *folders):
            path = Path(folder, name)
            if not path.is_dir() or path.is_symlink():
                path.unlink()


def _by_folder(files: list[Path]) -> list[tuple[Path, list[Path]]]:
    return [(folder, list(paths)) for folder, paths in groupby(files, lambda path: path.parent)]


def _is_linked(folder: Path, paths: list[Path]) -> bool:
    """Return whether a folder without others in it is large, and may be written to, as the engine wants to."""
    return (
        _bytes(path for path in paths if not _READ.fullmatch(path.name)) > SMALL
        and all(os.access(path, os.W_OK) for path in (folder, *paths))
        and not any(entry.is_dir() for entry in folder.iterdir())
    )


def _bytes(files: Iterable[Path]) -> int:
    return sum(path.stat().st_blocks * 512 for path in files)


def _room(copied: list[Path]) -> Path:
    """Return the folder for the copies: in memory if they are small, else where temporary files go."""
    sweep(MEMORY)
    needed = _bytes(copied)
    if needed <= IN_MEMORY and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2 * needed:
        return MEMORY
    elsewhere = Path(tempfile.gettempdir())
    require_room(elsewhere, needed)
    return elsewhere
