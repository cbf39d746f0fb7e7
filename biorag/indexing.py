"""Bringing a corpus into an index: survey it first, then encode and write what is new or changed."""

from __future__ import annotations

import hashlib
import heapq
import json
import logging
import resource
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from biorag.corpus.readers import OnReject, Reject, read_snippets
from biorag.corpus.sources import Source
from biorag.errors import BadInputError, MismatchError
from biorag.indexes.bm25 import Bm25Encoder, LengthCounter
from biorag.indexes.edge import EdgeIndex
from biorag.indexes.manifest import Manifest, SourceRecord, installed_versions
from biorag.indexes.points import payload
from biorag.indexes.progress import Progress, clear_progress, read_progress, write_progress
from biorag.indexes.store import Store, check_encoder, timestamp
from biorag.types import Encoded, Index, OnProgress, Snippet

logger = logging.getLogger(__name__)

SAMPLE = 256  # snippets of a survey's sample
OPTIMIZE_SECONDS = 5e-4  # of one snippet
TERM_BYTES, OVERHEAD_BYTES = 16, 120  # of a BM25 term, and of a point's ids and links

EncodeSnippets = Callable[[Sequence[str]], Encoded]


@dataclass(frozen=True, slots=True)
class Survey:
    """What a first pass over a corpus found.

    `superseded` holds the places (in reading order, from 0) of snippets whose id comes again later;
    `conflicts` those of them whose text is another. `avg_len` is the mean length in BM25 tokens, `sample` some
    of the snippets, drawn by the hash of their ids.
    """

    sources: tuple[SourceRecord, ...]
    snippets: int
    rejected: int
    superseded: frozenset[int]
    conflicts: frozenset[int]
    avg_len: float
    sample: tuple[Snippet, ...] = ()


@dataclass(frozen=True, slots=True)
class Estimate:
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


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What an indexing run did, as `biorag index --json` prints it."""

    name: str
    added: int
    updated: int
    unchanged: int
    rejected: int
    duplicates: int
    snippets: int
    seconds: float


class RejectsFile:
    """Writes rejected lines with their reasons as JSONL; makes the file at the first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self.damaged: list[str] = []
        path.unlink(missing_ok=True)

    def __call__(self, reject: Reject) -> None:
        """Append one rejected line."""
        self.count += 1
        if reject.damaged:
            self.damaged.append(f"{reject.file}, line {reject.line}: {reject.reason}")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as stream:
            row = {"file": reject.file, "line": reject.line, "reason": reject.reason, "text": reject.text}
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")


def survey(sources: Sequence[Source], rejects: RejectsFile | None, on_progress: OnProgress) -> Survey:
    """Read the whole corpus once, so that nothing bad is indexed and the statistics are known.

    Memory: 16 bytes a snippet, and a sample. Bad lines raise, or go to `rejects` if it is given.

    Raises
    ------
    BadInputError
        At the first bad line, or if the corpus holds no snippet.
    """
    ids, texts = array("Q"), array("Q")
    length_of, tokens = LengthCounter(), 0
    sample: list[tuple[int, int, Snippet]] = []
    records = []
    for source in sources:
        before = len(ids)
        for snippet in read_snippets(source, rejects):
            ids.append(_hash64(snippet.id))
            texts.append(_hash64(snippet.digest))
            tokens += length_of(snippet.contents)
            _draw(sample, (ids[-1], len(ids), snippet))
            on_progress(1)
        records.append(SourceRecord(source.name, source.sha256(), source.bytes, len(ids) - before))
    if not ids:
        raise BadInputError(f"the corpus {', '.join(source.name for source in sources)} holds no snippet")
    superseded, conflicts = _repeated(np.frombuffer(ids, np.uint64), np.frombuffer(texts, np.uint64))
    rejected = rejects.count if rejects else 0
    drawn = tuple(snippet for _, _, snippet in sample)
    return Survey(tuple(records), len(ids), rejected, superseded, conflicts, tokens / len(ids), drawn)


def _draw(sample: list[tuple[int, int, Snippet]], candidate: tuple[int, int, Snippet]) -> None:
    """Keep the candidates with the largest hashes: a draw of equal chances that a second run repeats."""
    if len(sample) < SAMPLE:
        heapq.heappush(sample, candidate)
    else:
        heapq.heappushpop(sample, candidate)


def estimate(manifest: Manifest, found: Survey, encode: EncodeSnippets, batch_size: int) -> Estimate:
    """Return what indexing all of it would take, by encoding and writing the sample into an embedded scratch index.

    The graph's time is that of 14,448 snippets on 2 cores; it matters little beside the encoding.
    """
    snippets, count = found.sample, found.snippets - len(found.superseded)
    texts = [snippet.contents for snippet in snippets]
    encode(texts[:8])  # what is loaded and compiled at the first call is no part of the rate
    started = time.perf_counter()
    vectors, tokens = encode(texts)
    with (
        tempfile.TemporaryDirectory(prefix="biorag-estimate-") as folder,
        closing(EdgeIndex(Path(folder), manifest, writable=True)) as scratch,
    ):
        scratch.upsert(snippets, vectors, tokens)
    seconds = (time.perf_counter() - started) / len(snippets) + OPTIMIZE_SECONDS
    bm25 = Bm25Encoder(manifest.bm25)
    terms = sum(len(bm25.document(text).indices) for text in texts)
    text_bytes = sum(len(json.dumps(payload(snippet), ensure_ascii=False).encode()) for snippet in snippets)
    dense = vectors.shape[1] * (5 if manifest.quantized else 4)
    numbers = sum(found.size for found in tokens)
    each = dense + OVERHEAD_BYTES + round((TERM_BYTES * terms + text_bytes + 2 * numbers) / len(snippets))
    waiting = 4 * numbers * max(0, batch_size - len(snippets)) // len(snippets)  # a batch's, until they are written
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Estimate(
        name=manifest.name,
        snippets=count,
        sample=len(snippets),
        seconds=round(seconds * count, 1),
        bytes=each * count,
        bytes_per_snippet=each,
        memory_bytes=peak + waiting + vectors.shape[1] * 4 * count,
    )


