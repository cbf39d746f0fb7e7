"""One run of `bench latency`: the stages of an index, timed, and their tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from biorag.benchmarks.latency import machine, stages
from biorag.benchmarks.latency.stages import Repetition, Subject, Timing
from biorag.corpus.datasets import load_dataset
from biorag.engine import OpenIndex, encoder_files, load_rerankers, open_index
from biorag.generators.source import load_generator
from biorag.indexes.store import Store
from biorag.indexes.token_vectors import token_files
from biorag.indexing import snippet_encoders
from biorag.models.caching import CachedEncoder
from biorag.models.finding import find_encoder
from biorag.registries import STORES
from biorag.retrieval.retriever import Retriever
from biorag.settings.settings import Settings
from biorag.types import Progress, Snippet
from biorag.utils.files import disk_bytes, scratch_folder
from biorag.utils.outputs import begins_with_key
from biorag.utils.versions import require

MEGABYTE = 1 << 20
TIMES = ("mean", "p50", "p95", "p99")
ONE_BY_ONE = ("fetch", "rerank", "rerank_colbert_ai", "total_without_generator", "total_with_generator")

is_report = begins_with_key("machine")  # whether a file that begins so is a report

LatencyTable: TypeAlias = tuple[str, Sequence[str], Sequence[Sequence[str]]]  # title, columns, rows as shown


@dataclass(frozen=True, slots=True)
class LatencyRequest:
    """The parts to measure."""

    questions: Path | None  # folder in BEIR layout; None for titles of the index's snippets
    limit: int | None  # maximum number of questions
    index_limit: int  # snippets that are indexed again
    batch_sizes: Sequence[int]  # questions encoded and searched at once
    repetition: Repetition
    exact: bool = False  # whether a scan of all vectors is timed too
    baseline: bool = False  # whether rank_bm25 searches the same snippets too, and colbert-ai runs a ColBERT checkpoint


def measure_latency(settings: Settings, request: LatencyRequest, progress: Progress) -> dict[str, Any]:
    """Open the index, measure everything requested, and return the report as JSON values.

    Raises `MissingError`, before anything is timed, if a package of the baselines is not installed.
    """
    if request.baseline:
        require("bench")
        if settings.retrieval.rerank and any(stage.kind.token_model for stage in settings.retrieval.stages):
            require("colbert")
    described, before = machine.describe(), machine.resident_bytes()
    # Without its own models, so that the encoder is loaded once.
    with open_index(settings.replace(mode="bm25", rerank=False)) as opened:
        questions = stages.distinct(_questions(settings, request, opened))
        files = encoder_files(settings, opened.manifest)
        token_model = token_files(settings.replace(store_tokens=None), opened.manifest, files)
        encoders = snippet_encoders(settings, files, token_model, opened.manifest.similarity, opened.manifest)
        subject = Subject(settings, opened.manifest, opened.index, encoders.encoder, encoders, questions)
        memory = {"before_bytes": before, "opened_bytes": machine.resident_bytes()}
        sample = stages.sampled(opened.index, request.index_limit, settings.seed)
        tokens, parameters = encoders.tokens, encoders.parameters
        token_models = {parameters.sha256: tokens} if tokens and parameters else {}
        rerankers = load_rerankers(settings, encoders.encoder, opened.index, opened.manifest, token_models)
        similarity = opened.manifest.similarity
        retriever = Retriever(opened.index, encoders.encoder, rerankers, settings.retrieval, similarity)
        timings = _stages(subject, retriever, sample, request, progress)
        return {
            "machine": described,
            "index": _index_facts(settings, opened),
            "settings": _settings_facts(subject, request, len(sample)),
            "stages": timings,
            "systems": systems(timings),
            "memory": {**memory, "peak_bytes": machine.peak_bytes()},
        }


def _questions(settings: Settings, request: LatencyRequest, opened: OpenIndex) -> Sequence[str]:
    if request.questions:
        return [question.text for question in load_dataset(request.questions).questions][: request.limit]
    return stages.titles(opened.index, request.limit or stages.TITLES, settings.seed)


def _stages(
    subject: Subject, retriever: Retriever, sample: Sequence[Snippet], request: LatencyRequest, progress: Progress
) -> dict[str, Any]:
    """Time the stages; those that take batches by size of batch, the others for one question at a time."""
    settings, questions, repetition = subject.settings, subject.questions, request.repetition
    known = CachedEncoder(subject.encoder)
    known.encode_queries(questions)
    with progress("Indexing", len(sample)) as advance, scratch_folder() as folder:
        costs = stages.indexing(subject, sample, folder / "index", advance)
    with progress("Stages", len(stages.MODES) + 3) as advance:
        encoding = stages.encoding(subject.encoder, questions, request.batch_sizes, repetition)
        advance(1)
        first = {}
        for mode in stages.MODES:
            searching = settings.replace(mode=mode, rerank=False)
            first[mode] = stages.first_stage(subject, known, searching, request.batch_sizes, repetition)
            advance(1)
        scan = {}
        if request.exact:
            scan = stages.exact(subject, settings.retrieval.k_init, request.batch_sizes, repetition)
        colbert_ai = None
        if request.baseline:
            searched = stages.rank_bm25(subject.index, questions, settings.retrieval.k_init, repetition)
            costs["rank_bm25"], first["rank_bm25"] = searched
            colbert_ai = _colbert_ai(subject, repetition)
        single = stages.collect(
            lambda turn: retriever.search(questions[turn % len(questions)]).timings_ms, repetition
        )  # one question at a time
        advance(1)
        generated = answer = None
        if generator := load_generator(settings):
            generated, answer = stages.generation(retriever, generator, settings, questions, repetition)
        advance(1)
    rerank = single.get("rerank")
    return {
        "index": {stage: asdict(cost) for stage, cost in costs.items()},
        "encode_queries": _batched(encoding),
        "first_stage": {mode: _batched(timings) for mode, timings in first.items()},
        "exact": {str(size): {part: asdict(timing) for part, timing in parts.items()} for size, parts in scan.items()},
        "rerank": {**asdict(rerank), "k_init": settings.retrieval.k_init} if rerank else None,
        "rerank_colbert_ai": asdict(colbert_ai) if colbert_ai else None,
        "fetch": asdict(single["fetch"]),
        "generation": {"questions": generated.n, "generate": asdict(generated)} if generated else None,
        "total_without_generator": asdict(single["total"]),
        "total_with_generator": asdict(answer) if answer else None,
    }


def systems(timings: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return milliseconds of a passage, a query and all stages, of this index and of rank_bm25.

    They are those of Table 3 of ModernBERT + ColBERT: encoding alone; of BM25 counting, and searching. Without batches
    of one question there are none.
    """
    encoded, searched = timings["encode_queries"].get("1"), timings["first_stage"].get("rank_bm25", {}).get("1")
    measured = {"biorag": ("encode", encoded, timings["total_without_generator"])}
    measured["rank_bm25"] = ("rank_bm25", searched, searched)
    return {
        name: {"index": timings["index"][stage]["ms_per_snippet"], "query": query["mean"], "total": total["mean"]}
        for name, (stage, query, total) in measured.items()
        if query
    }


