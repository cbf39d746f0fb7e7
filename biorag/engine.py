"""From a configuration to the objects that do the work; the one place that chooses concrete classes."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from biorag.corpus.blocks import WHOLE, Splitter
from biorag.errors import MismatchError, MissingError, UsageError
from biorag.indexes.manifest import Manifest, TokenParameters
from biorag.indexes.store import Store, blocks_of, check_encoder, check_settings
from biorag.models.finding import ModelFiles, find_encoder, find_gguf, generator_key
from biorag.registries import RERANKERS, reranker_of
from biorag.retrieval.rerankers import RerankerParts
from biorag.retrieval.retriever import Retriever
from biorag.settings.config import NO_LLM, STARTER, Config
from biorag.types import Encoded, Generator, Index, Reranker, TokenEncoder
from biorag.utils.network import is_server
from biorag.utils.registry import or_list
from biorag.utils.versions import installed_versions

if TYPE_CHECKING:
    from biorag.answering.answerer import Answerer
    from biorag.models.bi_encoder import BiEncoder

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenIndex:
    """An index opened for questions; `encoder` is the retriever's, None where it needs none."""

    settings: Config
    manifest: Manifest
    index: Index
    retriever: Retriever
    encoder: BiEncoder | None

    def fingerprint(self) -> dict[str, Any]:
        """Return what determines search results: the manifest's, and the encoder's query prompt, if it has one."""
        prompt = self.encoder.query_prompt if self.encoder else ""
        return {**self.manifest.fingerprint(), **({"query_prompt": prompt} if prompt else {})}

    def load_encoder(self) -> BiEncoder:
        """Return the index's encoder, loading it where searching needs none."""
        if self.encoder:
            return self.encoder
        files = encoder_files(self.settings, self.manifest)
        return load_encoder(files, self.manifest.similarity, self.settings.precision)

    def answerer(self, generator: Generator | None) -> Answerer:
        """Return what answers questions from this index; without a generator the answer is the evidence."""
        from biorag.answering.answerer import Answerer

        return Answerer(self.retriever, generator, self.settings)


@contextmanager
def open_index(config: Config) -> Iterator[OpenIndex]:
    """Open the configured index with what searching it needs, and close it at the end.

    Raises
    ------
    MissingError
        If the index is not there or is empty, or a model is not there.
    MismatchError
        If the index was made with another encoder or similarity.
    """
    store = Store(config)
    manifest = store.require_manifest()
    check_settings(manifest, config)
    needed = needs_encoder(config)
    files = encoder_files(config, manifest) if config.encoder or needed else None
    with closing(store.open(manifest)) as index:
        if not manifest.complete:
            logger.warning("index %r is incomplete: its last indexing run was interrupted", manifest.name)
        if index.count() == 0:
            raise MissingError(f"index {manifest.name!r} holds no snippet: run 'biorag index CORPUS' to the end")
        encoder = load_encoder(files, manifest.similarity, config.precision) if files and needed else None
        yield OpenIndex(config, manifest, index, make_retriever(config, index, manifest, encoder), encoder)


@contextmanager
def open_stored(config: Config) -> Iterator[tuple[Manifest, Index]]:
    """Open the configured index for what it stores, without what searching it takes.

    Raises
    ------
    MissingError
        If it is not there.
    """
    store = Store(config)
    manifest = store.require_manifest()
    with closing(store.open(manifest)) as index:
        yield manifest, index


def needs_encoder(config: Config) -> bool:
    """Return whether searching as configured takes the bi-encoder."""
    return config.mode != "bm25" or (config.rerank and any(stage.kind.uses_encoder for stage in config.stages))


def encoder_files(config: Config, manifest: Manifest | None) -> ModelFiles:
    """Return the files of the encoder to use: the one asked for, else the index's own, else the starter.

    Raises
    ------
    MismatchError
        If the index was made with another encoder.
    """
    spec = config.encoder or (manifest.encoder.id if manifest else STARTER)
    revision = config.revision or (manifest.encoder.revision if manifest and not config.encoder else None)
    files = find_encoder(spec, revision or None)
    if manifest:
        check_encoder(manifest, files.sha256, files.id)
    return files


def load_encoder(files: ModelFiles, similarity: str, precision: str) -> BiEncoder:
    """Load the bi-encoder; takes a few seconds."""
    from biorag.models.bi_encoder import BiEncoder

    return BiEncoder(files, similarity, precision)


@dataclass(frozen=True, slots=True)
class SnippetEncoders:
    """What indexing encodes snippets with: the bi-encoder, and whose token vectors are stored, if any are."""

    encoder: BiEncoder
    tokens: TokenEncoder | None
    parameters: TokenParameters | None

    def __call__(self, texts: Sequence[str]) -> Encoded:
        """Encode passages; in one pass where the tokens are the bi-encoder's own."""
        from biorag.models.late_interaction import pooled

        if self.tokens is None or self.parameters is None:
            return Encoded(self.encoder.encode_snippets(texts), [])
        if self.tokens is self.encoder:
            vectors, tokens = self.encoder.encode_snippets_with_tokens(texts)
        else:
            vectors, tokens = self.encoder.encode_snippets(texts), self.tokens.snippet_tokens(texts)
        return Encoded(vectors, pooled(tokens, self.parameters.pooling))


