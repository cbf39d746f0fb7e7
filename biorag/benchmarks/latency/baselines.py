"""biorag beside other packages: in one process, on the same data, by turns."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from biorag.benchmarks.latency.peers import (
    BM25_PEERS,
    QDRANT_LOCAL,
    RANK_BM25,
    SENTENCE_TRANSFORMERS,
    QdrantLocal,
    SentenceTransformers,
)
from biorag.benchmarks.latency.stages import WARM_UP, Subject, cost, scratch_index, stored
from biorag.benchmarks.latency.synthetic import exact_top, recall
from biorag.benchmarks.latency.timing import Effort, Timing, alternating, collect, in_turn, places
from biorag.retrieval.retriever import Stopwatch
from biorag.types import Encoder, FieldFilter, Index, IndexQuery, OnProgress, Snippet, Vectors
from biorag.utils.batched import batched

logger = logging.getLogger(__name__)

TOP = 10  # snippets that each search returns
JUDGED = 200  # questions whose recall is measured
ROUND = 256  # snippets that one side encodes and writes before the other's turn
SLOW = (RANK_BM25, QDRANT_LOCAL)  # a question takes them longer the more snippets there are


@dataclass(frozen=True, slots=True)
class Compared:
    """One task done by biorag and by another package.

    `unit` is "ms" (medians of the `timings`) or "snippets/s"; `ratio` says how many times as fast biorag is.
    `built_s` is how long the other package took to take the snippets in, in memory, before it could search. Recalls
    are of the exact top `TOP`.
    """

    baseline: str
    task: str
    snippets: int
    unit: str
    ours: float
    theirs: float
    ratio: float
    timings: Mapping[str, Timing] = field(default_factory=dict)
    built_s: float | None = None
    ours_recall: float | None = None
    theirs_recall: float | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """Questions and their vectors, (questions, dimension)."""

    questions: Sequence[str]
    vectors: Vectors


@dataclass(frozen=True, slots=True)
class Collection:
    """Snippets that an index of ours holds, in the order of `ids`, and their vectors where they are at hand."""

    ids: Sequence[str]
    snippets: Callable[[], Iterator[Snippet]]
    index: Index
    vectors: Vectors | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """Which baselines are compared, how long each is measured, and how many snippets the slow ones are given."""

    names: Sequence[str]
    effort: Effort
    limit: int

    def chosen(self, name: str, snippets: int) -> bool:
        """Return whether a baseline is compared on so many snippets."""
        if name in self.names and name in SLOW and snippets > self.limit:
            logger.warning("baseline %s is left out at %s snippets: see --peer-limit", name, f"{snippets:,}")
            return False
        return name in self.names


def compare_bm25(collection: Collection, questions: Sequence[str], terms: Terms) -> Iterator[Compared]:
    """Compare BM25 searches of the same snippets."""
    for name in BM25_PEERS:
        if terms.chosen(name, len(collection.ids)):
            yield _bm25(name, collection, questions, terms.effort)


def compare_dense(collection: Collection, asked: Asked, terms: Terms, similarity: str) -> Iterator[Compared]:
    """Compare dense searches of the same vectors; the other package's are never written to disk."""
    if terms.chosen(QDRANT_LOCAL, len(collection.ids)):
        with closing(QdrantLocal(None, asked.vectors.shape[1], similarity)) as peer:
            yield _dense(collection, asked, terms.effort, peer)


def _bm25(name: str, collection: Collection, questions: Sequence[str], effort: Effort) -> Compared:
    texts = [snippet.contents for snippet in collection.snippets()]
    started = time.perf_counter()
    peer = BM25_PEERS[name](collection.ids, texts)
    built = time.perf_counter() - started

    def asked(turn: int) -> str:
        return questions[turn % len(questions)]

    timings = collect(
        alternating(
            {
                "ours": lambda turn: collection.index.search([IndexQuery(asked(turn), TOP)]),
                "theirs": lambda turn: peer.search(asked(turn), TOP),
            }
        ),
        effort,
    )
    return replace(_of_times(name, "search, bm25", len(texts), timings), built_s=round(built, 3))


def _dense(collection: Collection, asked: Asked, effort: Effort, peer: QdrantLocal) -> Compared:
    assert collection.vectors is not None
    started, place = time.perf_counter(), 0
    for batch in batched(collection.snippets(), ROUND):
        peer.upsert(batch, np.asarray(collection.vectors[place : place + len(batch)]))
        place += len(batch)
    built = time.perf_counter() - started

    def vector(turn: int) -> Vectors:
        found: Vectors = asked.vectors[turn % len(asked.vectors)]
        return found

    timings = collect(
        alternating(
            {
                "ours": lambda turn: collection.index.search([IndexQuery(vector(turn), TOP)]),
                "theirs": lambda turn: peer.search(vector(turn), TOP),
            }
        ),
        effort,
    )
    judged = asked.vectors[: min(JUDGED, timings["theirs"].n)]
    exact = exact_ids(collection, judged)
    return replace(
        _of_times(QDRANT_LOCAL, "search, dense", len(collection.ids), timings),
        built_s=round(built, 3),
        ours_recall=dense_recall(collection.index, judged, exact),
        theirs_recall=round(recall([peer.search(query, TOP) for query in judged], exact), 4),
    )


def exact_ids(collection: Collection, queries: Vectors) -> list[list[str]]:
    """Return the ids that comparing each query with every vector finds, best first; the vectors must be there."""
    assert collection.vectors is not None
    return [[collection.ids[row] for row in rows] for rows in exact_top(collection.vectors, queries, TOP)]


