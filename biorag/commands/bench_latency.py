"""`biorag bench latency`."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biorag.commands import options, show
from biorag.commands.groups import Flags, expanded
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
from biorag.errors import UsageError
from biorag.registries import STORES, generator_of
from biorag.settings.retrieval import RetrievalSettings
from biorag.settings.settings import Settings
from biorag.utils.files import disk_bytes

if TYPE_CHECKING:
    from biorag.benchmarks.latency.baselines import Asked, Compared, Terms
    from biorag.benchmarks.latency.growth import Grown
    from biorag.benchmarks.latency.report import Report, Stages
    from biorag.benchmarks.latency.stages import Subject
    from biorag.benchmarks.latency.timing import Effort
    from biorag.retrieval.retriever import Retriever
    from biorag.types import Snippet, TokenEncoder

logger = logging.getLogger(__name__)

# A forward pass of 5 ms took 504 ms on 2 busy cores: PyTorch's threads spin while they wait for one another.
BUSY = (
    "the load was %s on %s cores just before the start: wait until the machine is idle, or set "
    "OMP_WAIT_POLICY=passive; otherwise the timings include other programs' work"
)
SOURCES = 20_000  # snippets whose sentences are recombined
SYNTHETIC = (
    "Synthetic snippets: sentences of {sources:,} of the index's snippets recombined; the vectors of the first "
    "{encoded:,} are their own, the others are these with Gaussian noise of {noise} times their length."
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is measured, and on what."""

    questions: Annotated[
        Path | None, typer.Option(help="Folder of questions (BEIR layout); by default titles of the index's snippets.")
    ] = None
    limit: Annotated[int | None, typer.Option(min=2, help="Maximum number of questions.")] = None
    index_limit: Annotated[
        int, typer.Option(min=1, help="Snippets to index again, drawn from the index with --seed.")
    ] = 2000
    batch_sizes: Annotated[str, typer.Option(help="Batch sizes for encoding and searching questions.")] = "1,10,2000"
    baseline: Annotated[
        str | None, typer.Option(help="Compare with: rank_bm25, bm25s, sentence-transformers, qdrant-local.")
    ] = None
    peer_limit: Annotated[
        int, typer.Option(min=0, help="Maximum number of snippets for rank_bm25 and qdrant-local.")
    ] = 100_000
    sizes: Annotated[str | None, typer.Option(help="Index sizes, in synthetic snippets, to measure growth at.")] = None
    quantize: Annotated[bool, typer.Option("--quantize", help="Growth: measure an index with int8 vectors too.")] = (
        False
    )

    def check(self) -> None:
        """Refuse malformed lists before anything is opened."""
        _ = self.batches, self.growth

    @property
    def batches(self) -> list[int]:
        """The sizes of batches."""
        return _numbers("--batch-sizes", self.batch_sizes)

    @property
    def growth(self) -> list[int]:
        """The numbers of synthetic snippets, in ascending order."""
        return sorted(_numbers("--sizes", self.sizes)) if self.sizes else []

    @property
    def baselines(self) -> list[str]:
        """The names of the packages to compare with."""
        return [part.strip() for part in (self.baseline or "").split(",") if part.strip()]


@dataclass(frozen=True, slots=True)
class Repetition:
    """How often a call is timed."""

    repetitions: Annotated[int, typer.Option(min=1, help="Calls timed for each figure.")] = 100
    warm_up: Annotated[int, typer.Option(min=0, help="Untimed calls before the timed ones.")] = 3
    seconds: Annotated[
        float, typer.Option(min=0, help="Stop timing a figure after this many seconds (but at least three calls).")
    ] = 20.0


@expanded
def latency(
    settings: Annotated[
        Settings,
        options.INDEX,
        Flags(RetrievalSettings, but=("precision", "include_retracted", "interpolation", "cross_interpolation")),
        Flags("llm", defaults={"llm": "none"}),
        Flags("llm_model", "max_tokens", "precision", "seed"),
    ],
    wanted: Wanted,
    repetition: Repetition,
    out: Annotated[Path | None, typer.Option(help="Folder for latency.json and plots.")] = None,
    as_json: options.Json = False,
) -> None:
    """Measure what each stage takes on this machine: indexing, encoding, search, reranking, generation, memory.

    Whole: all stages of --mode together; the first stage is measured in all modes. Baselines run in the same process
    on the same data, interleaved with biorag. Growth is measured on synthetic snippets in TMPDIR.

    Examples:

      biorag bench latency --name pubmed --questions data/bioasq --out runs/latency

      biorag bench latency --name pubmed --llm starter --json

      biorag bench latency --baseline rank_bm25,bm25s,sentence-transformers,qdrant-local

      biorag bench latency --sizes 1000,10000,100000,1000000 --quantize --baseline bm25s --out runs/growth
    """
    from biorag.benchmarks.latency.baselines import Terms
    from biorag.benchmarks.latency.peers import require_peers
    from biorag.benchmarks.latency.report import tables, write_report
    from biorag.benchmarks.latency.timing import Effort

    wanted.check()
    require_peers(wanted.baselines)
    if out:
        _check_folder(out)
    effort = Effort(repetition.repetitions, repetition.warm_up, repetition.seconds)
    report = _measured(settings.replace(cache=False), wanted, Terms(wanted.baselines, effort, wanted.peer_limit))
    if out:
        write_report(out, report)
    if as_json:
        show.print_json(report.to_json())
        return
    _print_facts(report)
    for table in tables(report):
        show.table(table.title, table.columns, table.rows)
    if out:
        show.err.print(f"latency.json and plots: {out}")


