"""Late interaction: a query and a snippet compared token by token (ColBERT, Khattab & Zaharia 2020)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import MultiVectorEncoder, SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

from biorag.errors import MissingError
from biorag.loading import load_model
from biorag.models import ModelFiles
from biorag.types import Vectors

BATCH = 32
MULTI_VECTOR = ("MultiVectorEncoder", "ColBERT")  # as sentence-transformers and PyLate save them


class LateInteraction:
    """Scores snippets by their mean MaxSim to the query's tokens."""

    def __init__(self, model: MultiVectorEncoder, name: str) -> None:
        self._model = model
        self.name = name

    @classmethod
    def over_encoder(cls, model: SentenceTransformer, name: str) -> LateInteraction:
        """Compare a bi-encoder's own token vectors, normalised and without projection; loads nothing new."""
        modules = [model[0], MultiVectorMask(), Normalize(module_input_name="token_embeddings")]
        return cls(MultiVectorEncoder(modules=modules, device=str(model.device), prompts=dict(model.prompts)), name)

    @classmethod
    def load(cls, files: ModelFiles, precision: str = "auto") -> LateInteraction:
        """Load a ColBERT checkpoint, Stanford's (`HF_ColBERT`) or a sentence-transformers directory.

        Raises
        ------
        MissingError
            If the directory is a bare transformer, whose projection would be random, or does not load.
        """
        if not is_late_interaction(files):
            raise MissingError(f"reranker {files.id!r} is no ColBERT checkpoint: it has no trained projection")
        model = load_model(MultiVectorEncoder, files, precision)
        _read_long_queries(model[0])
        return cls(model, files.id)

    def score(self, query: str, texts: Sequence[str]) -> Vectors:
        """Return one score per text, shape (texts,)."""
        options = {"batch_size": BATCH, "convert_to_numpy": True, "show_progress_bar": False}
        query_tokens = self._model.encode_query([query], **options)[0]
        return mean_maxsim(query_tokens, self._model.encode_document(list(texts), **options))


def is_late_interaction(files: ModelFiles) -> bool:
    """Return whether a model is a ColBERT checkpoint: Stanford's, PyLate's or sentence-transformers'."""
    kind = _json(files.path / "config_sentence_transformers.json").get("model_type")
    stanford = "HF_ColBERT" in (_json(files.path / "config.json").get("architectures") or [])
    return kind in MULTI_VECTOR or stanford


def _read_long_queries(transformer: Any) -> None:
    """Let a query longer than the length it is padded to keep its end: ColBERT's full-length search.

    Shorter queries are padded as before. A clinical case of 300 tokens would lose its question otherwise.
    """
    expansion = getattr(transformer, "query_expansion", None)
    if expansion and expansion["strategy"] == "fixed":
        transformer.query_expansion = {**expansion, "strategy": "min"}


def _json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def mean_maxsim(query: Vectors, documents: Sequence[Vectors]) -> Vectors:
    """Return `1/m Σ_i max_j ⟨q_i, d_j⟩` for each document: MaxSim divided by the query's token count m.

    Parameters
    ----------
    query : (query tokens, dim)
    documents : one (tokens, dim) array each; a document without tokens scores 0

    Returns
    -------
    (documents,) float32
    """
    scores = np.zeros(len(documents), dtype=np.float32)
    filled = [place for place, document in enumerate(documents) if len(document)]
    if not filled:
        return scores
    tokens = np.concatenate([documents[place] for place in filled]).astype(np.float32)
    starts = np.cumsum([0] + [len(documents[place]) for place in filled[:-1]])
    best = np.maximum.reduceat(query.astype(np.float32) @ tokens.T, starts, axis=1)
    scores[filled] = best.mean(axis=0)
    return scores
