"""Files are the old one or the new one, whole; their names are durable; there is room for them."""

import json
import os
import stat
from pathlib import Path

import pytest

from biorag.errors import ServiceError
from biorag.indexes.shard_files import FolderTree
from biorag.utils.files import RESERVE, json_line, json_text, require_room, write_text


@pytest.mark.parametrize("step", ["fsync", "replace", "encode"])
@pytest.mark.parametrize("old", ["old text", None])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step, old):
    folder = tmp_path / "folder"
    folder.mkdir()
    if old is not None:
        (folder / "file.txt").write_text(old)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    if step == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    if step == "replace":
        monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(UnicodeEncodeError if step == "encode" else OSError) as failed:
        write_text(folder / "file.txt", "half \ud800" if step == "encode" else "half")
    assert step == "encode" or failed.value.filename == str(folder / "file.txt")
    assert {path.name: path.read_text() for path in folder.iterdir()} == ({} if old is None else {"file.txt": old})


# --- durable names, and room


@pytest.fixture
def synced(monkeypatch) -> list[str]:
    """The paths whose sync was asked for, in order."""
    paths = []
    fsync = os.fsync

    def seen(handle):
        paths.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", seen)
    return paths


def test_a_written_file_is_synced_then_its_name_and_those_of_new_folders_before(tmp_path, synced):
    write_text(tmp_path / "a" / "b" / "file.txt", "text")
    assert synced[:2] == [str(tmp_path / "a"), str(tmp_path)]
    assert synced[2].startswith(str(tmp_path / "a" / "b" / ".file.txt"))
    assert synced[3:] == [str(tmp_path / "a" / "b")]


def test_a_tree_syncs_the_folders_whose_names_are_new(tmp_path, synced):
    (tmp_path / "shard" / "one").mkdir(parents=True)
    tree = FolderTree(tmp_path)
    tree.sync()
    assert sorted(synced) == [str(tmp_path), str(tmp_path / "shard"), str(tmp_path / "shard" / "one")]
    synced.clear()
    tree.sync()
    assert synced == []
    (tmp_path / "shard" / "one" / "file").write_text("1")
    tree.sync()
    (tmp_path / "shard" / "one" / "other").write_text("2")
    (tmp_path / "shard" / "one" / "other").replace(tmp_path / "shard" / "one" / "file")  # another file, the same name
    tree.sync()
    (tmp_path / "shard" / "one" / "file").write_text("contents are their writer's matter")
    tree.sync()
    assert synced == [str(tmp_path / "shard" / "one")] * 2


def test_room_is_what_is_needed_and_the_reserve(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": RESERVE + 10_000_000})())
    require_room(tmp_path, 10_000_000)
    with pytest.raises(ServiceError) as caught:
        require_room(tmp_path, 10_000_001)
    assert str(caught.value).startswith(f"the disk of {tmp_path} is full: 44 MB are free and 44 MB are needed: free")
    assert caught.value.exit_code == 6


def test_a_private_file_stays_private_at_every_moment(tmp_path, monkeypatch):
    path = tmp_path / "biorag.toml"
    path.write_text("qdrant_api_key = 'secret'")
    path.chmod(0o600)
    modes = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: modes.append(os.fstat(handle).st_mode) or fsync(handle))
    write_text(path, "new")
    assert {stat.S_IMODE(mode) for mode in modes if stat.S_ISREG(mode)} == {0o600}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_json_has_null_for_numbers_that_it_does_not_have(number):
    values = {"a": [1.5, number, (number,)], "b": {"c": number}}
    assert json.loads(json_text(values)) == {"a": [1.5, None, [None]], "b": {"c": None}}
    assert json_line(values).endswith(b"}\n")


def test_json_has_the_bytes_of_names_that_are_not_utf_8_escaped():
    name = os.fsdecode(b"caf\xe9")
    assert json.loads(json_text({name: [name, "\ud800"]})) == {"caf\\xe9": ["caf\\xe9", "?"]}
