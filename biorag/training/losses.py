"""What the library's losses lack: softmaxes over other passages than all of a batch.

`MultipleNegativesRankingLoss` always counts the other rows' passages as negatives too. The BM25 and random rows of
ModernBERT + ColBERT's Table 2 (arXiv 2510.04757) are taken to concern the mined negatives alone, so there the softmax
runs over one row's passages:

    L = −log( exp(s·sim(q, p⁺)) / (exp(s·sim(q, p⁺)) + Σ_j exp(s·sim(q, p⁻_j))) )

Synthesize-Train-Merge's InfoNCE (section 3.2) takes of the other rows their positives alone:

    L_i = −log( exp(s·sim(q_i, p_i⁺)) / (exp(s·sim(q_i, p_i⁻)) + Σ_j exp(s·sim(q_i, p_j⁺))) )

The starter learns vectors and token vectors at once, by `TokenLoss`.

Rows may have unequal numbers of negatives: texts that only fill their columns count in no softmax. Nor does another
row's positive of the same question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from sentence_transformers.util import all_gather, cos_sim, dot_score, get_rank
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from biorag.models.inference import reads_unpadded, unpadded
from biorag.registries import NEGATIVES
from biorag.settings.training import TrainingSettings
from biorag.training.run_directory import process_count

FLOAT32 = 4  # bytes
NO_PASSAGE = -1e9  # the score of a passage that does not count: its share of a softmax is 0
ALL, POSITIVES, NONE = "all", "positives", "none"  # what other rows add to a row's negatives


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


class MaskedSimilarity:
    """A similarity by which a loss of the library scores a batch, without the passages that do not count.

    The library's losses pass it queries in the order of their rows, some at a time, and all passages: `by_row`, a row's
    passages one after the other (late interaction), else all positives, then all first negatives, and so on.

    The `similarity` returns the scores of queries and passages, shape (queries, passages). Of the `others`' passages
    all, the positives or none count, but for positives of a row with the same query. With `gather` passages are those
    of all processes, one after the other.
    """

    def __init__(
        self, similarity: Callable[..., Tensor], by_row: bool = False, others: str = ALL, gather: bool = False
    ) -> None:
        self._similarity = similarity
        self._by_row, self._others, self.gather = by_row, others, gather
        self._counted: Tensor | None = None
        self._questions: Tensor | None = None  # a number of each row's query, if some come again
        self._row = 0

    @classmethod
    def of(
        cls, settings: TrainingSettings, negatives: str, similarity: Callable[..., Tensor], by_row: bool = False
    ) -> MaskedSimilarity:
        """Return the candidates of a run; several processes share theirs if negatives are in-batch."""
        if not NEGATIVES[negatives].in_batch:
            return cls(similarity, by_row, NONE)
        return cls(similarity, by_row, settings.in_batch or ALL, process_count() > 1)

    def begin(self, query: Mapping[str, Tensor], columns: int, labels: Tensor | None) -> None:
        """Take the next batch: this process's queries, columns of passages, and how many negatives each row has."""
        questions = self._gathered(_numbers(query))
        rows, rows_of_all, device = len(query["input_ids"]), len(questions), questions.device
        self._row = rows * get_rank() if self.gather else 0
        self._counted = None
        self._questions = questions if self._others != NONE and len(set(questions.tolist())) < rows_of_all else None
        if labels is None and self._others == ALL and self._questions is None:
            return
        counted = torch.ones(rows, columns, dtype=torch.bool, device=device)
        if labels is not None:
            counted = torch.arange(columns, device=device) <= labels.to(device)[:, None]
        self._counted = self._gathered(counted.byte()).bool()

    def _gathered(self, tensor: Tensor) -> Tensor:
        """Return the rows of all processes that share their passages."""
        return all_gather(tensor) if self.gather else tensor

    def __call__(self, queries: Any, passages: Any, **masks: Tensor) -> Tensor:
        """Return the scores of the next queries, `NO_PASSAGE` where a passage does not count."""
        scores = self._similarity(queries, passages, **masks)
        if self._counted is None:
            return scores
        rows = torch.arange(self._row, self._row + len(scores), device=scores.device)
        self._row += len(scores)
        counted = self._counted[None]  # (queries or 1, rows, columns)
        own = torch.arange(counted.shape[1], device=scores.device) == rows[:, None]
        positive = torch.arange(counted.shape[2], device=scores.device) == 0
        if self._others != ALL:
            counted = counted & (own[:, :, None] | (positive & (self._others == POSITIVES)))
        if self._questions is not None:
            again = (self._questions[rows][:, None] == self._questions) & ~own
            counted = counted & ~(again[:, :, None] & positive)
        ordered = counted if self._by_row else counted.transpose(1, 2)
        return scores.masked_fill(~ordered.flatten(1), NO_PASSAGE)


