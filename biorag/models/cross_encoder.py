"""The cross-encoder: one transformer reads a query and a snippet together, and gives a score."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
from sentence_transformers import CrossEncoder
from torch import nn

from biorag.errors import MissingError
from biorag.models.finding import ModelFiles
from biorag.models.inference import Features, run
from biorag.models.loading import load_for_inference
from biorag.types import Snippet, Vectors

HEAD = "ForSequenceClassification"


class CrossEncoderReranker:
    """Scores snippets by the log-odds that they answer the query, the model's one output.

    Raises `MissingError` if the model has no trained head with one output, or does not load.
    """

    def __init__(self, files: ModelFiles, precision: str = "auto") -> None:
        self._model = _load(files, precision, "reranker", "biorag train cross-encoder")

    def score_all(self, queries: Sequence[str], candidates: Sequence[Sequence[Snippet]]) -> list[Vectors]:
        """Return each query's scores of its candidates, log-odds, shape (candidates,) float32."""
        pairs = [
            (query, snippet.contents)
            for query, snippets in zip(queries, candidates, strict=True)
            for snippet in snippets
        ]
        scores = iter(run(self._model, pairs, None, log_odds))
        return [np.fromiter(islice(scores, len(snippets)), np.float32, len(snippets)) for snippets in candidates]


class CrossEncoderVerifier:
    """Judges pairs of a text and a claim, as `biorag train verifier` trains it.

    Raises `MissingError` as `CrossEncoderReranker` does.
    """

    def __init__(self, files: ModelFiles, precision: str = "auto") -> None:
        self._model = _load(files, precision, "verifier", "biorag train verifier")
        self.sha256 = files.sha256

    def judge(self, pairs: Sequence[tuple[str, str]]) -> Vectors:
        """Return probabilities (pairs, 3), supports, contradicts, neither; it tells no contradiction from silence."""
        scores = np.fromiter(run(self._model, list(pairs), None, log_odds), np.float64, len(pairs))
        supports = 1 / (1 + np.exp(-scores))
        return np.stack([supports, np.zeros_like(supports), 1 - supports], axis=1).astype(np.float32)


def _load(files: ModelFiles, precision: str, role: str, made_by: str) -> CrossEncoder:
    # The library puts a random head on a model that has none.
    if not any(str(name).endswith(HEAD) for name in files.settings("config.json").get("architectures") or []):
        raise MissingError(
            f"{role} {files.id!r} is not a cross-encoder: it has no trained head ({made_by!r} makes one)"
        )
    # Without the activation, which would press the best candidates' scores together.
    model = load_for_inference(CrossEncoder, files, precision, activation_fn=nn.Identity())
    if model.num_labels != 1:
        raise MissingError(f"cross-encoder {files.id!r} has {model.num_labels} outputs: name one with a single score")
    return model


def log_odds(features: Features) -> list[float]:
    """Return the one output of each pair of a batch, (pairs, 1) in the model's precision."""
    scores: list[float] = features["scores"].float().reshape(-1).tolist()
    return scores
