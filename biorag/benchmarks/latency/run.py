"""One run of `bench latency`: opens the index and measures every stage, the baselines and the growth."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from biorag.benchmarks.latency import baselines, growth, machine, memory, stages
from biorag.benchmarks.latency.baselines import Asked, Compared, Terms
from biorag.benchmarks.latency.growth import Grown
from biorag.benchmarks.latency.peers import QDRANT_LOCAL, SENTENCE_TRANSFORMERS, QdrantLocal, SentenceTransformers
from biorag.benchmarks.latency.report import Report, Stages
from biorag.benchmarks.latency.stages import Generated, Subject
from biorag.benchmarks.latency.synthetic import COPIES, ENCODED, NOISE, Corpus
from biorag.benchmarks.latency.timing import Timing
from biorag.corpus.datasets import load_dataset
from biorag.engine import (
    OpenIndex,
    SnippetEncoders,
    encoder_files,
    load_generator,
    load_rerankers,
    open_index,
    snippet_encoders,
    token_files,
)
from biorag.indexes.store import Store
from biorag.registries import STORES, generator_of
from biorag.retrieval.retriever import Retriever
from biorag.settings.settings import Settings
from biorag.types import Progress, Snippet, TokenEncoder
from biorag.utils.files import disk_bytes

logger = logging.getLogger(__name__)

# A forward pass of 5 ms took 504 ms on 2 busy cores: PyTorch's threads spin while they wait for one another.
BUSY = (
    "the load was %s on %s cores just before the start: wait until the machine is idle, or set "
    "OMP_WAIT_POLICY=passive; otherwise the timings include other programs' work"
)
SOURCES = 20_000  # snippets whose sentences are recombined
SYNTHETIC = (
    "Synthetic snippets: sentences of {sources:,} of the index's snippets recombined; the vectors of the first "
    "{encoded:,} are their own, those up to {copies:,} these with Gaussian noise of {noise} times their length, "
    "and the others points between two of these, with such noise."
)


@dataclass(frozen=True, slots=True)
class LatencyRequest:
    """What is measured.

    Attributes
    ----------
    questions : folder in BEIR layout; None: titles of the index's snippets
    limit : most questions
    index_limit : snippets that are indexed anew
    batch_sizes : questions encoded and searched at once
    sizes : numbers of synthetic snippets to measure growth at, ascending
    encoded : how many of these are encoded
    texts : whether these have texts; else only dense search is measured
    quantize : whether growth is measured with int8 vectors too
    """

    questions: Path | None
    limit: int | None
    index_limit: int
    batch_sizes: Sequence[int]
    sizes: Sequence[int]
    quantize: bool
    terms: Terms
    encoded: int = ENCODED
    texts: bool = True


def measure_latency(settings: Settings, request: LatencyRequest, progress: Progress) -> Iterator[Report]:
    """Open the index and measure all that is requested; memory first, before other packages are loaded.

    Yields the report of what is measured so far: without growth, and again after each size that it is measured at.
    """
    described, before = machine.describe(), memory.resident_bytes()
    # Without its own models, so that the encoder is loaded once.
    with open_index(settings.replace(mode="bm25", rerank=False)) as opened:
        questions = stages.checked(_questions(settings, request, opened))
        if described.busy:
            logger.warning(BUSY, described.load, described.cores)
        files = encoder_files(settings, opened.manifest)
        token_model = token_files(settings.replace(store_tokens=None), opened.manifest, files)
        encoders = snippet_encoders(settings, files, token_model, opened.manifest.similarity, opened.manifest)
        subject = Subject(settings, opened.manifest, opened.index, encoders.encoder, encoders, questions)
        memory_facts = {"before_bytes": before, "opened_bytes": memory.resident_bytes()}
        sample = stages.sampled(opened.index, request.index_limit, settings.seed)
        measured = _stages(subject, _retriever(subject, encoders), sample, request, progress)
        memory_facts["peak_bytes"] = memory.peak_bytes()
        asked = Asked(questions, subject.encoder.encode_queries(questions))
        report = Report(
            machine=described,
            index=_index_facts(settings, opened),
            settings=_settings_facts(subject, request, len(sample)),
            stages=measured,
            memory=memory_facts,
            baselines=list(_baselines(subject, asked, sample, request, files.path, progress)),
        )
        yield report
        for grown in _growth(subject, asked, request, progress):
            yield (report := replace(report, growth=(*report.growth, grown)))


def _questions(settings: Settings, request: LatencyRequest, opened: OpenIndex) -> Sequence[str]:
    if request.questions:
        return [question.text for question in load_dataset(request.questions).questions][: request.limit]
    return stages.titles(opened.index, request.limit or stages.TITLES, settings.seed)


def _retriever(subject: Subject, encoders: SnippetEncoders) -> Retriever:
    settings, manifest, index = subject.settings, subject.manifest, subject.index
    rerankers = load_rerankers(settings, encoders.encoder, index, manifest, loaded_token_models(encoders))
    return Retriever(index, encoders.encoder, rerankers, settings.retrieval, manifest.similarity)


def loaded_token_models(encoders: SnippetEncoders) -> dict[str, TokenEncoder]:
    """Return the model, by its SHA-256, that was loaded because the index stores its token vectors."""
    tokens, parameters = encoders.tokens, encoders.parameters
    return {parameters.sha256: tokens} if tokens and parameters else {}


def _stages(
    subject: Subject, retriever: Retriever, sample: Sequence[Snippet], request: LatencyRequest, progress: Progress
) -> Stages:
    settings, questions, effort = subject.settings, subject.questions, request.terms.effort
    known = stages.Known(subject.encoder.identity, questions, subject.encoder.encode_queries(questions))
    with progress("Indexing", len(sample)) as advance, tempfile.TemporaryDirectory(prefix="biorag-latency-") as folder:
        costs = stages.indexing(subject, sample, Path(folder) / "index", advance)
    with progress("Stages", len(stages.MODES) + 3) as advance:
        encoding = stages.encoding(subject.encoder, questions, request.batch_sizes, effort)
        advance(1)
        first = {}
        for mode in stages.MODES:
            searching = settings.replace(mode=mode, rerank=False)
            first[mode] = stages.first_stage(subject.index, known, searching, questions, request.batch_sizes, effort)
            advance(1)
        single = stages.one_by_one(retriever, questions, effort)
        advance(1)
        generated, answer = _generation(subject, retriever, request)
        advance(1)
    return Stages(costs, encoding, first, single, generated, answer)


def _generation(
    subject: Subject, retriever: Retriever, request: LatencyRequest
) -> tuple[Generated, Timing] | tuple[None, None]:
    settings = subject.settings
    generator = load_generator(settings)
    if generator is None:
        return None, None
    local = not generator_of(settings.generation.generator).remote
    return stages.generation(retriever, generator, settings, subject.questions, request.terms.effort, local)


def _baselines(
    subject: Subject,
    asked: Asked,
    sample: Sequence[Snippet],
    request: LatencyRequest,
    model: Path,
    progress: Progress,
) -> Iterator[Compared]:
    """Compare with the other packages on the index's own snippets: a sample to index, all to search."""
    terms, similarity = request.terms, subject.manifest.similarity
    if not terms.names:
        return
    with tempfile.TemporaryDirectory(prefix="biorag-latency-") as name:
        folder = Path(name)
        encoder = SentenceTransformers(model) if SENTENCE_TRANSFORMERS in terms.names else None
        store = None
        if QDRANT_LOCAL in terms.names:
            store = QdrantLocal(folder / "written", asked.vectors.shape[1], similarity)
        with closing(store) if store else nullcontext():
            if encoder or store:
                with progress("Baselines: indexing", len(sample)) as advance:
                    rivals = baselines.Rivals(encoder, store)
                    yield from baselines.compare_indexing(subject, sample, rivals, folder / "ours", advance)
        if encoder:
            yield from baselines.compare_encoding_queries(subject, encoder, request.batch_sizes, terms.effort)
        ids = list(subject.index.ids())
        bm25 = baselines.Collection(ids, lambda: stages.stored(subject.index, ids), subject.index)
        yield from baselines.compare_bm25(bm25, asked.questions, terms)
        if terms.chosen(QDRANT_LOCAL, len(ids)):
            with progress("Baselines: encoding", len(ids)) as advance:
                dense = baselines.encoded_collection(subject, folder / "all", advance)
            with closing(dense.index):
                yield from baselines.compare_dense(dense, asked, terms, similarity)


