"""What training a model takes, told before it starts: memory by its weights and a batch, time by the device's speed."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from biorag.errors import ServiceError
from biorag.models import memory
from biorag.models.finding import ModelFiles
from biorag.models.hardware import operations
from biorag.models.loading import best_device, uses_bf16
from biorag.models.memory import ModelTensor, duration, gib, matrices, parameters_of
from biorag.settings.settings import Settings
from biorag.settings.training import TrainingSettings
from biorag.types import TrainingRow

WEIGHT_BYTES = 4  # float32
TRAINED_BYTES = 12  # a gradient and AdamW's two moments, float32
KEPT_BYTES = {"fp32": 4, "bf16": 3}  # of an activation: under autocast about half of them are bfloat16
KEPT = 1.5  # activations kept for the backward pass, in those that go into the linear layers and come out
KEPT_SCORES = 3  # attention's: the softmax, what is dropped of it, and what is left
RECOMPUTED = 3  # layers at a time, with gradient checkpointing
CHARACTERS = 4  # of a token, about
PASSES = {"forward": 2, "backward": 2, "gradients": 2}  # operations for each weight and token
LAYER = re.compile(r"(?:^|\.)(\d+)\.")
DROPOUTS = ("attention_probs_dropout_prob", "attention_dropout")
HEADS = ("num_attention_heads", "n_heads")


class Texts(NamedTuple):
    """Texts that go through the model together, each padded to so many tokens."""

    rows: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Work:
    """The tokens of an epoch; the texts of one batch whose activations are held at once."""

    tokens: int
    batch: tuple[Texts, ...]


@dataclass(frozen=True, slots=True)
class Estimate:
    """Parameters of a model and those that are trained; bytes of both with gradients and AdamW's state; seconds.

    `batch_bytes` are the activations of the longest batch. The seconds are a lower bound: all work at the speed of
    large matrix products.
    """

    parameters: int
    trained: int
    bytes: int
    batch_bytes: int
    seconds: float

    def sentence(self) -> str:
        """Return what a user is told."""
        return (
            f"{self.parameters / 1e6:,.1f} M parameters, {self.trained / 1e6:,.1f} M trained: {gib(self.bytes)} of "
            f"memory and about {gib(self.batch_bytes)} for a batch, {duration(self.seconds)} or more"
        )


def columns_of(rows: Sequence[TrainingRow], settings: TrainingSettings, query_tokens: int = 0) -> Work:
    """Return the work of a bi-encoder or a late-interaction reranker, which pads queries to `query_tokens`."""
    count = min(settings.hard_negatives, max((len(row.negatives) for row in rows), default=0))
    columns = [
        [max(query_tokens, _tokens(settings, row.query)) for row in rows],
        [_tokens(settings, row.positive) for row in rows],
        *([_tokens(settings, text) for row in rows for text in row.negatives[place:][:1]] for place in range(count)),
    ]
    size = min(settings.mini_batch_size or settings.batch_size, settings.batch_size)
    batch = tuple(Texts(size, max(column, default=0)) for column in columns)
    if settings.mini_batch_size:
        batch = (max(batch, key=lambda texts: texts.tokens),)
    return Work(sum(map(sum, columns)), batch)


def pairs_of(rows: Sequence[TrainingRow], settings: TrainingSettings) -> Work:
    """Return the work of a cross-encoder, which reads a query with each of its passages."""
    pairs = [
        _tokens(settings, row.query + passage)
        for row in rows
        for passage in (row.positive, *row.negatives[: settings.hard_negatives])
    ]
    return Work(sum(pairs), (Texts(settings.batch_size, max(pairs, default=0)),))


def estimate(
    files: ModelFiles, work: Work, settings: Settings, lora: bool = False, asymmetric: bool = False
) -> Estimate:
    """Return what training takes: the memory of its batches about, the time at least; evaluations and saving apart.

    An `asymmetric` encoder is two of the base, unless the base has two towers; a text goes through one.

    Raises
    ------
    ServiceError
        If the device has not as much memory.
    """
    towers = 2 if files.has_towers else 1
    copies = 2 if asymmetric and towers == 1 else 1
    every = parameters_of(files)
    layers = matrices(every)
    parameters = copies * sum(math.prod(found.shape) for found in every)
    trained = copies * sum(settings.training.lora_rank * sum(found.shape) for found in layers) if lora else parameters
    multiplied = sum(math.prod(found.shape) for found in layers) // towers
    passes = sum(PASSES.values()) - (PASSES["gradients"] if lora else 0)
    passes += PASSES["forward"] if settings.training.gradient_checkpointing or settings.training.mini_batch_size else 0
    needed = WEIGHT_BYTES * (parameters + (trained if lora else 0)) + TRAINED_BYTES * trained
    batch = batch_bytes(files, every, work.batch, settings)
    if needed + batch > (free := memory.free_bytes(best_device())):
        base = "a smaller base" if lora else "--lora, or a smaller base"
        lighter = base if needed > free else f"a smaller --batch-size or --max-tokens, --gradient-checkpointing, {base}"
        raise ServiceError(
            f"training {files.id} takes {gib(needed)} of memory and about {gib(batch)} for a batch, and {gib(free)} "
            f"are free: take {lighter}, or a larger machine"
        )
    kind = torch.bfloat16 if uses_bf16(settings.retrieval.precision) else torch.float32
    seconds = passes * multiplied * work.tokens * settings.training.epochs / operations(best_device(), kind)
    return Estimate(parameters, trained, needed, batch, seconds)


def batch_bytes(files: ModelFiles, every: Sequence[ModelTensor], batch: Sequence[Texts], settings: Settings) -> int:
    """Return about what is kept of a batch for the backward pass.

    By token that is `KEPT` times what goes into the linear layers and comes out, as for the layer of 34·h bytes in
    16 bits of Korthikanti et al. (2022, arXiv:2205.05198), and where attention is not fused its 5·a·s of scores. With
    gradient checkpointing it is each layer's input and some layers' all. Of two towers a text goes through one.
    """
    layers = matrices(list(every))
    towers = 2 if files.has_towers else 1
    blocks = {found[1] for parameter in layers if (found := LAYER.search(parameter.name))}
    tokens = sum(texts.rows * texts.tokens for texts in batch)
    width = KEPT_BYTES["bf16" if uses_bf16(settings.retrieval.precision) else "fp32"]
    kept = KEPT * tokens * sum(sum(parameter.shape) for parameter in layers) / towers * width
    kept += KEPT_SCORES * WEIGHT_BYTES * len(blocks) * _heads(files) * sum(rows * side**2 for rows, side in batch)
    if settings.training.gradient_checkpointing and len(blocks) > RECOMPUTED:
        hidden = max((min(found.shape) for found in every if "emb" in found.name), default=0)
        kept = kept * RECOMPUTED / len(blocks) + len(blocks) * hidden * tokens * WEIGHT_BYTES
    return int(kept)


def _heads(files: ModelFiles) -> int:
    """Return the heads whose scores are kept: those of dropout on a CPU, where it is not fused with attention."""
    architecture = replace(files, path=files.reads_passages()).settings("config.json")
    if best_device() != "cpu" or not any(architecture.get(name) for name in DROPOUTS):
        return 0
    return next((int(architecture[name]) for name in HEADS if name in architecture), 0)


def _tokens(settings: TrainingSettings, text: str) -> int:
    return min(settings.max_tokens, 1 + len(text) // CHARACTERS)
