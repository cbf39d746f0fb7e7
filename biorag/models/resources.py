"""Memory and time by the sizes of a model's tensors: what loading, training, recipes and `biorag plan` compute with."""

from __future__ import annotations

import logging
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biorag.errors import ServiceError
from biorag.models.finding import ModelFiles
from biorag.models.formats import gguf
from biorag.models.formats.directory import MAX_TOKENS, MODULE_LIST, READING, ROUTER, Tensor, read_tensors
from biorag.utils.cores import CGROUPS, PROC, check_addresses, control_groups
from biorag.utils.parsing import parsed, read_regular

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)  # the command line shows its INFO too

LARGE = 2**30  # bytes from which a model is logged, as is one that takes half of the free memory
HEADS = ("lm_head.weight", "output.weight")  # of language models, which encoders are loaded without
FLOATING = ("F", "BF")  # how the types begin that a precision applies to
VOCABULARIES = ("token_embd.weight", "output.weight")
WEIGHT_BYTES = 4  # float32

# llama.cpp's: cells of 16 bits, a window in multiples of 256, prompts in batches of 512 computed in float32.
CELL_BYTES, CELLS, BATCH, FLOAT_BYTES = 2, 256, 512, 4
HIDDEN_STATES = 6  # of a batch, about

# Operations for each parameter of a linear layer and token (Kaplan et al. 2020, arXiv:2001.08361, section 2.1):
# forward; backward for the gradients of activations, and as much for those of weights, which LoRA's base does not need.
FORWARD = 2
SIDE, TRIES = 1024, 5  # square matrices that are multiplied to measure a device's speed, and how often