def _growth(subject: Subject, asked: Asked, request: LatencyRequest, progress: Progress) -> Iterator[Grown]:
    if not request.sizes:
        return
    sources = stages.sampled(subject.index, SOURCES, subject.settings.seed)
    encoded = min(request.encoded, request.sizes[-1])
    with progress("Growth: encoding", encoded) as advance:
        corpus = Corpus(sources, subject.encoder, subject.settings.seed, encoded, advance, request.texts)
    with progress("Growth", growth.written(request.sizes, request.quantize)) as advance:
        for size in request.sizes:
            yield from growth.grow(subject, corpus, asked, size, request.terms, request.quantize, advance)


def _index_facts(settings: Settings, opened: OpenIndex) -> dict[str, Any]:
    """Return what the index is; its size on disk is unknown where it lies on a server."""
    manifest, count = opened.manifest, opened.index.count()
    local = not STORES[manifest.store["kind"]].server
    return {
        **manifest.fingerprint(),
        "snippets": count,
        "store": dict(manifest.store),
        "bytes_per_snippet": round(disk_bytes(Store(settings).folder) / count, 1) if local else None,
    }


def _settings_facts(subject: Subject, request: LatencyRequest, index_snippets: int) -> dict[str, Any]:
    settings, effort, synthetic = subject.settings, request.terms.effort, None
    if request.sizes:
        sources, encoded = min(SOURCES, subject.index.count()), min(request.encoded, request.sizes[-1])
        synthetic = SYNTHETIC.format(sources=sources, encoded=encoded, noise=NOISE, copies=COPIES * encoded)
    return {
        **settings.public(),
        "repetitions": effort.repetitions,
        "warm_up": effort.warm_up,
        "seconds": effort.seconds,
        "questions": len(subject.questions),
        "questions_from": request.questions.resolve().name if request.questions else "titles of the index's snippets",
        "index_snippets": index_snippets,
        "growth": synthetic,
        "batch_size": settings.index.batch_size,
        "threads": {**machine.threads(), "generator": settings.generation.threads},
    }
