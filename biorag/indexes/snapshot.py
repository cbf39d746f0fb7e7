"""Snapshots: an embedded index as one file, every part under its SHA-256, restored completely or not at all.

The file is a gzipped tar. Its first member, `snapshot.json`, lists the others with sizes and hashes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from io import BytesIO
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Annotated, BinaryIO, cast

from pydantic import Field

from biorag.errors import BadInputError, MismatchError, MissingError, UsageError
from biorag.indexes.manifest import MANIFEST, Manifest, read_manifest
from biorag.indexes.records import HOLDINGS, read_ledger
from biorag.indexes.shard_files import CHECKSUMS, ENGINE, FolderTree, check_files, is_of_shard, shard_files
from biorag.indexes.store import Store
from biorag.registries import STORES
from biorag.settings.settings import Settings
from biorag.types import Count, Label, OnProgress, Sha256
from biorag.utils.files import (
    check_replaceable,
    copy_with_holes,
    make_folder,
    replacing,
    require_room,
    sha256_of,
    sync_folder,
    write_json,
)
from biorag.utils.locks import LOCK, DirectoryLock, is_written
from biorag.utils.parsing import parsed
from biorag.utils.versions import installed_versions

CONTENTS = "snapshot.json"
LOADING = "loading"  # the folder under the home in which an import is written until it is whole
RECORDS = (MANIFEST, CHECKSUMS, HOLDINGS)  # beside the shard; older snapshots lack the last
GZIP_WINDOW = zlib.MAX_WBITS | 16  # of zlib, for gzip's header
FORMAT = 2
READ = (1, FORMAT)  # of format 1 without the record of which documents came from which file
LARGEST_CONTENTS = 16 << 20  # bytes of the list of files
MOST_FILES = 100_000
LONGEST_NAME = 1024
DENSEST = 1100  # bytes that a byte of gzip can stand for, and a few more
SECTOR = tarfile.BLOCKSIZE


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """The size and hash of one of a snapshot's files."""

    bytes: Count
    sha256: Sha256


@dataclass(frozen=True, slots=True)
class Contents:
    """The first member of a snapshot: the index's name, and its files by their names."""

    format: int
    name: Label
    files: Annotated[dict[Annotated[str, Field(max_length=LONGEST_NAME)], SnapshotFile], Field(max_length=MOST_FILES)]


@dataclass(frozen=True, slots=True)
class Saved:
    """A snapshot that was saved or loaded; `bytes` is the size of its file."""

    name: str
    snippets: int
    files: int
    bytes: int
    file: str


def save(store: Store, file: Path, on_progress: OnProgress, force: bool = False) -> Saved:
    """Write an index into `file`, atomically, beside any readers; `on_progress` counts its files, twice.

    Another file that is there is replaced only with `force`.

    Raises `UsageError` if the store has no snapshots, or `file` exists and is not one; `MissingError` or
    `MismatchError` if the index is not there, incomplete, damaged, or written by another version of the engine;
    `ServiceError` if it is being written.
    """
    kind = STORES[store.require_manifest().store["kind"]]
    if not kind.snapshots:
        name = store.settings.index.name
        raise UsageError(f"index {name!r} {kind.instead.format(name=name)}")
    check_replaceable(file, "snapshot", is_snapshot, force=force)
    with DirectoryLock(store.folder, exclusive=False):
        manifest = _complete(store)
        files = {}
        records = [path for name in RECORDS if (path := store.folder / name).is_file()]
        for path in (*records, *shard_files(store.folder)):
            files[str(path.relative_to(store.folder))] = SnapshotFile(path.stat().st_size, sha256_of(path))
            on_progress(1)
        _write(store.folder, file, Contents(FORMAT, manifest.name, files), on_progress)
    return Saved(manifest.name, manifest.snippets, len(files), file.stat().st_size, str(file))


