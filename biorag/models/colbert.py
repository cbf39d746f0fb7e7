"""ColBERT checkpoints: a projected vector per token, by sentence-transformers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling

from biorag.errors import MissingError
from biorag.models.finding import ModelFiles
from biorag.models.inference import run, token_vectors
from biorag.models.late_interaction import is_late_interaction
from biorag.models.loading import load_for_inference
from biorag.types import Vectors


class ColBERT:
    """The token vectors of a ColBERT checkpoint, Stanford's (`HF_ColBERT`) or a sentence-transformers directory.

    Raises `MissingError` if the directory is a bare transformer, whose projection would be random, or does not load.
    """

    def __init__(self, files: ModelFiles, precision: str = "auto") -> None:
        if not is_late_interaction(files):
            raise MissingError(f"reranker {files.id!r} is not a ColBERT checkpoint: it has no trained projection")
        self._model = load_for_inference(MultiVectorEncoder, files, precision)
        read_long_queries(self._model)

    def query_tokens(self, texts: Sequence[str]) -> list[Vectors]:
        """Return the token vectors of queries, with those of their expansion."""
        return run(self._model, texts, "query", token_vectors)

    def snippet_tokens(self, texts: Sequence[str]) -> list[Vectors]:
        """Return the token vectors of passages, without those that the checkpoint masks."""
        return run(self._model, texts, "document", token_vectors)


def read_long_queries(model: MultiVectorEncoder) -> None:
    """Let a query longer than the length it is padded to keep its end: ColBERT's full-length search.

    Shorter queries are padded as before. A clinical case of 300 tokens would lose its question otherwise.
    """
    expansion = getattr(model[0], "query_expansion", None)
    if expansion and expansion["strategy"] == "fixed":
        model[0].query_expansion = {**expansion, "strategy": "min"}


def pooled(tokens: Sequence[Vectors], factor: int) -> list[Vectors]:
    """Return each text's token vectors merged to a share of 1/`factor`, near ones together.

    Source: hierarchical token pooling (Clavié et al. 2024, arXiv 2409.14683).
    """
    if factor == 1:
        return list(tokens)
    pooling = HierarchicalTokenPooling(pool_factor=factor)
    merged = pooling.pool([torch.from_numpy(vectors) for vectors in tokens], task="document")
    return [vectors.numpy() for vectors in merged]
