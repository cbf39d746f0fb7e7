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
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from pathlib import Path

import numpy as np

from biorag.batched import batched
from biorag.corpus.blocks import WHOLE, Splitter
from biorag.corpus.readers import OnReject, Reject, read_changes
from biorag.corpus.sources import Source, is_xml
from biorag.errors import BadInputError, MismatchError
from biorag.indexes.bm25 import Bm25Encoder, LengthCounter
from biorag.indexes.edge import EdgeIndex
from biorag.indexes.manifest import Manifest, SourceRecord, installed_versions
from biorag.indexes.points import payload
from biorag.indexes.progress import Progress, clear_progress, read_progress, write_progress
from biorag.indexes.store import Store, check_encoder, timestamp
from biorag.types import Change, Deletion, OnProgress, Snippet
from biorag.updates import EncodeSnippets, Updater, Winner, revision

logger = logging.getLogger(__name__)

SAMPLE = 256  # snippets of a survey's sample
OPTIMIZE_SECONDS = 5e-4  # of one snippet
TERM_BYTES, OVERHEAD_BYTES = 16, 120  # of a BM25 term, and of a point's ids and links

# Changes of one id are ordered by a number: a PubMed record's version and date, 0 of another snippet.
DELETED, UNDATED = 2**32 - 1, 0
HIGHEST_VERSION = 126  # so that no record's number is a deletion's


@dataclass(frozen=True, slots=True)
class Survey:
    """What a first pass over a corpus found.

    Places count changes (snippets and deletions) in reading order, from 0. `superseded` holds those that another
    change of the same id takes the place of; `conflicts` those of them that are snippets without a version whose text
    is another; `revived` the snippets that count whatever the index holds, since a deletion came before. `skipped`
    are the PubMed files that the index has taken in before, with `known` snippets. `blocks` is about the
    number of snippets after splitting, without the superseded; `avg_len` is their mean length in BM25 tokens, `sample`
    some of them, drawn by the hash of their ids.
    """

    sources: tuple[SourceRecord, ...]
    snippets: int
    rejected: int
    superseded: frozenset[int]
    conflicts: frozenset[int]
    avg_len: float
    blocks: int
    sample: tuple[Snippet, ...] = ()
    deletions: int = 0
    revived: frozenset[int] = frozenset()
    skipped: frozenset[Source] = frozenset()
    known: int = 0

    @property
    def changes(self) -> int:
        """How many changes are left to be made."""
        return self.snippets + self.deletions - len(self.superseded)


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
    """What an indexing run did, as `biorag index --json` prints it.

    All but `snippets`, what the index holds in the end, count documents.
    """

    name: str
    added: int
    updated: int
    unchanged: int
    deleted: int
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


@dataclass(slots=True)
class _Tally:
    """What a survey adds up: per change the hash of its id, and its number (32 bits) before the hash of its text."""

    ids: array[int] = field(default_factory=lambda: array("Q"))
    texts: array[int] = field(default_factory=lambda: array("Q"))
    snippets: int = 0
    deletions: int = 0
    blocks: int = 0
    tokens: int = 0
    sample: list[tuple[int, int, Snippet]] = field(default_factory=list)
    length_of: LengthCounter = field(default_factory=LengthCounter)

    def add(self, change: Change, split: Splitter) -> None:
        """Count one change."""
        self.ids.append(_hash64(change.id))
        if isinstance(change, Deletion):
            self.texts.append(DELETED << 32)
            self.deletions += 1
            return
        self.texts.append(_number(change) << 32 | _hash64(change.digest) >> 32)
        self.snippets += 1
        for block in split(change):
            self.blocks += 1
            self.tokens += self.length_of(block.contents)
            _draw(self.sample, (_hash64(block.id), self.blocks, block))


def survey(
    sources: Sequence[Source],
    rejects: RejectsFile | None,
    on_progress: OnProgress,
    split: Splitter = WHOLE,
    taken: Sequence[SourceRecord] = (),
) -> Survey:
    """Read the whole corpus once, so that nothing bad is indexed and the statistics are known.

    Memory: 16 bytes a change, and a sample. Bad lines raise, or go to `rejects` if it is given. PubMed files that
    stand in `taken`, what the index was made from, are not read again: later files may have changed what they said.

    Raises
    ------
    BadInputError
        At the first bad line, or if the corpus holds no snippet.
    """
    tally = _Tally()
    before = {record.sha256: record for record in taken}
    records: list[SourceRecord] = []
    skipped: dict[Source, SourceRecord] = {}
    for source in sources:
        record = SourceRecord(source.name, source.sha256(), source.bytes, 0)
        known = before.get(record.sha256)
        if known and is_xml(source):
            skipped[source] = known
            # What is wrong with it is said again.
            deque(read_changes(source, rejects, split.check) if known.rejected else (), maxlen=0)
            continue
        earlier = tally.snippets, tally.deletions, rejects.count if rejects else 0
        for change in read_changes(source, rejects, split.check):
            tally.add(change, split)
            on_progress(1)
        counts = tally.snippets, tally.deletions, rejects.count if rejects else 0
        snippets, deletions, rejected = (now - then for now, then in zip(counts, earlier, strict=True))
        records.append(replace(record, snippets=snippets, deletions=deletions, rejected=rejected))
    if not (tally.ids or skipped) or not (tally.snippets or taken):
        raise BadInputError(f"the corpus {', '.join(source.name for source in sources)} holds no snippet")
    texts = np.frombuffer(tally.texts, np.uint64)
    superseded, conflicts, revived = _repeated(np.frombuffer(tally.ids, np.uint64), texts)
    left = tally.snippets - sum(int(texts[place]) >> 32 != DELETED for place in superseded)
    return Survey(
        sources=tuple(records),
        snippets=tally.snippets,
        rejected=rejects.count if rejects else 0,
        superseded=superseded,
        conflicts=conflicts,
        avg_len=tally.tokens / max(1, tally.blocks),
        blocks=round(tally.blocks * left / max(1, tally.snippets)),
        sample=tuple(snippet for _, _, snippet in tally.sample),
        deletions=tally.deletions,
        revived=revived,
        skipped=frozenset(skipped),
        known=sum(record.snippets for record in skipped.values()),
    )


