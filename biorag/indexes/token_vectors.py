"""The token vectors that an index stores for reranking: their model and their dimension."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, islice

from biorag.corpus.readers import read_snippets, refuse
from biorag.corpus.sources import DEMO, Source, demo_file
from biorag.errors import MismatchError, UsageError
from biorag.indexes.manifest import COMPACT, FULL, Manifest, TokenParameters
from biorag.indexes.store import Store
from biorag.models.finding import ModelFiles, find_encoder
from biorag.registries import RERANKERS, reranker_of
from biorag.settings.index import COMPACT_DIMENSION
from biorag.settings.settings import Settings
from biorag.types import Snippet, TokenEncoder
from biorag.utils.registry import or_list

# Texts of a sample that a projection is fitted to, and characters of each: more bring nothing (LOG, 2026-11-26).
FITTED, BEGINNING = 128, 500


def stores_tokens(settings: Settings) -> bool:
    """Return whether the configured index stores token vectors; of a new index, whether it will."""
    manifest = Store(settings).manifest()
    return manifest.tokens is not None if manifest else _token_stage(settings) is not None


def token_files(settings: Settings, manifest: Manifest | None, encoder: ModelFiles) -> ModelFiles | None:
    """Return the model whose token vectors an index stores, or a new one will store; None for no token vectors.

    The bi-encoder's own go by the name "encoder".

    Raises `MissingError` if the model is missing; `MismatchError` if the index stores none, others than requested, or
    those of changed weights.
    """
    if manifest is None:
        stage = _token_stage(settings)
        return _token_model(stage, None, encoder) if stage else None
    stored = manifest.tokens
    if settings.index.store_tokens:
        _check_tokens(manifest, settings, encoder)
    if stored is None:
        return None
    is_named = stored.reranker in {stage.kind.prefix + stage.name for stage in settings.retrieval.stages}
    files = _token_model(stored.reranker, stored.revision or None, encoder, fetch=is_named)
    if stored.sha256 != files.sha256:
        raise MismatchError(
            f"the index stores token vectors of another {stored.reranker!r} ({stored.sha256[:12]}, not "
            f"{files.sha256[:12]}): index under another --name"
        )
    return files


def token_parameters(
    settings: Settings, model: ModelFiles, tokens: TokenEncoder, sample: Sequence[Snippet]
) -> TokenParameters:
    """Return how a new index keeps token vectors; the projection of compact ones is fitted to a sample of its corpus.

    The demonstration corpus fills up a small sample: the index may grow, and the projection stays.
    """
    from biorag.models.token_projection import fitted, to_text

    dimension = tokens.query_tokens(["dimension"])[0].shape[1]
    full = TokenParameters(model.id, model.revision, model.sha256, dimension, settings.index.token_pooling)
    if settings.index.store_tokens == FULL:
        return full
    if dimension <= COMPACT_DIMENSION:
        return replace(full, kept=COMPACT)
    demo = Source(DEMO, demo_file("snippets.jsonl"))
    texts = [snippet.contents[:BEGINNING] for snippet in islice(chain(sample, read_snippets(demo, refuse)), FITTED)]
    projection = fitted(tokens.snippet_tokens(texts), COMPACT_DIMENSION)
    return replace(full, kept=COMPACT, dimension=COMPACT_DIMENSION, projection=to_text(projection))


def _check_tokens(manifest: Manifest, settings: Settings, encoder: ModelFiles) -> None:
    """Raise `MismatchError` unless an index stores the requested token vectors."""
    stored, kept = manifest.tokens, settings.index.store_tokens
    stage = _token_stage(settings)
    requested = (_token_model(stage, None, encoder).sha256, settings.index.token_pooling, kept) if stage else None
    if requested != ((stored.sha256, stored.pooling, stored.kept) if stored else None):
        made = (
            f"{stored.kept} token vectors of {stored.reranker!r}, --token-pooling {stored.pooling}"
            if stored
            else "no token vectors"
        )
        raise MismatchError(
            f"index {manifest.name!r} was made with {made}: leave --store-tokens out, or index under another --name"
        )


def _token_stage(settings: Settings) -> str | None:
    """Return the reranker, as a chain names it, whose token vectors a new index stores; None for none."""
    requested = settings.index.store_tokens
    if requested == "none":
        return None
    stage = next((stage for stage in settings.retrieval.stages if stage.kind.stored), None)
    if stage is None and requested:
        with_tokens = or_list(kind.syntax for kind in RERANKERS.values() if kind.stored)
        raise UsageError(
            f"--store-tokens keeps a reranker's token vectors, and {settings.retrieval.reranker!r} has none: name "
            f"{with_tokens} with --reranker"
        )
    return stage.kind.prefix + stage.name if stage else None


def _token_model(name: str, revision: str | None, encoder: ModelFiles, fetch: bool = True) -> ModelFiles:
    kind, model = reranker_of(name)
    if kind.uses_encoder:
        return replace(encoder, id=name)
    files = find_encoder(model, revision, fetch)
    return replace(files, id=kind.prefix + files.id)
