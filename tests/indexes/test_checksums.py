"""A finished index that lost a file, or in which one has changed, is refused before anything is searched."""

from __future__ import annotations

import json
import os

import pytest

from biorag.errors import MismatchError, MissingError
from biorag.indexes.checksums import BLOCK, BLOCKS, CHECKSUMS, check_files, shard_files, write_checksums
from biorag.indexes.store import Store
from biorag.types import IndexQuery
from tests.indexes.test_snapshot import VECTORS, finished


@pytest.fixture
def store(settings) -> Store:
    return finished(settings)


def found(store: Store) -> list[str]:
    index = store.open(store.require_manifest())
    try:
        return [hit.id for hit in index.search([IndexQuery(VECTORS[7], 2)])[0]]
    finally:
        index.close()


@pytest.mark.faults
@pytest.mark.parametrize("damage", ["removed", "one byte changed"])
def test_each_file_that_is_lost_or_changed_is_refused_by_name(store, damage):
    names = [CHECKSUMS, *(str(path.relative_to(store.folder)) for path in shard_files(store.folder))]
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
    assert found(store)[0] == "s7"  # and the lock is free


def test_a_file_too_many_is_refused(store):
    (store.folder / "shard" / "segments" / "more").write_text("x")
    with pytest.raises(MismatchError, match="damaged"):
        found(store)


def test_what_another_version_of_the_engine_wrote_is_not_held_to_the_record(store):
    manifest = json.loads((store.folder / "manifest.json").read_text())
    manifest["versions"]["qdrant-edge-py"] = "0.9.99"
    (store.folder / "manifest.json").write_text(json.dumps(manifest))
    config = store.folder / "shard" / "edge_config.json"
    config.write_text(config.read_text() + "\n")
    assert found(store)[0] == "s7"


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
    assert found(store)[0] == "s7"
    writer = store.open(store.require_manifest(), writable=True)
    writer.seal()
    writer.close()
    assert not scratch.exists(), "left by a killed reader"


def test_the_engines_json_may_be_written_in_another_order(store):
    path = store.folder / "shard" / "edge_config.json"
    path.write_text(json.dumps(dict(reversed(json.loads(path.read_text()).items()))))
    check_files(store.folder)
