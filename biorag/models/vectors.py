"""Vectors of unit length, whose dot product is their cosine."""

from __future__ import annotations

import numpy as np

from biorag.types import Vectors

SMALLEST = 1e-12  # length that is divided by


def unit(vectors: Vectors) -> Vectors:
    """Return vectors, (vectors, dimension), of length 1; a zero vector stays."""
    scaled: Vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), SMALLEST)
    return scaled
