"""Validation: how good a model is on the held-out questions while it trains."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from statistics import fmean
from typing import Any

import numpy as np
import torch
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.multi_vector_encoder.evaluation import MultiVectorRerankingEvaluator
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

from biorag.errors import UsageError
from biorag.models.loading import best_device, uses_bf16
from biorag.training.instructions import Instructions
from biorag.training.losses import SIMILARITIES
from biorag.training.reading import ANSWERS, BESIDE, ReadingRow
from biorag.types import LABELS, TrainingRow

METRIC = "ndcg@10"
TRIPLETS = "accuracy"  # of triplets
MACRO_F1 = "macro-f1"
KEPT = (METRIC, MACRO_F1, "mrr@10", "map@100", "map", "accuracy@5", "recall@10", "accuracy", *LABELS, "auroc")
QUESTIONS = 200  # an evaluation is a small part of a run: enough to choose a checkpoint by
PASSAGES = 1000
READINGS = 2000


class Validation(BaseEvaluator):  # type: ignore[misc]
    """The library's evaluators of some sets, run in the precision of the training, with plain metric names.

    A metric is the mean of the sets': all weigh the same, however many questions they have.
    """

    def __init__(self, precision: str, inner: Sequence[BaseEvaluator], metric: str = METRIC) -> None:
        super().__init__()
        self.primary_metric = metric
        self._inner = inner
        self._precision = precision

    @classmethod
    def of(cls, precision: str, evaluators: Sequence[BaseEvaluator | None], metric: str = METRIC) -> Validation | None:
        """Return the validation by those evaluators that have questions; None if none has."""
        inner = [evaluator for evaluator in evaluators if evaluator]
        return cls(precision, inner, metric) if inner else None

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Return the metrics, without the similarity's name before theirs."""
        autocast = torch.autocast(best_device(), torch.bfloat16) if uses_bf16(self._precision) else nullcontext()
        with autocast:
            sets = [evaluator(model) for evaluator in self._inner]
        plain = [{name.rpartition("_")[2]: float(value) for name, value in metrics.items()} for metrics in sets]
        return {name: fmean(metrics[name] for metrics in plain) for name in KEPT if name in plain[0]}


