"""Memory and time of training by the shapes of a model and a batch, before anything is loaded.

docs/memory.md has the formulas; `scripts/measure/training.py` compares them with the peaks of real steps.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from biorag.errors import ServiceError
from biorag.models import resources
from biorag.models.formats.directory import Tensor
from biorag.models.loading import best_device, uses_bf16
from biorag.models.resources import WEIGHT_BYTES, ModelShape, gib
from biorag.settings.training import CROSS_ENCODER, QUESTION_GENERATOR, RERANKER, TrainingSettings
from biorag.training.run_directory import process_count
from biorag.types import TrainingRow

MOMENT_BYTES = 8  # AdamW's two moments of a trained weight, float32
BF16_BYTES = 2
SCORE_BYTES = 12  # of attention that is not fused: the softmax, its dropout mask, and their product
OUTER = 4  # hidden states that a token keeps outside the layers: embeddings, last norm, pooling
COMPARED = 3  # copies of what a loss compares: vectors or scores, their gradients, and one to work with
TOKEN_VECTOR = 128  # numbers of a late-interaction reranker's vector
LARGEST_SCORES = 100_000_000  # of pairs of tokens that sentence-transformers compares at once
TOLERANCE = 1.25  # the estimates are within a quarter of the measured peaks: what may fit is not refused
CHARACTERS = 4  # per token, about


@dataclass(frozen=True, slots=True)
class Machine:
    """Where training runs: the kind of device, its free bytes, operations a second, and whether it takes bfloat16.

    Of several `processes` each has such a device.
    """

    device: str
    free: int
    operations: float
    bf16: bool
    processes: int = 1


@dataclass(frozen=True, slots=True)
class TrainingWork:
    """The tokens that an epoch reads, and those of the longest query and of the longest passage of each column.

    A cross-encoder reads query and passage as one. With `lora` only the matrices are trained.
    """

    kind: str
    tokens: int
    query: int
    passages: tuple[int, ...]
    lora: bool = False

    def passes(self, settings: TrainingSettings) -> list[tuple[int, int]]:
        """Return the rows and tokens of the texts of a batch that go through the model together, in their order.

        With cached gradients only one such part keeps its activations, here the longest.
        """
        rows = settings.batch_size
        if size := settings.mini_batch_size:
            return [(min(size, rows), max(self.query, *self.passages))]
        if self.kind == CROSS_ENCODER:
            return [(rows, self.query + self.passages[0])]
        if self.kind == QUESTION_GENERATOR:
            return [(rows, self.passages[0]), (rows, self.query)]
        if self.kind == RERANKER:
            return [(rows, length) for length in (self.query, *self.passages)]
        return [(rows, self.query), (rows * len(self.passages), max(self.passages))]


@dataclass(frozen=True, slots=True)
class TrainingEstimate:
    """Parameters of a model and those that are trained; bytes of both with gradients and AdamW's state; seconds.

    `batch_bytes` are what the peak of a step adds. The seconds are a lower bound, at the speed of matrix products.
    """

    parameters: int
    trained: int
    bytes: int
    batch_bytes: int
    seconds: float

    @property
    def peak(self) -> int:
        """The bytes of a step's peak."""
        return self.bytes + self.batch_bytes

    def sentence(self) -> str:
        """Return the estimate as a user reads it."""
        return (
            f"{self.parameters / 1e6:,.1f} M parameters, {self.trained / 1e6:,.1f} M trained: {gib(self.bytes)} of "
            f"memory and about {gib(self.batch_bytes)} for a batch; the first steps will tell the time"
        )

    def fits(self, free: int) -> bool:
        """Return whether a step may fit into so many free bytes."""
        return self.peak <= TOLERANCE * free

    def admit(self, model: str, free: int) -> None:
        """Raise ServiceError with what would help if training the model does not fit into so many free bytes."""
        if self.fits(free):
            return
        base = "a smaller base" if self.trained < self.parameters else "--lora, or a smaller base"
        lighter = f"--mini-batch-size, --gradient-checkpointing, a smaller --batch-size or --max-tokens, {base}"
        raise ServiceError(
            f"training {model} takes {gib(self.bytes)} of memory and about {gib(self.batch_bytes)} for a batch, and "
            f"{gib(free)} are free: take {base if self.bytes > free else lighter}, or a larger machine"
        )


