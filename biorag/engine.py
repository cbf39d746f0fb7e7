"""From settings to the objects that do the work; the one place that assembles them."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biorag.corpus.readers import read_snippets, refuse
from biorag.corpus.sources import STDIN_FILE, Columns, Source, check_kinds, find_files, find_sources
from biorag.errors import MissingError, UsageError
from biorag.indexes.manifest import WORDS, Manifest, TokenParameters
from biorag.indexes.progress import shortfall
from biorag.indexes.store import Store, blocks_of, check_encoder, check_settings, similarity_of
from biorag.registries import ENRICHERS, evidence_reader_of, generator_of, reranker_of
from biorag.retrieval.retriever import Ranking, Retriever
from biorag.settings.section import STARTER
from biorag.settings.settings import Settings
from biorag.types import (
    Encoded,
    Fetch,
    Generator,
    Index,
    Progress,
    Question,
    Reader,
    Reranker,
    Snippet,
    TokenEncoder,
    Where,
)
from biorag.utils.progress import silent
from biorag.utils.versions import installed_versions

if TYPE_CHECKING:
    from biorag.answering.answerer import Answerer
    from biorag.answering.guards.checker import Checker
    from biorag.corpus.blocks import Splitter
    from biorag.corpus.rejects import RejectsFile
    from biorag.indexes.bm25 import LengthCounter
    from biorag.indexes.writing import IndexReport, SnippetEncoding, SurveyedCorpus
    from biorag.models.exports import Role
    from biorag.models.finding import ModelFiles
    from biorag.models.text_encoder import TextEncoder

logger = logging.getLogger(__name__)

CROSS_PREFIX = "cross:"


@dataclass(frozen=True, slots=True)
class OpenIndex:
    """An index opened for questions; `encoder` is the retriever's, None where it needs none."""

    settings: Settings
    manifest: Manifest
    index: Index
    retriever: Retriever
    encoder: TextEncoder | None

    def fingerprint(self) -> dict[str, Any]:
        """Return the identity of search results: the manifest's, and the encoder's query prompt, if it has one."""
        prompt = self.encoder.query_prompt if self.encoder else ""
        return {**self.manifest.fingerprint(), **({"query_prompt": prompt} if prompt else {})}

    def load_encoder(self) -> TextEncoder:
        """Return the index's encoder, loading it where searching needs none."""
        if self.encoder:
            return self.encoder
        files = encoder_files(self.settings, self.manifest)
        return load_encoder(files, self.manifest.similarity, self.settings.retrieval.precision, self.settings.exports)

    def load_gauge(self) -> TextEncoder | None:
        """Return the packaged encoder, which tells of every index alike how near hits come; None where it is not there.

        It may be the index's own.
        """
        from biorag.models.finding import find_encoder

        try:
            own, packaged = self.encoder, find_encoder(STARTER)
        except MissingError:
            return None
        if own and own.identity.sha256 == packaged.sha256 and self.manifest.similarity == "cosine":
            return own
        _export(lambda: packaged, "bi-encoder", self.settings.exports)
        return packaged_encoder(self.settings.retrieval.precision, self.settings.exports)

    @property
    def folder(self) -> Path:
        """The index's folder under the home."""
        return Store(self.settings).folder

    def checked(self, conditions: Where) -> Where:
        """Return conditions, checked by `checked_fields` and `check_values`."""
        from biorag.indexes.fields import check_values, checked_fields

        conditions = checked_fields(self.index, self.manifest, conditions)
        check_values(self.index, self.manifest, conditions)
        return conditions

    def hits_of(self, question: Question) -> int:
        """Return how many hits a question has: if none are set, of a list more, whose items stand in more snippets."""
        from biorag.answering.kinds import LIST_HITS, kind_of

        retrieval = self.settings.retrieval
        is_list = not question.options and (self.settings.generation.kind or kind_of(question.text)) == "list"
        return LIST_HITS if is_list and "k" not in retrieval.model_fields_set else retrieval.k

    def search(self, question: Question, where: Where) -> Ranking:
        """Return the evidence for a question among the snippets that fulfil `where`.

        An open question is searched in plain words, with what the literature writes for them, and once more if the hits
        spell a word otherwise. The ranking's query is the question as the hits word and spell it.
        """
        from biorag.answering.vocabulary import load_vocabulary
        from biorag.answering.wording import plainly_worded, respelled

        wheres, retracted = [self.checked(where)], self.settings.retrieval.include_retracted
        search = partial(self.retriever.search_all, limit=self.hits_of(question), wheres=wheres, retracted=retracted)
        if question.options:
            return search([question.text])[0]
        vocabulary = load_vocabulary(self.settings.abstention.vocabulary)
        text = plainly_worded(question.text)
        ranking = search([vocabulary.expanded(text)])[0]
        if (spelled := respelled(text, ranking.hits)) != text:
            ranking = search([vocabulary.expanded(spelled)])[0]
        return replace(ranking, query=vocabulary.reworded(spelled, ranking.hits))

    def models_used(self, generator: Generator | None) -> dict[str, Any]:
        """Return the names of the models that answer."""
        retrieval = self.settings.retrieval
        return {
            "encoder": self.manifest.encoder.id,
            "reranker": retrieval.reranker if retrieval.rerank else None,
            "generator": generator.name if generator else None,
        }

    def answerer(self, generator: Generator | None, checker: Checker | None = None) -> Answerer:
        """Return an answerer over this index; without a generator it extracts the answer from the evidence.

        By default the configured check judges its sentences.
        """
        from biorag.answering.answerer import Answerer
        from biorag.answering.extract import Extractor

        encoder = self.encoder if self.encoder and self.encoder.has_tokens else None
        checker = checker or load_checker(self.settings, self.load_encoder)
        reader = checker.reader
        extractor = Extractor(encoder, lambda: load_chooser(self.settings, reader), self.load_gauge)
        return Answerer(self.retriever, generator, self.settings, extractor, checker)


