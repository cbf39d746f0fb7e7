"""How models are trained."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from biorag.settings.section import DATA, LARGEST, RUN, Flag, Section

TRAINED = ("retriever", "reranker", "cross-encoder", "question-generator")
RETRIEVER, RERANKER, CROSS_ENCODER, QUESTION_GENERATOR = TRAINED
NONE_SINCE_0_1 = ("train_mini_batch_size",)


class TrainingSettings(Section):
    """What training takes; files, reports and variables write `train_` before each name."""

    model_config = ConfigDict(alias_generator=lambda name: f"train_{name}")

    validation: Annotated[float, Flag("--validation", panel=DATA)] = Field(
        default=0.1, ge=0, lt=1, description="Share of the questions to hold out, chosen by their text."
    )
    hard_negatives: Annotated[
        int, Flag("--hard-negatives", panel=DATA, models=(RETRIEVER, RERANKER, CROSS_ENCODER))
    ] = Field(default=1, ge=0, le=64, description="Mined negatives to use of each row, at most.")
    in_batch: Annotated[
        Literal["all", "positives"] | None, Flag("--in-batch", panel=DATA, models=(RETRIEVER, RERANKER))
    ] = Field(
        default=None,
        description="What other rows add to a row's in-batch negatives: all their passages, or only their positives; "
        "none: all.",
    )
    epochs: Annotated[float, Flag("--epochs", panel=RUN)] = Field(
        default=1.0, gt=0, le=1000, description="Passes over the training rows."
    )
    max_steps: Annotated[int | None, Flag("--max-steps", panel=RUN)] = Field(
        default=None, ge=1, le=100_000_000, description="Optimizer steps of the run, in place of --epochs."
    )
    batch_size: Annotated[int, Flag("--batch-size", panel=RUN)] = Field(
        default=32,
        ge=1,
        le=65_536,
        description="Rows (for a cross-encoder, pairs) of one batch in each process.",
    )
    gradient_accumulation: Annotated[int | None, Flag("--gradient-accumulation", panel=RUN)] = Field(
        default=None,
        ge=1,
        le=65_536,
        description="Batches of one optimizer step; in-batch negatives are those of one batch.",
    )
    learning_rate: Annotated[float, Flag("--learning-rate", panel=RUN)] = Field(
        default=3e-5, gt=0, lt=1, description="Peak of AdamW's learning rate, falling to 0."
    )
    warmup: Annotated[float, Flag("--warmup", panel=RUN)] = Field(
        default=0.1, ge=0, lt=1, description="Share of the steps in which the learning rate rises."
    )
    warmup_steps: Annotated[int | None, Flag("--warmup-steps", panel=RUN)] = Field(
        default=None,
        ge=0,
        le=100_000_000,
        description="Steps in which the learning rate rises, in place of --warmup.",
    )
    temperature: Annotated[float | None, Flag("--temperature", panel=RUN, models=(RETRIEVER, RERANKER))] = Field(
        default=None,
        gt=0,
        le=LARGEST,
        description="Divides similarities in the loss; none: 0.05 for cosine, else 1.",
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
    eval_steps: Annotated[int | None, Flag("--eval-steps", panel=RUN)] = Field(
        default=None,
        ge=1,
        le=100_000_000,
        description="Steps between evaluations (and checkpoints), in place of --evaluations.",
    )
    patience: Annotated[int | None, Flag("--patience", panel=RUN)] = Field(
        default=None,
        ge=1,
        le=1000,
        description="Stop after this many evaluations in a row without a better metric; none: train to the end.",
    )

    def identity(self) -> dict[str, Any]:
        """Return the settings that determine a run; of those that 0.1.0 did not have, only what is set.

        So its runs are still told apart by what it wrote of them, and resume.
        """
        return {
            name: value for name, value in super().identity().items() if value is not None or name in NONE_SINCE_0_1
        }
