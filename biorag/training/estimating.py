"""Memory and time of training, estimated before it starts, by the formulas of `biorag.models.resources`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from biorag.errors import ServiceError
from biorag.models import resources
from biorag.models.finding import ModelFiles
from biorag.models.formats.directory import Tensor
from biorag.models.loading import best_device, uses_bf16
from biorag.models.resources import duration, gib
from biorag.settings.settings import Settings
from biorag.settings.training import TrainingSettings
from biorag.types import TrainingRow

ACTIVATION_BYTES = {"fp32": 4, "bf16": 3}  # of an activation: under autocast about half of them are bfloat16
STORED_SCORES = 3  # attention's: the softmax, its dropout mask, and the product
RECOMPUTED = 3  # layers at a time, with gradient checkpointing
CHARACTERS = 4  # per token, about
LAYER = re.compile(r"(?:^|\.)(\d+)\.")
DROPOUTS = ("attention_probs_dropout_prob", "attention_dropout")
HEADS = ("num_attention_heads", "n_heads")


class Texts(NamedTuple):
    """Texts that go through the model together, each padded to `tokens`."""

    rows: int
    tokens: int


@dataclass(frozen=True, slots=True)
class TrainingWork:
    """The tokens of an epoch, and the texts of one batch whose activations are in memory at once.

    With `lora` only the matrices are trained.
    """

    tokens: int
    batch: tuple[Texts, ...]
    lora: bool = False


@dataclass(frozen=True, slots=True)
class TrainingEstimate:
    """Parameters of a model and those that are trained; bytes of both with gradients and AdamW's state; seconds.

    `batch_bytes` are the activations of the longest batch. The seconds are a lower bound, at the speed of large matrix
    products.
    """

    parameters: int
    trained: int
    bytes: int
    batch_bytes: int
    seconds: float

    def sentence(self) -> str:
        """Return the estimate as a user reads it."""
        return (
            f"{self.parameters / 1e6:,.1f} M parameters, {self.trained / 1e6:,.1f} M trained: {gib(self.bytes)} of "
            f"memory and about {gib(self.batch_bytes)} for a batch, {duration(self.seconds)} or more"
        )


def columns_work(rows: Sequence[TrainingRow], settings: TrainingSettings, query_tokens: int = 0) -> TrainingWork:
    """Return the work of a bi-encoder or a late-interaction reranker, which pads queries to `query_tokens`."""
    count = min(settings.hard_negatives, max((len(row.negatives) for row in rows), default=0))
    negatives = [[row.negatives[number] for row in rows if number < len(row.negatives)] for number in range(count)]
    return _work([[row.query for row in rows], [row.positive for row in rows], *negatives], settings, query_tokens)


def texts_work(texts: Sequence[str], settings: TrainingSettings) -> TrainingWork:
    """Return the work of a cross-encoder, which reads two texts as one."""
    return _work([texts], settings)


def _work(columns: Sequence[Sequence[str]], settings: TrainingSettings, least: int = 0) -> TrainingWork:
    """Return the work of columns of texts, of which the first ones are padded to `least` tokens."""
    tokens = [[min(settings.max_tokens, 1 + len(text) // CHARACTERS) for text in column] for column in columns]
    tokens[0] = [max(least, length) for length in tokens[0]]
    size = min(settings.mini_batch_size or settings.batch_size, settings.batch_size)
    batch = [Texts(size, max(column, default=0)) for column in tokens]
    return TrainingWork(sum(map(sum, tokens)), (max(batch),) if settings.mini_batch_size else tuple(batch))


def estimate(
    files: ModelFiles, work: TrainingWork, settings: Settings, epochs: float, free: int | None = None
) -> TrainingEstimate:
    """Return what training takes: memory about, time at least, without evaluations and saving.

    Raises ServiceError if the device does not have that much memory; `free` are its bytes, None those of this machine.
    """
    size, tensors, lora = resources.model_size(files), resources.parameters_of(files), work.lora
    inputs_and_outputs = sum(sum(layer.shape) for layer in resources.matrices(tensors))
    adapter = settings.training.lora_rank * inputs_and_outputs if lora else 0
    trained = adapter or size.parameters
    passes = resources.TRAINING - (resources.GRADIENTS if lora else 0)
    if settings.training.gradient_checkpointing or settings.training.mini_batch_size:
        passes += resources.FORWARD
    needed = resources.training_bytes(size.parameters, trained, adapter)
    batch, device = batch_bytes(files, tensors, work.batch, settings), best_device()
    free = resources.free_bytes(device) if free is None else free
    if needed + batch > free:
        base = "a smaller base" if lora else "--lora, or a smaller base"
        lighter = base if needed > free else f"a smaller --batch-size or --max-tokens, --gradient-checkpointing, {base}"
        raise ServiceError(
            f"training {files.id} takes {gib(needed)} of memory and about {gib(batch)} for a batch, and {gib(free)} "
            f"are free: take {lighter}, or a larger machine"
        )
    dtype = torch.bfloat16 if uses_bf16(settings.retrieval.precision) else torch.float32
    seconds = passes * size.multiplied * work.tokens * epochs / resources.operations(device, dtype)
    return TrainingEstimate(size.parameters, trained, needed, batch, seconds)


def batch_bytes(files: ModelFiles, tensors: Sequence[Tensor], batch: Sequence[Texts], settings: Settings) -> int:
    """Return about how many bytes of a batch are stored for the backward pass.

    Activations are those of `activation_bytes`, and 5·a·s of scores where attention is not fused. With gradient
    checkpointing it is each layer's input and all of some layers.
    """
    layers = resources.matrices(list(tensors))
    blocks = {match[1] for layer in layers if (match := LAYER.search(layer.name))}
    tokens = sum(texts.rows * texts.tokens for texts in batch)
    width = ACTIVATION_BYTES["bf16" if uses_bf16(settings.retrieval.precision) else "fp32"]
    stored: float = resources.activation_bytes(sum(sum(layer.shape) for layer in layers), tokens, width)
    scores = STORED_SCORES * resources.WEIGHT_BYTES * len(blocks) * _heads(files)  # of a pair of tokens
    stored += scores * sum(rows * length**2 for rows, length in batch)
    if settings.training.gradient_checkpointing and len(blocks) > RECOMPUTED:
        hidden = max((min(tensor.shape) for tensor in tensors if "emb" in tensor.name), default=0)
        stored = stored * RECOMPUTED / len(blocks) + len(blocks) * hidden * tokens * resources.WEIGHT_BYTES
    return int(stored)


def _heads(files: ModelFiles) -> int:
    """Return the heads whose scores are stored: only with dropout on a CPU, where attention is not fused."""
    architecture = replace(files, path=files.reads_passages()).settings("config.json")
    if best_device() != "cpu" or not any(architecture.get(name) for name in DROPOUTS):
        return 0
    return next((int(architecture[name]) for name in HEADS if name in architecture), 0)