@contextmanager
def open_index(settings: Settings) -> Iterator[OpenIndex]:
    """Open the configured index with the models that searching needs, and close it at the end.

    Raises `MissingError` if the index or a model is missing, or the index is empty; `MismatchError` if the index was
    made with another encoder or similarity.
    """
    check_settings(Store(settings).require_manifest(), settings)
    with open_stored(settings) as (manifest, index):
        yield load_models(settings, manifest, index)


def load_models(
    settings: Settings, manifest: Manifest, index: Index, loaded: MutableMapping[str, Any] | None = None
) -> OpenIndex:
    """Return an index of `open_stored` with the models that searching needs; see `open_index`.

    Models that are in `loaded` are not loaded again, and the others are put there.
    """
    loaded = {} if loaded is None else loaded
    check_settings(manifest, settings)
    if not manifest.complete:
        logger.warning("index %r is incomplete: %s", manifest.name, shortfall(Store(settings).folder))
    if index.count() == 0:
        raise MissingError(f"index {manifest.name!r} holds no snippet: run 'biorag index CORPUS' to the end")
    encoder = None
    if settings.index.encoder or needs_encoder(settings):
        files = encoder_files(settings, manifest)
        if needs_encoder(settings):
            key = f"{files.sha256} {manifest.similarity} {sorted(files.configuration().items())}"
            encoder = loaded.get(key) or load_encoder(
                files, manifest.similarity, settings.retrieval.precision, settings.exports
            )
            loaded[key] = encoder
    rerankers = load_rerankers(settings, encoder, index, manifest, loaded)
    retriever = Retriever(index, encoder, rerankers, settings.retrieval, manifest.similarity)
    return OpenIndex(settings, manifest, index, retriever, encoder)


@contextmanager
def open_stored(settings: Settings) -> Iterator[tuple[Manifest, Index]]:
    """Open the configured index without models; raise `MissingError` if it does not exist."""
    store = Store(settings)
    manifest = store.require_manifest()
    with closing(store.open(manifest)) as index:
        yield manifest, index


@contextmanager
def open_passages(settings: Settings, name: str | None) -> Iterator[Fetch | None]:
    """Open an index for its passages by id; None without a name."""
    if name is None:
        yield None
        return
    with open_stored(settings) as (_, index):
        yield index.fetch


@contextmanager
def open_snippets(
    settings: Settings, corpus: Sequence[str], name: str | None
) -> Iterator[tuple[dict[str, Any], Iterator[Snippet]]]:
    """Give the identity and the snippets of a corpus, or else of the configured index.

    Raises `UsageError` if both are named.
    """
    if corpus and name is not None:
        raise UsageError("CORPUS and --name both say where the snippets are: give one of them")
    from biorag.indexes.reading import stored_snippets

    if not corpus:
        with open_stored(settings) as (manifest, index):
            yield {"index": manifest.fingerprint()}, stored_snippets(index)
        return
    with tempfile.TemporaryDirectory(prefix="biorag-") as spool:
        sources = find_sources(corpus, Path(spool) / "standard-input", settings.home)
        hashes = [source.sha256() for source in sources]
        yield {"corpus": hashes}, chain.from_iterable(read_snippets(source, refuse) for source in sources)


