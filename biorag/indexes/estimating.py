"""An estimate of indexing a surveyed corpus, by encoding and writing a sample of it."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from biorag.errors import BadInputError
from biorag.indexes.bm25 import Bm25Encoder
from biorag.indexes.manifest import Manifest
from biorag.indexes.points import payload
from biorag.indexes.store import open_embedded
from biorag.indexes.surveying import Survey
from biorag.indexes.updating import EncodeSnippets
from biorag.types import Snippet
from biorag.utils.files import scratch_folder

OPTIMIZE_SECONDS = 5e-4  # of one snippet
TERM_BYTES, OVERHEAD_BYTES = 16, 120  # of a BM25 term, and of a point's ids and links


@dataclass(frozen=True, slots=True)
class IndexEstimate:
    """The estimate of an indexing run: seconds after the check, bytes on disk at the end, bytes of memory.

    While segments are merged, the disk holds up to twice as much.
    """

    name: str
    snippets: int
    sample: int
    seconds: float
    bytes: int
    bytes_per_snippet: int
    memory_bytes: int


def index_bytes(dimension: int, quantized: bool, terms: float, text_bytes: float, token_bytes: float) -> float:
    """Return the bytes on disk of one snippet: vector, int8 copy, ids and links, BM25 terms, text and token vectors."""
    return dimension * (5 if quantized else 4) + OVERHEAD_BYTES + TERM_BYTES * terms + text_bytes + token_bytes


def estimate(manifest: Manifest, survey: Survey, encode: EncodeSnippets) -> IndexEstimate:
    """Return what indexing the corpus would take, by the survey's sample.

    The graph's time is that of 14,448 snippets on 2 cores; it matters little beside the encoding.

    Raises `BadInputError` if the index holds every snippet of the corpus already.
    """
    if not survey.sample:
        raise BadInputError(f"nothing is new in this corpus: index {manifest.name!r} holds it already")
    size, count = len(survey.sample), survey.blocks
    encode(survey.sample[:8])  # loading and compiling at the first call do not belong to the rate
    started = time.perf_counter()
    vectors, tokens, _ = encode(survey.sample)
    with (
        scratch_folder() as folder,
        closing(open_embedded(folder, manifest, writable=True)) as scratch,
    ):
        scratch.upsert(survey.sample, vectors, tokens)
    seconds = (time.perf_counter() - started) / size + OPTIMIZE_SECONDS
    numbers, dimension = sum(rows.size for rows in tokens), vectors.shape[1]
    snippet_bytes = _snippet_bytes(manifest, survey.sample, dimension, numbers)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return IndexEstimate(
        name=manifest.name,
        snippets=count,
        sample=size,
        seconds=round(seconds * count, 1),
        bytes=snippet_bytes * count,
        bytes_per_snippet=snippet_bytes,
        memory_bytes=peak + dimension * 4 * count,
    )


def _snippet_bytes(manifest: Manifest, sample: Sequence[Snippet], dimension: int, numbers: int) -> int:
    """Return the mean bytes on disk of a sample's snippets, which have so many numbers of token vectors."""
    bm25 = Bm25Encoder.of(manifest)
    terms = sum(len(bm25.document(snippet.contents).indices) for snippet in sample)
    texts = sum(len(json.dumps(payload(snippet), ensure_ascii=False).encode()) for snippet in sample)
    tokens = numbers * manifest.tokens.bits // 8 if manifest.tokens else 0
    means = [total / len(sample) for total in (terms, texts, tokens)]
    return round(index_bytes(dimension, manifest.quantized, *means))