def _number(snippet: Snippet) -> int:
    """Return 32 bits that order the snippets of one id: version, then the date of revision."""
    version, revised = revision(snippet)
    return min(version, HIGHEST_VERSION) << 25 | int(revised.replace("-", "").ljust(8, "0"))


def _draw(sample: list[tuple[int, int, Snippet]], candidate: tuple[int, int, Snippet]) -> None:
    """Keep the candidates with the largest hashes: a draw of equal chances that a second run repeats."""
    if len(sample) < SAMPLE:
        heapq.heappush(sample, candidate)
    else:
        heapq.heappushpop(sample, candidate)


def estimate(manifest: Manifest, found: Survey, encode: EncodeSnippets, batch_size: int) -> Estimate:
    """Return what indexing all of it would take, by encoding and writing the sample into an embedded scratch index.

    The graph's time is that of 14,448 snippets on 2 cores; it matters little beside the encoding.

    Raises
    ------
    BadInputError
        If no snippet was found that the index has not taken in before.
    """
    if not found.sample:
        raise BadInputError(f"nothing is new in this corpus: index {manifest.name!r} has taken it in before")
    snippets, count = found.sample, found.blocks
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


def _repeated(ids: np.ndarray, texts: np.ndarray) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
    """Return the superseded, conflicting and revived places of a survey.

    Of the changes of one id since its last deletion the one with the highest number wins, the last of equals; where
    there is none since, the deletion does.

    Parameters
    ----------
    ids, texts : of each change, as `_Tally` has them
    """
    order = np.argsort(ids, kind="stable")
    starts = np.flatnonzero(np.r_[True, ids[order][1:] != ids[order][:-1]])
    ends = np.r_[starts[1:], len(order)]
    superseded: set[int] = set()
    conflicts: set[int] = set()
    revived: set[int] = set()
    for group in np.flatnonzero(ends - starts > 1):
        places = order[starts[group] : ends[group]].tolist()
        words = texts[places].tolist()
        numbers = [word >> 32 for word in words]
        deletion = max((place for place, number in enumerate(numbers) if number == DELETED), default=-1)
        winner = max(range(deletion + 1, len(places)), key=lambda place: (numbers[place], place), default=deletion)
        superseded.update(places[:winner] + places[winner + 1 :])
        if winner > deletion >= 0:
            revived.add(places[winner])
        if numbers[winner] == UNDATED:
            others = (place for place, number in enumerate(numbers) if number == UNDATED)
            conflicts.update(places[place] for place in others if words[place] != words[winner])
    return frozenset(superseded), frozenset(conflicts), frozenset(revived)


def write_index(
    store: Store,
    manifest: Manifest,
    sources: Sequence[Source],
    found: Survey,
    load_encoder: Callable[[], EncodeSnippets],
    on_progress: OnProgress,
    rejects: OnReject | None = None,
    split: Splitter = WHOLE,
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
        torn = frozenset(read_progress(store.folder).batch)
        updater = Updater(index, load_encoder, split, torn, partial(write_progress, store.folder))
        for batch in batched(_winners(sources, found, rejects, split), store.config.batch_size):
            updater.write(batch)
            on_progress(len(batch))
        write_progress(store.folder, Progress(updater.done, tuple(sorted(updater.torn))))
        if updater.added or updater.updated or updater.deleted or not manifest.complete:
            index.optimize()
        snippets = index.count()
        seconds = round(time.perf_counter() - started, 3)
        store.save(replace(_finished(manifest, found, snippets, seconds), checksums=index.seal()))
        if not updater.torn:
            clear_progress(store.folder)
    finally:
        index.close()
    return IndexReport(
        name=manifest.name,
        added=updater.added,
        updated=updater.updated,
        unchanged=updater.unchanged + found.known,
        deleted=updater.deleted,
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
    fixed = attrgetter("tokens", "blocks", "similarity", "quantized", "bm25")
    if fixed(current) != fixed(planned):
        raise MismatchError(f"index {current.name!r} was made meanwhile, with other settings: run the same again")
    return current


def _winners(sources: Sequence[Source], found: Survey, rejects: OnReject | None, split: Splitter) -> Iterator[Winner]:
    """Yield the changes of all sources without those that another one takes the place of."""
    new = (source for source in sources if source not in found.skipped)
    changes = (change for source in new for change in read_changes(source, rejects, split.check))
    for place, change in enumerate(changes):
        if place in found.conflicts:
            logger.warning("id %r comes again with other text; the later one wins", change.id)
        if place not in found.superseded:
            yield Winner(change, place in found.revived)


def _finished(manifest: Manifest, found: Survey, snippets: int, seconds: float) -> Manifest:
    """Return the manifest after a run; a source read again unchanged keeps one record, in its first place."""
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
