"""Entries of large JSON files, one after another: the same as of the whole file, and no error but ours."""

from __future__ import annotations

import gzip
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.conversion import entries
from biorag.conversion.entries import read_array_or_lines, read_each, read_object
from biorag.corpus.readers import Reject
from biorag.corpus.sources import Source
from biorag.errors import BadInputError

texts = st.text(st.characters(codec="utf-8"), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def source(path, content: bytes) -> Source:
    path.write_bytes(content)
    return Source(path.name, path)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("entries") / "x.json"


@given(st.dictionaries(texts, values, max_size=5), st.sampled_from([None, 0, 4]), st.booleans())
def test_an_object_is_read_as_a_whole_parse_reads_it(file, record, indent, escaped):
    text = json.dumps(record, indent=indent, ensure_ascii=escaped)
    read = list(read_object(source(file, text.encode())))
    assert {entry.key: entry.value() for entry in read} == record
    lines = text.split("\n")
    assert all(entry.text.split("\n")[0] in lines[entry.line - 1] for entry in read), "the line is where it begins"


@given(st.binary(max_size=60) | st.text('{}[]":,0 1e\\ué\n', max_size=40).map(str.encode))
def test_whatever_the_bytes_are_there_is_no_error_but_ours(file, content):
    for read in (read_object, read_array_or_lines):
        rejects: list[Reject] = []
        found = source(file, content)
        list(read_each("x.json", read(found), lambda entry: entry.value(), rejects.append))
        try:
            list(read_each("x.json", read(found), lambda entry: entry.value(), None))
        except BadInputError as error:
            assert str(error).startswith("x.json, line ")
            assert rejects
        else:
            assert not rejects


@pytest.mark.parametrize(("piece", "chunk"), [(entries.PIECE, 2**16), (1, 7)])
def test_pieces_do_not_show(tmp_path, monkeypatch, piece, chunk):
    monkeypatch.setattr(entries, "PIECE", piece)
    monkeypatch.setattr("biorag.corpus.sources.CHUNK", chunk)
    record = {"a": 12345678901234567890, "bé": ["x" * 40, {"c": 1.5e3}], "d": "\u00e9\U0001f600" * 9, "e": 7}
    content = json.dumps(record, indent=1, ensure_ascii=False).encode()
    for data in (content, gzip.compress(content), b"\xef\xbb\xbf" + content):
        read = list(read_object(source(tmp_path / "x.json", data)))
        assert {entry.key: entry.value() for entry in read} == record
        assert [entry.line for entry in read] == [2, 3, 9, 10]


@pytest.mark.parametrize(
    ("content", "line", "part"),
    [
        (b"", 1, "breaks off"),
        (b"[1]", 1, "not a JSON object"),
        (b'{"a": 1,\n "b": [1, 2', 2, "breaks off"),
        (b'{"a": 1,\n "b"\n 2}', 3, "no ':'"),
        (b'{"a": 1\n "b": 2}', 2, "no ','"),
        (b'{"a": 1,\n 2: 3}', 2, "a key that is not a string"),
        (b'{"a": 1}\n{"b": 2}', 2, "more text after"),
        (b'{"a": "\xff"}', 1, "not UTF-8"),
        (b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}", 1, "nested too deeply"),
        (b"version https://git-lfs.github.com/spec/v1\n", 1, "Git-LFS"),
        (gzip.compress(b'{"a": 1, "b": 2}', mtime=0)[:-9], 1, "truncated gzip"),
    ],
)
def test_damage_names_line_and_reason(tmp_path, content, line, part):
    with pytest.raises(BadInputError, match=rf"x\.json, line {line}: .*{part}"):
        list(read_object(source(tmp_path / "x.json", content)))


def test_what_comes_before_the_damage_is_read(tmp_path):
    rejects: list[Reject] = []
    broken = source(tmp_path / "x.json", b'{"a": 1,\n"b": NaN,\n"c": 3,\n"d": {"e"')
    read = read_each("x.json", read_object(broken), lambda entry: (entry.key, entry.value()), rejects.append)
    assert list(read) == [("a", 1), ("c", 3)]
    assert [(reject.line, reject.damaged) for reject in rejects] == [(2, False), (4, True)]
    assert rejects[0].reason.startswith("b: ")


def test_an_entry_has_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(entries, "MAX_LINE", 2**20)
    long = source(tmp_path / "x.json", b'{"a": "' + b"x" * 5 * 2**20 + b'"}')
    with pytest.raises(BadInputError, match="an entry of more than 1 MiB"):
        list(read_object(long))


def test_memory_stays_flat(tmp_path):
    with (tmp_path / "x.json").open("w") as stream:
        stream.write("{")
        for number in range(2500):
            stream.write(f'{"," if number else ""}\n"{number}": {{"text": "{"word " * 400}"}}')
        stream.write("\n}")
    assert (tmp_path / "x.json").stat().st_size > 5e6
    tracemalloc.start()
    count = sum(1 for entry in read_object(Source("x.json", tmp_path / "x.json")) if entry.value())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 2500
    assert peak < 4.5e6
