"""What training a model takes, told before it starts: its memory by its weights, its time by the device's speed."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from biorag.checkpoints import gguf, safetensors
from biorag.config import Config
from biorag.errors import ServiceError
from biorag.loading import best_device, uses_bf16
from biorag.models import ModelFiles
from biorag.types import TrainingRow

WEIGHT_BYTES = 4  # float32
TRAINED_BYTES = 12  # a gradient and AdamW's two moments, float32
CHARACTERS = 4  # of a token, about
PASSES = {"forward": 2, "backward": 2, "gradients": 2}  # operations for each weight and token
SIDE = 1024  # of the square matrices that the speed is measured with
TRIES = 5


@dataclass(frozen=True, slots=True)
class Estimate:
    """Parameters of a model and those that are trained; bytes of both with gradients and AdamW's state; seconds.

    A batch's activations are not among the bytes. The seconds are a lower bound: all work at the speed of large
    matrix products.
    """

    parameters: int
    trained: int
    bytes: int
    seconds: float

    def sentence(self) -> str:
        """Return what a user is told."""
        return (
            f"{self.parameters / 1e6:,.1f} M parameters, {self.trained / 1e6:,.1f} M trained: {_gib(self.bytes)} of "
            f"memory and those of a batch, {_duration(self.seconds)} or more"
        )


def estimate(
    files: ModelFiles, rows: Sequence[TrainingRow], config: Config, lora: bool, asymmetric: bool = False
) -> Estimate:
    """Return what training on these rows takes at least, evaluations and saving apart.

    An `asymmetric` encoder is two of the base, unless the base has two towers; a text goes through one.

    Raises
    ------
    ServiceError
        If the device has not as much memory.
    """
    shapes = list(_shapes(files))
    copies = 2 if asymmetric and not files.has_towers else 1
    layers = [shape for name, shape in shapes if len(shape) == 2 and "emb" not in name]
    parameters = copies * sum(math.prod(shape) for _, shape in shapes)
    trained = copies * config.train_lora_rank * sum(map(sum, layers)) if lora else parameters
    multiplied = sum(math.prod(shape) for shape in layers) // (2 if files.has_towers else 1)
    operations = sum(PASSES.values()) - (PASSES["gradients"] if lora else 0)
    operations += PASSES["forward"] if config.train_gradient_checkpointing or config.train_mini_batch_size else 0
    tokens = sum(_tokens(row, config) for row in rows) * config.train_epochs
    needed = WEIGHT_BYTES * (parameters + (trained if lora else 0)) + TRAINED_BYTES * trained
    found = Estimate(parameters, trained, needed, operations * multiplied * tokens / speed(config))
    if needed > (free := free_bytes()):
        lighter = "a smaller base" if lora else "--lora, or a smaller base"
        raise ServiceError(
            f"training {files.id} takes {_gib(needed)} of memory before the first batch and {_gib(free)} are free: "
            f"take {lighter}, or a larger machine"
        )
    return found


def free_bytes() -> int:
    """Return the bytes of memory that are free where training would run."""
    if best_device() == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    known = Path("/proc/meminfo")
    for line in known.read_text().splitlines() if known.is_file() else ():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def speed(config: Config) -> float:
    """Return the operations in a second of the device's matrix products, in the precision of the training."""
    device, kind = best_device(), torch.bfloat16 if uses_bf16(config.precision) else torch.float32
    matrix = torch.ones((SIDE, SIDE), device=device, dtype=kind)
    return max(_once(matrix) for _ in range(TRIES))


def _once(matrix: torch.Tensor) -> float:
    started = time.perf_counter()
    float((matrix @ matrix)[0, 0])  # reading a value waits for a GPU
    return 2 * len(matrix) ** 3 / (time.perf_counter() - started)


def _shapes(files: ModelFiles) -> Iterable[tuple[str, tuple[int, ...]]]:
    """Yield names and shapes of the tensors that are trained: not a language model's head, which is left out."""
    if files.path.is_file():
        found = [(tensor.name, tensor.shape) for tensor in gguf.read_header(files.path).tensors]
    else:
        weights = files.path.rglob("model*.safetensors")  # an adapter's have another name
        found = [(tensor.name, tensor.shape) for path in weights for tensor in safetensors.read_header(path)]
    return ((name, shape) for name, shape in found if name not in ("lm_head.weight", "output.weight"))


def _tokens(row: TrainingRow, config: Config) -> int:
    texts = (row.query, row.positive, *row.negatives[: config.train_hard_negatives])
    return sum(min(config.train_max_tokens, 1 + len(text) // CHARACTERS) for text in texts)


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"


def _duration(seconds: float) -> str:
    for unit, length in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:,.0f} seconds"