def _numbers(query: Mapping[str, Tensor]) -> Tensor:
    """Return a number of each query's tokens, shape (rows,); the same for the same ones, however padded."""
    ids = query["input_ids"] * query["attention_mask"]
    generator = torch.Generator().manual_seed(0)
    weights = torch.randint(1, 2**62, (ids.shape[1],), generator=generator).to(ids.device)
    return (ids * weights).sum(dim=1)  # modulo 2^64


class MaskedLoss(nn.Module):
    """A loss of the library that scores by `candidates`, to which it hands each batch's labels."""

    def __init__(self, loss: nn.Module, candidates: MaskedSimilarity) -> None:
        super().__init__()
        self.model = loss.model  # by which the trainer sees that several processes wrap it
        self.loss = loss
        self._candidates = candidates

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Return the mean loss of a batch; `sentence_features` are query, positive, negatives."""
        features = list(sentence_features)
        self._candidates.begin(features[0], len(features) - 1, labels)
        loss: Tensor = self.loss(features, labels)
        return loss


def mean_maxsim(queries: Sequence[Tensor], passages: Sequence[Tensor]) -> Tensor:
    """Return `1/m Σ_i max_j cos(q_i, d_j)` of each query and passage, shape (queries, passages).

    Each text is its token vectors, (tokens, dim); m is the number of a query's.
    """
    lengths, sizes = [len(query) for query in queries], [len(passage) for passage in passages]
    with torch.autocast(queries[0].device.type, enabled=False):
        unit = [normalize(torch.cat(list(texts)).float(), dim=-1) for texts in (queries, passages)]
        cosines = unit[0] @ unit[1].T  # (tokens of all queries, tokens of all passages)
        best = torch.stack([scores.amax(dim=1) for scores in torch.split_with_sizes(cosines, sizes, dim=1)], dim=1)
        return torch.stack([scores.mean(dim=0) for scores in torch.split_with_sizes(best, lengths)])


class TokenLoss(nn.Module):
    """The in-batch softmax over vectors plus `weight` times that over the mean MaxSim of token vectors, in one pass.

    `vectors` and `tokens` score a batch by either; a model prepared by `drop_padding` computes none.
    """

    def __init__(
        self, model: nn.Module, scale: float, vectors: MaskedSimilarity, tokens: MaskedSimilarity, weight: float
    ) -> None:
        super().__init__()
        self.model = model  # by which the trainer sees that several processes wrap it
        self._scale, self._parts = scale, ((vectors, 1.0), (tokens, weight))

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Return the mean loss of a batch; `sentence_features` are query, positive, negatives."""
        features = list(sentence_features)
        (queries, query_tokens), *columns = (self._encoded(column) for column in features)
        passages = torch.cat([vectors for vectors, _ in columns])
        texts = [text for _, tokens in columns for text in tokens]
        own = torch.arange(len(queries), device=queries.device)  # the positives come first
        total = queries.new_zeros(())
        for (candidates, weight), pair in zip(self._parts, ((queries, passages), (query_tokens, texts)), strict=True):
            candidates.begin(features[0], len(columns), labels)
            total = total + weight * cross_entropy(self._scale * candidates(*pair), own)
        return total

    def _encoded(self, column: dict[str, Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return the vectors of a column's texts, (texts, dim), and their token vectors without padding."""
        lengths = column["attention_mask"].sum(dim=1).tolist()
        dense = reads_unpadded(self.model)
        output = self.model(unpadded(column) if dense else dict(column))
        tokens = output["token_embeddings"]
        rows = (
            tokens[0, : sum(lengths)].split(lengths)
            if dense
            else [text[mask] for text, mask in zip(tokens, column["attention_mask"].bool(), strict=True)]
        )
        return output["sentence_embedding"][: len(lengths)], list(rows)