def needs_encoder(settings: Settings) -> bool:
    """Return whether searching as configured takes the bi-encoder."""
    return settings.retrieval.mode != "bm25" or (
        settings.retrieval.rerank and any(stage.kind.uses_encoder for stage in settings.retrieval.stages)
    )


def encoder_files(settings: Settings, manifest: Manifest | None) -> ModelFiles:
    """Return the files of the encoder to use: the requested one, else the index's own, else the starter.

    Raises `MismatchError` if the index was made with another encoder.
    """
    from biorag.models.finding import find_encoder

    named = settings.index.encoder
    spec = named or (manifest.encoder.id if manifest else STARTER)
    revision = settings.index.revision or (manifest.encoder.revision if manifest and not named else None)
    files = find_encoder(spec, revision or None, fetch=bool(named) or manifest is None)
    if manifest:
        check_encoder(manifest, files.sha256, files.id, files.configuration())
    return files


def paired_encoder(settings: Settings, query: str, passage: str, pooling: str | None) -> str:
    """Return the encoder of two models, one for queries and one for passages, as `--encoder` takes it."""
    from biorag.models.finding import find_encoder
    from biorag.models.pairing import write_pair

    return str(write_pair(find_encoder(query), find_encoder(passage), pooling, settings.encoders).path)


def load_checker(
    settings: Settings, load: Callable[[], TextEncoder] | None = None, reader: Reader | None = None
) -> Checker:
    """Return the check of claims: by their words, and by the configured reader; raises as `load_reader` does.

    `load` gives the encoder that chooses what a reader reads of a long snippet, an index's; by default it is the
    starter. `reader` is the configured one, if it is loaded.
    """
    from biorag.answering.guards.checker import Checker
    from biorag.answering.readers.windows import EvidenceWindows

    def encoder() -> TextEncoder | None:
        loaded = load() if load else packaged_encoder(settings.retrieval.precision, settings.exports)
        return loaded if loaded.has_tokens else None

    reader = reader or load_reader(settings)  # now: whatever the claim, a wrong one is told at once
    return Checker(reader, EvidenceWindows(encoder, whole=bool(reader and reader.reads_whole)))


def load_reader(settings: Settings) -> Reader | None:
    """Load the configured reader, or reach a server; None for `--reader none`.

    Raises `MissingError` or `MismatchError` if it is not there, is damaged, or is not a reader.
    """
    spec = settings.generation.reader
    reader: Reader | None = evidence_reader_of(spec).load()(spec, settings)
    return reader


def load_chooser(settings: Settings, reader: Reader | None) -> Reader | None:
    """Return what tells which sentences answer: the configured reader if it does, else the packaged one.

    There is none without a reader, and none where none is packaged.
    """
    if reader is None or (reader.tells_answers and not reader.reads_whole):
        return reader
    return packaged_reader(STARTER, settings)


def read_by(reader: Reader | None) -> str:
    """Return whose words a reader's verdicts are, how often they were right, and their cost; "" where none count."""
    if reader is None or min(reader.trust.supports, reader.trust.contradicts, reader.trust.polar) > 1:
        return ""
    measured = reader.trust.precision
    right = f", right {measured:.0%} of the time where it was measured" if measured else ""
    return f"read by {reader.name}{right}" + (f" ({reader.spent})" if reader.spent else "")


def no_reader(spec: str, settings: Settings) -> None:
    """Return that there is no reader."""


@cache
def packaged_encoder(precision: str, exports: Path) -> TextEncoder:
    """Load the encoder that biorag packages, as it compares texts by default."""
    from biorag.models.finding import find_encoder

    return load_encoder(find_encoder(STARTER), "cosine", precision, exports)


@cache
def packaged_reader(spec: str, settings: Settings | None = None) -> Reader | None:
    """Open the reader that biorag packages; None where it is not there."""
    from biorag.models.exported import PACKAGED_READER, open_reader

    return open_reader(PACKAGED_READER, "biorag-reader") if PACKAGED_READER.is_dir() else None


