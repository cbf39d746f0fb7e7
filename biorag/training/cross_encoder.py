"""Training a cross-encoder: two texts are read together, a question and a passage, or evidence and a claim."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
from sentence_transformers.util import batch_to_device

from biorag.errors import BadInputError
from biorag.models.finding import ModelFiles
from biorag.models.inference import prompt_of
from biorag.models.labels import HEAD
from biorag.models.loading import load_model
from biorag.models.resources import ATTENTION_DROPOUTS, HIDDEN_DROPOUTS, ModelShape
from biorag.registries import own_negatives
from biorag.settings.settings import Settings
from biorag.training.bi_encoder import require_single_tower
from biorag.training.data import Split, check_negatives, labelled_pairs, usable
from biorag.training.estimating import TrainingBatch, batch_of_texts
from biorag.training.evaluators import MACRO_F1, METRIC, ReadingEvaluator, Validation, reranking_validation
from biorag.training.loop import NoModelCard, TrainerJob, Training, require_one_process
from biorag.training.reading import ANSWERS, OUTPUTS, TARGETS, ReadingRow
from biorag.training.run_directory import TrainingRun
from biorag.training.sampling import SimilarLengths
from biorag.types import LABELS

SMOOTHING = 0.05  # of a reader's labels, of which some are wrong: people differ, and windows lack context
MULTIPLE = 32  # tokens that batches are padded to a multiple of: oneDNN compiles its products for each new shape


class _Trainer(NoModelCard, CrossEncoderTrainer):  # type: ignore[misc]
    pass


@dataclass(frozen=True, slots=True)
class PairTask:
    """What a cross-encoder learns: the columns of two texts and label, the loss, and the metric of held-out pairs.

    `labels` are the names of the outputs; none are one score. `rows` are those that the pairs are of, `configuration`
    what replaces values of the base's.
    """

    split: Split[Any]
    rows: Sequence[Any]
    pairs: Mapping[str, list[Any]]
    loss: Callable[[CrossEncoder], torch.nn.Module]
    evaluator: BaseEvaluator | None
    metric: str = METRIC
    labels: Sequence[str] = ()
    choices: Mapping[str, Any] = field(default_factory=dict)
    configuration: Mapping[str, Any] = field(default_factory=dict)


def reranking(split: Split, settings: Settings, negatives: str) -> PairTask:
    """Return the task of a reranker: to tell a query's positives from its mined negatives, by a logistic loss.

    Source: the BioASQ 8 hybrid system (BM25 negatives, one epoch). Held-out questions need mined negatives.
    """
    check_negatives(negatives, settings.training, own_negatives())
    rows = usable(split.training, negatives, settings.training.hard_negatives)
    pairs = labelled_pairs(rows, settings.training.hard_negatives)
    evaluator = reranking_validation(split.validation, settings.seed, CrossEncoderRerankingEvaluator)
    return PairTask(
        split, rows, pairs, lambda model: logistic_loss(model, pairs["label"]), evaluator,
        choices={"negatives": negatives},
    )  # fmt: skip


def reading(split: Split[ReadingRow], files: ModelFiles, settings: Settings) -> PairTask:
    """Return the task of a reader: three labels by softmax, and whether the window answers by a logistic loss.

    A base that is such a reader keeps its head; another gets a new one. Nothing is dropped out: on a CPU dropped scores
    of attention alone make a step 2.6 times as long. Raises `BadInputError` if the base has another head.
    """
    base = files.settings("config.json")
    headed = any(str(name).endswith(HEAD) for name in base.get("architectures") or [])
    if headed and sorted(map(str, (base.get("id2label") or {}).values())) != sorted(OUTPUTS):
        raise BadInputError(f"{files.id} is another cross-encoder: name an encoder, or a reader to train further")
    pairs: dict[str, list[Any]] = {
        "window": [row.window for row in split.training],
        "query": [row.query for row in split.training],
        "label": [TARGETS.index(row.target) for row in split.training],
    }
    evaluator = ReadingEvaluator.of(split.validation, settings.seed)
    return PairTask(
        split, split.training, pairs, ReadingLoss, evaluator, MACRO_F1, OUTPUTS,
        {"labels": OUTPUTS}, {name: 0.0 for name in (*ATTENTION_DROPOUTS, *HIDDEN_DROPOUTS) if name in base},
    )  # fmt: skip


class CrossEncoderTraining(Training):
    """A cross-encoder, saved as a sentence-transformers directory; a batch is of pairs.

    The base is a transformer or bi-encoder, which gets a new head, or a cross-encoder with as many outputs.
    """

    kind = "cross-encoder"

    def __init__(self, files: ModelFiles, settings: Settings, task: PairTask) -> None:
        require_one_process(self.kind)
        require_single_tower(files)
        super().__init__(files, task.split, settings, task.rows, **task.choices)
        self.task = task
        self.passes = [len(task.pairs["label"])]
        self.facts["pairs"] = len(task.pairs["label"])

    def batch(self) -> TrainingBatch:
        """Return a batch of pairs."""
        first, second = list(self.task.pairs.values())[:2]
        texts = [one + other for one, other in zip(first, second, strict=True)]
        return batch_of_texts(texts, self.settings.training)

    def shape(self) -> ModelShape:
        """Return the shape of the base, without the dropout that the task leaves out."""
        shape = super().shape()
        return replace(shape, attention_dropout=shape.attention_dropout and not self.task.configuration)

    def job(self, folder: TrainingRun, facts: Mapping[str, Any]) -> TrainerJob:
        """Load the base with the outputs of the task, and return its job."""
        settings, task = self.settings, self.task
        torch.manual_seed(settings.seed)  # of the new head
        options: dict[str, Any] = {"config_kwargs": task.configuration} if task.configuration else {}
        model = load_model(CrossEncoder, self.files, "fp32", num_labels=len(task.labels) or 1, **options)
        if task.labels:
            model.config.id2label = dict(enumerate(task.labels))
            model.config.label2id = {label: index for index, label in enumerate(task.labels)}
        if task.labels:  # claims hold few of the words: without their vectors a step is a fifth shorter, none is lost
            model[0].auto_model.get_input_embeddings().requires_grad_(False)
        longest = model.max_seq_length
        model.max_seq_length = min(settings.training.max_tokens, longest or settings.training.max_tokens)
        if model.max_seq_length % MULTIPLE == 0:  # the tokenizer refuses to pad beyond where it cuts
            model[0].processing_kwargs = {"text": {"pad_to_multiple_of": MULTIPLE}}

        def save(out: Path) -> dict[str, Any]:
            model.max_seq_length = longest  # training cuts pairs for speed; using the model need not
            model[0].processing_kwargs = {}
            model.save(str(out), create_model_card=False)
            return {}

        return TrainerJob(
            trainer=_Trainer,
            arguments=CrossEncoderTrainingArguments,
            model=model,
            loss=task.loss(model),
            columns=task.pairs,
            evaluator=Validation.of(settings.retrieval.precision, [task.evaluator], task.metric),
            metric=task.metric,
            save=save,
            extra_arguments={
                "batch_sampler": SimilarLengths if task.labels else "batch_sampler",
                "prompts": prompt_of(model, None),
            },
        )


def logistic_loss(model: CrossEncoder, labels: Sequence[float]) -> BinaryCrossEntropyLoss:
    """Return `−w·y·log σ(z) − (1 − y)·log(1 − σ(z))`, the mean over pairs of label y and output z.

    w, the number of negatives for each positive of the data, gives both classes the same weight.
    """
    positives = sum(labels)
    return BinaryCrossEntropyLoss(model, pos_weight=torch.tensor((len(labels) - positives) / positives))


class ReadingLoss(torch.nn.Module):
    """The loss of a reader over the outputs z of a batch, the mean over its rows.

    `−log softmax(z[:3])[label]` of a claim, or `−log(1 − softmax(z[:3])[supports])` where only that it is not supported
    is known; `−log σ(±z[3])` of a question. Labels are smoothed by `SMOOTHING`: some are wrong.
    """

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: list[list[str]], labels: torch.Tensor, **prompts: str | None) -> torch.Tensor:
        """Return the loss of windows, queries and targets, (rows,)."""
        tokens = self.model.preprocess(list(zip(*inputs, strict=True)), **prompts)
        logits = self.model(batch_to_device(tokens, self.model.device))["scores"].float()
        return reading_losses(logits, labels.view(-1)).mean()


def reading_losses(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the losses of outputs (rows, 4) for targets (rows,), positions in `TARGETS`; see `ReadingLoss`."""
    stances, asked = torch.log_softmax(logits[:, : len(LABELS)], dim=-1), logits[:, -1]
    truth = torch.nn.functional.one_hot(targets.clamp(max=len(LABELS) - 1), len(LABELS))
    smoothed = truth * (1 - SMOOTHING) + SMOOTHING / len(LABELS)
    unsupported = -torch.log1p(-stances[:, 0].exp().clamp(max=1 - SMOOTHING / 10))
    answers = (targets == TARGETS.index(ANSWERS)).float() * (1 - SMOOTHING) + SMOOTHING / 2
    of_question = torch.nn.functional.binary_cross_entropy_with_logits(asked, answers, reduction="none")
    of_claim = torch.where(targets < len(LABELS), -(smoothed * stances).sum(dim=-1), unsupported)
    return torch.where(targets >= TARGETS.index(ANSWERS), of_question, of_claim)
