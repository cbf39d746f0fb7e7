"""A shard as readers open it: the engine writes to some files of a shard that it loads, so readers load another one."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path

from biorag.utils.files import copy_sparse, require_room, try_lock

MEMORY = Path("/dev/shm")
IN_MEMORY = 64 << 20  # bytes of copies at most
PREFIX = "biorag-"  # of the names of views
LEFT_SECONDS = 60  # age of a view from which it may be one that was left; a younger one may not be locked yet
SMALL = 4 << 20  # bytes of a folder that is always copied
# What the engine only reads; it takes links for these, but not for files that it finds by listing a folder.
_READ = re.compile(r"matrix\.dat|quantized\.data|inverted_index\.dat|graph\.bin|links.*\.bin|.*\.mappings")


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
    with tempfile.TemporaryDirectory(dir=_room(copied), prefix=PREFIX) as name, _locked(Path(name)) as view:
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


@contextmanager
def _locked(view: Path) -> Iterator[Path]:
    """Hold a view's lock, by which `_sweep` tells it from one that a killed process has left."""
    handle = os.open(view, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try_lock(handle)
        yield view
    finally:
        os.close(handle)


def _sweep(folder: Path) -> None:
    """Remove this user's views that killed processes have left: old ones that nobody has locked."""
    for view in folder.glob(f"{PREFIX}*"):
        with suppress(OSError):
            facts = view.lstat()
            if facts.st_uid != os.getuid() or time.time() - facts.st_mtime < LEFT_SECONDS:
                continue
            handle = os.open(view, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if try_lock(handle):
                    shutil.rmtree(view, ignore_errors=True)
            finally:
                os.close(handle)


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
    _sweep(MEMORY)
    needed = _bytes(copied)
    if needed <= IN_MEMORY and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2 * needed:
        return MEMORY
    elsewhere = Path(tempfile.gettempdir())
    require_room(elsewhere, needed)
    return elsewhere
