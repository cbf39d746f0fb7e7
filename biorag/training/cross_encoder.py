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

from biorag.errors import UsageError
from biorag.models.finding import ModelFiles
from biorag.models.inference import prompt_of
from biorag.models.loading import load_model
from biorag.settings.settings import Settings
from biorag.training import distributed
from biorag.training.asymmetric import require_single_tower
from biorag.training.data import Split, check_mined, described, labelled_pairs, usable
from biorag.training.evaluators import METRIC, reranking_validation
from biorag.training.loop import Job, NoModelCard, folder_of, run
from biorag.types import OnProgress


class _Trainer(NoModelCard, CrossEncoderTrainer):  # type: ignore[misc]
    pass


def train_cross_encoder(
    files: ModelFiles,
    split: Split,
    settings: Settings,
    out: Path,
    facts: Mapping[str, Any],
    on_progress: OnProgress,
    negatives: str,
) -> dict[str, Any]:
    """Train a cross-encoder into `out`, a sentence-transformers directory, and return its manifest.

    Source: the BioASQ 8 hybrid system (logistic loss, BM25 negatives, one epoch).

    Parameters
    ----------
    files : the base: a transformer or bi-encoder, which gets a new head, or a cross-encoder
    split : training rows, and rows of held-out questions with mined negatives to choose the best checkpoint by
    settings : precision, seed and the `train_` settings; a batch is of pairs
    facts : kept in the manifest
    negatives : the kind of the mined negatives

    Raises
    ------
    As `train_retriever` does; also UsageError in one of several processes.
    """
    if distributed.count() > 1:  # the gradients of several differ from those of one
        raise UsageError("train cross-encoder trains in one process: start it without torchrun or accelerate launch")
    check_mined(negatives, settings.training)
    require_single_tower(files)
    rows = usable(split.training, negatives, settings.training.hard_negatives)
    pairs = labelled_pairs(rows, settings.training.hard_negatives)
    facts = {**facts, "base": files.id, **described(split.training, rows), "pairs": len(pairs["label"])}
    folder = folder_of(out, "cross-encoder", files, split, settings, negatives=negatives)
    if done := folder.finished():
        return done
    with folder.locked():
        torch.manual_seed(settings.seed)  # of the new head
        model = load_model(CrossEncoder, files, "fp32", num_labels=1)
        longest = model.max_seq_length
        model.max_seq_length = min(settings.training.max_tokens, longest or settings.training.max_tokens)
        job = Job(
            trainer=_Trainer,
            arguments=CrossEncoderTrainingArguments,
            model=model,
            loss=logistic_loss(model, pairs["label"]),
            columns=pairs,
            evaluator=reranking_validation(
                split.validation, settings.retrieval.precision, settings.seed, CrossEncoderRerankingEvaluator
            ),
            metric=METRIC,
            arguments_of_stage={"batch_sampler": "batch_sampler", "prompts": prompt_of(model, None)},
        )
        figures = run(job, folder, settings, facts, on_progress)
        model.max_seq_length = longest  # training cuts pairs for speed; reranking need not
        model.save(str(out), create_model_card=False)
        return folder.finish(figures)


def logistic_loss(model: CrossEncoder, labels: Sequence[float]) -> BinaryCrossEntropyLoss:
    """Return `−w·y·log σ(z) − (1 − y)·log(1 − σ(z))`, the mean over pairs of label y and output z.

    w, the number of negatives for each positive of the data, gives both classes the same weight.
    """
    positives = sum(labels)
    return BinaryCrossEntropyLoss(model, pos_weight=torch.tensor((len(labels) - positives) / positives))