class Pace:
    """What a run's steps take, but for the first, which warms up, and its last evaluation with a checkpoint."""

    def __init__(self) -> None:
        self.steps, self.evaluation, self.evaluated = 0, 0.0, False
        self._in_steps = 0.0
        self._last = time.perf_counter()

    def step_begins(self) -> None:
        """Count the seconds since the last step as an evaluation's, if there was one, or else as the next step's."""
        if self.evaluated:
            self.evaluation, self.evaluated = self._passed(), False
        else:
            self._in_steps += self._passed()

    def step_ends(self) -> None:
        """Count a step."""
        self._in_steps += self._passed()
        self.steps += 1
        if self.steps == 1:
            self._in_steps = 0.0

    def seconds(self, steps: int, evaluations: int) -> float:
        """Return what so many steps and evaluations take, once two steps have ended."""
        return steps * self._in_steps / (self.steps - 1) + evaluations * self.evaluation

    def _passed(self) -> float:
        before, self._last = self._last, time.perf_counter()
        return self._last - before


def this_machine(precision: str) -> Machine:
    """Return the best device of this machine, under a precision setting; its speed is measured."""
    device, bf16 = best_device(), uses_bf16(precision)
    speed = resources.operations(device, torch.bfloat16 if bf16 else torch.float32)
    return Machine(device, resources.free_bytes(device), speed, bf16, process_count())