def dense_recall(
    index: Index, queries: Vectors, exact: Sequence[Sequence[str]], where: tuple[FieldFilter, ...] = ()
) -> float:
    """Return the share of the exact ids that an index of ours finds."""
    found = index.search([IndexQuery(query, TOP, where) for query in queries])
    return round(recall([[scored.id for scored in listed] for listed in found], exact), 4)


def filtered_recall(index: Index, queries: Vectors, where: tuple[FieldFilter, ...]) -> float | None:
    """Return the share that an index of ours finds of what it finds without its graph; None if nothing qualifies."""
    found = index.search([IndexQuery(query, TOP, where, exact=True) for query in queries])
    if not all(found):
        return None
    return dense_recall(index, queries, [[scored.id for scored in listed] for listed in found], where)


def compare_encoding_queries(
    subject: Subject, peer: SentenceTransformers, sizes: Sequence[int], effort: Effort
) -> Iterator[Compared]:
    """Compare encoding batches of questions."""

    def batch(size: int, turn: int) -> list[str]:
        return [subject.questions[place] for place in places(len(subject.questions), size, turn)]

    def functions(size: int) -> dict[str, Callable[[int], object]]:
        return {
            "ours": lambda turn: subject.encoder.encode_queries(batch(size, turn)),
            "theirs": lambda turn: peer.encode_queries(batch(size, turn)),
        }

    for size in sizes:
        timings = collect(alternating(functions(size)), effort)
        yield _of_times(SENTENCE_TRANSFORMERS, f"encode {size} questions", 0, timings)


@dataclass(frozen=True, slots=True)
class Rivals:
    """The other packages' encoder and store; None for one that is not compared."""

    encoder: SentenceTransformers | None
    store: QdrantLocal | None


def compare_indexing(
    subject: Subject, snippets: Sequence[Snippet], rivals: Rivals, folder: Path, on_progress: OnProgress
) -> Iterator[Compared]:
    """Compare encoding snippets, writing them (with `optimize`, for ours), and where both are given, both together."""
    ms = _indexing_ms(subject, snippets, rivals, folder, on_progress)
    ours_write = ms["ours write"] + ms["ours optimize"]
    if rivals.encoder:
        yield _of_rates(SENTENCE_TRANSFORMERS, "encode", len(snippets), ms["ours encode"], ms["encode"])
    if rivals.store:
        yield _of_rates(QDRANT_LOCAL, "write", len(snippets), ours_write, ms["write"])
    if rivals.encoder and rivals.store:
        both = f"{SENTENCE_TRANSFORMERS} + {QDRANT_LOCAL}"
        ours, theirs = ms["ours encode"] + ours_write, ms["encode"] + ms["write"]
        yield _of_rates(both, "encode and write", len(snippets), ours, theirs)


def _indexing_ms(
    subject: Subject, snippets: Sequence[Snippet], rivals: Rivals, folder: Path, on_progress: OnProgress
) -> dict[str, float]:
    """Return the milliseconds of each part; both stores are given biorag's vectors."""
    encoders: dict[str, Encoder | SentenceTransformers] = {"ours encode": subject.encoder}
    if rivals.encoder:
        encoders["encode"] = rivals.encoder
    for encoder in encoders.values():
        encoder.encode_snippets([snippet.contents for snippet in snippets[:WARM_UP]])
    watch = Stopwatch()
    with closing(scratch_index(folder, subject.manifest, tokens=None)) as index:
        stores: dict[str, Index | QdrantLocal] = {"ours write": index}
        if rivals.store:
            stores["write"] = rivals.store
        for turn, batch in enumerate(batched(snippets, ROUND)):
            texts = [snippet.contents for snippet in batch]
            vectors: dict[str, Vectors] = {}
            for name in in_turn(encoders, turn):
                with watch.stage(name):
                    vectors[name] = encoders[name].encode_snippets(texts)
            for name in in_turn(stores, turn):
                with watch.stage(name):
                    stores[name].upsert(batch, vectors["ours encode"])
            on_progress(len(batch))
        with watch.stage("ours optimize"):
            index.optimize()
    return watch.ms


def encoded_collection(subject: Subject, folder: Path, on_progress: OnProgress) -> Collection:
    """Return all the index's snippets, encoded anew, in an embedded index that holds just these vectors.

    That index is the caller's to close.
    """
    ids, parts = list(subject.index.ids()), []
    with ExitStack() as stack:
        index = stack.enter_context(closing(scratch_index(folder, subject.manifest, tokens=None)))
        for batch in batched(stored(subject.index, ids), subject.settings.index.batch_size):
            parts.append(subject.encoder.encode_snippets([snippet.contents for snippet in batch]))
            index.upsert(batch, parts[-1])
            on_progress(len(batch))
        index.optimize()
        stack.pop_all()
    return Collection(ids, lambda: stored(subject.index, ids), index, np.concatenate(parts))


def _of_times(baseline: str, task: str, snippets: int, timings: Mapping[str, Timing]) -> Compared:
    ours, theirs = timings["ours"].p50, timings["theirs"].p50
    return Compared(baseline, task, snippets, "ms", ours, theirs, round(theirs / max(ours, 1e-6), 2), timings)


def _of_rates(baseline: str, task: str, snippets: int, ours_ms: float, theirs_ms: float) -> Compared:
    ours, theirs = (cost(taken / 1000, snippets).snippets_per_s for taken in (ours_ms, theirs_ms))
    return Compared(baseline, task, snippets, "snippets/s", ours, theirs, round(theirs_ms / max(ours_ms, 1e-6), 2))
