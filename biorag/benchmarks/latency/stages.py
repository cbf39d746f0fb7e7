"""Times of biorag's stages: indexing, encoding questions, first stage, reranking, generation, and all of them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from biorag.answering.answerer import Answerer
from biorag.corpus.datasets import drawn
from biorag.corpus.sentences import sentences
from biorag.engine import load_checker
from biorag.errors import BadInputError
from biorag.indexes.bm25 import Bm25Encoder
from biorag.indexes.manifest import Manifest
from biorag.indexes.reading import stored_snippets
from biorag.indexes.store import open_embedded
from biorag.indexes.updating import EncodeSnippets
from biorag.models.caching import CachedEncoder
from biorag.retrieval.retriever import Retriever, Stopwatch
from biorag.settings.settings import Settings
from biorag.types import Encoder, Generator, Index, IndexQuery, OnProgress, Question, Reranker, Snippet
from biorag.utils.progress import batched

MODES = ("bm25", "dense", "hybrid")
FETCH = 1000  # snippets fetched at once
WARM_UP = 8  # snippets encoded before the encoder's time counts
TITLES = 1000  # questions that titles stand in for, where none are given
GENERATED = 10  # questions that the generator answers
LEAST = 3  # calls that are timed however long they take

Sample = Callable[[int], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds of `n` calls; percentiles are interpolated linearly, as NumPy does by default."""

    n: int
    mean: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Repetition:
    """How often to call: `warm_up` untimed calls, then `repetitions` timed ones, both cut short after `seconds`."""

    repetitions: int
    warm_up: int
    seconds: float


def summary(milliseconds: Sequence[float]) -> Timing:
    """Return the mean and percentiles of at least one call."""
    p50, p95, p99 = (round(float(value), 4) for value in np.percentile(milliseconds, [50, 95, 99]))
    return Timing(len(milliseconds), round(float(np.mean(milliseconds)), 4), p50, p95, p99)


def collect(sample: Sample, repetition: Repetition) -> dict[str, Timing]:
    """Call `sample` repeatedly and summarise each of the times that it returns.

    `sample` takes the number of the call, from 0, and returns milliseconds by name. One call warms up and `LEAST` are
    timed (if as many are asked for), however long they take.
    """
    for turn in _turns(repetition.warm_up, 1, repetition.seconds):
        sample(turn)
    samples: dict[str, list[float]] = {}
    for turn in _turns(repetition.repetitions, LEAST, repetition.seconds):
        for name, milliseconds in sample(repetition.warm_up + turn).items():
            samples.setdefault(name, []).append(milliseconds)
    return {name: summary(milliseconds) for name, milliseconds in samples.items()}


def timed(call: Callable[[int], float], repetition: Repetition) -> Timing:
    """Summarise the milliseconds that a call returns; see `collect`."""
    return collect(lambda turn: {"ms": call(turn)}, repetition)["ms"]


def _turns(most: int, least: int, seconds: float) -> Iterator[int]:
    """Yield the numbers of at most `most` calls, no more than `least` once the seconds are over."""
    started = time.perf_counter()
    for turn in range(most):
        if turn >= least and time.perf_counter() - started > seconds:
            return
        yield turn


def elapsed_ms(function: Callable[[], object]) -> float:
    """Return the milliseconds that one call takes."""
    started = time.perf_counter()
    function()
    return (time.perf_counter() - started) * 1000


def batch_of(items: Sequence[str], size: int, turn: int) -> list[str]:
    """Return the batch of `size` items for this turn, repeating items if there are fewer.

    An encoder may cache its last batch, so each batch differs from the one before it.
    """
    start = turn * (size % len(items) or 1)
    return [items[(start + offset) % len(items)] for offset in range(size)]


@dataclass(frozen=True, slots=True)
class Subject:
    """An opened index, its encoder, and the questions asked of it."""

    settings: Settings
    manifest: Manifest
    index: Index
    encoder: Encoder
    encode: EncodeSnippets
    questions: Sequence[str]


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds per snippet, and snippets per second."""

    ms_per_snippet: float
    snippets_per_s: float


def sampled(index: Index, count: int, seed: int) -> list[Snippet]:
    """Return `count` of the index's snippets in its own order, all of them if it has no more."""
    ids = drawn(list(index.ids()), count, seed)
    snippets = {id: snippet for batch in batched(ids, FETCH) for id, snippet in index.fetch(batch).items()}
    return [snippets[id] for id in ids]


def titles(index: Index, limit: int, seed: int) -> list[str]:
    """Return titles of snippets, or first sentences where there is no title, in place of questions."""
    snippets = sampled(index, limit, seed)
    texts = (snippet.title.strip() or next(iter(sentences(snippet.content)), "") for snippet in snippets)
    return list(dict.fromkeys(text for text in texts if text))


def distinct(questions: Sequence[str]) -> list[str]:
    """Return the questions without duplicates.

    Raises `BadInputError` if fewer than two are left: an encoder caches its last questions.
    """
    texts = list(dict.fromkeys(questions))
    if len(texts) < 2:
        raise BadInputError("there are fewer than two different questions to measure with: add more with --questions")
    return texts