def model_reader(spec: str, settings: Settings) -> Reader:
    """Open a cross-encoder, which is exported the first time, or a language model that was taught to read."""
    from biorag.models.exported import holds_export, load_reader, open_reader
    from biorag.models.exports import PRECISIONS
    from biorag.models.finding import GGUF_ADAPTER, find_encoder
    from biorag.models.labels import label_columns

    spec, precision = spec.removeprefix(CROSS_PREFIX), settings.retrieval.precision
    if holds_export(Path(spec)):
        return open_reader(Path(spec))
    if (Path(spec) / GGUF_ADAPTER).is_file():
        return llama_reader(spec, settings)
    files = find_encoder(spec)
    label_columns(files)  # which torch need not be loaded for
    if precision in PRECISIONS:
        _export(lambda: files, "reader", settings.exports)
    return load_reader(files, precision, settings.exports)


def llama_reader(folder: str, settings: Settings) -> Reader:
    """Open a language model in this process with the adapter of a folder of `biorag train generator`."""
    from biorag.answering.readers.likelihood import LikelihoodReader
    from biorag.generators.source import generator_source
    from biorag.models.labels import read_trust

    source = generator_source(folder)
    generator = source.open(settings, 1)
    assert generator is not None, "a folder is a model's"
    return LikelihoodReader(
        _cached(generator, settings.replace(llm=folder)), read_trust(Path(folder)), source.identity()
    )


def server_reader(url: str, settings: Settings) -> Reader:
    """Reach a server whose model reads."""
    from biorag.answering.readers.server import GeneratorReader
    from biorag.generators.server import ServerGenerator

    asked = settings.replace(llm=url, llm_model=settings.generation.reader_model)
    at_a_time = settings.generation.concurrency
    server = settings.services.server(url, "reader", at_a_time)
    generator = ServerGenerator(server, asked.generation.llm_model, asked.generation.context_window, "--reader")
    return GeneratorReader(_cached(generator, asked), at_a_time, generator_identity(asked, generator))


def load_encoder(files: ModelFiles, similarity: str, precision: str, exports: Path | None = None) -> TextEncoder:
    """Load the bi-encoder: its export in `exports`, else by torch, which takes a few seconds."""
    from biorag.models.exported import load_bi_encoder

    return load_bi_encoder(files, similarity, precision, exports)


@dataclass(frozen=True, slots=True)
class SnippetEncoders:
    """The bi-encoder of an index, and the model whose token vectors it stores, if any."""

    encoder: TextEncoder
    tokens: TokenEncoder | None
    parameters: TokenParameters | None

    def __call__(self, snippets: Sequence[Snippet]) -> Encoded:
        """Encode snippets; in one pass where the tokens are the bi-encoder's own."""
        from biorag.models.colbert import pooled
        from biorag.models.token_projection import projected

        texts = [snippet.contents for snippet in snippets]
        if self.tokens is None or self.parameters is None:
            return Encoded(self.encoder.encode_snippets(texts), [])
        if self.tokens is self.encoder:
            vectors, tokens, _ = self.encoder.encode_snippets_with_tokens(texts)
        else:
            vectors, tokens = self.encoder.encode_snippets(texts), self.tokens.snippet_tokens(texts)
        return Encoded(vectors, pooled(projected(tokens, self.parameters.matrix), self.parameters.pooling))


def splitter(settings: Settings, files: ModelFiles, manifest: Manifest | None) -> Splitter:
    """Return the splitter of long documents, which counts by the encoder's tokenizer."""
    from biorag.corpus.blocks import WHOLE, Splitter

    blocks = blocks_of(settings, manifest)
    if blocks is None:
        return WHOLE
    from biorag.models.tokens import token_starts

    return Splitter(blocks.tokens, blocks.overlap, token_starts(files))


def length_counter(settings: Settings, files: ModelFiles) -> LengthCounter:
    """Return the counter of BM25's terms; a new index keeps their mean."""
    from biorag.indexes.bm25 import LengthCounter, piece_speller

    terms = settings.index.bm25_terms or WORDS
    return LengthCounter() if terms == WORDS else LengthCounter(spell=piece_speller(files, terms))


def snippet_encoders(
    settings: Settings,
    files: ModelFiles,
    token_model: ModelFiles | None,
    similarity: str,
    manifest: Manifest | None,
    sample: Sequence[Snippet] = (),
) -> SnippetEncoders:
    """Load the models of indexing; `token_model` is of `token_files`.

    The token vectors of a new index are compressed by a `sample` of its corpus.
    """
    from biorag.indexes.token_vectors import token_parameters

    encoder = load_encoder(files, similarity, settings.retrieval.precision)
    if token_model is None:
        return SnippetEncoders(encoder, None, None)
    kind, _ = reranker_of(token_model.id)
    precision = settings.retrieval.precision
    tokens: TokenEncoder = encoder if kind.uses_encoder else kind.imported(kind.token_model)(token_model, precision)
    if tokens is encoder and not encoder.has_tokens and not settings.index.store_tokens:
        return SnippetEncoders(encoder, None, None)
    held = manifest.tokens if manifest else None
    return SnippetEncoders(encoder, tokens, held or token_parameters(settings, token_model, tokens, sample))


