"""The bi-encoder: one vector per text, by sentence-transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from biorag.loading import load_model
from biorag.models import ModelFiles
from biorag.types import EncoderIdentity, Vectors

BATCH = 32


class BiEncoder:
    """A sentence-transformers model; `similarity` "cosine" gives unit vectors, "dot" the model's own.

    `precision` "auto" computes in bfloat16 where the hardware does so natively (on CPUs: avx512_bf16 or
    amx_bf16), else in float32. Vectors come back as float32 either way.

    Raises
    ------
    MissingError
        If the directory is no model that sentence-transformers loads.
    """

    def __init__(self, files: ModelFiles, similarity: str = "cosine", precision: str = "auto") -> None:
        self.model = load_model(SentenceTransformer, files, precision)
        self._normalize = similarity == "cosine"
        self.identity = EncoderIdentity(files.id, files.revision, files.sha256, self._dimension())

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Encode questions, shape (texts, dimension)."""
        return self._float32(self.model.encode_query(list(texts), **self._options()))

    def encode_snippets(self, texts: Sequence[str]) -> Vectors:
        """Encode passages, shape (texts, dimension)."""
        return self._float32(self.model.encode_document(list(texts), **self._options()))

    def _options(self) -> dict[str, Any]:
        return {"batch_size": BATCH, "normalize_embeddings": self._normalize, "show_progress_bar": False}

    def _dimension(self) -> int:
        return int(self.model.get_embedding_dimension())

    def _float32(self, vectors: Any) -> Vectors:
        return np.asarray(vectors, dtype=np.float32).reshape(-1, self._dimension())
