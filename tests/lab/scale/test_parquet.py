"""Snippets and vectors as Parquet: what is written is read back, and a file that is not what was written is named."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biorag.errors import MismatchError
from biorag.lab.scale import parquet
from biorag.lab.scale.parquet import (
    KEY,
    NAMES,
    SNIPPETS,
    encoded_of,
    key_of,
    read_table,
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
    path.unlink(missing_ok=True)
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


def test_a_table_that_unpacks_to_far_more_than_its_file_is_a_bomb(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "LARGEST", 1 << 20)
    monkeypatch.setattr(parquet, "MOST_TIMES", 10)
    rows = 60
    row = pa.table({name: snippet_table([SNIPPET]).column(name) for name in SNIPPETS.names}, SNIPPETS)
    column = pa.array(["x" * 2**20] * rows)
    table = pa.concat_tables([row] * rows).set_column(2, SNIPPETS.field("content"), column)
    write_table(tmp_path / "a.parquet", table)
    assert (tmp_path / "a.parquet").stat().st_size < 1 << 20
    with pytest.raises(MismatchError, match=r"it unpacks to more than .* MiB, as a bomb does"):
        read_table(tmp_path / "a.parquet", SNIPPETS)


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


@pytest.mark.parametrize("metadata", ["[]", "1", "{", '{"a": 1} x', "[" * 100_000])
def test_metadata_that_is_not_an_object_is_refused(metadata):
    table = snippet_table([SNIPPET])
    place = table.schema.get_field_index("metadata")
    with pytest.raises(MismatchError, match="the exported snippet 'β-1' is damaged"):
        snippets_of(table.set_column(place, SNIPPETS.field("metadata"), pa.array([metadata])))
