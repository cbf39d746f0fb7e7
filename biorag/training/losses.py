"""The loss that the library lacks: a row's positive against its own mined negatives alone.

`MultipleNegativesRankingLoss` always counts the other rows' passages as negatives too. The paper's BM25 and
random rows concern the mined negatives alone, so there the softmax runs over one row's passages:

    L = −log( exp(s·sim(q, p⁺)) / (exp(s·sim(q, p⁺)) + Σ_j exp(s·sim(q, p⁻_j))) )
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from sentence_transformers.multi_vector_encoder.scoring import colbert_kd_scores
from sentence_transformers.util import (
    cos_sim,
    dot_score,
    pairwise_cos_sim,
    pairwise_dot_score,
    stack_padded_token_embeddings,
)
from torch import Tensor, nn

FLOAT32 = 4  # bytes
Scores = Callable[[nn.Module, list[dict[str, Tensor]]], Tensor]


def _in_float32(similarity: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a similarity that stays in float32 under autocast: bfloat16 resolves scaled scores to 0.06 only."""

    def compared(queries: Tensor, passages: Tensor) -> Tensor:
        with torch.autocast(queries.device.type, enabled=False):
            return similarity(_widened(queries), _widened(passages))

    return compared


def _widened(vectors: Tensor) -> Tensor:
    return vectors.float() if vectors.dtype.itemsize < FLOAT32 else vectors


# All queries against all passages: (queries, dim), (passages, dim) -> (queries, passages).
SIMILARITIES = {"cosine": _in_float32(cos_sim), "dot": _in_float32(dot_score)}


class OwnNegativesLoss(nn.Module):
    """Softmax cross-entropy over each row's own passages.

    `scores` returns shape (rows, 1 + negatives), the positive first; `scale` is the inverse temperature.
    """

    def __init__(self, model: nn.Module, scores: Scores, scale: float) -> None:
        super().__init__()
        self.model = model
        self._scores = scores
        self._scale = scale

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Return the mean loss of a batch; `sentence_features` are query, positive, negatives."""
        scores = self._scores(self.model, [dict(features) for features in sentence_features])
        return nn.functional.cross_entropy(
            scores * self._scale, torch.zeros(len(scores), dtype=torch.long, device=scores.device)
        )


def cosine_scores(model: nn.Module, columns: list[dict[str, Tensor]]) -> Tensor:
    """Return the cosine of each query and its passages, shape (rows, passages)."""
    return _pairwise(model, columns, _in_float32(pairwise_cos_sim))


def dot_scores(model: nn.Module, columns: list[dict[str, Tensor]]) -> Tensor:
    """Return the dot product of each query and its passages, shape (rows, passages)."""
    return _pairwise(model, columns, _in_float32(pairwise_dot_score))


OWN_SCORES = {"cosine": cosine_scores, "dot": dot_scores}


def maxsim_scores(model: nn.Module, columns: list[dict[str, Tensor]]) -> Tensor:
    """Return MaxSim, summed over the query's tokens, of each query and its passages, shape (rows, passages)."""
    query = model(columns[0], task="query")
    passages = [model(features, task="document") for features in columns[1:]]
    vectors, masks = stack_padded_token_embeddings(
        [passage["token_embeddings"] for passage in passages],
        [passage["attention_mask"].bool() for passage in passages],
    )
    scores: Tensor = colbert_kd_scores(
        query["token_embeddings"], vectors, queries_mask=query["attention_mask"].bool(), documents_mask=masks
    )
    return scores


def _pairwise(
    model: nn.Module, columns: list[dict[str, Tensor]], similarity: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    query, *passages = [model(features)["sentence_embedding"] for features in columns]
    return torch.stack([similarity(query, passage) for passage in passages], dim=1)
