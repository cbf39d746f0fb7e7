"""Training a cross-encoder: a question and a passage are read together; the loss is logistic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

from biorag.models.finding import ModelFiles
from biorag.models.inference import prompt_of
from biorag.models.loading import load_model
from biorag.registries import own_negatives
from biorag.settings.settings import Settings
from biorag.training.bi_encoder import require_single_tower
from biorag.training.data import Split, check_negatives, labelled_pairs, usable
from biorag.training.estimating import TrainingWork, pairs_work
from biorag.training.evaluators import METRIC, Validation, reranking_validation
from biorag.training.loop import NoModelCard, TrainerJob, Training, require_one_process
from biorag.training.run_directory import TrainingRun


class _Trainer(NoModelCard, CrossEncoderTrainer):  # type: ignore[misc]
    pass


class CrossEncoderTraining(Training):
    """A cross-encoder, saved as a sentence-transformers directory; a batch is of pairs.

    Source: the BioASQ 8 hybrid system (logistic loss, BM25 negatives, one epoch).

    The base is a transformer or bi-encoder, which gets a new head, or a cross-encoder. Held-out questions need mined
    negatives.
    """

    kind = "cross-encoder"

    def __init__(self, files: ModelFiles, split: Split, settings: Settings, negatives: str) -> None:
        require_one_process(self.kind)
        check_negatives(negatives, settings.training, own_negatives())
        require_single_tower(files)
        count = settings.training.hard_negatives
        rows = usable(split.training, negatives, count)
        super().__init__(files, split, settings, rows, negatives=negatives)
        self.pairs = labelled_pairs(rows, count)
        self.passes = [len(self.pairs["label"])]
        self.facts["pairs"] = len(self.pairs["label"])

    def work(self) -> TrainingWork:
        """Return each query with its passages."""
        return pairs_work(self.rows, self.settings.training)

    def job(self, folder: TrainingRun, facts: Mapping[str, Any]) -> TrainerJob:
        """Load the base with one output, and return its job."""
        settings = self.settings
        torch.manual_seed(settings.seed)  # of the new head
        model = load_model(CrossEncoder, self.files, "fp32", num_labels=1)
        longest = model.max_seq_length
        model.max_seq_length = min(settings.training.max_tokens, longest or settings.training.max_tokens)

        def save(out: Path) -> dict[str, Any]:
            model.max_seq_length = longest  # training cuts pairs for speed; reranking need not
            model.save(str(out), create_model_card=False)
            return {}

        return TrainerJob(
            trainer=_Trainer,
            arguments=CrossEncoderTrainingArguments,
            model=model,
            loss=logistic_loss(model, self.pairs["label"]),
            columns=self.pairs,
            evaluator=Validation.of(
                settings.retrieval.precision,
                [reranking_validation(self.split.validation, settings.seed, CrossEncoderRerankingEvaluator)],
            ),
            metric=METRIC,
            save=save,
            extra_arguments={"batch_sampler": "batch_sampler", "prompts": prompt_of(model, None)},
        )


def logistic_loss(model: CrossEncoder, labels: Sequence[float]) -> BinaryCrossEntropyLoss:
    """Return `−w·y·log σ(z) − (1 − y)·log(1 − σ(z))`, the mean over pairs of label y and output z.

    w, the number of negatives for each positive of the data, gives both classes the same weight.
    """
    positives = sum(labels)
    return BinaryCrossEntropyLoss(model, pos_weight=torch.tensor((len(labels) - positives) / positives))
