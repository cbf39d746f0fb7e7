"""Faults on a real machine, smaller runs of `scripts/faults`: a full disk, kills, failing servers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from biorag.errors import ServiceError
from biorag.indexes.edge import EdgeIndex
from biorag.indexes.manifest import Bm25Parameters, Manifest
from biorag.types import EncoderIdentity, IndexQuery, Snippet
from scripts.faults import full_disk

pytestmark = pytest.mark.faults

VECTORS = np.random.default_rng(0).normal(size=(20, 16)).astype(np.float32)
SNIPPETS = [Snippet(f"s{n}", f"Title {n}", f"liver word{n}") for n in range(20)]
MANIFEST = Manifest(
    name="test",
    encoder=EncoderIdentity("random", "", "f" * 64, 16),
    similarity="cosine",
    quantized=False,
    bm25=Bm25Parameters(0.9, 0.4, 8.0),
    store={"kind": "edge"},
    created="",
    updated="",
)


def made(folder: Path) -> Path:
    index = EdgeIndex(folder, MANIFEST, writable=True)
    index.upsert(SNIPPETS, VECTORS)
    index.optimize()
    index.seal()
    index.close()
    return folder


@pytest.fixture(params=["tmpfs", "ext4"])
def small_disk(request, tmp_path):
    """A small disk; on the tmpfs the engine's empty files take 100 MB, which ext4 keeps as holes."""
    with ExitStack() as stack:
        try:
            place = stack.enter_context(full_disk.small_disk(tmp_path / "disk", request.param))
        except (subprocess.CalledProcessError, FileNotFoundError) as error:
            pytest.skip(f"a small disk needs the right to mount one ({error})")
        yield place


def test_on_a_full_disk_an_index_answers_and_a_writer_is_told(small_disk):
    folder = made(small_disk / "test")
    full_disk.fill(small_disk, 0)
    assert shutil.disk_usage(small_disk).free == 0
    for _ in range(2):
        reader = EdgeIndex(folder, MANIFEST)
        best = reader.search([IndexQuery(VECTORS[7], 1), IndexQuery("word9", 1)])
        assert [hits[0].id for hits in best] == ["s7", "s9"]
        assert reader.count() == 20
        reader.close()
    (small_disk / "filler").unlink()
    writer = EdgeIndex(folder, MANIFEST, writable=True)
    full_disk.fill(small_disk, 1_000_000)
    with pytest.raises(ServiceError, match="is full: 1 MB are free and 34 MB are needed: free some space"):
        writer.upsert([Snippet("new", "", "new")], VECTORS[:1])
    with pytest.raises(ServiceError, match="is full"):
        writer.optimize()
    assert writer.count() == 20
    writer.close()


def test_every_folder_of_a_new_index_is_synced_after_a_batch(tmp_path, monkeypatch):
    index = EdgeIndex(tmp_path / "test", MANIFEST, writable=True)
    synced, fsync = set(), os.fsync

    def seen(handle):
        synced.add(str(Path(f"/proc/self/fd/{handle}").readlink()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", seen)
    index.upsert(SNIPPETS, VECTORS)
    folders = {str(folder) for folder, _, _ in os.walk(tmp_path / "test")}
    assert any("vector_storage-dense" in folder for folder in folders)
    assert synced == folders
    index.close()


@pytest.mark.long
def test_an_index_that_was_updated_and_killed_at_random_is_as_a_fresh_one(tmp_path):
    """In a process of its own, which forks: the engine's threads must not run in it."""
    arguments = ["--sequences", "4", "--seed", "100", "--out", str(tmp_path / "report.json")]
    command = [sys.executable, "-m", "scripts.faults.update_sequences", *arguments]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sequences"] == 4
