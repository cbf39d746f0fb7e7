"""An estimate of indexing a surveyed corpus, by encoding and writing a sample of it."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

from biorag.errors import BadInputError
from biorag.indexes.bm25 import Bm25Encoder
from biorag.indexes.manifest import Manifest
from biorag.indexes.points import payload
from biorag.indexes.store import open_embedded
from biorag.indexes.surveying import Survey
from biorag.indexes.updating import EncodeSnippets
from biorag.types import Snippet
from biorag.utils.files import scratch_folder

Result = TypeVar("Result")
OPTIMIZE_SECONDS = 5e-4  # of one snippet
FEW, ENCODING_SECONDS = 32, 2.0  # encoded first; and how long to encode the sample by which the rate is told
TERM_BYTES, OVERHEAD_BYTES = 16, 120  # of a BM25 term, and of a point's ids and links


@dataclass(frozen=True, slots=True)
class IndexEstimate:
    """The estimate of an indexing run: seconds of all and of its parts, bytes on disk at the end, bytes of memory.

    `loading` is of the encoder, `reading` of the files, twice: they are checked before anything is written. While
    segments are merged, the disk holds up to twice as much.
    """

    name: str
    snippets: int
    sample: int
    seconds: float
    parts: Mapping[str, float]
    bytes: int
    bytes_per_snippet: int
    memory_bytes: int


def index_bytes(dimension: int, quantized: bool, terms: float, text_bytes: float, token_bytes: float) -> float:
    """Return the bytes on disk of one snippet: vector, int8 copy, ids and links, BM25 terms, text and token vectors."""
    return dimension * (5 if quantized else 4) + OVERHEAD_BYTES + TERM_BYTES * terms + text_bytes + token_bytes


def estimate(plan: Callable[[], Manifest], survey: Survey, load: Callable[[], EncodeSnippets]) -> IndexEstimate:
    """Return what indexing the corpus would take, by the survey's sample, or as much of it as is encoded in 2 seconds.

    `load` loads the encoder, which takes long the first time, and `plan` returns the manifest of the index. The work of
    encoding grows with a text's characters. The graph's time is that of 14,448 snippets on 2 cores; it matters little
    beside the encoding.

    Raises `BadInputError` if the index holds every snippet of the corpus already.
    """
    if not survey.sample:
        raise BadInputError(f"nothing is new in this corpus: index {plan().name!r} holds it already")
    encode, loading = _timed(load)
    manifest = plan()
    _, few = _timed(lambda: encode(survey.sample[:FEW]))  # at first also what is compiled for later calls
    sample = survey.sample[: max(FEW, int(FEW * ENCODING_SECONDS / few))]
    (vectors, tokens, _), encoding = _timed(lambda: encode(sample))
    places = [number % len(sample) for number in range(len(survey.sample))]  # all at once, as a run writes them
    written = vectors[places], [tokens[place] for place in places] if tokens else tokens
    with (
        scratch_folder() as folder,
        closing(open_embedded(folder, manifest, writable=True)) as scratch,
    ):
        _, writing = _timed(lambda: scratch.upsert(survey.sample, *written))
    size, times = len(survey.sample), _characters(survey.sample) / _characters(sample)
    parts = {
        "loading": loading,
        "reading": 2 * survey.seconds,
        "encoding": survey.blocks * encoding * times / size,
        "writing": survey.blocks * (writing / size + OPTIMIZE_SECONDS),
    }
    dimension = vectors.shape[1]
    numbers = round(sum(rows.size for rows in tokens) * times)
    snippet_bytes = _snippet_bytes(manifest, survey.sample, dimension, numbers)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return IndexEstimate(
        name=manifest.name,
        snippets=survey.blocks,
        sample=len(sample),
        seconds=round(sum(parts.values()), 1),
        parts={part: round(seconds, 1) for part, seconds in parts.items()},
        bytes=snippet_bytes * survey.blocks,
        bytes_per_snippet=snippet_bytes,
        memory_bytes=peak + dimension * 4 * survey.blocks,
    )


def _timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """Return what work returns, and its seconds."""
    started = time.perf_counter()
    return work(), time.perf_counter() - started


def _characters(snippets: Sequence[Snippet]) -> int:
    return sum(len(snippet.contents) for snippet in snippets)


def _snippet_bytes(manifest: Manifest, sample: Sequence[Snippet], dimension: int, numbers: int) -> int:
    """Return the mean bytes on disk of a sample's snippets, which have so many numbers of token vectors."""
    bm25 = Bm25Encoder.of(manifest)
    terms = sum(len(bm25.document(snippet.contents).indices) for snippet in sample)
    texts = sum(len(json.dumps(payload(snippet), ensure_ascii=False).encode()) for snippet in sample)
    tokens = numbers * manifest.tokens.bits // 8 if manifest.tokens else 0
    means = [total / len(sample) for total in (terms, texts, tokens)]
    return round(index_bytes(dimension, manifest.quantized, *means))
