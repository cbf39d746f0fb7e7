"""Vectors of exported snippets: the folder that batches of them lie in, how it is filled, and how they are looked up.

- `vectors.json`: the manifest of the index that a direct run would make, and where the snippets lie
- `batch-0123456789abcdef.parquet`: encoded snippets, in a file named by what it holds

A snippet with a vector by the same encoder is not encoded again.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from biorag.errors import MismatchError, MissingError, ServiceError
from biorag.indexes.bm25 import Bm25Encoder
from biorag.indexes.manifest import Manifest
from biorag.indexes.writing import SnippetEncoding
from biorag.lab.scale.parquet import (
    KEY,
    KEYS,
    SNIPPETS,
    encoded_of,
    key_of,
    read_table,
    snippets_of,
    vector_schema,
    vector_table,
    write_table,
)
from biorag.lab.scale.snippet_folder import Export, SnippetFolder
from biorag.types import Encoded, Progress, Snippet
from biorag.utils.files import remove_left
from biorag.utils.runs import NEXT_STEP, RunDirectory

logger = logging.getLogger(__name__)

BATCHES = re.compile(r"batch-[0-9a-f]{16}\.parquet")
DAMAGED = ".damaged"  # ends the name of a batch that cannot be read
NAME = "vectors"  # of the index in the manifest
EMBED_AGAIN = "delete it, and run 'biorag embed' again"
OPEN = 8  # batches kept in memory while vectors are looked up
NONE = np.empty(0, np.uint64)
Load = Callable[[Manifest], SnippetEncoding]  # loads the models; called once in each worker


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
            if "\0" in str(snippets):
                raise ValueError("a path with a NUL")
        except (KeyError, ValueError) as error:
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


class SnippetBatch(NamedTuple):
    """Rows of a part that are encoded together, and so come out the same wherever that is done."""

    part: str
    rows: np.ndarray


@dataclass(frozen=True, slots=True)
class EncodingJob:
    """Encoding of batches of `snippets` into `out`, for an index of this manifest; travels to other machines."""

    snippets: Path
    out: Path
    manifest: Manifest
    load: Load


class BatchEncoder:
    """Encodes batches, each into a file of its own; see `EncodingJob`.

    A batch that is there already, since its worker was lost before it could say so, is left as it is.
    """

    def __init__(self, job: EncodingJob) -> None:
        self._job = job
        self._encode = job.load(job.manifest)
        self._bm25 = Bm25Encoder.of(job.manifest)
        self._part = lru_cache(1)(lambda name: read_table(job.snippets / name, SNIPPETS))

    def __call__(self, batch: SnippetBatch) -> int:
        """Encode a batch; return how many snippets it has."""
        rows: pa.Table = self._part(batch.part).take(pa.array(batch.rows))
        path = batch_path(self._job.out, rows.column(KEY).to_numpy())
        if not path.is_file():
            snippets = snippets_of(rows)
            terms = [self._bm25.document(snippet.contents) for snippet in snippets]
            encoded = self._encode(snippets)._replace(terms=terms)
            tokens = self._job.manifest.tokens
            write_table(path, vector_table(rows, encoded, tokens.dimension if tokens else None))
        return len(batch.rows)


# Encodes batches, and gives the size of each that is done.
Encode = Callable[[EncodingJob, Sequence[SnippetBatch]], Iterator[int]]


def encode_here(job: EncodingJob, batches: Sequence[SnippetBatch]) -> Iterator[int]:
    """Encode in this process, on its best device."""
    return map(BatchEncoder(job), batches)


@dataclass(frozen=True, slots=True)
class EmbedReport:
    """Counts of `biorag embed`: all snippets, those encoded now, and those encoded before."""

    out: str
    snippets: int
    encoded: int
    unchanged: int
    seconds: float


def embed_snippets(
    snippets: SnippetFolder,
    folder: VectorFolder,
    job: EncodingJob,
    batch_size: int,
    encode: Encode,
    progress: Progress,
    known: np.ndarray = NONE,
) -> EmbedReport:
    """Encode the snippets of a folder that have no vector in the other folder yet.

    Raises `ServiceError` if another process writes into the folder, or workers were lost with their batches.

    `known`: keys of snippets that need none, sorted.
    """
    started = time.perf_counter()
    with snippets.reading(), folder.locked():
        export = snippets.export()
        folder.check(job.manifest)
        folder.describe(job.manifest, snippets.path, complete=False)
        remove_left(folder.path, BATCHES)  # of killed workers
        batches = _batches(snippets, export, folder, batch_size, known)
        total = sum(len(batch.rows) for batch in batches)
        with progress("Encoding", total) as advance:
            for count in encode(job, batches) if batches else ():
                advance(count)
        if missing := sum(len(batch.rows) for batch in _batches(snippets, export, folder, batch_size, known)):
            raise ServiceError(f"{missing:,} snippets were not encoded: run the same command again")
        folder.describe(job.manifest, snippets.path, complete=True)
    seconds = round(time.perf_counter() - started, 3)
    return EmbedReport(str(folder.path), export.rows, total, export.rows - total, seconds)


def _batches(
    snippets: SnippetFolder, export: Export, folder: VectorFolder, size: int, known: np.ndarray
) -> list[SnippetBatch]:
    """Return the snippets without vectors in batches, none of more than one part."""
    done = np.union1d(folder.done(), known)
    batches: list[SnippetBatch] = []
    for part in export.parts:
        rows = np.flatnonzero(~among(snippets.keys(part), done))
        batches += [SnippetBatch(part.name, rows[start:][:size]) for start in range(0, len(rows), size)]
    return batches


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