def load_rerankers(
    settings: Settings,
    encoder: TextEncoder | None,
    index: Index,
    manifest: Manifest,
    loaded: MutableMapping[str, Any] | None = None,
) -> list[Reranker]:
    """Return the rerankers of `settings.retrieval.stages`; none if reranking is off.

    `loaded` are models already loaded, by the SHA-256 of their weights, and takes those that are loaded now.
    """
    if not settings.retrieval.rerank:
        return []
    from biorag.retrieval.rerankers import RerankerParts

    loaded = {} if loaded is None else loaded
    parts = RerankerParts(settings.retrieval.precision, encoder, index, manifest, loaded, settings.exports)
    return [stage.kind.load()(stage.name, parts) for stage in settings.retrieval.stages]


def load_generator(settings: Settings, at_a_time: int = 1) -> Generator | None:
    """Load or reach the generator, by default the starter; None for `--llm none`.

    `at_a_time` is the number of concurrent requests to a server.
    """
    from biorag.generators.source import generator_source

    generator = generator_source(settings.generation.generator).open(settings, at_a_time)
    return generator and _cached(generator, settings)


def _cached(generator: Generator, settings: Settings) -> Generator:
    """Return a generator whose replies are kept, unless the settings say otherwise."""
    if not settings.generation.cache:
        return generator
    from biorag.generators.cache import CachedGenerator

    return CachedGenerator(generator, settings.cache / "replies", generator_identity(settings, generator))


def generator_identity(settings: Settings, generator: Generator) -> dict[str, Any]:
    """Return the identity of a generator's replies, besides the request."""
    from biorag.generators.source import generator_source

    return {
        "name": generator.name,
        **generator_source(settings.generation.generator).identity(),
        "context_window": generator.context_window,
        "versions": {package: installed_versions().get(package) for package in ("biorag", "llama-cpp-python")},
    }


def require_generator(settings: Settings, at_a_time: int = 1) -> Generator:
    """Load the generator where one is needed; raise `UsageError` for `--llm none`."""
    generator = load_generator(settings, at_a_time)
    if generator is None:
        raise UsageError("this command needs a generator: give --llm something other than 'none'")
    return generator


@dataclass(frozen=True, slots=True)
class OpenGenerator:
    """A generator, the number of concurrent requests that it takes, and the identity of its replies."""

    generator: Generator
    at_a_time: int
    identity: Mapping[str, Any]


def open_generator(settings: Settings) -> OpenGenerator:
    """Load the configured generator, or reach its server; raise `UsageError` for `--llm none`."""
    at_a_time = generator_of(settings.generation.generator).at_a_time(settings.generation.concurrency)
    generator = require_generator(settings, at_a_time)
    return OpenGenerator(generator, at_a_time, generator_identity(settings, generator))


@dataclass(frozen=True, slots=True)
class CorpusReading:
    """How a corpus is read: columns of tables, and whether what files no longer hold stays.

    `enrich` is the service that is asked for records of papers; "" for none. `vectors` are published ones, which
    snippets are given in place of encoding them.
    """

    columns: Columns = ()
    keep_missing: bool = False
    enrich: str = ""
    vectors: Path | None = None


