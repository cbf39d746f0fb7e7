"""Snippets and vectors as Parquet: what is written is read back, and a file that is not what was written is named."""

from __future__ import annotations

import contextlib
import errno
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biorag.errors import BadInputError, MismatchError
from biorag.scale import parquet
from biorag.scale.parquet import (
    KEY,
    KEYS,
    NAMES,
    SNIPPETS,
    encoded_of,
    key_of,
    link_or_copy,
    read_table,
    row_count,
    snippet_table,
    snippets_of,
    vector_schema,
    vector_table,
    write_table,
)
from biorag.types import Encoded, Snippet, SparseText

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
SNIPPET_LISTS = st.lists(
    st.builds(
        Snippet,
        id=TEXT.filter(bool),
        title=TEXT,
        content=TEXT,
        pmid=st.none() | st.integers(1, 2**53 - 1),
        metadata=st.dictionaries(TEXT, VALUES, max_size=3),
    ),
    max_size=4,
)
FLOATS = st.floats(-1024, 1024, width=32)
SNIPPET = Snippet("β-1", "", "Aspirin lowers fever.", None, {"mesh": ["Fever"], "more": {"n": 1.5}})
# Tokens of three numbers each, none of the second text.
ENCODED = Encoded(
    np.array([[0.1, -2.0], [3e-30, 4.0]], np.float32),
    [np.array([[1, 2, 3], [4, 5, 6.5]], np.float32), np.empty((0, 3), np.float32)],
    [SparseText([], []), SparseText([0, 2**32 - 1], [0.5, 1.5])],
)


@settings(max_examples=25)
@given(SNIPPET_LISTS)
def test_snippets_come_back_as_they_were(tmp_path_factory, snippets):
    path = tmp_path_factory.getbasetemp() / "snippets.parquet"
    write_table(path, snippet_table(snippets))
    table = read_table(path, SNIPPETS)
    found = snippets_of(table)
    assert found == snippets
    assert [list(snippet.metadata) for snippet in found] == [list(snippet.metadata) for snippet in snippets]
    assert [snippet.digest for snippet in found] == [snippet.digest for snippet in snippets]
    assert table.column("digest").to_pylist() == [snippet.digest for snippet in snippets]
    assert table.column(KEY).to_pylist() == [key_of(snippet.id, snippet.digest) for snippet in snippets]
    assert row_count(path) == len(snippets)


@st.composite
def encodings(draw):
    size = draw(st.integers(1, 4))
    lengths = draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    vectors = draw(st.lists(st.lists(FLOATS, min_size=3, max_size=3), min_size=size, max_size=size))
    terms = [draw(st.lists(st.tuples(st.integers(0, 2**32 - 1), FLOATS), max_size=3)) for _ in range(size)]
    tokens = [
        np.array(draw(st.lists(st.lists(FLOATS, min_size=2, max_size=2), min_size=length, max_size=length)), np.float32)
        for length in lengths
    ]
    return Encoded(
        np.array(vectors, np.float32),
        [rows.reshape(-1, 2).astype(np.float16).astype(np.float32) for rows in tokens],
        [SparseText([index for index, _ in pairs], [weight for _, weight in pairs]) for pairs in terms],
    )


@settings(max_examples=25)
@given(encodings(), st.booleans())
def test_vectors_come_back_bit_for_bit(tmp_path_factory, encoded, keeps_tokens):
    path = tmp_path_factory.getbasetemp() / "vectors.parquet"
    rows = snippet_table([Snippet(f"é{number}", "", "a") for number in range(len(encoded.vectors))])
    dimension = 2 if keeps_tokens else None
    write_table(path, vector_table(rows, encoded, dimension))
    table = read_table(path, vector_schema(3, dimension))
    found = encoded_of(table, dimension)
    assert found.vectors.tobytes() == encoded.vectors.tobytes()
    assert found.terms == encoded.terms
    assert [part.tolist() for part in found.tokens] == ([part.tolist() for part in encoded.tokens] * keeps_tokens)
    assert [part.shape for part in found.tokens] == ([part.shape for part in encoded.tokens] * keeps_tokens)
    assert table.select(NAMES.names).equals(rows.select(NAMES.names))