def indexing(
    subject: Subject, snippets: Sequence[Snippet], folder: Path, on_progress: OnProgress = lambda _: None
) -> dict[str, Cost]:
    """Index snippets again in an embedded index in `folder`, as `biorag index` does, and return each part's cost.

    "bm25" is a part of "write", measured alone; "total" is the sum of "encode", "write" and "optimize".
    """
    bm25, watch = Bm25Encoder.of(subject.manifest), Stopwatch()
    subject.encode(snippets[:WARM_UP])
    with closing(open_embedded(folder, subject.manifest, writable=True)) as index:
        for batch in batched(snippets, subject.settings.index.batch_size):
            with watch.stage("encode"):
                vectors, tokens, _ = subject.encode(batch)
            with watch.stage("bm25"):
                for snippet in batch:
                    bm25.document(snippet.contents)
            with watch.stage("write"):
                index.upsert(batch, vectors, tokens)
            on_progress(len(batch))
        with watch.stage("optimize"):
            index.optimize()
    total = sum(watch.ms[stage] for stage in ("encode", "write", "optimize"))
    return {stage: _cost(ms, len(snippets)) for stage, ms in {**watch.ms, "total": total}.items()}


def _cost(ms: float, snippets: int) -> Cost:
    return Cost(round(ms / snippets, 4), round(snippets / max(ms / 1000, 1e-9), 1))


def encoding(
    encoder: Encoder, questions: Sequence[str], sizes: Sequence[int], repetition: Repetition
) -> dict[int, Timing]:
    """Return the time to encode a batch of questions, by the size of the batch."""

    def encode(size: int, turn: int) -> float:
        batch = batch_of(questions, size, turn)
        return elapsed_ms(lambda: encoder.encode_queries(batch))

    return {size: timed(partial(encode, size), repetition) for size in sizes}


def first_stage(
    subject: Subject, known: CachedEncoder, settings: Settings, sizes: Sequence[int], repetition: Repetition
) -> dict[int, Timing]:
    """Return the time of the configured first stage for a batch of encoded questions, by the size of the batch.

    It is the retriever's own, down to `k_init` snippets, without encoding (`known` has all vectors) and fetching.
    """
    retriever = Retriever(subject.index, known, None, settings.retrieval)

    def search(size: int, turn: int) -> float:
        batch = batch_of(subject.questions, size, turn)
        return size * retriever.search_all(batch, settings.retrieval.k_init)[0].timings_ms["first_stage"]

    return {size: timed(partial(search, size), repetition) for size in sizes}


def exact(subject: Subject, depth: int, sizes: Sequence[int], repetition: Repetition) -> dict[int, dict[str, Timing]]:
    """Return the time to encode a batch of questions, to compare them with all vectors, and of both, by its size.

    BiCA's Table 3 is of such a scan, by FAISS (IndexFlatIP) over 10,000 passages, for the first 1,000; here the store
    scans.
    """

    def search(size: int, turn: int) -> dict[str, float]:
        batch, watch = batch_of(subject.questions, size, turn), Stopwatch()
        with watch.stage("encode"):
            vectors = subject.encoder.encode_queries(batch)
        with watch.stage("search"):
            subject.index.search([IndexQuery(vector, depth, exact=True) for vector in vectors])
        return {**watch.ms, "total": sum(watch.ms.values())}

    return {size: collect(partial(search, size), repetition) for size in sizes}


def rank_bm25_search(ids: Sequence[str], texts: Sequence[str], top: int) -> Callable[[str], list[str]]:
    """Return BM25 search by rank_bm25 over lower-cased words, which scores every text.

    ModernBERT + ColBERT's Table 3 has a BM25 of 3.9 s a query over a million texts, without naming it.
    """
    from rank_bm25 import BM25Okapi

    words = re.compile(r"\w+").findall
    bm25 = BM25Okapi([words(text.lower()) for text in texts])
    return lambda question: bm25.get_top_n(words(question.lower()), ids, n=top)


def rank_bm25(
    index: Index, questions: Sequence[str], top: int, repetition: Repetition
) -> tuple[Cost, dict[int, Timing]]:
    """Return the cost of indexing the index's snippets by rank_bm25, and the time of one question, as `first_stage`."""
    snippets, watch = list(stored_snippets(index)), Stopwatch()
    ids, texts = [snippet.id for snippet in snippets], [snippet.contents for snippet in snippets]
    with watch.stage("index"):
        search = rank_bm25_search(ids, texts, top)
    asked = timed(lambda turn: elapsed_ms(lambda: search(questions[turn % len(questions)])), repetition)
    return _cost(watch.ms["index"], len(texts)), {1: asked}


def reranking(retriever: Retriever, reranker: Reranker, questions: Sequence[str], repetition: Repetition) -> Timing:
    """Return the time in which a reranker scores the hits of one question."""

    def score(turn: int) -> float:
        question = questions[turn % len(questions)]
        snippets = [hit.snippet for hit in retriever.search(question).hits]
        return elapsed_ms(lambda: reranker.score_all([question], [snippets]))

    return timed(score, repetition)


def generation(
    retriever: Retriever, generator: Generator, settings: Settings, questions: Sequence[str], repetition: Repetition
) -> tuple[Timing, Timing]:
    """Answer at most `GENERATED` questions; return the generator's time and the time of the whole answer."""
    answerer = Answerer(retriever, generator, settings, checker=load_checker(settings))
    few = replace(repetition, repetitions=min(repetition.repetitions, GENERATED, len(questions) - 1), warm_up=1)
    timings = collect(lambda turn: answerer.answer(Question(str(turn), questions[turn])).timings_ms, few)
    if "generate" not in timings:
        raise BadInputError("no evidence was found for the questions, so nothing was generated: use other --questions")
    return timings["generate"], timings["total"]
