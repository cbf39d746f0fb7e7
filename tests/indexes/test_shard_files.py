"""The files of a shard: a loss or a change is noticed before a search, and a reader changes none of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from biorag.errors import BioragError, MismatchError, MissingError
from biorag.indexes import shard_files
from biorag.indexes.shard_files import BLOCK, BLOCKS, CHECKSUMS, write_checksums
from biorag.indexes.store import Store
from biorag.types import IndexQuery
from biorag.utils.files import try_lock
from tests.indexes.test_snapshot import SNIPPETS, VECTORS, finished

pytestmark = pytest.mark.slow


@pytest.fixture
def store(settings) -> Store:
    return finished(settings)


@pytest.fixture(params=[False, True], ids=["small", "large"])
def viewed(settings, request, monkeypatch) -> Store:
    """A finished index, its folders once copied for readers and once linked."""
    if request.param:
        monkeypatch.setattr(shard_files, "SMALL", 0)
    return finished(settings)


def read(store: Store) -> list[str]:
    index = store.open(store.require_manifest())
    try:
        hits = index.search([IndexQuery(VECTORS[7], 2), IndexQuery("word9", 1)])
        assert index.fetch(["s3"])["s3"] == SNIPPETS[3]
        assert sorted(index.ids()) == sorted(snippet.id for snippet in SNIPPETS)
        np.testing.assert_allclose(index.dense_vectors(["s3"])["s3"], VECTORS[3] / np.linalg.norm(VECTORS[3]), 1e-5)
        return [hits[0][0].id, hits[1][0].id]
    finally:
        index.close()


@pytest.mark.faults
@pytest.mark.parametrize("damage", ["removed", "one byte changed"])
def test_each_file_that_is_lost_or_changed_is_refused_by_name(store, damage):
    names = [CHECKSUMS, *(str(path.relative_to(store.folder)) for path in shard_files.shard_files(store.folder))]
    assert len(names) > 20
    for number, name in enumerate(names):
        path = store.folder / name
        whole = path.read_bytes()
        if damage == "removed":
            path.unlink()
        else:
            path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:] if whole else b"x")
        with pytest.raises(MissingError if damage == "removed" else MismatchError) as caught:
            store.open(store.require_manifest(), writable=number % 2 == 1)
        assert str(path) in str(caught.value)
        assert f"delete {store.folder}, then restore it by 'biorag indexes import', or index the corpus again" in str(
            caught.value
        )
        path.write_bytes(whole)
    assert read(store)[0] == "s7"  # and the lock is free


def test_a_file_too_many_is_refused(store):
    (store.folder / "shard" / "segments" / "more").write_text("x")
    with pytest.raises(MismatchError, match="damaged"):
        read(store)


def test_an_index_is_read_after_a_writer_that_failed_before_it_wrote(store):
    store.open(store.require_manifest(), writable=True).close()
    assert read(store)[0] == "s7"


def test_what_another_version_of_the_engine_wrote_is_not_held_to_the_record(store):
    manifest = json.loads((store.folder / "manifest.json").read_text())
    manifest["versions"]["qdrant-edge-py"] = "0.9.99"
    (store.folder / "manifest.json").write_text(json.dumps(manifest))
    config = store.folder / "shard" / "edge_config.json"
    config.write_text(config.read_text() + "\n")
    assert read(store)[0] == "s7"


@pytest.mark.parametrize("place", [0, BLOCK * BLOCKS * 4])
def test_of_a_large_file_the_ends_are_held(tmp_path, place):
    shard = tmp_path / "shard"
    shard.mkdir()
    (shard / "large").write_bytes(os.urandom(BLOCK * BLOCKS * 4 + 1))
    before = write_checksums(tmp_path)
    with (shard / "large").open("r+b") as stream:
        stream.seek(place)
        (byte,) = stream.read(1)
        stream.seek(place)
        stream.write(bytes([byte ^ 0xFF]))
    assert write_checksums(tmp_path) != before


def test_what_another_reader_is_just_writing_is_no_damage(store):
    scratch = store.folder / "shard" / "segments" / ".atomicwriteAbC123"
    scratch.mkdir()
    (scratch / "tmpfile.tmp").write_text("half")
    assert read(store)[0] == "s7"
    writer = store.open(store.require_manifest(), writable=True)
    writer.seal()
    writer.close()
    assert not scratch.exists(), "left by a killed reader"


# --- the view of a reader


def state(folder: Path) -> dict[Path, tuple]:
    return {
        path: (path.stat().st_ino, path.read_bytes() if path.is_file() else sorted(path.iterdir()))
        for path in folder.rglob("*")
    }


def test_a_reader_writes_nothing(viewed):
    before = state(viewed.folder)
    assert read(viewed) == ["s7", "s9"]
    assert state(viewed.folder) == before


def test_what_cannot_be_written_to_is_read(viewed, tmp_path, monkeypatch):
    memory = tmp_path / "memory"  # of this test alone
    memory.mkdir()
    monkeypatch.setattr(shard_files, "MEMORY", memory)
    monkeypatch.setattr(shard_files.os, "access", lambda path, mode: path == memory)
    before = state(viewed.folder)
    assert read(viewed) == ["s7", "s9"]
    assert state(viewed.folder) == before
    assert not list(memory.iterdir()), "the copies are gone once the shard is closed"


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_shard_with_something_else_among_its_files_is_not_opened(viewed, tmp_path, kind):
    place = next((viewed.folder / "shard" / "segments").iterdir()) / "more"
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to("/etc/passwd")
    for writable in (False, True):
        with pytest.raises(BioragError, match="more is not a regular file"):
            viewed.open(viewed.require_manifest(), writable)


def test_what_killed_processes_left_in_memory_is_removed(tmp_path, monkeypatch, viewed):
    memory = tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setattr(shard_files, "MEMORY", memory)
    left, young, held = (memory / f".biorag.{digit * 16}" for digit in "abc")
    other = memory / "other"
    for folder in (left, young, held, other):
        folder.mkdir()
        (folder / "file").write_text("bytes")
        if folder != young:
            os.utime(folder, (0, 0))
    handle = os.open(held, os.O_RDONLY)
    try:
        assert try_lock(handle)
        read(viewed)
    finally:
        os.close(handle)
    assert sorted(path.name for path in memory.iterdir()) == [young.name, held.name, "other"]