def _check_folder(out: Path) -> None:
    """Create the results folder and check that plots can be drawn, before hours of measuring."""
    from biorag.utils.plots import require_matplotlib

    require_matplotlib()
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file: name a folder with --out")
    out.mkdir(parents=True, exist_ok=True)


def _numbers(option: str, text: str) -> list[int]:
    """Return the whole numbers above 0 of a list with commas, each once."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"{option} {text!r} is not a list of whole numbers above 0: write for example 1,10,2000")
    return list(dict.fromkeys(map(int, parts)))


def _measured(settings: Settings, wanted: Wanted, terms: Terms) -> Report:
    """Open the index and measure everything; memory first, before other packages are loaded."""
    from biorag.benchmarks.latency import machine, memory, stages
    from biorag.benchmarks.latency.baselines import Asked
    from biorag.benchmarks.latency.report import Report
    from biorag.retrieval.retriever import Retriever

    described, before = machine.describe(), memory.resident_bytes()
    # Without its own models, so that the encoder is loaded once.
    with open_index(settings.replace(mode="bm25", rerank=False)) as ready:
        asked_texts = stages.checked(_questions(settings, wanted, ready))
        if described.busy:
            logger.warning(BUSY, described.load, described.cores)
        files = encoder_files(settings, ready.manifest)
        stored = token_files(settings.replace(store_tokens=False), ready.manifest, files)
        encoders = snippet_encoders(settings, files, stored, ready.manifest.similarity, ready.manifest)
        subject = stages.Subject(settings, ready.manifest, ready.index, encoders.encoder, encoders, asked_texts)
        facts = {"before_bytes": before, "opened_bytes": memory.resident_bytes()}
        sample = stages.sampled(ready.index, wanted.index_limit, settings.seed)
        rerankers = load_rerankers(settings, encoders.encoder, ready.index, ready.manifest, _loaded(encoders))
        retriever = Retriever(ready.index, subject.encoder, rerankers, settings.retrieval, ready.manifest.similarity)
        found = _stages(subject, retriever, sample, wanted.batches, terms.effort)
        facts["peak_bytes"] = memory.peak_bytes()
        asked = Asked(asked_texts, subject.encoder.encode_queries(asked_texts))
        return Report(
            machine=described,
            index=_index_facts(settings, ready),
            settings=_settings(subject, wanted, terms.effort, len(sample)),
            stages=found,
            memory=facts,
            baselines=list(_baselines(subject, asked, sample, terms, wanted.batches, files.path)),
            growth=list(_growth(subject, asked, wanted, terms)),
        )


def _loaded(encoders: SnippetEncoders) -> dict[str, TokenEncoder]:
    """Return the model, by its SHA-256, that was loaded because the index stores its token vectors."""
    tokens, stored = encoders.tokens, encoders.parameters
    return {stored.sha256: tokens} if tokens and stored else {}


def _questions(settings: Settings, wanted: Wanted, ready: OpenIndex) -> Sequence[str]:
    from biorag.benchmarks.latency.stages import TITLES, titles
    from biorag.corpus.datasets import load_dataset

    if wanted.questions:
        return [question.text for question in load_dataset(wanted.questions).questions][: wanted.limit]
    return titles(ready.index, wanted.limit or TITLES, settings.seed)


def _stages(
    subject: Subject, retriever: Retriever, sample: Sequence[Snippet], sizes: Sequence[int], effort: Effort
) -> Stages:
    from biorag.benchmarks.latency import stages
    from biorag.benchmarks.latency.report import Stages

    settings, questions = subject.settings, subject.questions
    known = stages.Known(subject.encoder.identity, questions, subject.encoder.encode_queries(questions))
    with (
        show.progress("Indexing", len(sample)) as done,
        tempfile.TemporaryDirectory(prefix="biorag-latency-") as folder,
    ):
        costs = stages.indexing(subject, sample, Path(folder) / "index", done)
    with show.progress("Stages", len(stages.MODES) + 3) as done:
        encoding = stages.encoding(subject.encoder, questions, sizes, effort)
        done(1)
        first = {}
        for mode in stages.MODES:
            searching = settings.replace(mode=mode, rerank=False)
            first[mode] = stages.first_stage(subject.index, known, searching, questions, sizes, effort)
            done(1)
        single = stages.one_by_one(retriever, questions, effort)
        done(1)
        generated, answer = _generation(subject, retriever, effort)
        done(1)
    return Stages(costs, encoding, first, single, generated, answer)


def _generation(subject: Subject, retriever: Retriever, effort: Effort) -> tuple[Any, Any]:
    from biorag.benchmarks.latency.stages import generation

    generator = load_generator(subject.settings)
    if generator is None:
        return None, None
    return generation(
        retriever,
        generator,
        subject.settings,
        subject.questions,
        effort,
        not generator_of(subject.settings.generation.llm).remote,
    )


def _baselines(
    subject: Subject, asked: Asked, sample: Sequence[Snippet], terms: Terms, sizes: Sequence[int], model: Path
) -> Iterator[Compared]:
    """Compare with the other packages on the index's own snippets: a sample to index, all to search."""
    from biorag.benchmarks.latency import baselines as compare
    from biorag.benchmarks.latency.peers import QDRANT_LOCAL, SENTENCE_TRANSFORMERS, QdrantLocal, SentenceTransformers
    from biorag.benchmarks.latency.stages import stored

    if not terms.names:
        return
    similarity = subject.manifest.similarity
    with tempfile.TemporaryDirectory(prefix="biorag-latency-") as name:
        folder = Path(name)
        encoder = SentenceTransformers(model) if SENTENCE_TRANSFORMERS in terms.names else None
        store = None
        if QDRANT_LOCAL in terms.names:
            store = QdrantLocal(folder / "written", asked.vectors.shape[1], similarity)
        with closing(store) if store else nullcontext():
            if encoder or store:
                with show.progress("Baselines: indexing", len(sample)) as done:
                    rivals = compare.Rivals(encoder, store)
                    yield from compare.compare_indexing(subject, sample, rivals, folder / "ours", done)
        if encoder:
            yield from compare.compare_encoding_queries(subject, encoder, sizes, terms.effort)
        ids = list(subject.index.ids())
        bm25 = compare.Collection(ids, lambda: stored(subject.index, ids), subject.index)
        yield from compare.compare_bm25(bm25, asked.questions, terms)
        if terms.chosen(QDRANT_LOCAL, len(ids)):
            with show.progress("Baselines: encoding", len(ids)) as done:
                dense = compare.encoded_collection(subject, folder / "all", done)
            with closing(dense.index):
                yield from compare.compare_dense(dense, asked, terms, similarity)


