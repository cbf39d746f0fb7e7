"""A folder of vectors: their manifest, and the batches that workers wrote.

- `vectors.json`: the manifest of the index that a direct run would make, and where the snippets lie
- `batch-0123456789abcdef.parquet`: encoded snippets, in a file named by what it holds
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from biorag.errors import MismatchError, MissingError
from biorag.indexes.manifest import Manifest
from biorag.lab.scale.parquet import KEY, KEYS, encoded_of, key_of, read_table, vector_schema, vector_table, write_table
from biorag.types import Encoded, Snippet
from biorag.utils.runs import NEXT_STEP, RunDirectory

logger = logging.getLogger(__name__)

BATCHES = re.compile(r"batch-[0-9a-f]{16}\.parquet")
DAMAGED = ".damaged"  # ends the name of a batch that cannot be read
NAME = "vectors"  # of the index in the manifest
EMBED_AGAIN = "delete it, and run 'biorag embed' again"
OPEN = 8  # batches kept in memory while vectors are looked up


def among(keys: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return which keys are among known ones, which are sorted."""
    places = np.searchsorted(known, keys)
    places[places == len(known)] = 0
    return known[places] == keys if len(known) else np.zeros(len(keys), bool)


class VectorFolder(RunDirectory):
    """A folder of vectors, which grows by batches until every snippet has one."""

    kind = "folder of vectors"
    manifest_name = "vectors.json"

    def made(self) -> tuple[Manifest, Path, bool] | None:
        """Return the manifest of an index of these vectors, where the snippets lie, and whether all are encoded.

        Raises `MismatchError` if it is damaged, or the folder holds something else.
        """
        self.check_nothing_else()
        values = self._read_manifest()
        if values is None:
            return None
        try:
            snippets = Path(str(values["snippets"]))
        except KeyError as error:
            raise self._damaged(error) from None
        return Manifest.from_json(values.get("manifest"), str(self.manifest)), snippets, bool(values["complete"])

    def describe(self, manifest: Manifest, snippets: Path, complete: bool) -> None:
        """Write what the vectors are of."""
        self.save(complete, manifest=manifest.to_json(), snippets=str(snippets.resolve()))

    def check(self, manifest: Manifest) -> None:
        """Hold the vectors that are there to be those of an index with this manifest.

        Raises `MismatchError` naming what differs.
        """
        if (made := self.made()) is None:
            return
        parts = ("encoder", "similarity", "bm25", "tokens", "blocks")
        if other := [part for part in parts if getattr(made[0], part) != getattr(manifest, part)]:
            raise MismatchError(f"{self.path} has vectors made with other {', '.join(other)}: {NEXT_STEP}")

    def done(self) -> np.ndarray:
        """Return the keys of the snippets that have vectors, sorted; a batch that is damaged is set aside."""
        keys = [np.empty(0, np.uint64)]
        for path in self.batches():
            try:
                keys.append(read_table(path, KEYS, EMBED_AGAIN).column(KEY).to_numpy())
            except MismatchError as error:
                logger.warning("%s; its snippets are encoded again, and it is kept as %s", error, path.name + DAMAGED)
                path.rename(path.with_name(path.name + DAMAGED))
        return np.unique(np.concatenate(keys))

    def batches(self) -> list[Path]:
        """Return the files of encoded snippets."""
        return sorted(path for path in self.path.iterdir() if BATCHES.fullmatch(path.name))


def batch_path(folder: Path, keys: np.ndarray) -> Path:
    """Return where the vectors of a batch lie: in the same file, whoever encodes it, and however often."""
    name = hashlib.blake2b(np.ascontiguousarray(keys, np.uint64).tobytes(), digest_size=8).hexdigest()
    return folder / f"batch-{name}.parquet"


def write_batch(path: Path, rows: pa.Table, encoded: Encoded, manifest: Manifest) -> None:
    """Write the vectors of a table of snippets, whole or not at all."""
    write_table(path, vector_table(rows, encoded, manifest.tokens.dimension if manifest.tokens else None))


class StoredVectors:
    """Looks vectors up by snippet, where they are said to be encoded by `manifest`."""

    def __init__(self, folder: VectorFolder, manifest: Manifest) -> None:
        self._batches = folder.batches()
        self._dimension = manifest.encoder.dimension
        self._tokens = manifest.tokens.dimension if manifest.tokens else None
        self._path = folder.path
        keys = [read_table(path, KEYS, EMBED_AGAIN).column(KEY).to_numpy() for path in self._batches]
        lengths = [len(part) for part in keys]
        all_keys = np.concatenate([np.empty(0, np.uint64), *keys])
        order = np.argsort(all_keys, kind="stable")
        self.keys = all_keys[order]
        self._files = np.repeat(np.arange(len(keys), dtype=np.int32), lengths)[order]
        rows = [np.arange(length, dtype=np.int32) for length in lengths]
        self._rows = np.concatenate([np.empty(0, np.int32), *rows])[order]
        self._batch = lru_cache(OPEN)(self._read)

    def __call__(self, snippets: Sequence[Snippet]) -> Encoded:
        """Return the vectors of snippets, with their BM25 vectors.

        Raises `MissingError` if one has none; `MismatchError` if a batch is damaged.
        """
        wanted = np.array([key_of(snippet.id, snippet.digest) for snippet in snippets], np.uint64)
        places = np.searchsorted(self.keys, wanted)
        rows = [self._row(snippet, int(position)) for snippet, position in zip(snippets, places, strict=True)]
        vectors = np.stack([batch.vectors[row] for batch, row in rows])
        tokens = [batch.tokens[row] for batch, row in rows] if self._tokens else []
        return Encoded(vectors, tokens, [batch.terms[row] for batch, row in rows])

    def _row(self, snippet: Snippet, position: int) -> tuple[Encoded, int]:
        if position < len(self.keys) and self.keys[position] == key_of(snippet.id, snippet.digest):
            row = int(self._rows[position])
            names, encoded = self._batch(int(self._files[position]))
            if names[row] == (snippet.id, snippet.digest):
                return encoded, row
        raise MissingError(f"snippet {snippet.id!r} has no vector in {self._path}: run 'biorag embed' to the end")

    def _read(self, number: int) -> tuple[list[tuple[str, str]], Encoded]:
        path = self._batches[number]
        table = read_table(path, vector_schema(self._dimension, self._tokens), EMBED_AGAIN)
        try:
            encoded = encoded_of(table, self._tokens)
            names = list(zip(table.column("id").to_pylist(), table.column("digest").to_pylist(), strict=True))
            if not all(np.isfinite(rows).all() for rows in (encoded.vectors, *encoded.tokens)):
                raise ValueError("a number is not finite")
        except ValueError as error:
            raise MismatchError(f"{path} is damaged ({error}): {EMBED_AGAIN}") from None
        return names, encoded
