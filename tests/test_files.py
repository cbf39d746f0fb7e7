"""Files are the old one or the new one, whole."""

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from biorag.files import write_json, write_text


def only_file(folder) -> str:
    """The one file in a folder: no temporary file is left."""
    (path,) = folder.iterdir()
    return path.read_text(encoding="utf-8")


def test_text_is_written_as_it_is_in_a_new_folder(tmp_path):
    write_text(tmp_path / "a" / "b" / "file.txt", "naïve\r\nβ\n")
    assert (tmp_path / "a" / "b" / "file.txt").read_bytes() == "naïve\r\nβ\n".encode()
    assert only_file(tmp_path / "a" / "b") == "naïve\nβ\n"


def test_a_longer_file_is_replaced_whole(tmp_path):
    write_text(tmp_path / "file.txt", "long " * 1000)
    write_text(tmp_path / "file.txt", "new")
    assert only_file(tmp_path) == "new"


def test_several_threads_may_write_the_same_file(tmp_path):
    texts = [str(n) * 100_000 for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: write_text(tmp_path / "file.txt", texts[n % 8]), range(40)))
    assert only_file(tmp_path) in texts


@pytest.mark.parametrize("values", [{"β": [1, 2.5, None, True]}, [], "naïve", 3, {"a": {"b": "\u2028"}}])
def test_json_comes_back(tmp_path, values):
    write_json(tmp_path / "file.json", values)
    text = only_file(tmp_path)
    assert json.loads(text) == values
    assert text.endswith("\n")


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
    with pytest.raises(UnicodeEncodeError if step == "encode" else OSError):
        write_text(folder / "file.txt", "half \ud800" if step == "encode" else "half")
    assert {path.name: path.read_text() for path in folder.iterdir()} == ({} if old is None else {"file.txt": old})


def test_an_interrupt_leaves_the_old_file(tmp_path, monkeypatch):
    write_text(tmp_path / "file.txt", "old")

    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_text(tmp_path / "file.txt", "new")
    assert only_file(tmp_path) == "old"


def test_values_that_are_no_json_leave_the_old_file(tmp_path):
    write_json(tmp_path / "file.json", {"old": 1})
    with pytest.raises(TypeError):
        write_json(tmp_path / "file.json", {"new": object()})
    assert json.loads(only_file(tmp_path)) == {"old": 1}


def test_the_text_is_on_disk_before_the_name_points_to_it(tmp_path, monkeypatch):
    steps = []
    fsync = os.fsync

    def seen(handle):
        steps.append((os.fstat(handle).st_size, (tmp_path / "file.txt").read_text()))
        fsync(handle)

    write_text(tmp_path / "file.txt", "old")
    monkeypatch.setattr(os, "fsync", seen)
    write_text(tmp_path / "file.txt", "newer")
    assert steps[0] == (5, "old")
    assert only_file(tmp_path) == "newer"


def test_others_may_read_the_file_as_any_other_new_file(tmp_path):
    """An index on a shared disk is read by colleagues; a temporary file's private mode must not stay."""
    (tmp_path / "plain.txt").write_text("plain")
    write_text(tmp_path / "atomic.txt", "atomic")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain.txt", "atomic.txt")]
    assert modes[0] == modes[1]