class ReadingEvaluator(BaseEvaluator):  # type: ignore[misc]
    """How well a reader says what windows do to claims, and which of them answer questions.

    Macro-F1 over the labels of claims; AUROC of "answers".
    """

    def __init__(self, rows: Sequence[ReadingRow]) -> None:
        super().__init__()
        self._judged = [row for row in rows if row.target in LABELS]
        self._asked = [row for row in rows if row.target in (ANSWERS, BESIDE)]

    @classmethod
    def of(cls, rows: Sequence[ReadingRow], seed: int) -> ReadingEvaluator | None:
        """Return the evaluator of at most so many drawn rows; None without any."""
        drawn = random.Random(seed).sample(list(rows), min(READINGS, len(rows)))
        return cls(drawn) if any(row.target in LABELS for row in drawn) else None

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Return macro-F1, accuracy, F1 by label, and the AUROC of answers."""
        from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

        rows = [*self._judged, *self._asked]
        scores = model.predict([(row.window, row.query) for row in rows], show_progress_bar=False)
        stance, asked = np.asarray(scores)[: len(self._judged)], np.asarray(scores)[len(self._judged) :]
        called = [LABELS[column] for column in stance[:, : len(LABELS)].argmax(axis=1)]
        labels = [row.target for row in self._judged]
        f1 = f1_score(labels, called, labels=LABELS, average=None, zero_division=0)
        answers = [row.target == ANSWERS for row in self._asked]
        auroc = float(roc_auc_score(answers, asked[:, -1])) if len(set(answers)) > 1 else 0.0
        by_label: dict[str, float] = dict(zip(LABELS, map(float, f1), strict=True))
        return {
            MACRO_F1: float(f1.mean()), "accuracy": accuracy_score(labels, called), **by_label, "auroc": auroc,
        }  # fmt: skip


def retrieval_validation(
    validation: Sequence[TrainingRow],
    training: Sequence[TrainingRow],
    similarity: str,
    seed: int,
    instructions: Instructions | None = None,
) -> BaseEvaluator | None:
    """Return the search for each held-out question among its passages, its negatives and others; None without any.

    The others are drawn from the training rows' passages until there are 1,000. Without instructions the model's own
    prompts are used; a row's own instruction stands before its query.
    """
    rows = _some_questions(validation, seed)
    if not rows:
        return None
    queries, query_prompt = _asked(rows, instructions)
    relevant: dict[str, set[str]] = {}
    for query, row in zip(queries, rows, strict=True):
        relevant.setdefault(query, set()).add(row.positive)
    passages = dict.fromkeys([row.positive for row in rows] + [text for row in rows for text in row.negatives])
    others = sorted({row.positive for row in training} - passages.keys())
    random.Random(seed).shuffle(others)
    passages.update(dict.fromkeys(others[: max(0, PASSAGES - len(passages))]))
    return InformationRetrievalEvaluator(
        queries={query: query for query in relevant},
        corpus={text: text for text in passages},
        relevant_docs=relevant,
        main_score_function=similarity,
        score_functions={similarity: SIMILARITIES[similarity]},
        query_prompt=query_prompt,
        corpus_prompt=instructions and instructions.passage,
        write_csv=False,
    )


def _asked(rows: Sequence[TrainingRow], instructions: Instructions | None) -> tuple[list[str], str | None]:
    """Return the queries, each behind its row's own instruction if rows have some, and the prompt before all of them.

    None is the model's own prompt.
    """
    before = instructions.before(rows) if instructions else None
    prompts = before or [""] * len(rows)
    queries = [prompt + row.query for prompt, row in zip(prompts, rows, strict=True)]
    return queries, "" if before else instructions.query if instructions else None


class TripletEvaluator(BaseEvaluator):  # type: ignore[misc]
    """The share of triplets (query, positive, negative) whose positive is more similar to the query: BiCA stops by it.

    A row is as many triplets as it has negatives.
    """

    def __init__(self, rows: Sequence[TrainingRow], similarity: str, instructions: Instructions | None) -> None:
        super().__init__()
        self._rows, self._similarity, self._instructions = rows, SIMILARITIES[similarity], instructions

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Return the share."""
        queries, query_prompt = _asked(self._rows, self._instructions)
        texts = dict.fromkeys(text for row in self._rows for text in _passages(row))
        number = {text: n for n, text in enumerate(texts)}
        encoded = {"convert_to_tensor": True, "show_progress_bar": False}
        asked = model.encode_query(queries, prompt=query_prompt, **encoded)
        read = model.encode_document(list(texts), prompt=self._instructions and self._instructions.passage, **encoded)
        nearer = []
        for row, query in zip(self._rows, asked, strict=True):
            positive, *negatives = self._similarity(query[None], read[[number[text] for text in _passages(row)]])[0]
            nearer += [bool(positive > negative) for negative in negatives]
        return {TRIPLETS: fmean(nearer)}


def _passages(row: TrainingRow) -> list[str]:
    return [row.positive, *row.negatives]


def triplet_validation(
    validation: Sequence[TrainingRow], similarity: str, seed: int, instructions: Instructions | None = None
) -> BaseEvaluator:
    """Return the comparison of held-out positives with their rows' mined negatives; raises UsageError without any."""
    rows = [row for row in _some_questions(validation, seed) if row.negatives]
    if not rows:
        raise UsageError(
            "--stop-by triplets needs mined negatives of held-out questions, and there are none: train on rows of "
            "'biorag mine', or raise --validation"
        )
    return TripletEvaluator(rows, similarity, instructions)


def reranking_validation(
    validation: Sequence[TrainingRow],
    seed: int,
    evaluator: Callable[..., BaseEvaluator] = MultiVectorRerankingEvaluator,
) -> BaseEvaluator | None:
    """Return the ordering of each held-out question's positives and mined negatives; None without any."""
    samples: dict[str, dict[str, Any]] = {}
    for row in _some_questions(validation, seed):
        sample = samples.setdefault(row.query, {"query": row.query, "positive": {}, "negative": {}})
        sample["positive"][row.positive] = None
        sample["negative"].update(dict.fromkeys(row.negatives))
    samples_with_negatives = [
        {"query": query, "positive": list(sample["positive"]), "negative": list(sample["negative"])}
        for query, sample in samples.items()
        if sample["negative"]
    ]
    if not samples_with_negatives:
        return None
    return evaluator(samples_with_negatives, at_k=10, batch_size=32, write_csv=False)


def _some_questions(rows: Sequence[TrainingRow], seed: int) -> list[TrainingRow]:
    questions = sorted({row.query for row in rows})
    random.Random(seed).shuffle(questions)
    drawn = set(questions[:QUESTIONS])
    return [row for row in rows if row.query in drawn]