# How config.json names the sizes that tensors do not show.
QUERY_HEADS = ("num_attention_heads", "n_heads", "num_heads")
HIDDEN = ("hidden_size", "d_model", "dim", "n_embd")
ATTENTION_DROPOUTS = ("attention_probs_dropout_prob", "attention_dropout")
HIDDEN_DROPOUTS = ("hidden_dropout_prob", "hidden_dropout", "dropout", "dropout_rate")
IN_LAYER = re.compile(r"(?:.*?\.)?\d+\.")  # the beginning of the name of a layer's tensor
PRODUCTS = 1.4  # numbers that a layer keeps for each that passes between its linear layers: activations and gates


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a transformer, of two towers those of one, from which the memory and time of its work follow.

    For the backward pass each layer keeps of each token `kept` numbers in the type that it computes in, `normalised`
    ones in float32, and, where attention is not fused, scores with all other tokens for each head.
    """

    parameters: int  # of both towers
    multiplied: int  # parameters of the linear layers, with which every token is multiplied
    hidden: int
    layers: int
    kept: int
    normalised: int
    ends: int  # inputs and outputs of all linear layers
    heads: int
    vocabulary: int
    window: int  # tokens of the longest input
    attention_dropout: bool  # attention is then not fused on a CPU
    unfused: bool  # attention with learnt distances is fused nowhere


@dataclass(frozen=True, slots=True)
class Need:
    """The memory of a model or other work, in bytes: its weights, and its working memory."""

    what: str
    weights: int
    working: int = 0

    @property
    def total(self) -> int:
        """Their sum."""
        return self.weights + self.working


def parameters_of(files: ModelFiles) -> list[Tensor]:
    """Return the tensors of an encoder, from a checkpoint's directory or a GGUF file.

    Raises `MissingError` if a header does not fit its file.
    """
    if files.path.is_file():
        tensors = [Tensor(tensor.name, tensor.shape, "F32") for tensor in gguf.read_header(files.path).tensors]
    else:
        tensors = [tensor for path in _weights(files) for tensor in read_tensors(path)]
    return [tensor for tensor in tensors if tensor.name not in HEADS]


def _weights(files: ModelFiles) -> Iterator[Path]:
    """Yield the weight files of the model's folder and its modules': the single file, or its parts."""
    for folder in _modules(files):
        path = folder / "model.safetensors"
        yield from [path] if path.is_file() else sorted(folder.glob("model-*.safetensors"))


@dataclass(frozen=True, slots=True)
class _Module:
    """A module of sentence-transformers, by its folder."""

    path: str


def _modules(files: ModelFiles) -> list[Path]:
    """Return the folders that sentence-transformers loads: no adapter, and no checkpoints of a run."""
    path = files.path / MODULE_LIST
    modules: list[_Module] = parsed(list[_Module], read_regular(path), "ignore") if path.is_file() else []
    listed = [module.path for module in modules]
    towers = files.settings(ROUTER).get("types")
    named = dict.fromkeys(["", *listed, *(towers if isinstance(towers, dict) else ())])
    return [files.path / name for name in named]


def model_shape(files: ModelFiles) -> ModelShape:
    """Return the shape of a model by the headers of its files."""
    if files.path.is_file():
        header = gguf.read_header(files.path)
        sizes = {"num_attention_heads": "attention.head_count", "hidden_size": "embedding_length"}
        return shape_of(parameters_of(files), {name: header.number(key) for name, key in sizes.items()})
    configuration = replace(files, path=files.reads_passages()).settings("config.json")
    window = files.settings(READING).get(MAX_TOKENS)
    shape = shape_of(parameters_of(files), configuration, 2 if files.has_towers else 1)
    return replace(shape, window=int(window)) if window else shape


def architecture_shape(configuration: Mapping[str, Any]) -> ModelShape:
    """Return the shape of an architecture by the settings of its config.json alone, `model_type` among them."""
    import torch
    from transformers import AutoConfig, AutoModel

    known = AutoConfig.for_model(**configuration)
    with torch.device("meta"):
        weights = AutoModel.from_config(known).named_parameters()
    return shape_of([Tensor(name, tuple(weight.shape), "F32") for name, weight in weights], known.to_dict())


def shape_of(tensors: Sequence[Tensor], configuration: Mapping[str, Any], towers: int = 1) -> ModelShape:
    """Return the shape of a transformer with these tensors and config.json."""

    def setting(names: Sequence[str], default: int) -> int:
        return next((int(configuration[name]) for name in names if configuration.get(name)), default)

    linear = [tensor for tensor in tensors if len(tensor.shape) == 2 and "emb" not in tensor.name]
    inner = [tensor for tensor in linear if IN_LAYER.match(tensor.name)]
    layers = len({IN_LAYER.match(tensor.name)[0] for tensor in inner}) or 1  # type: ignore[index]
    hidden = setting(HIDDEN, max((min(tensor.shape) for tensor in tensors if "emb" in tensor.name), default=1))
    between = sum(sum(tensor.shape) - hidden for tensor in inner)
    norms = sum(bool(IN_LAYER.match(tensor.name)) for tensor in tensors if tensor.name.lower().endswith("norm.weight"))
    t5 = configuration.get("model_type") in ("t5", "mt5")
    copies = 2 if t5 or "rms_norm_eps" in configuration else 1  # RMSNorm keeps what it normalised, too
    return ModelShape(
        parameters=sum(math.prod(tensor.shape) for tensor in tensors),
        multiplied=sum(math.prod(tensor.shape) for tensor in linear) // towers,
        hidden=hidden,
        layers=layers // towers,
        kept=int(PRODUCTS * between + hidden * len(inner) / 2) // layers,
        normalised=copies * hidden * norms // layers,
        ends=sum(sum(tensor.shape) for tensor in linear) // towers,
        heads=setting(QUERY_HEADS, 1),
        vocabulary=int(configuration.get("vocab_size") or 0),
        window=int(configuration.get("max_position_embeddings") or 512),
        attention_dropout=any(configuration.get(name) for name in ATTENTION_DROPOUTS),
        unfused=t5,
    )


def of_checkpoint(files: ModelFiles, width: int) -> Need:
    """Return the need of a checkpoint in a precision of `width` bytes a weight."""
    return Need(files.id, sum(math.prod(tensor.shape) * _width(tensor.dtype, width) for tensor in parameters_of(files)))


def _width(dtype: str, width: int) -> int:
    """Return the bytes of a number of a type; a precision applies to floating ones, as "BF16", and not to "I64"."""
    if dtype.startswith(FLOATING):
        return width
    return int(dtype.lstrip("UI")) // 8 if dtype[0] in "UI" else 1


def of_gguf(path: Path, window: int) -> Need:
    """Return the need of llama.cpp for a file: weights as stored, the cache of `window` tokens, a batch's buffers.

    Caches of layers that see a part of the window are counted in full. Attention is computed unfused.

    Raises `MissingError` if the header does not fit the file.
    """
    header = gguf.read_header(path)
    window = min(window, header.trained_window() or window)
    heads, hidden = header.number("attention.head_count"), header.number("embedding_length")
    stored = min(heads, header.number("attention.head_count_kv", heads))
    side = hidden // max(1, heads)
    cell = header.number("attention.key_length", side) + header.number("attention.value_length", side)
    cache = header.number("block_count") * -(-window // CELLS) * CELLS * stored * cell * CELL_BYTES
    vocabulary = max((max(tensor.shape) for tensor in header.tensors if tensor.name in VOCABULARIES), default=0)
    widest = max(vocabulary, window * (heads + 1)) + HIDDEN_STATES * hidden
    return Need(path.name, header.data_bytes, cache + BATCH * widest * FLOAT_BYTES)


def admit(need: Need, device: str, lighter: str) -> None:
    """Check that a model fits into the device's free memory, and log the need of a large one.

    Raises `ServiceError` with the advice `lighter` if it does not fit.
    """
    check_addresses()
    free = free_bytes(device)
    takes = f"{need.what} takes {gib(need.total)} of memory"
    if need.total > free:
        raise ServiceError(f"{takes} and {gib(free)} are free: take {lighter}, or a larger machine")
    if need.total >= LARGE or need.total > free / 2:
        parts = f" ({gib(need.weights)} of weights, the rest to work with)" if need.weights and need.working else ""
        logger.info("%s%s of %s free", takes, parts, gib(free))


def free_bytes(device: str = "cpu") -> int:
    """Return the bytes of memory that are free on a GPU ("cuda"), or to this process on the machine.

    That is the memory available without swapping, within the limits of the process's control groups.
    """
    if device == "cuda":
        import torch  # slow, and of no use to llama.cpp on a CPU

        if torch.cuda.is_available():
            return int(torch.cuda.mem_get_info()[0])
    return max(0, min([_available(PROC), *_rooms(PROC, CGROUPS)]))


def _available(proc: Path) -> int:
    meminfo = proc / "meminfo"
    for line in meminfo.read_text().splitlines() if meminfo.is_file() else ():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _rooms(proc: Path, mount: Path) -> Iterator[int]:
    """Yield the room under each limit on this process; cached files do not count as used."""
    for group in control_groups("memory", proc, mount):
        if group.version == 2:
            names, prefix = ("memory.max", "memory.current"), ""
        else:
            names, prefix = ("memory.limit_in_bytes", "memory.usage_in_bytes"), "total_"
        limit, used, statistics = map(group.read, (*names, "memory.stat"))
        if limit.isdigit() and used.isdigit():
            yield int(limit) - int(used) + _cached(statistics, prefix)


def _cached(statistics: str, prefix: str) -> int:
    names = (f"{prefix}inactive_file", f"{prefix}active_file")
    return sum(int(line.split()[1]) for line in statistics.splitlines() if line.split()[0] in names)


@cache
def operations(device: str, kind: torch.dtype) -> float:
    """Return the operations in a second of a device's matrix products, the best of a few tries, measured once."""
    import torch

    matrix = torch.ones((SIDE, SIDE), device=device, dtype=kind)
    seconds = []
    for _ in range(TRIES):
        started = time.perf_counter()
        float((matrix @ matrix)[0, 0])  # reading waits for a GPU
        seconds.append(time.perf_counter() - started)
    return 2 * SIDE**3 / min(seconds)


def gib(size: int) -> str:
    """Return a size in words."""
    return f"{size / 2**30:,.1f} GiB"
