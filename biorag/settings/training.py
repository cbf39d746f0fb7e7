"""How models are trained."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from biorag.settings.section import DATA, LARGEST, RUN, Flag, Section

RETRIEVER, RERANKER, CROSS_ENCODER = TRAINED = ("retriever", "reranker", "cross-encoder")


class TrainingSettings(Section):
    """What training takes; files, reports and variables write `train_` before each name."""

    model_config = ConfigDict(alias_generator=lambda name: f"train_{name}")

    validation: Annotated[float, Flag("--validation", panel=DATA)] = Field(
        default=0.1, ge=0, lt=1, description="Share of the questions to hold out, chosen by their text."
    )
    hard_negatives: Annotated[int, Flag("--hard-negatives", panel=DATA)] = Field(
        default=1, ge=0, le=64, description="Mined negatives to use of each row."
    )
    epochs: Annotated[float, Flag("--epochs", panel=RUN)] = Field(
        default=1.0, gt=0, le=1000, description="Passes over the training rows."
    )
    batch_size: Annotated[int, Flag("--batch-size", panel=RUN)] = Field(
        default=32,
        ge=1,
        le=65_536,
        description="Rows (for a cross-encoder, pairs) of one optimizer step in each process.",
    )
    learning_rate: Annotated[float, Flag("--learning-rate", panel=RUN)] = Field(
        default=3e-5, gt=0, lt=1, description="Peak of AdamW's learning rate, falling to 0."
    )
    warmup: Annotated[float, Flag("--warmup", panel=RUN)] = Field(
        default=0.1, ge=0, lt=1, description="Share of the steps in which the learning rate rises."
    )
    max_tokens: Annotated[int, Flag("--max-tokens", panel=RUN)] = Field(
        default=256, ge=8, le=8192, description="Maximum tokens of a passage; for a cross-encoder, of the pair."
    )
    query_tokens: Annotated[int, Flag("--query-tokens", panel=RUN, models=(RERANKER,))] = Field(
        default=32, ge=8, le=512, description="Length that a reranker pads queries to."
    )
    mini_batch_size: Annotated[int | None, Flag("--mini-batch-size", panel=RUN, models=(RETRIEVER, RERANKER))] = Field(
        default=None,
        ge=1,
        le=65_536,
        description="Cached gradients: rows encoded at a time, for large batches in little memory.",
    )
    gradient_checkpointing: Annotated[bool, Flag("--gradient-checkpointing", panel=RUN)] = Field(
        default=False, description="Recompute activations: less memory, a third more time."
    )
    lora_rank: Annotated[int, Flag("--lora-rank", panel=RUN, models=(RETRIEVER,))] = Field(
        default=16, ge=1, le=1024, description="Rank of the matrices that --lora trains."
    )
    lora_alpha: Annotated[float, Flag("--lora-alpha", panel=RUN, models=(RETRIEVER,))] = Field(
        default=32.0, gt=0, le=LARGEST, description="LoRA's α: the matrices' product counts α / rank times."
    )
    evaluations: Annotated[int, Flag("--evaluations", panel=RUN)] = Field(
        default=4, ge=1, le=1000, description="Evaluations (and checkpoints) of a run."
    )
