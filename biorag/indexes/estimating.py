"""What indexing a surveyed corpus will take, by encoding and writing a sample of it."""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from biorag.errors import BadInputError
from biorag.indexes.bm25 import Bm25Encoder
from biorag.indexes.manifest import Manifest
from biorag.indexes.points import payload
from biorag.indexes.store import open_embedded
from biorag.indexes.surveying import Survey
from biorag.indexes.updating import EncodeSnippets

OPTIMIZE_SECONDS = 5e-4  # of one snippet
TERM_BYTES, OVERHEAD_BYTES = 16, 120  # of a BM25 term, and of a point's ids and links


@dataclass(frozen=True, slots=True)
class IndexEstimate:
    """What indexing a corpus will take: seconds after the check, bytes on disk at the end, bytes of memory.

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


def estimate(manifest: Manifest, survey: Survey, encode: EncodeSnippets, batch_size: int) -> IndexEstimate:
    """Return what indexing the corpus would take, by encoding and writing the sample into an embedded scratch index.

    The graph's time is that of 14,448 snippets on 2 cores; it matters little beside the encoding.

    Raises
    ------
    BadInputError
        If the index has taken in every snippet before.
    """
    if not survey.sample:
        raise BadInputError(f"nothing is new in this corpus: index {manifest.name!r} has taken it in before")
    snippets, count = survey.sample, survey.blocks
    texts = [snippet.contents for snippet in snippets]
    encode(snippets[:8])  # what is loaded and compiled at the first call does not belong to the rate
    started = time.perf_counter()
    vectors, tokens, _ = encode(snippets)
    with (
        tempfile.TemporaryDirectory(prefix="biorag-estimate-") as folder,
        closing(open_embedded(Path(folder), manifest, writable=True)) as scratch,
    ):
        scratch.upsert(snippets, vectors, tokens)
    seconds = (time.perf_counter() - started) / len(snippets) + OPTIMIZE_SECONDS
    bm25 = Bm25Encoder.of(manifest)
    terms = sum(len(bm25.document(text).indices) for text in texts)
    text_bytes = sum(len(json.dumps(payload(snippet), ensure_ascii=False).encode()) for snippet in snippets)
    numbers = sum(rows.size for rows in tokens)
    token_bytes = numbers * manifest.tokens.bits // 8 if manifest.tokens else 0
    each = [total / len(snippets) for total in (terms, text_bytes, token_bytes)]
    snippet_bytes = round(index_bytes(vectors.shape[1], manifest.quantized, *each))
    waiting = 4 * numbers * max(0, batch_size - len(snippets)) // len(snippets)  # a batch's, until they are written
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return IndexEstimate(
        name=manifest.name,
        snippets=count,
        sample=len(snippets),
        seconds=round(seconds * count, 1),
        bytes=snippet_bytes * count,
        bytes_per_snippet=snippet_bytes,
        memory_bytes=peak + waiting + vectors.shape[1] * 4 * count,
    )