def token_files(config: Config, manifest: Manifest | None, encoder: ModelFiles) -> ModelFiles | None:
    """Return the files of the model whose token vectors an index stores, or a new one is to store; None for none.

    The bi-encoder's own go by the name "encoder".

    Raises
    ------
    MissingError
        If the model is not there.
    MismatchError
        If the index stores none, others than are asked for, or those of weights that have changed.
    """
    held = manifest.tokens if manifest else None
    if config.store_tokens:
        asked = _token_model(_token_stage(config), None, encoder)
        if manifest and (held is None or (held.sha256, held.pooling) != (asked.sha256, config.token_pooling)):
            kept = f"token vectors of {held.reranker!r}, --token-pooling {held.pooling}" if held else "no token vectors"
            raise MismatchError(
                f"index {manifest.name!r} was made with {kept}: leave --store-tokens out, or index under another --name"
            )
        return asked
    if held is None:
        return None
    files = _token_model(held.reranker, held.revision or None, encoder)
    if held.sha256 != files.sha256:
        raise MismatchError(
            f"the index stores token vectors of another {held.reranker!r} ({held.sha256[:12]}, not "
            f"{files.sha256[:12]}): index under another --name"
        )
    return files


def _token_stage(config: Config) -> str:
    """Return, as a chain names it, the first reranker whose token vectors an index can store.

    Raises
    ------
    UsageError
        If there is none.
    """
    stage = next((stage for stage in config.stages if stage.kind.stored), None)
    if stage is None:
        stored = or_list(kind.syntax for kind in RERANKERS.values() if kind.stored)
        raise UsageError(
            f"--store-tokens keeps a reranker's token vectors, and {config.reranker!r} has none: name {stored} with "
            "--reranker"
        )
    return stage.kind.prefix + stage.name


def _token_model(name: str, revision: str | None, encoder: ModelFiles) -> ModelFiles:
    kind, model = reranker_of(name)
    if kind.uses_encoder:
        return replace(encoder, id=name)
    files = find_encoder(model, revision)
    return replace(files, id=kind.prefix + files.id)


def splitter(config: Config, files: ModelFiles, manifest: Manifest | None) -> Splitter:
    """Return what splits long documents, counting by the encoder's tokenizer."""
    blocks = blocks_of(config, manifest)
    if blocks is None:
        return WHOLE
    from biorag.models.tokens import token_starts

    return Splitter(blocks.tokens, blocks.overlap, token_starts(files))


def snippet_encoders(
    config: Config, files: ModelFiles, token_model: ModelFiles | None, similarity: str, manifest: Manifest | None
) -> SnippetEncoders:
    """Load what indexing takes; `token_model` as `token_files` gives it."""
    encoder = load_encoder(files, similarity, config.precision)
    if token_model is None:
        return SnippetEncoders(encoder, None, None)
    tokens = _token_encoder(token_model, encoder, config.precision)
    held = manifest.tokens if manifest else None
    if held is None:
        dimension = tokens.query_tokens(["dimension"])[0].shape[1]
        held = TokenParameters(
            token_model.id, token_model.revision, token_model.sha256, dimension, config.token_pooling
        )
    return SnippetEncoders(encoder, tokens, held)


def _token_encoder(files: ModelFiles, encoder: BiEncoder, precision: str) -> TokenEncoder:
    kind, _ = reranker_of(files.id)
    model: TokenEncoder = encoder if kind.uses_encoder else kind.load_token_model()(files, precision)
    return model


def make_retriever(config: Config, index: Index, manifest: Manifest, encoder: BiEncoder | None) -> Retriever:
    """Return what searches an open index, with the configured rerankers and the similarity that the index is of."""
    effective = config.replace(similarity=manifest.similarity)
    return Retriever(index, encoder, load_rerankers(config, encoder, index, manifest), effective)


def load_rerankers(
    config: Config,
    encoder: BiEncoder | None,
    index: Index,
    manifest: Manifest,
    loaded: Mapping[str, TokenEncoder] | None = None,
) -> list[Reranker]:
    """Return the rerankers of `config.stages`, none where reranking is off.

    `loaded` are ColBERT checkpoints at hand, by their SHA-256.
    """
    if not config.rerank:
        return []
    parts = RerankerParts(config.precision, encoder, index, manifest, loaded or {})
    return [stage.kind.load()(stage.name, parts) for stage in config.stages]


def load_generator(config: Config, at_a_time: int = 1) -> Generator | None:
    """Load or reach the generator, with its replies kept if they are to be; None for `--llm none`.

    `at_a_time` is how many replies a server is asked for at a time.
    """
    if config.llm == NO_LLM:
        return None
    generator = _generator(config, at_a_time)
    if not config.cache:
        return generator
    from biorag.generators.cache import CachedGenerator

    return CachedGenerator(generator, config.replies, generator_identity(config, generator))


def generator_identity(config: Config, generator: Generator) -> dict[str, Any]:
    """Return all that determines a generator's replies besides what it is asked."""
    from biorag.generators.cache import code_hash

    return {
        "name": generator.name,
        **generator_key(config.llm),
        "context_window": generator.context_window,
        "versions": {package: installed_versions().get(package) for package in ("biorag", "llama-cpp-python")},
        "code": code_hash(),
    }


def _generator(config: Config, at_a_time: int) -> Generator:
    if is_server(config.llm):
        from biorag.generators.server import ServerGenerator

        server = config.server(config.llm, "llm", at_a_time)
        return ServerGenerator(server, config.llm_model, config.context_window)
    path = find_gguf(config.llm)
    from biorag.generators.llama import LlamaGenerator, check_memory

    check_memory(path, config.context_window, config.threads)
    if config.llm == STARTER:
        logger.warning("answers come from the 135M starter generator, which is no medical model: see --llm")
    else:
        from biorag.generators.preflight import try_out

        try_out(path, config.trials)
    return LlamaGenerator(path, config.context_window, config.threads)


def require_generator(config: Config, at_a_time: int = 1) -> Generator:
    """Load the generator where one is needed.

    Raises
    ------
    UsageError
        For `--llm none`.
    """
    generator = load_generator(config, at_a_time)
    if generator is None:
        raise UsageError("this command needs a generator: give --llm something other than 'none'")
    return generator
