"""From a configuration to the objects that do the work; the one place that chooses concrete classes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from biorag.config import ENCODER_TOKENS, NO_LLM, STARTER, Config
from biorag.errors import MissingError, UsageError
from biorag.indexes.manifest import Manifest
from biorag.indexes.store import Store, check_encoder, check_settings
from biorag.models import ModelFiles, find_encoder, find_gguf
from biorag.pipeline import Retriever
from biorag.types import Encoder, Generator, Index, Reranker

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Opened:
    """An index opened for questions."""

    manifest: Manifest
    index: Index
    retriever: Retriever


@contextmanager
def opened(config: Config) -> Iterator[Opened]:
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
    files = encoder_files(config, manifest) if config.encoder or needs_encoder(config) else None
    index = store.open(manifest)
    try:
        if not manifest.complete:
            logger.warning("index %r is incomplete: its last indexing run was interrupted", manifest.name)
        if index.count() == 0:
            raise MissingError(f"index {manifest.name!r} holds no snippet: run 'biorag index CORPUS' to the end")
        yield Opened(manifest, index, _retriever(config, index, manifest, files))
    finally:
        index.close()


def needs_encoder(config: Config) -> bool:
    """Return whether searching as configured takes the bi-encoder."""
    return config.mode != "bm25" or (config.rerank and config.reranker == ENCODER_TOKENS)


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


def load_encoder(files: ModelFiles, similarity: str, precision: str) -> Encoder:
    """Load the bi-encoder; takes a few seconds."""
    from biorag.encoder import BiEncoder

    return BiEncoder(files, similarity, precision)


def _retriever(config: Config, index: Index, manifest: Manifest, files: ModelFiles | None) -> Retriever:
    encoder = load_encoder(files, manifest.similarity, config.precision) if files and needs_encoder(config) else None
    effective = config.replace(similarity=manifest.similarity)
    return Retriever(index, encoder, _reranker(config, encoder), effective)


def _reranker(config: Config, encoder: Encoder | None) -> Reranker | None:
    if not config.rerank:
        return None
    from biorag.encoder import BiEncoder
    from biorag.reranker import LateInteraction

    if config.reranker != ENCODER_TOKENS:
        return LateInteraction.load(find_encoder(config.reranker), config.precision)
    assert isinstance(encoder, BiEncoder), "the encoder's token vectors need the encoder"
    return LateInteraction.over_encoder(encoder.model, ENCODER_TOKENS)


def load_generator(config: Config) -> Generator | None:
    """Load or reach the generator; None for `--llm none`."""
    if config.llm == NO_LLM:
        return None
    if config.llm.startswith(("http://", "https://")):
        from biorag.generators.server import ServerGenerator

        key = config.llm_api_key.get_secret_value() if config.llm_api_key else None
        return ServerGenerator(config.llm, config.llm_model, key, config.timeout, config.context_window)
    path = find_gguf(config.llm)
    from biorag.generators.llama import LlamaGenerator

    if config.llm == STARTER:
        logger.warning("answers come from the 135M starter generator, which is no medical model: see --llm")
    return LlamaGenerator(path, config.context_window, config.threads)


def require_generator(config: Config) -> Generator:
    """Load the generator where one is needed.

    Raises
    ------
    UsageError
        For `--llm none`.
    """
    generator = load_generator(config)
    if generator is None:
        raise UsageError("this command needs a generator: give --llm something other than 'none'")
    return generator
