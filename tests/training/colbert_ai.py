"""Scores by colbert-ai, the reference implementation, which checkpoints must reproduce."""

from __future__ import annotations

import io
import warnings
from contextlib import redirect_stdout

import numpy as np


class ColbertAI:
    def __init__(self, folder):
        with redirect_stdout(io.StringIO()), warnings.catch_warnings():  # it prints, and is older than its libraries
            warnings.simplefilter("ignore")
            checkpoint_class, config_class = _classes()
            self._checkpoint = checkpoint_class(str(folder.resolve()), colbert_config=config_class(), verbose=0)

    def score(self, query, texts):
        """Return MaxSim, summed over the query's tokens, for each text, shape (texts,)."""
        from colbert.modeling.colbert import colbert_score

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            query_vectors = self._checkpoint.queryFromText([query])
            tokens = self._checkpoint.doc_tokenizer.tensorize(list(texts))
            vectors, mask = self._checkpoint.doc(*tokens, keep_dims="return_mask")
        scores = colbert_score(query_vectors, vectors, mask, config=self._checkpoint.colbert_config)
        return np.asarray(scores.float().cpu(), dtype=np.float32)


def _classes():
    from colbert.infra import ColBERTConfig
    from colbert.modeling import base_colbert, hf_colbert
    from colbert.modeling.checkpoint import Checkpoint
    from colbert.modeling.colbert import ColBERT

    ColBERT.loaded_extensions = True  # its C++ scoring, which it would compile now, is not needed
    base_colbert.class_factory = _for_transformers_5(hf_colbert.class_factory)
    return Checkpoint, ColBERTConfig


def _for_transformers_5(class_factory):
    """Give colbert-ai's model class the two attributes that transformers 5 expects before loading."""

    def factory(name_or_path):
        model_class = class_factory(name_or_path)
        model_class._keys_to_ignore_on_load_unexpected = set(model_class._keys_to_ignore_on_load_unexpected or ())
        model_class.all_tied_weights_keys = {}
        return model_class

    return factory
