"""From settings to the objects that do the work; the one place that assembles them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biorag.corpus.readers import read_snippets, refuse
from biorag.corpus.sources import find_sources
from biorag.errors import BioragError, MissingError, UsageError
from biorag.indexes.manifest import Manifest
from biorag.indexes.records import shortfall
from biorag.indexes.store import Store, check_encoder, check_settings
from biorag.registries import evidence_reader_of
from biorag.retrieval.retriever import Ranking, Retriever
from biorag.settings.section import STARTER
from biorag.settings.settings import Settings
from biorag.types import Fetch, Generator, Index, Question, Reader, Reranker, Snippet, Where
from biorag.utils.files import scratch_folder

if TYPE_CHECKING:
    from biorag.answering.answerer import Answerer
    from biorag.answering.extract import Extractor, SecondReader
    from biorag.answering.guards.checker import Checker
    from biorag.models.exported import Role
    from biorag.models.finding import ModelFiles
    from biorag.models.text_encoder import TextEncoder

logger = logging.getLogger(__name__)
CHECK_SECONDS = 5.0  # for the reply of a server that may be down


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
        """Return the packaged encoder, perhaps the index's own, which tells how near hits come; None without it."""
        from biorag.models.finding import find_encoder

        try:
            encoder, packaged = self.encoder, find_encoder(STARTER)
        except MissingError:
            return None
        if encoder and encoder.identity.sha256 == packaged.sha256 and self.manifest.similarity == "cosine":
            return encoder
        ensure_exported(lambda: packaged, "bi-encoder", self.settings.exports)
        return packaged_encoder(self.settings.retrieval.precision, self.settings.exports)

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
        from biorag.answering.wording import is_guess, plainly_worded, respelled

        wheres, retracted = [self.checked(where)], self.settings.retrieval.include_retracted
        search = partial(self.retriever.search_all, limit=self.hits_of(question), wheres=wheres, retracted=retracted)
        if question.options:
            return search([question.text])[0]
        vocabulary = load_vocabulary(self.settings.abstention.vocabulary)
        text = plainly_worded(question.text)
        ranking = search([vocabulary.expanded(text)])[0]
        if (spelled := respelled(text, ranking.hits)) != text:
            ranking = search([vocabulary.expanded(spelled)])[0]
        query = vocabulary.reworded(spelled, ranking.hits)
        return replace(ranking, query=query, is_guess=is_guess(text, spelled))

    def models_used(self, generator: Generator | None) -> dict[str, Any]:
        """Return the names of the models that answer."""
        retrieval = self.settings.retrieval
        return {
            "encoder": self.manifest.encoder.id,
            "reranker": retrieval.reranker if retrieval.rerank else None,
            "generator": generator.name if generator else None,
        }

    def answerer(
        self, generator: Generator | None, checker: Checker | None = None, *, in_haste: bool = False
    ) -> Answerer:
        """Return an answerer over this index; without a generator it extracts the answer from the evidence.

        By default the configured check judges its sentences. One in haste does without the second reader.
        """
        from biorag.answering.answerer import Answerer

        checker = checker or load_checker(self.settings, self.load_encoder)
        return Answerer(self.retriever, generator, self.settings, self.extractor(checker.reader, in_haste), checker)

    def extractor(self, reader: Reader | None, in_haste: bool = False) -> Extractor:
        """Return what chooses the sentences of the hits; `reader` is the configured one. See `answerer`."""
        from biorag.answering.extract import Extractor

        encoder = self.encoder if self.encoder and self.encoder.has_tokens else None
        second = partial(load_second_reader, self.settings.replace(read_again=False) if in_haste else self.settings)
        return Extractor(encoder, lambda: load_chooser(self.settings, reader), self.load_gauge, second)


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
    if needs_encoder(settings):
        files = encoder_files(settings, manifest)
        key = f"{files.sha256} {manifest.similarity} {sorted(files.configuration().items())}"
        precision, exports = settings.retrieval.precision, settings.exports
        encoder = loaded[key] = loaded.get(key) or load_encoder(files, manifest.similarity, precision, exports)
    elif settings.index.encoder:
        encoder_files(settings, manifest)  # raises at another than the index's
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


def fault_of(settings: Settings, name: str) -> BioragError | None:
    """Return why an index cannot be opened, its server asked once; None if it can."""
    once = settings.replace(name=name, retries=0, timeout=min(settings.services.timeout, CHECK_SECONDS))
    try:
        with open_stored(once):
            return None
    except BioragError as error:
        return error


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
    with scratch_folder() as spool:
        sources = find_sources(corpus, spool / "standard-input", settings.home)
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
    kind = evidence_reader_of(settings.generation.reader)
    return kind.load()(settings.generation.reader, settings) if kind.target else None


def load_chooser(settings: Settings, reader: Reader | None) -> Reader | None:
    """Return what tells which sentences answer: the configured reader if it does, else the packaged one."""
    if reader and reader.tells_answers and not reader.reads_whole and reader.trust.answers:
        return reader
    return packaged_reader(STARTER, settings)


def load_second_reader(settings: Settings) -> SecondReader | None:
    """Open the packaged Llama that reads the best sentences again, unless it is switched off or not installed."""
    from biorag.answering.readers.records import open_second_reader

    generation = settings.generation
    return open_second_reader(generation.threads, settings.cache / "models") if generation.read_again else None


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
    from biorag.models.exported import PRECISIONS, holds_export, load_reader, open_reader
    from biorag.models.finding import GGUF_ADAPTER, find_encoder
    from biorag.models.labels import label_columns

    spec, precision = spec.removeprefix("cross:"), settings.retrieval.precision
    if holds_export(Path(spec)):
        return open_reader(Path(spec))
    if (Path(spec) / GGUF_ADAPTER).is_file():
        from biorag.answering.readers.generators import open_likelihood_reader

        return open_likelihood_reader(spec, settings)
    files = find_encoder(spec)
    label_columns(files)  # which torch need not be loaded for
    if precision in PRECISIONS:
        ensure_exported(lambda: files, "reader", settings.exports)
    return load_reader(files, precision, settings.exports)


def load_encoder(files: ModelFiles, similarity: str, precision: str, exports: Path | None = None) -> TextEncoder:
    """Load the bi-encoder: its export in `exports`, else by torch, which takes a few seconds."""
    from biorag.models.exported import load_bi_encoder

    return load_bi_encoder(files, similarity, precision, exports)


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


def ensure_exported(find: Callable[[], ModelFiles], role: Role, exports: Path) -> None:
    """Export a model the first time it is used; torch runs it where that fails."""
    from biorag.models.exported import RUNTIME, export_folder, is_settled

    if find_spec(RUNTIME) is None:
        return
    try:
        folder = export_folder(exports, files := find(), role)
        if not is_settled(folder):
            from biorag.models.exporting import export_model

            export_model(files, role, exports)
    except Exception:  # whatever torch, an exporter or the disk raises
        logger.debug("a %s is not exported", role, exc_info=True)