def _growth(subject: Subject, asked: Asked, wanted: Wanted, terms: Terms) -> Iterator[Grown]:
    from biorag.benchmarks.latency import growth
    from biorag.benchmarks.latency.stages import sampled
    from biorag.benchmarks.latency.synthetic import ENCODED, Corpus

    if not wanted.growth:
        return
    show.err.print(_synthetic(subject, wanted), soft_wrap=True)
    sources = sampled(subject.index, SOURCES, subject.settings.seed)
    encoded = min(ENCODED, wanted.growth[-1])
    with show.progress("Growth: encoding", encoded) as done:
        corpus = Corpus(sources, subject.encoder, subject.settings.seed, encoded, done)
    with show.progress("Growth", growth.written(wanted.growth, wanted.quantize)) as done:
        for size in wanted.growth:
            yield from growth.grow(subject, corpus, asked, size, terms, wanted.quantize, done)


def _synthetic(subject: Subject, wanted: Wanted) -> str:
    """Describe how the synthetic snippets are made."""
    from biorag.benchmarks.latency.synthetic import ENCODED, NOISE

    sources, encoded = min(SOURCES, subject.index.count()), min(ENCODED, wanted.growth[-1])
    return SYNTHETIC.format(sources=sources, encoded=encoded, noise=NOISE)


def _index_facts(settings: Settings, ready: OpenIndex) -> dict[str, Any]:
    """Return facts about the index; bytes on disk only of a local one."""
    from biorag.indexes.store import Store

    manifest, count = ready.manifest, ready.index.count()
    local = not STORES[manifest.store["kind"]].server
    return {
        **manifest.fingerprint(),
        "snippets": count,
        "store": dict(manifest.store),
        "bytes_per_snippet": round(disk_bytes(Store(settings).folder) / count, 1) if local else None,
    }


def _settings(subject: Subject, wanted: Wanted, effort: Effort, index_snippets: int) -> dict[str, Any]:
    from biorag.benchmarks.latency.machine import threads

    settings = subject.settings
    return {
        **settings.public(),
        "repetitions": effort.repetitions,
        "warm_up": effort.warm_up,
        "seconds": effort.seconds,
        "questions": len(subject.questions),
        "questions_from": wanted.questions.resolve().name if wanted.questions else "titles of the index's snippets",
        "index_snippets": index_snippets,
        "growth": _synthetic(subject, wanted) if wanted.growth else None,
        "batch_size": settings.index.batch_size,
        "threads": {**threads(), "generator": settings.generation.threads},
    }


def _print_facts(report: Report) -> None:
    from biorag.benchmarks.latency.report import facts

    for line in facts(report):
        show.out.print(line, soft_wrap=True)
