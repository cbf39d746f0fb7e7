"""Training a cross-encoder: two texts are read together, a question and a passage, or evidence and a claim."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
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
from biorag.models.resources import ATTENTION_DROPOUTS, HIDDEN_DROPOUTS
from biorag.registries import own_negatives
from biorag.settings.settings import Settings
from biorag.training.data import Split, check_negatives, labelled_pairs, usable
from biorag.training.estimating import TrainingBatch, batch_of_texts
from biorag.training.evaluators import MACRO_F1, METRIC, ReadingEvaluator, Validation, reranking_validation
from biorag.training.loop import NoModelCard, TrainerJob, Training
from biorag.training.reading import ANSWERS, OUTPUTS, TARGETS, ReadingRow
from biorag.training.run_directory import TrainingRun
from biorag.training.sampling import SimilarLengths
from biorag.types import LABELS

SMOOTHING = 0.05  # of a reader's labels, of which some are wrong: people differ, and windows lack context
MULTIPLE = 32  # tokens that batches are padded to a multiple of: oneDNN compiles its products for each new shape


class CrossEncoderPairTrainer(NoModelCard, CrossEncoderTrainer):  # type: ignore[misc]
    """Trains on pairs of texts."""


class CrossEncoderTraining(Training):
    """A reranker that reads a question and a passage together, saved as a sentence-transformers directory.

    It learns to tell a query's positives from its mined negatives, by a logistic loss; a batch is of pairs. The base is
    a transformer or bi-encoder, which gets a new head, or a cross-encoder with as many outputs. Held-out questions need
    mined negatives. Source: the BioASQ 8 hybrid system (BM25 negatives, one epoch).
    """

    kind = "cross-encoder"
    metric = METRIC
    labels: Sequence[str] = ()  # the names of the outputs; none are one score
    pairs: Mapping[str, list[Any]]  # columns of two texts and of labels

    def __init__(self, files: ModelFiles, split: Split, settings: Settings, negatives: str = "bm25") -> None:
        check_negatives(negatives, settings.training, own_negatives())
        rows = usable(split.training, negatives, settings.training.hard_negatives)
        super().__init__(files, split, settings, rows, negatives=negatives)
        self._take(labelled_pairs(rows, settings.training.hard_negatives))

    def _take(self, pairs: Mapping[str, list[Any]]) -> None:
        self.pairs, self.passes = pairs, [len(pairs["label"])]
        self.facts["pairs"] = len(pairs["label"])

    def batch(self) -> TrainingBatch:
        """Return a batch of pairs."""
        first, second = list(self.pairs.values())[:2]
        texts = [text + beside for text, beside in zip(first, second, strict=True)]
        return batch_of_texts(texts, self.settings.training)

    def job(self, folder: TrainingRun, facts: Mapping[str, Any]) -> TrainerJob:
        """Load the base, and return its job."""
        settings = self.settings
        model = self._model()
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
            trainer=CrossEncoderPairTrainer,
            arguments=CrossEncoderTrainingArguments,
            model=model,
            loss=self._loss(model),
            columns=self.pairs,
            evaluator=Validation.of(settings.retrieval.precision, [self._evaluator()], self.metric),
            metric=self.metric,
            save=save,
            extra_arguments={
                "batch_sampler": SimilarLengths if self.labels else "batch_sampler",
                "prompts": prompt_of(model, None),
            },
        )

    def _model(self, **options: Any) -> CrossEncoder:
        torch.manual_seed(self.settings.seed)  # of the new head
        model: CrossEncoder = load_model(CrossEncoder, self.files, "fp32", num_labels=len(self.labels) or 1, **options)
        return model

    def _loss(self, model: CrossEncoder) -> Any:
        return logistic_loss(model, self.pairs["label"])

    def _evaluator(self) -> BaseEvaluator | None:
        return reranking_validation(self.split.validation, self.settings.seed, CrossEncoderRerankingEvaluator)


class ReaderTraining(CrossEncoderTraining):
    """A reader of windows and claims or questions: three labels by softmax, and whether the window answers, logistic.

    A base that is such a reader keeps its head; another gets a new one. Nothing is dropped out: on a CPU dropped scores
    of attention alone make a step 2.6 times as long. Raises `BadInputError` if the base has another head.
    """

    metric = MACRO_F1
    labels = OUTPUTS

    def __init__(self, files: ModelFiles, split: Split[ReadingRow], settings: Settings) -> None:
        base = files.settings("config.json")
        headed = any(str(name).endswith(HEAD) for name in base.get("architectures") or [])
        if headed and sorted(map(str, (base.get("id2label") or {}).values())) != sorted(OUTPUTS):
            raise BadInputError(f"{files.id} is another cross-encoder: name an encoder, or a reader to train further")
        Training.__init__(self, files, split, settings, split.training, labels=OUTPUTS)
        self._take(
            {
                "window": [row.window for row in split.training],
                "query": [row.query for row in split.training],
                "label": [TARGETS.index(row.target) for row in split.training],
            }
        )
        self._dropouts = {name: 0.0 for name in (*ATTENTION_DROPOUTS, *HIDDEN_DROPOUTS) if name in base}

    def _model(self, **options: Any) -> CrossEncoder:
        model = super()._model(**({"config_kwargs": self._dropouts} if self._dropouts else {}))
        model.config.id2label = dict(enumerate(OUTPUTS))
        model.config.label2id = {label: index for index, label in enumerate(OUTPUTS)}
        # Claims hold few of the words: without their vectors a step is a fifth shorter, and none is lost.
        model[0].auto_model.get_input_embeddings().requires_grad_(False)
        return model

    def _loss(self, model: CrossEncoder) -> Any:
        return ReadingLoss(model)

    def _evaluator(self) -> BaseEvaluator | None:
        return ReadingEvaluator.of(self.split.validation, self.settings.seed)


def logistic_loss(model: CrossEncoder, labels: Sequence[float]) -> BinaryCrossEntropyLoss:
    """Return `−w·y·log σ(z) − (1 − y)·log(1 − σ(z))`, the mean over pairs of label y and output z.

    w, the number of negatives for each positive of the data, gives both classes the same weight.
    """
    positives = sum(labels)
    return BinaryCrossEntropyLoss(model, pos_weight=torch.tensor((len(labels) - positives) / positives))


class ReadingLoss(torch.nn.Module):
    """The loss of a reader over the outputs z of a batch: the mean over its rows, and that over its questions.

    Of a row: `−log softmax(z[:3])[label]` of a claim, or `−log(1 − softmax(z[:3])[supports])` where only that it is not
    supported is known; `−log σ(±z[3])` of a question. Labels are smoothed by `SMOOTHING`: some are wrong. Of a question
    with windows that answer and others: `−log` of the share of the former in `Σ exp z[3]`, so that they are told apart.
    """

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: list[list[str]], labels: torch.Tensor, **prompts: str | None) -> torch.Tensor:
        """Return the loss of windows, queries and targets, (rows,)."""
        tokens = self.model.preprocess(list(zip(*inputs, strict=True)), **prompts)
        logits = self.model(batch_to_device(tokens, self.model.device))["scores"].float()
        targets = labels.view(-1)
        compared = comparison_losses(logits[:, -1], targets, inputs[1])
        return reading_losses(logits, targets).mean() + (compared.mean() if len(compared) else 0.0)


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


def comparison_losses(answers: torch.Tensor, targets: torch.Tensor, questions: Sequence[str]) -> torch.Tensor:
    """Return `log Σ exp z − log Σ exp z of what answers` of each question that has windows of both kinds, (questions,).

    `answers` are the log-odds z (rows,), `targets` positions in `TARGETS` (rows,).
    """
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, (question, target) in enumerate(zip(questions, targets.tolist(), strict=True)):
        if target >= TARGETS.index(ANSWERS):
            rows_of[question].append(row)
    losses = []
    for rows in rows_of.values():
        right = targets[rows] == TARGETS.index(ANSWERS)
        if right.any() and not right.all():
            losses.append(answers[rows].logsumexp(0) - answers[rows][right].logsumexp(0))
    return torch.stack(losses) if losses else answers.new_zeros(0)
