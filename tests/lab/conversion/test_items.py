"""Entries of published JSON files: the same as of the whole file, and no error but ours."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.corpus.readers import Reject
from biorag.corpus.sources import Source
from biorag.errors import BadInputError
from biorag.lab.conversion.items import read_array_or_lines, read_each, read_object


def source(path, content: bytes) -> Source:
    path.write_bytes(content)
    return Source(path.name, path)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("entries") / "x.json"


@given(st.binary(max_size=60) | st.text('{}[]":,0 1e\\ué\n', max_size=40).map(str.encode))
def test_whatever_the_bytes_are_there_is_no_error_but_ours(file, content):
    for read in (read_object, read_array_or_lines):
        rejects: list[Reject] = []
        entries = source(file, content)
        list(read_each("x.json", read(entries), lambda entry: entry.json_object(), rejects.append))
        try:
            list(read_each("x.json", read(entries), lambda entry: entry.json_object(), None))
        except BadInputError as error:
            assert str(error).startswith("x.json, ")
            assert rejects
        else:
            assert not rejects


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lambda content: b"\xef\xbb\xbf" + content])
def test_objects_arrays_and_lines(tmp_path, pack):
    records = {"a": {"x": 12345678901234567890}, "bé": {"y": ["x" * 40, {"c": 1.5e3}]}}
    read = list(read_object(source(tmp_path / "x.json", pack(json.dumps(records, indent=1).encode()))))
    assert {entry.key: entry.json_object() for entry in read} == records
    assert [(entry.number, entry.unit) for entry in read] == [(1, "entry"), (2, "entry")]
    rows = list(records.values())
    array = source(tmp_path / "x.json", pack(json.dumps(rows, indent=1).encode()))
    assert [entry.json_object() for entry in read_array_or_lines(array)] == rows
    lines = source(tmp_path / "x.json", pack("\n\n".join(map(json.dumps, rows)).encode()))
    assert [(entry.number, entry.json_object()) for entry in read_array_or_lines(lines)] == [(1, rows[0]), (3, rows[1])]


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"a": 1,\n "b": [1, 2', "not JSON .*line 2"),
        (b'{"a": "\xff"}', "not JSON"),
        (b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}", "recursion limit"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git-LFS"),
        (gzip.compress(b'{"a": 1, "b": 2}', mtime=0)[:-9], "truncated gzip"),
    ],
)
def test_damage_names_the_reason(tmp_path, content, part):
    with pytest.raises(BadInputError, match=rf"(?s)x\.json, line 1: .*{part}"):
        list(read_object(source(tmp_path / "x.json", content)))
