"""Training the second stage: late interaction (ColBERT) on the first stage's mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentence_transformers import MultiVectorEncoder, MultiVectorEncoderTrainer, MultiVectorEncoderTrainingArguments
from sentence_transformers.multi_vector_encoder.losses import (
    CachedMultiVectorMultipleNegativesRankingLoss,
    MultiVectorMultipleNegativesRankingLoss,
)
from sentence_transformers.multi_vector_encoder.scoring import colbert_scores

from biorag.models.colbert import read_long_queries
from biorag.models.finding import ModelFiles
from biorag.models.loading import load_model
from biorag.settings.settings import Settings
from biorag.training.colbert import Lengths, save_model, write_base
from biorag.training.data import IN_BATCH, Split, check_negatives, columns, usable
from biorag.training.estimating import TrainingBatch, batch_of_rows
from biorag.training.evaluators import METRIC, Validation, reranking_validation
from biorag.training.loop import NoModelCard, TrainerJob, Training
from biorag.training.losses import MaskedLoss, MaskedSimilarity
from biorag.training.run_directory import TrainingRun, is_first_process, wait_for_processes

PASSAGE_TOKENS = 256  # a trained reranker reads at least these; training may cut passages shorter for speed
TEMPERATURE = 1.0  # MaxSim sums over the query's tokens, so its scores are spread widely enough


class RerankerTrainer(NoModelCard, MultiVectorEncoderTrainer):  # type: ignore[misc]
    """Trains a late-interaction reranker."""


class RerankerTraining(Training):
    """A late-interaction reranker, saved as a ColBERT checkpoint; see `RetrieverTraining` for its negatives.

    The base is a BERT, MiniLM or ModernBERT, a bi-encoder, or a ColBERT checkpoint. Held-out questions need mined
    negatives.
    """

    kind = "reranker"
    shares_batches = True

    def __init__(self, files: ModelFiles, split: Split, settings: Settings, negatives: str = IN_BATCH) -> None:
        check_negatives(negatives, settings.training)
        self.negatives = negatives
        rows = usable(split.training, negatives, settings.training.hard_negatives)
        super().__init__(files, split, settings, rows, negatives=negatives)

    def batch(self) -> TrainingBatch:
        """Return a batch whose queries are padded."""
        settings = self.settings.training
        return batch_of_rows(self.kind, self.rows, settings, settings.query_tokens)

    def job(self, folder: TrainingRun, facts: Mapping[str, Any]) -> TrainerJob:
        """Write the base in ColBERT's layout, load it, and return its job."""
        settings, precision = self.settings.training, self.settings.retrieval.precision
        texts = columns(self.rows, settings.hard_negatives)
        lengths = Lengths(settings.query_tokens, max(settings.max_tokens, PASSAGE_TOKENS))
        folder.begin(facts)
        if is_first_process():
            write_base(self.files, folder.base, lengths, texts["positive"], self.settings.seed)
        wait_for_processes()
        model = load_model(MultiVectorEncoder, ModelFiles(self.files.id, "", folder.base, self.files.sha256), "fp32")
        read_long_queries(model)

        def save(out: Path) -> dict[str, Any]:
            save_model(out, model, lengths)
            return {}

        return TrainerJob(
            trainer=RerankerTrainer,
            arguments=MultiVectorEncoderTrainingArguments,
            model=model,
            loss=self._loss(model),
            columns=texts,
            evaluator=Validation.of(precision, [reranking_validation(self.split.validation, self.settings.seed)]),
            metric=METRIC,
            save=save,
            extra_arguments={"max_length": {"document": settings.max_tokens}},
        )

    def _loss(self, model: MultiVectorEncoder) -> Any:
        settings = self.settings.training
        scale = 1 / (settings.temperature or TEMPERATURE)
        candidates = MaskedSimilarity.of(settings, self.negatives, colbert_scores, by_row=True)
        kind = MultiVectorMultipleNegativesRankingLoss
        if settings.mini_batch_size:
            kind = CachedMultiVectorMultipleNegativesRankingLoss
        loss = kind(
            model,
            scale=scale,
            similarity_fct=candidates,
            gather_across_devices=candidates.gather,
            # Passages are encoded as many at a time as queries, the long ones apart: less padding.
            mini_batch_size=settings.mini_batch_size or settings.batch_size,
        )
        return MaskedLoss(loss, candidates)
