"""A reader changes nothing of an index, whatever its manifest says, and needs no right to write to it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from biorag.errors import BioragError
from biorag.indexes import view
from biorag.indexes.store import Store
from biorag.types import IndexQuery
from biorag.utils.files import try_lock
from tests.indexes.test_snapshot import SNIPPETS, VECTORS, finished

pytestmark = pytest.mark.slow


@pytest.fixture(params=[False, True], ids=["small", "large"])
def store(settings, request, monkeypatch) -> Store:
    """A finished index, its folders once copied for readers and once linked."""
    if request.param:
        monkeypatch.setattr(view, "SMALL", 0)
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


def state(folder: Path) -> dict[Path, tuple]:
    return {
        path: (path.stat().st_ino, path.read_bytes() if path.is_file() else sorted(path.iterdir()))
        for path in folder.rglob("*")
    }


def test_a_reader_writes_nothing(store):
    before = state(store.folder)
    assert read(store) == ["s7", "s9"]
    assert state(store.folder) == before


def test_what_cannot_be_written_to_is_read(store, tmp_path, monkeypatch):
    memory = tmp_path / "memory"  # of this test alone
    memory.mkdir()
    monkeypatch.setattr(view, "MEMORY", memory)
    monkeypatch.setattr(view.os, "access", lambda path, mode: path == memory)
    before = state(store.folder)
    assert read(store) == ["s7", "s9"]
    assert state(store.folder) == before
    assert not list(memory.iterdir()), "the copies are gone once the shard is closed"


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_shard_with_something_else_among_its_files_is_not_opened(store, tmp_path, kind):
    place = next((store.folder / "shard" / "segments").iterdir()) / "more"
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to("/etc/passwd")
    for writable in (False, True):
        with pytest.raises(BioragError, match="more is not a regular file"):
            store.open(store.require_manifest(), writable)


def test_what_killed_processes_left_in_memory_is_removed(tmp_path, monkeypatch, store):
    memory = tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setattr(view, "MEMORY", memory)
    left, young, held = (memory / f"{view.PREFIX}{name}" for name in ("left", "young", "held"))
    other = memory / "other"
    for folder in (left, young, held, other):
        folder.mkdir()
        (folder / "file").write_text("bytes")
        if folder != young:
            os.utime(folder, (0, 0))
    handle = os.open(held, os.O_RDONLY)
    try:
        assert try_lock(handle)
        read(store)
    finally:
        os.close(handle)
    assert sorted(path.name for path in memory.iterdir()) == [held.name, young.name, "other"]
