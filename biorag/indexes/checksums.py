"""Checksums of a shard's files, so that what is lost or damaged is noticed before anything is searched."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from biorag.errors import BadInputError, BioragError, MismatchError, MissingError
from biorag.indexes.manifest import MANIFEST, read_manifest
from biorag.utils.files import sha256_of, write_json
from biorag.utils.parsing import parse_json, parsed, read_regular
from biorag.utils.versions import installed_versions

CHECKSUMS = "checksums.json"
SHARD = "shard"
ENGINE = "qdrant-edge-py"
SCRATCH = ".atomicwrite"  # begins the folders in which the engine writes a file before that takes its name
BLOCK = 4096
BLOCKS = 64  # read of a file that is larger


def write_checksums(folder: Path) -> str:
    """Record size and checksum of each of a shard's files; return the SHA-256 of the record.

    Of a file above 256 KiB, 64 blocks go in, evenly spread, the first and the last among them: opening an index of
    many gigabytes takes milliseconds, and a change in between is not noticed.
    """
    write_json(folder / CHECKSUMS, {str(path.relative_to(folder)): _checksum(path) for path in shard_files(folder)})
    return sha256_of(folder / CHECKSUMS)


def check_files(folder: Path) -> None:
    """Compare a shard's files with the record that the manifest names; a run under way has none.

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
        if _checksum(path) != checksum:
            raise _damaged(folder, path)
    for path in shard_files(folder):
        if str(path.relative_to(folder)) not in recorded:
            raise _damaged(folder, path)


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
