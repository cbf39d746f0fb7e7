"""Memory of training by the shapes of a model and a batch, before anything is loaded; time by the first steps.

docs/memory.md has the formulas; `scripts/measure/training.py` compares them with the peaks of real steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from biorag.errors import ServiceError
from biorag.models import resources
from biorag.models.loading import best_device, uses_bf16
from biorag.models.resources import FORWARD, WEIGHT_BYTES, ModelShape, gib
from biorag.settings.training import CROSS_ENCODER, LANGUAGE_MODEL, QUESTION_GENERATOR, RERANKER, TrainingSettings
from biorag.training.run_directory import process_count
from biorag.types import TrainingRow

CHECKPOINTS_KEPT = 2  # of a run, the last and the best
MOMENT_BYTES = 8  # AdamW's two moments of a trained weight, float32
SCORE_BYTES = 12  # of attention that is not fused: the softmax, its dropout mask, and their product
OUTER = 4  # hidden states that a token keeps outside the layers: embeddings, last norm, pooling
COMPARED_BYTES = 12  # of what a loss compares: vectors or scores, their gradients, and one to work with
MASKED = 0.15  # of the tokens that a language model learns from, which it restores
TOKEN_VECTOR = 128  # numbers of a late-interaction reranker's vector
LARGEST_SCORES = 100_000_000  # of pairs of tokens that sentence-transformers compares at once
TOLERANCE = 1.25  # what the estimates exceed measured peaks by, at most: what may fit is not refused
CHARACTERS = 4  # per token, about


@dataclass(frozen=True, slots=True)
class TrainingDevice:
    """A device to train on: its kind, its free bytes, and whether it computes in bfloat16; each process has one."""

    kind: str
    free: int
    bf16: bool
    processes: int = 1


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """The longest texts of a batch in tokens: of each row a query and passages; a cross-encoder's are joined.

    With `lora` only adapters of the linear layers are trained.
    """

    kind: str
    query: int
    passage: int
    passages: int = 1
    lora: bool = False

    def texts(self, settings: TrainingSettings) -> list[tuple[int, int]]:
        """Return the numbers and lengths of the texts whose activations are kept together.

        With cached gradients those are the longest texts of a mini-batch.
        """
        rows = settings.batch_size
        if size := settings.mini_batch_size:
            return [(min(size, rows), max(self.query, self.passage))]
        return [(rows, self.query), (rows * self.passages, self.passage)]


@dataclass(frozen=True, slots=True)
class TrainingEstimate:
    """Parameters of a model and those that are trained; bytes of both with gradients and AdamW's state.

    `batch_bytes` are what the peak of a step adds.
    """

    parameters: int
    trained: int
    bytes: int
    batch_bytes: int

    @property
    def peak(self) -> int:
        """The bytes of a step's peak."""
        return self.bytes + self.batch_bytes

    @property
    def disk(self) -> int:
        """The bytes of checkpoints on disk while it runs: a third is whole before the oldest goes."""
        return (CHECKPOINTS_KEPT + 1) * (WEIGHT_BYTES + MOMENT_BYTES) * self.trained

    def sentence(self) -> str:
        """Return the estimate as a user reads it."""
        return (
            f"{self.parameters / 1e6:,.1f} M parameters, {self.trained / 1e6:,.1f} M trained: {gib(self.bytes)} of "
            f"memory and about {gib(self.batch_bytes)} for a batch; checkpoints take up to {gib(self.disk)} of disk "
            "until it ends"
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


def this_device(precision: str) -> TrainingDevice:
    """Return the best device of this machine, under a precision setting."""
    device = best_device()
    return TrainingDevice(device, resources.free_bytes(device), uses_bf16(precision), process_count())


def batch_of_rows(
    kind: str, rows: Sequence[TrainingRow], settings: TrainingSettings, query_tokens: int = 0, lora: bool = False
) -> TrainingBatch:
    """Return the longest batch of rows whose texts are read one by one, queries padded to `query_tokens`."""
    negatives = min(settings.hard_negatives, max((len(row.negatives) for row in rows), default=0))
    query = _longest([row.instruction + row.query for row in rows], settings)
    passage = _longest([text for row in rows for text in (row.positive, *row.negatives[:negatives])], settings)
    passages = 1 if kind == QUESTION_GENERATOR else 1 + negatives
    return TrainingBatch(kind, max(query, query_tokens), passage, passages, lora)


def batch_of_texts(texts: Sequence[str], settings: TrainingSettings, lora: bool = False) -> TrainingBatch:
    """Return the longest batch of texts that are read as one, as a cross-encoder does."""
    return TrainingBatch(CROSS_ENCODER, 0, _longest(texts, settings), lora=lora)


def _longest(texts: Sequence[str], settings: TrainingSettings) -> int:
    return min(settings.max_tokens, max((1 + len(text) // CHARACTERS for text in texts), default=0))


def operations_of_token(shape: ModelShape, kind: str, settings: TrainingSettings, lora: bool) -> float:
    """Return the operations of training on a token: forward, backward through activations and trained weights, again.

    A question generator reads a token in its encoder or its decoder, which are half of it.
    """
    again = settings.gradient_checkpointing + bool(settings.mini_batch_size)
    passes = FORWARD * (2 if lora else 3) + FORWARD * again
    return passes * shape.multiplied / (2 if kind == QUESTION_GENERATOR else 1)


def estimate(
    shape: ModelShape, batch: TrainingBatch, settings: TrainingSettings, device: TrainingDevice
) -> TrainingEstimate:
    """Return about what training takes at its peak.

    A step holds weights and AdamW's moments, and activations, which go as gradients come.
    """
    adapter = settings.lora_rank * shape.ends if batch.lora else 0
    trained = adapter or shape.parameters
    gradients = WEIGHT_BYTES * trained * (2 if device.processes > 1 else 1)  # several processes exchange copies
    peak = _activations(shape, batch, settings, device) + _compared(shape, batch, settings)
    if not settings.mini_batch_size and settings.gradient_accumulation == 1:
        peak = max(0, peak - gradients)
    state = WEIGHT_BYTES * (shape.parameters + adapter) + MOMENT_BYTES * trained + gradients
    return TrainingEstimate(shape.parameters, trained, state, int(peak))


def _activations(shape: ModelShape, batch: TrainingBatch, settings: TrainingSettings, device: TrainingDevice) -> float:
    """Return the bytes that the backward pass reads of the texts of a batch, with the weights cast to bfloat16.

    Gradient checkpointing keeps the inputs of the layers, and what a layer at a time computes again.
    """
    texts, width = batch.texts(settings), 2 if device.bf16 else WEIGHT_BYTES
    tokens = sum(count * length for count, length in texts)
    layers = shape.layers // (2 if batch.kind == QUESTION_GENERATOR else 1)  # an encoder's or a decoder's
    layer = tokens * (width * shape.kept + WEIGHT_BYTES * shape.normalised)
    if shape.unfused or (shape.attention_dropout and device.kind == "cpu"):
        layer += SCORE_BYTES * shape.heads * sum(count * length**2 for count, length in texts)
    states = WEIGHT_BYTES * shape.hidden * tokens
    if settings.gradient_checkpointing:
        return (OUTER + layers) * states + layer
    cast = len(texts) * width * shape.multiplied if device.bf16 else 0
    return OUTER * states + layers * layer + cast


def _compared(shape: ModelShape, batch: TrainingBatch, settings: TrainingSettings) -> float:
    """Return the bytes of what the loss compares: token vectors and their scores, or a vocabulary's logits."""
    rows = settings.batch_size
    if batch.kind == QUESTION_GENERATOR:
        return COMPARED_BYTES * rows * batch.query * shape.vocabulary
    if batch.kind == LANGUAGE_MODEL:
        return COMPARED_BYTES * MASKED * rows * batch.passage * shape.vocabulary
    if batch.kind == RERANKER:
        vectors = TOKEN_VECTOR * rows * (batch.query + batch.passages * batch.passage)
        scores = min(settings.mini_batch_size or rows, rows) * rows * batch.query * batch.passage
        return COMPARED_BYTES * (vectors + min(LARGEST_SCORES, scores))
    return 0


def epochs_of(settings: TrainingSettings, rows: int, processes: int = 1) -> float:
    """Return the passes over so many rows; a number of steps decides where it is set."""
    if not settings.max_steps:
        return settings.epochs
    return settings.max_steps * settings.batch_size * processes * settings.gradient_accumulation / max(1, rows)