def _hash64(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _repeated(ids: np.ndarray, texts: np.ndarray) -> tuple[frozenset[int], frozenset[int]]:
    """Return the places whose id comes again later, and those of them with another text than the last."""
    order = np.argsort(ids, kind="stable")
    again = np.flatnonzero(ids[order][:-1] == ids[order][1:])
    superseded = order[again]
    last: dict[int, int] = {}
    for place in order[again + 1]:
        last[int(ids[place])] = int(texts[place])
    conflicts = [place for place in superseded if int(texts[place]) != last[int(ids[place])]]
    return frozenset(map(int, superseded)), frozenset(map(int, conflicts))


def write_index(
    store: Store,
    manifest: Manifest,
    sources: Sequence[Source],
    found: Survey,
    load_encoder: Callable[[], EncodeSnippets],
    on_progress: OnProgress,
    rejects: OnReject | None = None,
) -> IndexReport:
    """Bring the surveyed corpus into the index; what it holds unchanged is neither encoded nor written.

    Every batch is durable when it is counted and in the progress record, so a killed run goes on where it stopped:
    it writes again what the record names as being written.

    Raises
    ------
    ServiceError
        If another process is using the index, or the store fails.
    """
    started = time.perf_counter()
    index = store.open(manifest, writable=True)
    try:
        # Under the lock, so that what another run wrote meanwhile is not overwritten.
        manifest = _still_fits(store.manifest(), manifest)
        store.save(replace(manifest, complete=False, updated=timestamp(), checksums=None))
        torn = frozenset() if manifest.complete else frozenset(read_progress(store.folder).batch)
        writer = _Writer(index, load_encoder, store.folder, torn)
        for batch in _batches(_winners(sources, found, rejects), store.config.batch_size):
            writer.write(batch)
            on_progress(len(batch))
        write_progress(store.folder, Progress(writer.done))
        if writer.added or writer.updated or not manifest.complete:
            index.optimize()
        snippets = index.count()
        seconds = round(time.perf_counter() - started, 3)
        store.save(replace(_finished(manifest, found, snippets, seconds), checksums=index.seal()))
        clear_progress(store.folder)
    finally:
        index.close()
    return IndexReport(
        name=manifest.name,
        added=writer.added,
        updated=writer.updated,
        unchanged=writer.unchanged,
        rejected=found.rejected,
        duplicates=len(found.superseded),
        snippets=snippets,
        seconds=seconds,
    )


def _still_fits(current: Manifest | None, planned: Manifest) -> Manifest:
    """Return the manifest as it is now; another run may have made the index since this one was planned."""
    if current is None:
        return planned
    check_encoder(current, planned.encoder.sha256, planned.encoder.id)
    if current.tokens != planned.tokens:
        raise MismatchError(f"index {current.name!r} was made meanwhile, with other token vectors: run the same again")
    return current


class _Writer:
    """Encodes and writes the snippets of a batch that the index does not hold as they are, or that are `torn`.

    Torn are the ids of the batch that a run was writing when it ended early.
    """

    def __init__(
        self, index: Index, load_encoder: Callable[[], EncodeSnippets], folder: Path, torn: frozenset[str]
    ) -> None:
        self._index = index
        self._load_encoder = load_encoder
        self._folder = folder
        self._torn = torn
        self._encode: EncodeSnippets | None = None
        self.added = self.updated = self.unchanged = 0

    @property
    def done(self) -> int:
        """How many of the corpus's snippets the index holds durably."""
        return self.added + self.updated + self.unchanged

    def write(self, batch: Sequence[Snippet]) -> None:
        """Bring one batch into the index."""
        held = self._index.digests([snippet.id for snippet in batch])
        new = [snippet for snippet in batch if held.get(snippet.id) != snippet.digest]
        todo = [snippet for snippet in batch if held.get(snippet.id) != snippet.digest or snippet.id in self._torn]
        if todo:
            self._encode = self._encode or self._load_encoder()
            write_progress(self._folder, Progress(self.done, tuple(snippet.id for snippet in todo)))
            self._index.upsert(todo, *self._encode([snippet.contents for snippet in todo]))
        updated = sum(snippet.id in held for snippet in new)
        self.updated += updated
        self.added += len(new) - updated
        self.unchanged += len(batch) - len(new)


def _winners(sources: Sequence[Source], found: Survey, rejects: OnReject | None) -> Iterator[Snippet]:
    """Yield the snippets of all sources without those whose id comes again later."""
    place = 0
    for source in sources:
        for snippet in read_snippets(source, rejects):
            if place in found.conflicts:
                logger.warning("id %r comes again with other text; the later one wins", snippet.id)
            if place not in found.superseded:
                yield snippet
            place += 1


def _batches(snippets: Iterator[Snippet], size: int) -> Iterator[list[Snippet]]:
    while batch := list(islice(snippets, size)):
        yield batch


def _finished(manifest: Manifest, found: Survey, snippets: int, seconds: float) -> Manifest:
    """Return the manifest after a run; a source read again unchanged keeps one record."""
    sources = {(record.name, record.sha256): record for record in (*manifest.sources, *found.sources)}
    return replace(
        manifest,
        sources=tuple(sources.values()),
        snippets=snippets,
        seconds=round(manifest.seconds + seconds, 3),
        complete=True,
        updated=timestamp(),
        versions=installed_versions(),
    )