@contextmanager
def survey_corpus(
    settings: Settings,
    corpus: Sequence[str],
    rejects: RejectsFile | None = None,
    progress: Progress = silent,
    reading: CorpusReading = CorpusReading(),
) -> Iterator[SurveyedCorpus]:
    """Read a corpus once, for the configured index or a new one.

    The corpus is files, folders, "demo", or - for standard input. `rejects` collects bad lines; without it the first
    one raises. Files that the index holds unchanged are not read again; what files and folders no longer hold goes,
    unless it is to be kept.

    Raises `BadInputError` if the corpus is unreadable or empty, `MismatchError` if the index was made with other
    settings, `MissingError` if a file or model is missing, `OfflineError` if records are asked for in offline mode.
    """
    from biorag.indexes.published import PublishedEncoding, with_published
    from biorag.indexes.source_ledger import SourceLedger, read_ledger
    from biorag.indexes.surveying import survey
    from biorag.indexes.token_vectors import token_files
    from biorag.indexes.writing import FileSync, SurveyedCorpus

    store = Store(settings)
    manifest = store.manifest()
    store.check_layout(manifest)
    if manifest:
        check_settings(manifest, settings)
    settings, published = with_published(settings, manifest, reading.vectors, progress)
    files = encoder_files(settings, manifest)
    token_model = token_files(settings, manifest, files)
    if manifest is None and settings.index.similarity is None:
        settings = settings.replace(similarity=files.similarity())
    similarity = similarity_of(settings, manifest)

    @cache
    def encoding() -> SnippetEncoding:
        encoders = snippet_encoders(settings, files, token_model, similarity, manifest, surveyed.sample)
        return PublishedEncoding(published, encoders, encoders.encoder, similarity) if published else encoders

    with tempfile.TemporaryDirectory(prefix="biorag-") as spool:
        corpus_files = find_files(corpus, Path(spool) / STDIN_FILE, settings.home, reading.columns)
        check_kinds(corpus_files.sources)
        corpus_files = corpus_files._replace(sources=enriched(settings, corpus_files.sources, reading.enrich, progress))
        split, length_of = splitter(settings, files, manifest), length_counter(settings, files)
        known = manifest.sources if manifest else ()
        ledger = read_ledger(store.folder) if manifest else SourceLedger({})
        unread = ledger.is_unchanged if manifest and manifest.complete else None
        with progress("Checking", None) as advance:
            surveyed = survey(corpus_files.sources, rejects, advance, split, known, length_of, unread)
            sync = FileSync.of(ledger, corpus_files, surveyed, reading.keep_missing)
            if sync.is_shared:
                surveyed = survey(corpus_files.sources, rejects, advance, split, known, length_of)
                sync = FileSync.of(ledger, corpus_files, surveyed, reading.keep_missing)
        parts = corpus_files, surveyed, split, encoding, rejects, sync, published
        yield SurveyedCorpus(Store(settings), manifest, *parts)


def enriched(settings: Settings, sources: list[Source], service: str, progress: Progress) -> list[Source]:
    """Return corpus files, the papers among them with the records that were fetched, now too where a service is named.

    Raises `OfflineError` if one is asked in offline mode.
    """
    if not service and not settings.records.is_dir():
        return sources
    from biorag.corpus.enriching import enrich, with_records

    if service:
        find = ENRICHERS.named(service).load()(settings.services)
        enrich(sources, find, settings.records, progress)
    return with_records(sources, settings.records)


def index_corpus(
    settings: Settings,
    corpus: Sequence[str],
    rejects: RejectsFile | None = None,
    progress: Progress = silent,
    reading: CorpusReading = CorpusReading(),
    confirm: Callable[[str], None] = lambda question: None,
) -> IndexReport:
    """Find a corpus, read it once, and bring it into the configured index; see `survey_corpus`.

    `confirm` is asked before more than a third of the index goes, and may raise.

    Raises `ServiceError` if another process is using the index, or the store fails.
    """
    with survey_corpus(settings, corpus, rejects, progress, reading) as surveyed:
        if question := surveyed.doubt():
            confirm(question)
        report = surveyed.write(progress)
    export_models(settings)
    return report


def export_models(settings: Settings) -> None:
    """Export the models that encode questions to the configured index, and what tells how near its hits come.

    Torch runs them where that fails.
    """
    from biorag.models.finding import find_encoder

    _export(lambda: encoder_files(settings, Store(settings).manifest()), "bi-encoder", settings.exports)
    _export(partial(find_encoder, STARTER), "bi-encoder", settings.exports)
    for stage in settings.retrieval.stages:
        if stage.kind.token_model:
            _export(partial(find_encoder, stage.name, fetch=False), "colbert", settings.exports)


def _export(find: Callable[[], ModelFiles], role: Role, exports: Path) -> None:
    from biorag.models.exports import RUNTIME, export_folder, is_settled, read_record

    if find_spec(RUNTIME) is None:
        return
    try:
        folder = export_folder(exports, files := find(), role)
        if not is_settled(folder, read_record(folder)):
            from biorag.models.exporting import export_model

            export_model(files, role, exports)
    except Exception:  # whatever torch, an exporter or the disk raises: torch runs the model in place of its export
        logger.debug("a %s is not exported", role, exc_info=True)