def tables():
    """A file's table, and the columns that are read of it."""
    rows = snippet_table([SNIPPET, Snippet("2", "Two", "b", 2)])
    return {"snippets": (rows, SNIPPETS), "vectors": (vector_table(rows, ENCODED, 3), vector_schema(2, 3))}


@pytest.mark.parametrize("kind", ["snippets", "vectors"])
def test_a_flipped_byte_is_noticed_or_changes_nothing(tmp_path, kind):
    table, schema = tables()[kind]
    path = tmp_path / "damaged.parquet"
    write_table(path, table)
    content = path.read_bytes()
    noticed = 0
    for place in range(0, len(content), 29):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
        try:
            assert read_table(path, schema).equals(table), place
        except MismatchError as error:
            assert str(path) in str(error)
            noticed += 1
    assert noticed > len(content) / 29 / 2, "the rest are names of writers, statistics and sizes that are not read"


def test_a_count_of_values_that_was_changed_is_noticed(tmp_path):
    """No checksum covers it, and the list that it cuts is as good as any."""
    path, (table, schema) = tmp_path / "cut.parquet", tables()["vectors"]
    write_table(path, table)
    content = path.read_bytes()
    for name in ("terms", "weights", "tokens"):
        group = pq.ParquetFile(path).metadata.row_group(0)
        chunks = [group.column(number) for number in range(group.num_columns)]
        (chunk,) = [one for one in chunks if one.path_in_schema.startswith(name)]
        place = content.index(b"\x1c\x15", chunk.data_page_offset) + 2  # in the page's header
        for bit in range(8):
            path.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
            with contextlib.suppress(MismatchError):
                assert read_table(path, schema).equals(table), (name, bit)
        path.write_bytes(content)


@pytest.mark.parametrize("kept", [0, 1, 8, 100, -1])
def test_a_truncated_file_is_named(tmp_path, kept):
    path = tmp_path / "torn.parquet"
    write_table(path, snippet_table([SNIPPET]))
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(MismatchError, match=r"torn.parquet is damaged \(.*\): restore it"):
        read_table(path, KEYS, "restore it")
    with pytest.raises(MismatchError, match=r"torn.parquet is damaged"):
        row_count(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(MismatchError, match=r"gone.parquet is not there: delete"):
        read_table(tmp_path / "gone.parquet", KEYS)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("id", None),
        ("id", pa.array([b"1"], pa.binary())),
        ("pmid", pa.array(["7"])),
        (KEY, pa.array([-1], pa.int64())),
        ("content", pa.array([None], pa.string())),
        ("metadata", pa.array([1], pa.int64())),
    ],
)
def test_other_columns_are_refused(tmp_path, name, column):
    path, table = tmp_path / "other.parquet", snippet_table([SNIPPET])
    place = table.schema.get_field_index(name)
    table = table.remove_column(place) if column is None else table.set_column(place, name, column)
    pq.write_table(table, path)
    with pytest.raises(MismatchError, match=rf"other.parquet is damaged \(no column '{name}' of"):
        read_table(path, SNIPPETS)


def test_a_column_that_is_there_twice_is_refused(tmp_path):
    table = snippet_table([SNIPPET])
    pq.write_table(table.append_column(SNIPPETS.field("id"), pa.array(["other"])), tmp_path / "twice.parquet")
    with pytest.raises(MismatchError, match="no column 'id'"):
        read_table(tmp_path / "twice.parquet", SNIPPETS)


@pytest.mark.parametrize("metadata", ["[]", "1", "{", '{"a": 1} x', "[" * 100_000])
def test_metadata_that_is_not_an_object_is_refused(metadata):
    table = snippet_table([SNIPPET])
    place = table.schema.get_field_index("metadata")
    with pytest.raises(MismatchError, match="the exported snippet 'β-1' is damaged"):
        snippets_of(table.set_column(place, SNIPPETS.field("metadata"), pa.array([metadata])))


