"""Snippets and vectors as Parquet: the columns, rows and snippets, and files that are written whole or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from biorag.errors import BadInputError, MismatchError
from biorag.models.finding import first_line
from biorag.types import Encoded, Snippet, SparseText, Vectors
from biorag.utils.files import replacing
from biorag.utils.parsing import opened_regular

EXPORT_AGAIN = "delete the export's folder, and export the corpus again"
LARGEST, MOST_TIMES = 256 << 20, 1100  # bytes of a table, or times its file's
STEP = 256  # rows that are unpacked at once
KEY = "key"  # what says that a vector is that of a snippet: `key_of` its id and its digest
SNIPPETS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("title", pa.string(), nullable=False),
        pa.field("content", pa.string(), nullable=False),
        pa.field("pmid", pa.int64()),
        pa.field("metadata", pa.string(), nullable=False),
        pa.field("digest", pa.string(), nullable=False),
        pa.field(KEY, pa.uint64(), nullable=False),
    ]
)


KEYS = pa.schema([SNIPPETS.field(KEY)])  # of snippets and of their vectors
NAMES = pa.schema([SNIPPETS.field(name) for name in ("id", "digest")])


def key_of(id: str, digest: str) -> int:
    """Return 64 bits of the hash of an id and a digest.

    Of 24 million snippets two share theirs with a chance of 2 in 100,000; then the loading says that a vector is
    missing, for it holds ids and digests against each other.
    """
    return int.from_bytes(hashlib.blake2b(f"{digest}{id}".encode(), digest_size=8).digest(), "little")


def snippet_table(snippets: Sequence[Snippet]) -> pa.Table:
    """Return snippets as a table of the schema `SNIPPETS`."""
    digests = [snippet.digest for snippet in snippets]
    columns: dict[str, list[Any]] = {
        "id": [snippet.id for snippet in snippets],
        "title": [snippet.title for snippet in snippets],
        "content": [snippet.content for snippet in snippets],
        "pmid": [snippet.pmid for snippet in snippets],
        "metadata": [json.dumps(dict(snippet.metadata)) for snippet in snippets],
        "digest": digests,
        KEY: [key_of(snippet.id, digest) for snippet, digest in zip(snippets, digests, strict=True)],
    }
    return pa.table(columns, SNIPPETS)


def snippets_of(table: pa.Table) -> list[Snippet]:
    """Return the snippets of a table as `snippet_table` makes it.

    Raises `MismatchError` if metadata is not a JSON object.
    """
    names = ("id", "title", "content", "pmid", "metadata")
    rows = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    return [Snippet(id, title, content, pmid, _object(id, metadata)) for id, title, content, pmid, metadata in rows]


def _object(id: str, metadata: str) -> dict[str, Any]:
    try:
        values = json.loads(metadata)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise MismatchError(f"the exported snippet {id!r} is damaged (its metadata): {EXPORT_AGAIN}")
    return values


def vector_schema(dimension: int, token_dimension: int | None) -> pa.Schema:
    """Return the columns of encoded snippets: the vector, its BM25 terms and, where they are kept, token vectors."""
    fields = [
        pa.field("id", pa.string(), nullable=False),
        pa.field("digest", pa.string(), nullable=False),
        pa.field(KEY, pa.uint64(), nullable=False),
        pa.field("vector", pa.list_(pa.float32(), dimension), nullable=False),
        pa.field("terms", pa.list_(pa.uint32()), nullable=False),
        pa.field("weights", pa.list_(pa.float32()), nullable=False),
    ]
    if token_dimension is not None:
        fields.append(pa.field("tokens", pa.list_(pa.list_(pa.float16(), token_dimension)), nullable=False))
    return pa.schema(fields)


def vector_table(rows: pa.Table, encoded: Encoded, token_dimension: int | None) -> pa.Table:
    """Return the vectors of a table of snippets; token vectors, of which an index keeps fewer bits, in 16 bits.

    `encoded`: with the BM25 vectors.
    """
    vectors = np.ascontiguousarray(encoded.vectors, np.float32)
    columns: list[Any] = [
        *(rows.column(name) for name in ("id", "digest", KEY)),
        pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1]),
        pa.array([list(terms.indices) for terms in encoded.terms], pa.list_(pa.uint32())),
        pa.array([list(terms.values) for terms in encoded.terms], pa.list_(pa.float32())),
    ]
    if token_dimension is not None:
        flat = np.concatenate([np.empty(0, np.float32), *(tokens.ravel() for tokens in encoded.tokens)])
        numbers = pa.FixedSizeListArray.from_arrays(pa.array(flat.astype(np.float16)), token_dimension)
        offsets = np.cumsum([0, *map(len, encoded.tokens)])
        columns.append(pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), numbers))
    return pa.table(columns, vector_schema(vectors.shape[1], token_dimension))


def encoded_of(table: pa.Table, token_dimension: int | None) -> Encoded:
    """Return what `vector_table` was given.

    Raises `ValueError` if something is null, or no finite number, or terms and weights are not as many.
    """
    vectors = _flat(table.column("vector")).reshape(table.num_rows, -1)
    terms, weights = (table.column(name).combine_chunks() for name in ("terms", "weights"))
    if not terms.value_lengths().equals(weights.value_lengths()) or _flat(weights).size != _flat(terms).size:
        raise ValueError("terms and weights differ in number")
    tokens: list[Vectors] = []
    if token_dimension is not None:
        column = table.column("tokens").combine_chunks()
        rows = _flat(column.flatten()).astype(np.float32).reshape(-1, token_dimension)
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
        tokens = np.split(rows, np.cumsum(lengths)[:-1])
    pairs = zip(terms.to_pylist(), weights.to_pylist(), strict=True)
    return Encoded(vectors, tokens, [SparseText(indices, values) for indices, values in pairs])


def _flat(column: pa.Array | pa.ChunkedArray) -> Any:
    """Return the numbers of all lists of a column."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    numbers = column.flatten()
    if numbers.null_count:
        raise ValueError("a number is null")
    values = numbers.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError("a number is not finite")
    return values