def _complete(store: Store) -> Manifest:
    """Return the manifest of a finished index whose files are as this engine wrote them."""
    manifest = store.require_manifest()
    if manifest.checksums is None:
        raise MismatchError(
            f"index {manifest.name!r} is incomplete or has no checksums: run 'biorag index' with its corpus to the "
            "end, then save it"
        )
    written, installed = ((versions or {}).get(ENGINE) for versions in (manifest.versions, installed_versions()))
    if written != installed:
        raise MismatchError(
            f"index {manifest.name!r} was written by {ENGINE} {written}, and {installed} is installed: run 'biorag "
            "index' with its corpus, then save it"
        )
    check_files(store.folder)
    return manifest


def is_snapshot(beginning: bytes) -> bool:
    """Return whether a file that begins so is an exported index."""
    try:
        return zlib.decompressobj(GZIP_WINDOW).decompress(beginning).startswith(CONTENTS.encode() + b"\0")
    except zlib.error:
        return False


def _write(folder: Path, file: Path, contents: Contents, on_progress: OnProgress) -> None:
    """Write the list and the files of a folder that it names."""
    listed = json.dumps(asdict(contents), indent=2).encode()
    with (
        replacing(file) as stream,
        gzip.GzipFile("", "wb", compresslevel=1, fileobj=stream, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.GNU_FORMAT) as archive,
    ):
        _add(archive, CONTENTS, BytesIO(listed), len(listed))
        for name, listed_file in contents.files.items():
            with (folder / name).open("rb") as source:
                _add(archive, name, source, listed_file.bytes)
            on_progress(1)


def _add(archive: tarfile.TarFile, name: str, source: BinaryIO, size: int) -> None:
    member = tarfile.TarInfo(name)
    member.size = size
    archive.addfile(member, source)


def load(settings: Settings, name: str | None, file: Path, on_progress: OnProgress) -> Saved:
    """Put the index of a snapshot in place, under `name` if it is given; `on_progress` counts its files.

    All of it is written beside the indexes and verified there before it takes its name, so that a load which is
    killed leaves no half index; the next one for the same name clears away what it left.

    Raises `MissingError` if the file is not there; `BadInputError` if it is damaged or not a snapshot; `UsageError` if
    the name is taken; `ServiceError` if another process loads a snapshot under it, or the disk has no room.
    """
    if not file.is_file():
        raise MissingError(f"snapshot {file} is not there: give the path of a file that 'biorag indexes export' wrote")
    with gzip.open(file) as packed, _damage_named(file):
        members = _members(packed)
        contents = _contents(next(members, None), packed)
        unpacked = sum(file.bytes for file in contents.files.values())
        if unpacked > DENSEST * file.stat().st_size:
            raise _DamagedError(f"it lists {unpacked:,} bytes, more than it can hold")
        settings = settings.replace(name=name or contents.name)
        with _placed(settings) as folder:
            require_room(folder, unpacked)
            _unpack(folder, islice(members, len(contents.files) + 1), packed, contents.files, on_progress)
            manifest = _verified(folder, settings.index.name)
    return Saved(manifest.name, manifest.snippets, len(contents.files), file.stat().st_size, str(file))


@contextmanager
def _placed(settings: Settings) -> Iterator[Path]:
    """Give an empty folder that becomes the configured index when this is left, and is removed after an error."""
    target, folder = Store(settings).folder, settings.home / LOADING / settings.index.name
    if target.exists():
        name = settings.index.name
        raise UsageError(f"index {name!r} exists already: give another --name, or run 'biorag indexes delete {name}'")
    with DirectoryLock(folder, exclusive=True, what="snapshot"):
        try:
            for path in folder.iterdir():  # left by a load that was killed
                if path.name != LOCK:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            yield folder
            FolderTree(folder).sync()
            make_folder(target.parent)
            folder.rename(target)
            sync_folder(target.parent)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def left_imports(settings: Settings) -> Iterator[tuple[Path, list[Path]]]:
    """Yield the folders of imports that were killed, each to go as a whole."""
    yield from ((path, []) for path in sorted((settings.home / LOADING).glob("*/")) if not is_written(path))