def _colbert_ai(subject: Subject, repetition: Repetition) -> Timing | None:
    """Return the time in which colbert-ai reranks with the chain's ColBERT checkpoint; None if the chain has none."""
    settings = subject.settings.retrieval
    stage = next((stage for stage in settings.stages if stage.kind.token_model), None)
    if not settings.rerank or stage is None:
        return None
    from biorag.models.colbert_ai import ColbertAI

    alone = settings.model_copy(update={"rerank": False, "k": stage.depth})
    retriever = Retriever(subject.index, subject.encoder, None, alone, subject.manifest.similarity)
    return stages.reranking(retriever, ColbertAI(find_encoder(stage.name)), subject.questions, repetition)


def _batched(timings: Mapping[int, Timing]) -> dict[str, dict[str, float]]:
    return {
        str(size): {**asdict(timing), "ms_per_query": round(timing.mean / size, 4)} for size, timing in timings.items()
    }


def _index_facts(settings: Settings, opened: OpenIndex) -> dict[str, Any]:
    """Return facts of the index; the size on disk of one on a server is unknown."""
    manifest, count = opened.manifest, opened.index.count()
    local = not STORES[manifest.store["kind"]].server
    return {
        **manifest.fingerprint(),
        "snippets": count,
        "store": dict(manifest.store),
        "bytes_per_snippet": round(disk_bytes(Store(settings).folder) / count, 1) if local else None,
    }


def _settings_facts(subject: Subject, request: LatencyRequest, index_snippets: int) -> dict[str, Any]:
    settings, repetition = subject.settings, request.repetition
    return {
        **settings.public(),
        "repetitions": repetition.repetitions,
        "warm_up": repetition.warm_up,
        "seconds": repetition.seconds,
        "questions": len(subject.questions),
        "questions_from": request.questions.resolve().name if request.questions else "titles of the index's snippets",
        "index_snippets": index_snippets,
        "batch_size": settings.index.batch_size,
        "threads": {**machine.threads(), "generator": settings.generation.threads},
    }


def tables(report: Mapping[str, Any]) -> Iterator[LatencyTable]:
    """Yield the report as tables: the conditions, indexing, batches of questions, one question at a time."""
    machine, index, settings, stages = (report[stage] for stage in ("machine", "index", "settings", "stages"))
    conditions = [
        ("machine", f"{machine['cpu']}, {machine['cores']} cores, load before {machine['load']}"),
        ("index", f"{index['name']}: {index['snippets']:,} snippets, encoder {index['encoder']['id']}"),
        ("questions", f"{settings['questions']:,}, {settings['questions_from']}"),
        ("memory at most", f"{report['memory']['peak_bytes'] / MEGABYTE:,.0f} MB"),
    ]
    yield "Measured", ["", ""], conditions

    indexed = [
        (stage, f"{cost['ms_per_snippet']:.3f}", f"{cost['snippets_per_s']:,.0f}")
        for stage, cost in stages["index"].items()
    ]
    title = f"Indexing {settings['index_snippets']:,} snippets (bm25 is a part of write)"
    yield title, ["part", "ms/snippet", "snippets/s"], indexed

    batches = [
        (name, size, *_times(timing), f"{timing['ms_per_query']:.3f}", str(timing["n"]))
        for name, timings in {"encode": stages["encode_queries"], **stages["first_stage"]}.items()
        for size, timing in timings.items()
    ]
    batches += [
        (f"exact: {part}", size, *_times(timing), f"{timing['mean'] / int(size):.3f}", str(timing["n"]))
        for size, parts in stages["exact"].items()
        for part, timing in parts.items()
    ]
    columns = ["stage", "batch", *TIMES, "mean/query", "calls"]
    yield "Encoding questions, and the first stage: ms per batch", columns, batches

    timings = {name: stages[name] for name in ONE_BY_ONE} | {"generate": (stages["generation"] or {}).get("generate")}
    single = [(name, *_times(timing), str(timing["n"])) for name, timing in timings.items() if timing]
    title = f"One question at a time, {settings['mode']}, k_init {settings['k_init']}: ms"
    yield title, ["stage", *TIMES, "calls"], single


def _times(timing: Mapping[str, float]) -> list[str]:
    return [f"{timing[name]:,.3f}" if timing[name] < 10 else f"{timing[name]:,.1f}" for name in TIMES]
