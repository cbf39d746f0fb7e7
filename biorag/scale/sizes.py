"""Bytes of a snippet exported, encoded, indexed, and in memory while it is searched; the size of an encoder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from biorag.indexes.estimating import index_bytes
from biorag.models.finding import ModelFiles
from biorag.models.resources import ModelTensor, matrices, parameters_of
from biorag.settings.index import COMPACT_DIMENSION, TokenStorage

FLOAT, HALF, BYTE = 4, 2, 1
TERM = 8  # bytes of a BM25 term and its weight
JSON_NUMBER, JSON_ROUNDED = 20, 9.4  # bytes of a number as JSON, and of one of a token vector, to six places
KEYS = 64 + 8  # bytes of a digest in hexadecimal and of a key
# Bytes of a snippet beside its vector in a process that has searched a million (docs/results/performance.md, Growth):
# (2,351 MB − 55 MB) / 1,000,000 − 4 · 384, for graph, ids, BM25 and the pages read.
SEARCHED = 760
# Bytes of a snippet that a process keeps which writes an embedded index, its own without mapped files: from 300,000 to
# three million snippets it grew from 389 to 1,492 MiB (docs/results/growth.md).
WRITTEN = 429


@dataclass(frozen=True, slots=True)
class Workload:
    """What is to be indexed, by which encoder, and how it is kept.

    Attributes
    ----------
    tokens : of a snippet, on average, cut at the encoder's window
    text_bytes : of a snippet with id, title, metadata and digest as JSON
    terms : distinct BM25 terms of a snippet
    multiplied : parameters that every token is multiplied with: those of linear layers
    shards : None for one on each machine
    """

    snippets: int
    tokens: float
    text_bytes: float
    terms: float
    dimension: int
    parameters: int
    multiplied: int
    store_tokens: TokenStorage = "compact"
    quantized: bool = False
    on_disk: bool = False
    replicas: int = 1
    shards: int | None = None
    queries_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of one snippet; `sent` to a server as JSON."""

    exported: float
    encoded: float
    sent: float
    indexed: float
    searched: float
    written: float


def sizes(workload: Workload) -> Sizes:
    """Return the bytes of one snippet; of Parquet without its compression, so no less than it takes."""
    full = workload.store_tokens == "full"
    kept = 0 if workload.store_tokens == "none" else workload.dimension if full else _compact(workload.dimension)
    numbers = workload.tokens * kept
    text = workload.text_bytes
    dense = 0 if workload.on_disk and not workload.quantized else workload.dimension * _width(workload)
    return Sizes(
        exported=text + KEYS,
        encoded=FLOAT * workload.dimension + TERM * workload.terms + KEYS + HALF * numbers,
        sent=text + JSON_NUMBER * (workload.dimension + 2 * workload.terms) + JSON_ROUNDED * numbers,
        indexed=index_bytes(
            workload.dimension, workload.quantized, workload.terms, text, numbers * (16 if full else 4) / 8
        ),
        searched=dense + SEARCHED,
        written=WRITTEN + (BYTE * workload.dimension if workload.quantized else 0),
    )


def _compact(dimension: int) -> int:
    return min(dimension, COMPACT_DIMENSION)


def _width(workload: Workload) -> int:
    """Return the bytes of a vector's number in memory; of int8 copies the originals lie on disk."""
    return BYTE if workload.quantized else FLOAT


@dataclass(frozen=True, slots=True)
class EncoderSize:
    """An encoder's dimension, parameters, those of linear layers, and tokens of its window."""

    dimension: int
    parameters: int
    multiplied: int
    window: int


def encoder_size(files: ModelFiles) -> EncoderSize:
    """Return the size of an encoder, read from the headers of its files."""
    tensors = parameters_of(files)
    configuration = files.settings("config.json")
    window = files.settings("sentence_bert_config.json").get("max_seq_length")
    window = window or configuration.get("max_position_embeddings") or 512
    return EncoderSize(int(configuration.get("hidden_size", 0)), _sum(tensors), _sum(matrices(tensors)), int(window))


def _sum(tensors: Sequence[ModelTensor]) -> int:
    return sum(math.prod(tensor.shape) for tensor in tensors)
