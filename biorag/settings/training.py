"""How models are trained."""

from __future__ import annotations

from functools import partial
from typing import Literal

from pydantic import ConfigDict

from biorag.settings.section import DATA, LARGEST, RUN, Effect, Section, option

TRAINED = ("retriever", "reranker", "cross-encoder", "reader", "question-generator", "generator", "language-model")
RETRIEVER, RERANKER, CROSS_ENCODER, READER, QUESTION_GENERATOR, GENERATOR, LANGUAGE_MODEL = TRAINED
_run, _data = partial(option, panel=RUN), partial(option, panel=DATA)


class TrainingSettings(Section):
    """What training takes; files, reports and variables write `train_` before each name."""

    model_config = ConfigDict(alias_generator=lambda name: f"train_{name}")

    validation: float = _data(0.1, "Share of the questions to hold out, chosen by their text.", ge=0, lt=1)
    hard_negatives: int = _data(
        1, "Mined negatives to use of each row, at most.", models=(RETRIEVER, RERANKER, CROSS_ENCODER), bounds=(0, 64)
    )
    in_batch: Literal["all", "positives"] | None = _data(
        None,
        "What other rows add to a row's in-batch negatives: all their passages, or only their positives. Default: all.",
        models=(RETRIEVER, RERANKER),
    )
    epochs: float = _run(1.0, "Passes over the training rows.", gt=0, le=1000)
    max_steps: int | None = _run(None, "Optimizer steps of the run, instead of --epochs.", bounds=(1, 100_000_000))
    batch_size: int = _run(32, "Rows (for a cross-encoder, pairs) of one batch in each process.", bounds=(1, 65_536))
    gradient_accumulation: int = _run(
        1,
        "Batches of one optimizer step; in-batch negatives are those of one batch.",
        models=(RETRIEVER, RERANKER, CROSS_ENCODER),
        bounds=(1, 65_536),
    )
    learning_rate: float = _run(3e-5, "Peak of AdamW's learning rate, falling to 0.", gt=0, lt=1)
    warmup: float = _run(0.1, "Share of the steps in which the learning rate rises.", ge=0, lt=1)
    warmup_steps: int | None = _run(
        None, "Steps in which the learning rate rises, instead of --warmup.", bounds=(0, 100_000_000)
    )
    temperature: float | None = _run(
        None,
        "Divides similarities in the loss. Default: 0.05 for cosine, else 1.",
        models=(RETRIEVER, RERANKER),
        gt=0,
        le=LARGEST,
    )
    token_loss: float | None = _run(
        None,
        "Weight of a second loss, over the mean MaxSim of token vectors, for a retriever whose tokens rerank.",
        models=(RETRIEVER,),
        gt=0,
        le=LARGEST,
    )
    max_tokens: int = _run(256, "Maximum tokens of a passage; for a cross-encoder, of the pair.", bounds=(8, 8192))
    query_tokens: int = _run(32, "Length that a reranker pads queries to.", models=(RERANKER,), bounds=(8, 512))
    mini_batch_size: int | None = _run(
        None,
        "Cached gradients: rows encoded at a time, for large batches in little memory.",
        models=(RETRIEVER, RERANKER),
        bounds=(1, 65_536),
        effect=Effect.NONE,
    )
    gradient_checkpointing: bool = _run(
        False, "Recompute activations: less memory, a third more time.", effect=Effect.NONE
    )
    lora_rank: int = _run(16, "Rank of LoRA's matrices.", models=(RETRIEVER, GENERATOR), bounds=(1, 1024))
    lora_alpha: float = _run(
        32.0, "LoRA's α: the matrices' product counts α / rank times.", models=(RETRIEVER, GENERATOR), gt=0, le=LARGEST
    )
    evaluations: int = _run(4, "Evaluations (and checkpoints) of a run.", bounds=(1, 1000))
    eval_steps: int | None = _run(
        None, "Steps between evaluations (and checkpoints), instead of --evaluations.", bounds=(1, 100_000_000)
    )
    checkpoint_minutes: float = _run(
        30.0,
        "Minutes between checkpoints, besides those at evaluations: the most that a killed run loses. Two are kept.",
        gt=0,
        le=LARGEST,
        effect=Effect.NONE,
    )
    patience: int | None = _run(
        None,
        "Stop after this many evaluations in a row without a better metric. Default: train to the end.",
        models=(RETRIEVER, RERANKER, CROSS_ENCODER),
        bounds=(1, 1000),
    )
    stop_by: Literal["nDCG@10", "triplets"] | None = _run(
        None,
        "Metric of --patience and of the best checkpoint: nDCG@10, or triplets, the share of held-out mined negatives "
        "further from the query than its positive. Default: nDCG@10.",
        models=(RETRIEVER,),
    )
