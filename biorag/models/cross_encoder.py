"""The cross-encoder: one transformer reads two texts together: a query and a snippet, or evidence and a claim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from sentence_transformers import CrossEncoder
from torch import nn

from biorag.errors import MissingError
from biorag.models.finding import ModelFiles, first_line
from biorag.models.inference import Features, run
from biorag.models.labels import check_head, label_columns, trust_of
from biorag.models.loading import load_for_inference
from biorag.types import LABELS, Reading, Snippet, Vectors


class CrossEncoderReranker:
    """Scores snippets by the log-odds that they answer the query, the model's one output.

    Raises `MissingError` if the model has no trained head with one output, or does not load.
    """

    def __init__(self, files: ModelFiles, precision: str = "auto") -> None:
        check_head(files, "reranker", "biorag train cross-encoder")
        self._model = _load(files, precision, 1, load_for_inference)

    def score_all(self, queries: Sequence[str], candidates: Sequence[Sequence[Snippet]]) -> list[Vectors]:
        """Return each query's scores of its candidates, log-odds, shape (candidates,) float32."""
        pairs = [
            (query, snippet.contents)
            for query, snippets in zip(queries, candidates, strict=True)
            for snippet in snippets
        ]
        scores = iter(run(self._model, pairs, None, log_odds))
        return [np.fromiter(islice(scores, len(snippets)), np.float32, len(snippets)) for snippets in candidates]


class CrossEncoderReader:
    """Reads windows beside a claim, by one output, or by three labels and "answers", as `biorag train reader` trains.

    Raises `MissingError` as `label_columns` does, or if the model does not load.
    """

    reads_whole, spent = False, ""

    def __init__(self, files: ModelFiles, precision: str = "auto") -> None:
        self._model, self._columns = load_reader_model(files, precision)
        self.name, self.sha256, self.trust = files.id, files.sha256, trust_of(self._columns)
        self.reads_questions = self.tells_answers = len(self._columns) > len(LABELS)

    def read(self, query: str, windows: Sequence[str]) -> Reading:
        """Return probabilities (windows, 3), and that each answers; one output never says contradicts."""
        pairs = [(window, query) for window in windows]
        return reading_of(np.array(run(self._model, pairs, None, self._rows), np.float32))

    def _rows(self, features: Features) -> Sequence[Any]:
        return list(probabilities(features["scores"], self._columns).numpy(force=True))


def reading_of(rows: Vectors) -> Reading:
    """Return the reading of probabilities (windows, 3), by `LABELS`, or (windows, 4) with that it answers."""
    rows = rows.reshape(-1, rows.shape[-1] if rows.ndim > 1 else len(LABELS))
    return Reading(rows[:, : len(LABELS)], rows[:, -1] if rows.shape[1] > len(LABELS) else None)


def load_reader_model(
    files: ModelFiles, precision: str, load: Callable[..., CrossEncoder] = load_for_inference
) -> tuple[CrossEncoder, tuple[int, ...]]:
    """Return a reader, and which of its outputs say what; see `label_columns`."""
    columns = label_columns(files)
    return _load(files, precision, len(columns) or 1, load), columns


def probabilities(scores: torch.Tensor, columns: Sequence[int]) -> torch.Tensor:
    """Return probabilities (pairs, 3 or 4), by `LABELS` and "answers", of outputs (pairs, outputs)."""
    scores = scores.float()
    if columns:
        stances = scores[:, list(columns[: len(LABELS)])].softmax(dim=1)
        answers = [scores[:, [column]].sigmoid() for column in columns[len(LABELS) :]]
        return torch.cat([stances, *answers], dim=1)
    supports = scores.reshape(-1, 1).sigmoid()
    return torch.cat([supports, torch.zeros_like(supports), 1 - supports], dim=1)


def _load(files: ModelFiles, precision: str, outputs: int, load: Callable[..., CrossEncoder]) -> CrossEncoder:
    # Without the activation, which would press the best candidates' scores together.
    model = load(CrossEncoder, files, precision, activation_fn=nn.Identity())
    if model.num_labels != outputs:
        raise MissingError(
            f"cross-encoder {files.id!r} has {model.num_labels} outputs: name one with "
            f"{'a single score' if outputs == 1 else 'those that its labels name'}"
        )
    try:
        run(model, [("a", "b")], None, lambda features: list(features["scores"].float()))
    except Exception as error:  # settings that are read only now: the library raises many kinds
        raise MissingError(f"cross-encoder {files.id!r} scores no pair of texts: {first_line(error)}") from error
    return model


def log_odds(features: Features) -> list[float]:
    """Return the one output of each pair of a batch, (pairs, 1) in the model's precision."""
    scores: list[float] = features["scores"].float().reshape(-1).tolist()
    return scores
