"""Scores by colbert-ai, the reference implementation, which saved rerankers must reproduce."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import MultiVectorEncoder

from biorag.models.finding import ModelFiles
from biorag.models.loading import load_model
from biorag.types import Vectors

logger = logging.getLogger(__name__)


class ColbertAI:
    """A checkpoint loaded by colbert-ai (extra `colbert`)."""

    def __init__(self, folder: Path) -> None:
        with redirect_stdout(io.StringIO()), warnings.catch_warnings():  # it prints, and is older than its libraries
            warnings.simplefilter("ignore")
            checkpoint_class, config_class = _classes()
            self._checkpoint = checkpoint_class(str(folder.resolve()), colbert_config=config_class(), verbose=0)

    def score(self, query: str, texts: Sequence[str]) -> Vectors:
        """Return MaxSim, summed over the query's tokens, for each text, shape (texts,)."""
        from colbert.modeling.colbert import colbert_score

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            query_vectors = self._checkpoint.queryFromText([query])
            tokens = self._checkpoint.doc_tokenizer.tensorize(list(texts))
            vectors, mask = self._checkpoint.doc(*tokens, keep_dims="return_mask")
        scores = colbert_score(query_vectors, vectors, mask, config=self._checkpoint.colbert_config)
        return np.asarray(scores.float().cpu(), dtype=np.float32)


def largest_difference(folder: Path, query: str, texts: Sequence[str]) -> float | None:
    """Return how far colbert-ai's scores of a checkpoint are from sentence-transformers'.

    None without colbert-ai, or if it fails: a checkpoint is worth keeping either way.
    """
    if find_spec("colbert") is None:
        return None
    model = load_model(MultiVectorEncoder, ModelFiles(str(folder), "", folder, ""), "fp32")
    ours = model.similarity(model.encode_query([query]), model.encode_document(list(texts)))[0].cpu().numpy()
    try:
        return float(np.abs(ours - ColbertAI(folder).score(query, texts)).max())
    except Exception as error:  # whatever colbert-ai raises, the training is complete
        logger.warning("colbert-ai could not score %s: %s", folder, error)
        return None


def _classes() -> tuple[Any, Any]:
    from colbert.infra import ColBERTConfig
    from colbert.modeling import base_colbert, hf_colbert
    from colbert.modeling.checkpoint import Checkpoint
    from colbert.modeling.colbert import ColBERT

    ColBERT.loaded_extensions = True  # its C++ scoring, which it would compile now, is not needed
    base_colbert.class_factory = _for_transformers_5(hf_colbert.class_factory)
    return Checkpoint, ColBERTConfig


def _for_transformers_5(class_factory: Any) -> Any:
    """Give colbert-ai's model class the two attributes that transformers 5 expects before loading."""

    def factory(name_or_path: str) -> Any:
        model_class = class_factory(name_or_path)
        model_class._keys_to_ignore_on_load_unexpected = set(model_class._keys_to_ignore_on_load_unexpected or ())
        model_class.all_tied_weights_keys = {}
        return model_class

    return factory