def write_table(path: Path, table: pa.Table) -> None:
    """Write a Parquet file with checksums, atomically and durably; raise `MismatchError` at one of another kind."""
    if path.exists() and not holds(path, table.schema):
        raise MismatchError(f"{path} is there, and biorag did not write it: move it, or choose another --out")
    with replacing(path) as stream:
        pq.write_table(table, stream, compression="zstd", write_page_checksum=True)


def holds(path: Path, schema: pa.Schema) -> bool:
    """Return whether a file is Parquet with exactly these columns, whatever its rows."""
    try:
        with opened_regular(path) as stream, pq.ParquetFile(stream) as file:
            return bool(file.schema_arrow.equals(schema))
    except (OSError, pa.ArrowException, BadInputError):
        return False


def _bounded(file: pq.ParquetFile, schema: pa.Schema, largest: int) -> pa.Table:
    """Return the columns of a file; raise `pa.ArrowInvalid` beyond so many bytes, before they are all unpacked."""
    bomb = pa.ArrowInvalid(f"it unpacks to more than {largest >> 20} MiB, as a bomb does")
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    if sum(group.total_byte_size for group in groups) > largest:
        raise bomb
    batches, size = [], 0
    for batch in file.iter_batches(STEP, columns=schema.names):
        batches.append(batch.select(schema.names))
        size += batch.nbytes
        if size > largest:
            raise bomb
    table = pa.Table.from_batches(batches, schema)
    if not table.num_rows == file.metadata.num_rows == sum(group.num_rows for group in groups):
        raise pa.ArrowInvalid("its rows are not as many as it says")
    return table


def read_table(path: Path, schema: pa.Schema, advice: str = EXPORT_AGAIN) -> pa.Table:
    """Read these columns of a Parquet file, checking its checksums.

    Raises `MismatchError` if it is not there, or damaged, or has no such columns; with `advice`.
    """
    try:
        # Not `pq.read_table`, which takes the file for a data set and its folder's name for a partition.
        with opened_regular(path) as stream, pq.ParquetFile(stream, page_checksum_verification=True) as file:
            stored = file.schema_arrow
            for field in schema:
                if stored.get_field_index(field.name) < 0 or not stored.field(field.name).equals(field):
                    raise pa.ArrowInvalid(f"no column {field.name!r} of {field.type}")
            table = _bounded(file, schema, max(LARGEST, MOST_TIMES * path.stat().st_size))
            table.validate(full=True)  # that texts are UTF-8, among others
            return table
    except FileNotFoundError:
        raise MismatchError(f"{path} is not there: {advice}") from None
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk or the network, not of the file
            raise
        raise MismatchError(f"{path} is damaged ({first_line(error)}): {advice}") from None
