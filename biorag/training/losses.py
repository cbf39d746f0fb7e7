"""What the library's losses lack: softmaxes over other passages than all of a batch.

`MultipleNegativesRankingLoss` always counts the other rows' passages as negatives too. The BM25 and random rows of
ModernBERT + ColBERT's Table 2 (arXiv 2510.04757) are taken to concern the mined negatives alone, so there the softmax
runs over one row's passages:

    L = −log( exp(s·sim(q, p⁺)) / (exp(s·sim(q, p⁺)) + Σ_j exp(s·sim(q, p⁻_j))) )

Synthesize-Train-Merge's InfoNCE (section 3.2) takes of the other rows their positives alone:

    L_i = −log( exp(s·sim(q_i, p_i⁺)) / (exp(s·sim(q_i, p_i⁻)) + Σ_j exp(s·sim(q_i, p_j⁺))) )

Rows may have unequal numbers of negatives: texts that only fill their columns count in no softmax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from sentence_transformers.multi_vector_encoder.scoring import colbert_kd_scores
from sentence_transformers.util import (
    all_gather,
    cos_sim,
    dot_score,
    get_rank,
    pairwise_cos_sim,
    pairwise_dot_score,
    stack_padded_token_embeddings,
)
from torch import Tensor, nn

from biorag.settings.training import TrainingSettings
from biorag.training.run_directory import process_count

FLOAT32 = 4  # bytes
NO_PASSAGE = -1e9  # the score of a text that only fills a column: its share of a softmax is 0
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

    `scores` returns shape (rows, 1 + negatives), the positive first; `scale` is the inverse temperature. Labels are
    the number of each row's negatives, shape (rows,), if these differ.
    """

    def __init__(self, model: nn.Module, scores: Scores, scale: float) -> None:
        super().__init__()
        self.model = model
        self._scores = scores
        self._scale = scale

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Return the mean loss of a batch; `sentence_features` are query, positive, negatives."""
        scores = self._scores(self.model, [dict(features) for features in sentence_features])
        if labels is not None:
            scores = scores.masked_fill(~passages_of(labels, scores.shape[1]), NO_PASSAGE)
        return nn.functional.cross_entropy(
            scores * self._scale, torch.zeros(len(scores), dtype=torch.long, device=scores.device)
        )


def passages_of(labels: Tensor, columns: int) -> Tensor:
    """Return which passages are a row's own, not filling, shape (rows, columns).

    `labels` are how many negatives each row has, shape (rows,).
    """
    return torch.arange(columns, device=labels.device) <= labels[:, None]


class Candidates:
    """A similarity by which a loss of the library scores a batch, without the passages that do not count.

    The library's losses pass it queries in the order of their rows, some at a time, and all passages: `by_row`, a row's
    passages one after the other (late interaction), else all positives, then all first negatives, and so on.

    The `similarity` returns the scores of queries and passages, shape (queries, passages). With `positives_only` the
    other rows' negatives do not count. With `gather` passages are those of all processes, one after the other.
    """

    def __init__(
        self,
        similarity: Callable[..., Tensor],
        by_row: bool = False,
        positives_only: bool = False,
        gather: bool = False,
    ) -> None:
        self._similarity = similarity
        self._by_row, self._positives_only, self.gather = by_row, positives_only, gather
        self._counted: Tensor | None = None
        self._row = 0

    @classmethod
    def of(cls, settings: TrainingSettings, similarity: Callable[..., Tensor], by_row: bool = False) -> Candidates:
        """Return the candidates of a run's settings; several processes share theirs."""
        return cls(similarity, by_row, settings.in_batch == "positives", process_count() > 1)

    def begin(self, rows: int, columns: int, labels: Tensor | None, device: torch.device) -> None:
        """Take the next batch: rows of this process, columns of passages, and labels as `passages_of` takes them."""
        self._row, self._counted = 0, None
        if labels is None and not self._positives_only:
            return
        counted = torch.ones(rows, columns, dtype=torch.bool, device=device)
        if labels is not None:
            counted = passages_of(labels.to(device), columns)
        self._counted = all_gather(counted.byte()).bool() if self.gather else counted
        self._row = rows * get_rank() if self.gather else 0

    def __call__(self, queries: Tensor, passages: Tensor, **masks: Tensor) -> Tensor:
        """Return the scores of the next queries, `NO_PASSAGE` where a passage does not count."""
        scores = self._similarity(queries, passages, **masks)
        if self._counted is None:
            return scores
        rows = torch.arange(self._row, self._row + len(scores), device=scores.device)
        self._row += len(scores)
        counted = self._counted[None]  # (queries or 1, rows, columns)
        if self._positives_only:
            of_others = torch.arange(counted.shape[1], device=scores.device) != rows[:, None]
            hard = torch.arange(counted.shape[2], device=scores.device) > 0
            counted = counted & ~(of_others[:, :, None] & hard)
        ordered = counted if self._by_row else counted.transpose(1, 2)
        return scores.masked_fill(~ordered.flatten(1), NO_PASSAGE)


class CandidatesLoss(nn.Module):
    """A loss of the library that scores by `candidates`, to which it hands each batch's labels."""

    def __init__(self, loss: nn.Module, candidates: Candidates) -> None:
        super().__init__()
        self.model = loss.model  # by which the trainer sees that several processes wrap it
        self.loss = loss
        self._candidates = candidates

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Return the mean loss of a batch; `sentence_features` are query, positive, negatives."""
        features = list(sentence_features)
        texts = next(value for value in features[0].values() if isinstance(value, Tensor) and value.ndim)
        self._candidates.begin(len(texts), len(features) - 1, labels, texts.device)
        loss: Tensor = self.loss(features, labels)
        return loss


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