def columns_work(
    kind: str, rows: Sequence[TrainingRow], settings: TrainingSettings, query_tokens: int = 0, lora: bool = False
) -> TrainingWork:
    """Return the work of rows whose texts are read one by one, queries padded to `query_tokens`."""
    count = min(settings.hard_negatives, max((len(row.negatives) for row in rows), default=0))
    if kind == QUESTION_GENERATOR:
        count = 0
    longest, tokens = [query_tokens, *[0] * (1 + count)], 0
    for row in rows:
        for column, text in enumerate((row.instruction + row.query, row.positive, *row.negatives[:count])):
            length = min(settings.max_tokens, 1 + len(text) // CHARACTERS)
            length = max(length, 0 if column else query_tokens)
            longest[column], tokens = max(longest[column], length), tokens + length
    return TrainingWork(kind, tokens, longest[0], tuple(longest[1:]), lora)


def texts_work(texts: Sequence[str], settings: TrainingSettings, multiple: int) -> TrainingWork:
    """Return the work of a cross-encoder, which reads two texts as one, padded to a multiple of so many tokens."""
    tokens = [min(settings.max_tokens, 1 + len(text) // CHARACTERS) for text in texts]
    longest = min(settings.max_tokens, -(-max(tokens, default=0) // multiple) * multiple)
    return TrainingWork(CROSS_ENCODER, sum(tokens), 0, (longest,))


def estimate(
    shape: ModelShape, work: TrainingWork, settings: TrainingSettings, machine: Machine, epochs: float
) -> TrainingEstimate:
    """Return about what training takes: memory at its peak, and at least what time, without evaluations and saving.

    At the peak a step holds weights and AdamW's moments, and either the activations of the whole batch, or the
    gradients and what is left of them once the last texts have been gone back through.
    """
    adapter = settings.lora_rank * shape.ends if work.lora else 0
    trained = adapter or shape.parameters
    gradients = WEIGHT_BYTES * trained * (2 if machine.processes > 1 else 1)  # several processes exchange copies
    kept = [_kept(shape, work, rows, tokens, settings, machine) for rows, tokens in work.passes(settings)]
    whole = sum(kept) + _compared(shape, work, settings)
    if settings.mini_batch_size or (settings.gradient_accumulation or 1) > 1:
        batch = whole
    else:
        batch = max(whole - gradients, whole - kept[-1])
    if settings.gradient_checkpointing:
        batch += _of_layer(shape, *work.passes(settings)[-1], machine)
    passes = resources.TRAINING - (resources.GRADIENTS if work.lora else 0)
    passes += resources.FORWARD * (settings.gradient_checkpointing + bool(settings.mini_batch_size))
    multiplied = shape.multiplied // (2 if work.kind == QUESTION_GENERATOR else 1)
    return TrainingEstimate(
        shape.parameters,
        trained,
        WEIGHT_BYTES * (shape.parameters + adapter) + MOMENT_BYTES * trained + gradients,
        max(0, int(batch)),
        passes * multiplied * work.tokens * epochs / machine.operations / machine.processes,
    )


def _kept(
    shape: ModelShape, work: TrainingWork, rows: int, tokens: int, settings: TrainingSettings, machine: Machine
) -> float:
    """Return the bytes that the backward pass will read of texts that go through the model together.

    With gradient checkpointing it is each layer's input; in bfloat16 also the weights, cast for these texts.
    """
    layers = shape.layers // (2 if work.kind == QUESTION_GENERATOR else 1)  # an encoder's or a decoder's
    outer = OUTER * WEIGHT_BYTES * shape.hidden * rows * tokens
    if settings.gradient_checkpointing:
        return outer + layers * WEIGHT_BYTES * shape.hidden * rows * tokens
    cast = BF16_BYTES * shape.multiplied if machine.bf16 else 0
    return outer + layers * _of_layer(shape, rows, tokens, machine) + cast


def _of_layer(shape: ModelShape, rows: int, tokens: int, machine: Machine) -> float:
    """Return the bytes of a layer that the backward pass reads.

    Under autocast each linear layer has a cast copy of its input; otherwise those that read the same share it.
    """
    width, inputs = (BF16_BYTES, shape.inputs) if machine.bf16 else (WEIGHT_BYTES, min(2, shape.inputs))
    on_cpu = machine.device == "cpu"
    token = WEIGHT_BYTES * shape.normalised + width * (shape.inner + inputs * shape.hidden)
    token += 2 * shape.hidden * (width if on_cpu else 1) if shape.hidden_dropout else 0
    fused = not (shape.unfused or (on_cpu and shape.attention_dropout))
    return rows * tokens * (token + (0 if fused else SCORE_BYTES * shape.heads * tokens))


def _compared(shape: ModelShape, work: TrainingWork, settings: TrainingSettings) -> float:
    """Return the bytes of what the loss compares: vectors and their scores, or a vocabulary's logits."""
    rows, columns = settings.batch_size, len(work.passages)
    at_once = min(settings.mini_batch_size or rows, rows)
    if work.kind == CROSS_ENCODER:
        return 0
    if work.kind == QUESTION_GENERATOR:
        return COMPARED * WEIGHT_BYTES * rows * work.query * shape.vocabulary
    if work.kind == RERANKER:
        vectors = TOKEN_VECTOR * rows * (work.query + columns * max(work.passages))
        scores = min(LARGEST_SCORES, at_once * rows * work.query * max(work.passages))
    else:
        vectors, scores = shape.hidden * rows * (1 + columns), at_once * rows * columns
    return COMPARED * WEIGHT_BYTES * (vectors + scores)


def epochs_of(settings: TrainingSettings, rows: int, processes: int = 1) -> float:
    """Return the passes over so many rows; a number of steps decides where it is set."""
    if not settings.max_steps:
        return settings.epochs
    return settings.max_steps * settings.batch_size * processes * (settings.gradient_accumulation or 1) / max(1, rows)


def architecture_shape(configuration: Mapping[str, Any]) -> ModelShape:
    """Return the shape of an architecture by the settings of its config.json alone, `model_type` among them."""
    from transformers import AutoConfig, AutoModel

    known = AutoConfig.for_model(**configuration)
    with torch.device("meta"):
        weights = AutoModel.from_config(known).named_parameters()
    tensors = [Tensor(name, tuple(weight.shape), "F32") for name, weight in weights]
    return resources.shape_of(tensors, known.to_dict())
