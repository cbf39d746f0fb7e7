"""ColBERT checkpoints by colbert-ai, the reference implementation (extra `colbert`): its tokenizers, model and MaxSim.

Source: the ColBERT repository (Khattab & Zaharia 2020, Santhanam et al. 2022).
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

import numpy as np

from biorag.errors import MissingError
from biorag.models import resources
from biorag.models.finding import ModelFiles, first_line
from biorag.models.late_interaction import is_late_interaction
from biorag.models.loading import best_device
from biorag.types import Snippet, Vectors
from biorag.utils.progress import batched
from biorag.utils.versions import require

TEXTS = 32  # passages encoded at once
COSINE = "cosine"


class ColbertAI:
    """A checkpoint in Stanford's layout, loaded and scored by colbert-ai as it is used by default.

    That cuts queries at the checkpoint's `query_maxlen`, where `ColBERT` reads them to their end.

    Raises `MissingError` if colbert-ai is not installed, or the directory is not such a checkpoint or does not load;
    `ServiceError` if it does not fit into memory.
    """

    def __init__(self, files: ModelFiles) -> None:
        require("colbert")
        metadata = files.settings("artifact.metadata")
        if not is_late_interaction(files) or not metadata:
            raise MissingError(f"reranker {files.id!r} is not a ColBERT checkpoint with artifact.metadata")
        for name in ("config.json", "tokenizer_config.json"):
            if "auto_map" in files.settings(name):
                raise MissingError(f"{files.path / name} names code of its own: the model is not loaded")
        if metadata.get("similarity", COSINE) != COSINE or not metadata.get("mask_punctuation", True):
            raise MissingError(f"colbert-ai loads {files.id!r} only with cosines and masked punctuation")
        resources.admit(resources.of_checkpoint(files, 4), best_device(), "a smaller one")
        folder = str(files.path.resolve())
        try:
            with _quiet():
                checkpoint_class, config_class = _classes(folder)
                own = config_class(model_name=folder)  # else the metadata may name another model, to be downloaded
                self._checkpoint = checkpoint_class(folder, colbert_config=own, verbose=0)
        except Exception as error:  # whatever colbert-ai and transformers raise: this is not such a checkpoint
            raise MissingError(
                f"reranker {files.id!r} cannot be loaded by colbert-ai from {files.path}: {first_line(error)}"
            ) from error

    def score_all(self, queries: Sequence[str], candidates: Sequence[Sequence[Snippet]]) -> list[Vectors]:
        """Return each query's mean MaxSim with its candidates, float32 (candidates,)."""
        return [
            self.mean_maxsim(query, [snippet.contents for snippet in snippets])
            for query, snippets in zip(queries, candidates, strict=True)
        ]

    def mean_maxsim(self, query: str, texts: Sequence[str]) -> Vectors:
        """Return colbert-ai's MaxSim, the sum over the query's tokens, divided by their number, float32 (texts,)."""
        from colbert.modeling.colbert import colbert_score

        parts = [np.zeros(0, np.float32)]
        with _quiet():
            vectors = self._checkpoint.queryFromText([query])
            for batch in batched(texts, TEXTS):
                tokens = self._checkpoint.doc_tokenizer.tensorize(list(batch))
                passages, mask = self._checkpoint.doc(*tokens, keep_dims="return_mask")
                scores = colbert_score(vectors, passages, mask, config=self._checkpoint.colbert_config)
                parts.append(scores.float().cpu().numpy() / vectors.size(1))
        joined: Vectors = np.concatenate(parts).astype(np.float32)
        return joined


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide what colbert-ai prints, and the warnings of libraries newer than it."""
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _classes(folder: str) -> tuple[Any, Any]:
    """Return colbert-ai's classes of a checkpoint and its settings, for the checkpoint in a folder."""
    from colbert.infra import ColBERTConfig
    from colbert.modeling import base_colbert, hf_colbert
    from colbert.modeling.checkpoint import Checkpoint
    from colbert.modeling.colbert import ColBERT
    from colbert.modeling.tokenization import doc_tokenization, query_tokenization

    ColBERT.loaded_extensions = True  # its C++ scoring, which it would compile now, is not needed
    factory = _class_factory(hf_colbert.class_factory, folder)
    for module in (base_colbert, doc_tokenization, query_tokenization):
        module.class_factory = factory
    return Checkpoint, ColBERTConfig


def _class_factory(own: Callable[[str], Any], folder: str) -> Callable[[str], Any]:
    """Return what makes the model class of one folder, for transformers 5.

    colbert-ai's own lets the folder's metadata name another model, whose code it would run, and takes bert-base-uncased
    from the hub if that fails. transformers 5 expects the two attributes before it loads weights.
    """

    def factory(_: str) -> Any:
        model_class = own(folder)
        model_class._keys_to_ignore_on_load_unexpected = set(model_class._keys_to_ignore_on_load_unexpected or ())
        model_class.all_tied_weights_keys = {}
        return model_class

    return factory
