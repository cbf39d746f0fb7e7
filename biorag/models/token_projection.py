"""Token vectors in fewer dimensions, by the projection that keeps most of their cosines."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import numpy as np

from biorag.types import TokenEncoder, Vectors

STORED = np.dtype("<f2")  # the numbers of a projection as text
SMALLEST = 1e-12  # length that is divided by


def unit(vectors: Vectors) -> Vectors:
    """Return vectors, (vectors, dimension), of length 1; a zero vector stays."""
    scaled: Vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), SMALLEST)
    return scaled


def fitted(tokens: Sequence[Vectors], dimension: int) -> Vectors:
    """Return the projection onto the principal axes of token vectors, which are not centred: MaxSim is of dot products.

    `tokens` is one (tokens, dim) array a text, with more tokens in all than `dimension`, which is less than dim. The
    projection is (dim, dimension) float32, rounded as in its text.
    """
    rows = np.concatenate(tokens).astype(np.float64)
    _, axes = np.linalg.eigh(rows.T @ rows)  # by ascending eigenvalue
    kept = axes[:, ::-1][:, :dimension]
    # An axis has no direction of its own; the same sample is to give the same numbers on every machine.
    kept = kept * np.sign(kept[np.abs(kept).argmax(axis=0), np.arange(dimension)])
    rounded: Vectors = kept.astype(STORED).astype(np.float32)
    return rounded


def to_text(projection: Vectors) -> str:
    """Return a projection as text."""
    return base64.b64encode(projection.astype(STORED).tobytes()).decode()


def from_text(text: str, dimension: int) -> Vectors:
    """Return the projection of a text, (dim, dimension) float32.

    Raises `ValueError` if it is not one of finite numbers onto that dimension.
    """
    numbers = np.frombuffer(base64.b64decode(text, validate=True), STORED)
    if not len(numbers) or len(numbers) % dimension or not np.isfinite(numbers).all():
        raise ValueError(f"not a projection onto {dimension} dimensions")
    return numbers.reshape(-1, dimension).astype(np.float32)


def projected(tokens: Sequence[Vectors], projection: Vectors | None) -> list[Vectors]:
    """Return each text's token vectors projected, of unit length, (tokens, dimension); as given without a projection.

    The part of a vector that is lost is noise to its dot products; brought back to unit length, vectors of 128 of 384
    dimensions rank as whole ones do; without that, MaxSim is lower by the lost part.
    """
    if projection is None or not tokens:
        return list(tokens)
    rows = unit(np.concatenate(tokens) @ projection)
    return np.split(rows, np.cumsum([len(vectors) for vectors in tokens[:-1]]))


class ProjectedTokens:
    """A token encoder with projected vectors."""

    def __init__(self, encoder: TokenEncoder, projection: Vectors) -> None:
        self._encoder = encoder
        self._projection = projection

    def query_tokens(self, texts: Sequence[str]) -> list[Vectors]:
        """Return a (tokens, dimension) array for each question."""
        return projected(self._encoder.query_tokens(texts), self._projection)

    def snippet_tokens(self, texts: Sequence[str]) -> list[Vectors]:
        """Return a (tokens, dimension) array for each passage."""
        return projected(self._encoder.snippet_tokens(texts), self._projection)