@contextmanager
def _damage_named(file: Path) -> Iterator[None]:
    """Turn the errors of reading a damaged file into one that names it."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError, UnicodeDecodeError, _DamagedError) as error:
        fault = "its end is missing" if isinstance(error, EOFError) else error
        raise BadInputError(f"{file} is not a complete snapshot ({fault}): copy it again, or save another") from None


class _DamagedError(Exception):
    """A snapshot that cannot be used."""


def _members(packed: gzip.GzipFile) -> Iterator[tuple[str, int]]:
    """Yield the names and sizes of the plain files of a tar, each to be read in full before the next is asked for.

    The standard library's reader would take headers of any size into memory and follow links.
    """
    name = ""
    while any(header := _read(packed, SECTOR)):
        member = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
        if member.size < 0:
            raise _DamagedError(f"{member.name!r} has a negative size")
        if member.type == tarfile.GNUTYPE_LONGNAME and member.size <= LONGEST_NAME and not name:
            name = _read(packed, member.size).rstrip(b"\0").decode("utf-8")
        elif member.type == tarfile.REGTYPE:
            yield name or member.name, member.size
            name = ""
        else:
            raise _DamagedError(f"{member.name!r} is not a plain file")
        _read(packed, -member.size % SECTOR)


def _read(packed: gzip.GzipFile, size: int) -> bytes:
    content = packed.read(size)
    if len(content) < size:
        raise _DamagedError("its end is missing")
    return content


def _contents(first: tuple[str, int] | None, packed: gzip.GzipFile) -> Contents:
    """Return what the first member lists."""
    if first is None or first[0] != CONTENTS or first[1] > LARGEST_CONTENTS:
        raise _DamagedError(f"it does not begin with {CONTENTS}")
    content = _read(packed, first[1])
    try:
        contents: Contents = parsed(Contents, content)
    except ValueError as error:
        raise _DamagedError(f"its {CONTENTS} cannot be read: {error}") from None
    if contents.format not in READ:
        raise _DamagedError(f"it is of format {contents.format}, this biorag reads {READ[0]} to {READ[-1]}")
    folders = {str(folder) for name in contents.files for folder in PurePosixPath(name).parents}
    for name in contents.files:
        if (name not in RECORDS and not is_of_shard(name)) or name in folders:
            raise _DamagedError(f"{name!r} is not a file of an index")
    return contents


def _unpack(
    folder: Path,
    members: Iterator[tuple[str, int]],
    packed: gzip.GzipFile,
    files: Mapping[str, SnapshotFile],
    on_progress: OnProgress,
) -> None:
    """Write the listed files durably, each once and as its hash says, with holes for zeros."""
    missing = dict(files)
    for name, size in members:
        listed = missing.pop(name, None)
        if listed is None or listed.bytes != size:
            raise _DamagedError(f"{name!r} is not as it is listed")
        digest = hashlib.sha256()
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("xb") as stream:
            copy_with_holes(cast(BinaryIO, packed), size, stream, digest.update)
            stream.truncate(size)
            stream.flush()
            os.fsync(stream.fileno())
        if digest.hexdigest() != listed.sha256:
            raise _DamagedError(f"{name!r} has another SHA-256 than is listed")
        on_progress(1)
    if missing:
        raise _DamagedError(f"it lacks {min(missing)!r}")


def _verified(folder: Path, name: str) -> Manifest:
    """Return the manifest of what was unpacked, under its name here, once all fits together."""
    if not (folder / MANIFEST).is_file():
        raise _DamagedError(f"it lacks {MANIFEST!r}")
    manifest = replace(read_manifest(folder / MANIFEST), name=name)
    if manifest.checksums is None or not STORES[manifest.store["kind"]].snapshots:
        raise _DamagedError("its manifest is not that of a finished embedded index")
    try:
        read_ledger(folder)
    except MismatchError:
        raise _DamagedError(f"its {HOLDINGS} cannot be read") from None
    write_json(folder / MANIFEST, manifest.to_json())
    check_files(folder)
    return manifest
