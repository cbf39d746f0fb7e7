"""From a corpus to an index: reading it, encoding its snippets, and writing them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from biorag.corpus.sources import STDIN_FILE, Columns, FoundFiles, Source, check_kinds, find_files
from biorag.engine import encoder_files, ensure_exported, load_encoder
from biorag.indexes.manifest import WORDS, Manifest, TokenParameters
from biorag.indexes.store import Store, blocks_of, check_settings, similarity_of
from biorag.registries import ENRICHERS, reranker_of
from biorag.settings.section import STARTER
from biorag.settings.settings import Settings
from biorag.types import Encoded, Progress, Snippet, TokenEncoder
from biorag.utils.files import scratch_folder
from biorag.utils.progress import silent

if TYPE_CHECKING:
    from biorag.corpus.blocks import Splitter
    from biorag.corpus.rejects import RejectsFile
    from biorag.indexes.bm25 import LengthCounter
    from biorag.indexes.records import SourceLedger
    from biorag.indexes.surveying import FileSync, Survey
    from biorag.indexes.writing import IndexReport, SnippetEncoding, SurveyedCorpus
    from biorag.models.finding import ModelFiles
    from biorag.models.text_encoder import TextEncoder


@dataclass(frozen=True, slots=True)
class SnippetEncoders:
    """The bi-encoder of an index, and the model whose token vectors it stores, if any."""

    encoder: TextEncoder
    tokens: TokenEncoder | None
    parameters: TokenParameters | None

    def __call__(self, snippets: Sequence[Snippet]) -> Encoded:
        """Encode snippets, a text that several have once; in one pass where the tokens are the bi-encoder's own."""
        from biorag.models.colbert import pooled
        from biorag.models.token_projection import projected

        rows: dict[str, int] = {}
        places = [rows.setdefault(snippet.contents, len(rows)) for snippet in snippets]
        texts = list(rows)
        if self.tokens is None or self.parameters is None:
            return Encoded(self.encoder.encode_snippets(texts)[places], [])
        if self.tokens is self.encoder:
            vectors, tokens, _ = self.encoder.encode_snippets_with_tokens(texts)
        else:
            vectors, tokens = self.encoder.encode_snippets(texts), self.tokens.snippet_tokens(texts)
        tokens = pooled(projected(tokens, self.parameters.matrix), self.parameters.pooling)
        return Encoded(vectors[places], [tokens[place] for place in places])


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
    from biorag.indexes.bm25 import LengthCounter, speller

    return LengthCounter(spell=speller(settings.index.bm25_terms or WORDS, lambda: files))


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
    from biorag.indexes.records import SourceLedger, read_ledger
    from biorag.indexes.surveying import survey
    from biorag.indexes.token_vectors import token_files
    from biorag.indexes.writing import SurveyedCorpus

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

    with scratch_folder() as spool:
        ledger = read_ledger(store.folder) if manifest else SourceLedger({})
        found = partial(find_files, corpus, spool / STDIN_FILE, settings.home, reading.columns)
        corpus_files = found(lambda folder: bool(ledger.inside([folder])))
        check_kinds(corpus_files.sources)
        sources = enriched(settings, ledger.told_apart(corpus_files), reading.enrich, progress)
        corpus_files = corpus_files._replace(sources=sources)
        split = splitter(settings, files, manifest)
        with progress("Checking", None) as advance:
            known, counter = manifest.sources if manifest else (), length_counter(settings, files)
            survey_files = partial(survey, corpus_files.sources, rejects, advance, split, known, counter)
            surveyed, sync = _synchronised(survey_files, ledger, manifest, corpus_files, reading.keep_missing)
        yield SurveyedCorpus(
            Store(settings), manifest, corpus_files, surveyed, split, encoding, rejects, sync, published
        )


def _synchronised(
    survey_files: Callable[..., Survey],
    ledger: SourceLedger,
    manifest: Manifest | None,
    corpus_files: FoundFiles,
    keep_missing: bool,
) -> tuple[Survey, FileSync]:
    """Survey what the index does not hold unchanged, or all of it where two files share snippets."""
    from biorag.indexes.surveying import FileSync

    untold = partial(ledger.is_unchanged, untold=True)
    surveyed = survey_files(ledger.is_unchanged if manifest and manifest.complete else untold)
    compared = partial(
        FileSync.of, ledger, corpus_files, keep_missing=keep_missing, taken=manifest.sources if manifest else ()
    )
    sync = compared(surveyed)
    if sync.is_shared:
        surveyed = survey_files(untold)
        sync = compared(surveyed)
    return surveyed, sync


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
    alone: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> IndexReport:
    """Find a corpus, read it once, and bring it into the configured index; see `survey_corpus`.

    `confirm` is asked before more than a third of the index goes, and may raise. `alone` gives a context in which the
    index is written to.

    Raises `ServiceError` if another process is using the index, or the store fails.
    """
    with survey_corpus(settings, corpus, rejects, progress, reading) as surveyed:
        if question := surveyed.doubt():
            confirm(question)
        with alone():
            report = surveyed.write(progress)
    export_models(settings)
    return report


def export_models(settings: Settings) -> None:
    """Export the models that encode questions to the configured index, and what tells how near its hits come.

    Torch runs them where that fails.
    """
    from biorag.models.finding import find_encoder

    ensure_exported(lambda: encoder_files(settings, Store(settings).manifest()), "bi-encoder", settings.exports)
    ensure_exported(partial(find_encoder, STARTER), "bi-encoder", settings.exports)
    for stage in settings.retrieval.stages:
        if stage.kind.token_model:
            ensure_exported(partial(find_encoder, stage.name, fetch=False), "colbert", settings.exports)