def changed(name: str, column: pa.Array) -> pa.Table:
    table, schema = tables()["vectors"]
    return table.set_column(schema.get_field_index(name), name, column)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("vector", pa.array([[1.0, None], [0.0, 0.0]], pa.list_(pa.float32(), 2))),
        ("weights", pa.array([[], [0.5]], pa.list_(pa.float32()))),
        ("weights", pa.array([[], [0.5, None]], pa.list_(pa.float32()))),
        ("terms", pa.array([[], [None, 1]], pa.list_(pa.uint32()))),
        ("tokens", pa.array([[[1.0, 2.0, None]], []], pa.list_(pa.list_(pa.float16(), 3)))),
    ],
)
def test_nulls_and_lists_of_other_lengths_are_refused(name, column):
    with pytest.raises(ValueError, match=r"a number is null|terms and weights differ"):
        encoded_of(changed(name, column), 3)


def test_a_fault_of_the_disk_is_not_taken_for_damage(tmp_path, monkeypatch):
    def fails(*arguments, **options):
        raise OSError(errno.EIO, "Input/output error")

    write_table(tmp_path / "fine.parquet", snippet_table([SNIPPET]))
    monkeypatch.setattr(parquet.pq, "ParquetFile", fails)
    with pytest.raises(OSError, match="Input/output error"):
        read_table(tmp_path / "fine.parquet", KEYS)


def test_a_pipe_or_a_folder_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.parquet")
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(BadInputError, match="not a regular file"):
        read_table(tmp_path / "pipe.parquet", KEYS)
    with pytest.raises(OSError, match="Is a directory"):
        read_table(tmp_path / "folder.parquet", KEYS)


def test_keys_differ_by_id_and_by_digest():
    keys = {key_of(id, digest) for id in ("a", "b", "é") for digest in ("0" * 32, "1" * 32)}
    assert len(keys) == 6
    assert all(0 <= key < 2**64 for key in keys)


@pytest.mark.parametrize("linked", [True, False])
def test_a_file_gets_another_name_or_is_copied(tmp_path, monkeypatch, linked):
    first, second, target = (tmp_path / name for name in ("first", "second", "target"))
    first.write_bytes(b"1")
    second.write_bytes(b"2")
    if not linked:
        monkeypatch.setattr(type(first), "hardlink_to", lambda *_: (_ for _ in ()).throw(OSError(errno.EXDEV, "x")))
    for path in (first, first, second, first):
        link_or_copy(path, target)
        assert target.read_bytes() == path.read_bytes()
        assert target.samefile(path) == linked
    target.unlink()
    target.symlink_to(second)
    link_or_copy(first, target)
    assert (target.is_symlink(), second.read_bytes()) == (False, b"2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second", "target"]


def test_a_killed_write_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "kept.parquet"
    write_table(path, snippet_table([SNIPPET]))

    def full(table, stream, **options):
        stream.write(b"PAR1")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(parquet.pq, "write_table", full)
    with pytest.raises(OSError, match="No space left"):
        write_table(path, snippet_table([]))
    assert snippets_of(read_table(path, SNIPPETS)) == [SNIPPET]
    assert [path.name for path in tmp_path.iterdir()] == ["kept.parquet"]


@settings(max_examples=30)
@given(st.binary(max_size=200))
def test_any_bytes_are_named_as_damaged(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.parquet"
    path.write_bytes(content)
    with pytest.raises(MismatchError, match=r"any.parquet is damaged"):
        read_table(path, KEYS)


def test_what_is_written_has_checksums_and_one_digest_each():
    table = snippet_table([SNIPPET])
    assert json.loads(table.column("metadata")[0].as_py()) == SNIPPET.metadata
    assert table.schema.equals(SNIPPETS)
