"""The kinds of rerankers, made from what is open."""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from biorag.indexes.manifest import Manifest
from biorag.models.finding import find_encoder
from biorag.types import Encoder, Index, Reranker, TokenEncoder

logger = logging.getLogger(__name__)


class SearchEncoder(Encoder, TokenEncoder, Protocol):
    """The bi-encoder, which gives its token vectors too."""


@dataclass(frozen=True, slots=True)
class RerankerParts:
    """What a reranker is made from besides its name."""

    precision: str
    encoder: SearchEncoder | None  # the bi-encoder; None where no reranker of the chain uses it
    index: Index
    manifest: Manifest
    # models at hand, by the SHA-256 of their weights
    loaded: MutableMapping[str, Any] = field(default_factory=dict)
    exports: Path | None = None  # the folder of exported models; None where torch is to be used

    def model(self, sha256: str, load: Callable[[], Any]) -> Any:
        """Return a model at hand, or load it and keep it so."""
        model = self.loaded.get(sha256) or load()
        self.loaded[sha256] = model
        return model


def encoder_tokens(name: str, parts: RerankerParts) -> Reranker:
    """Return late interaction over the bi-encoder's token vectors."""
    assert parts.encoder is not None, "the encoder's token vectors need the encoder"
    return _late_interaction(name, parts.encoder, parts.encoder.identity.sha256, parts)


def colbert(name: str, parts: RerankerParts) -> Reranker:
    """Return late interaction over the token vectors of a ColBERT checkpoint."""
    from biorag.models.exported import load_colbert

    files = find_encoder(name)
    tokens = parts.model(files.sha256, lambda: load_colbert(files, parts.precision, parts.exports))
    return _late_interaction(name, tokens, files.sha256, parts)


def colbert_ai(name: str, parts: RerankerParts) -> Reranker:
    """Return a ColBERT checkpoint by colbert-ai's own code; every candidate is encoded again."""
    from biorag.models.colbert_ai import ColbertAI

    return ColbertAI(find_encoder(name))


def cross_encoder(name: str, parts: RerankerParts) -> Reranker:
    """Return a cross-encoder."""
    files = find_encoder(name)
    from biorag.models.cross_encoder import CrossEncoderReranker

    reranker: Reranker = parts.model(files.sha256, lambda: CrossEncoderReranker(files, parts.precision))
    return reranker


def _late_interaction(name: str, tokens: TokenEncoder, sha256: str, parts: RerankerParts) -> Reranker:
    """Return the reranker; over the index's own token vectors where it stores those of this model."""
    from biorag.models.late_interaction import LateInteraction, StoredLateInteraction
    from biorag.models.token_projection import ProjectedTokens

    stored = parts.manifest.tokens
    if stored is None:
        return LateInteraction(tokens)
    if stored.sha256 == sha256:
        matrix = stored.matrix
        return StoredLateInteraction(tokens if matrix is None else ProjectedTokens(tokens, matrix), parts.index)
    logger.warning(
        "index %r stores token vectors of %r: the reranker %r re-encodes the candidates of each query "
        "(--reranker %s does not)",
        parts.manifest.name,
        stored.reranker,
        name,
        stored.reranker,
    )
    return LateInteraction(tokens)
