"""Pickled checkpoints written again as safetensors, each file in a process of its own.

torch reads them with `weights_only=True`: nothing but tensors and containers, so that no code of theirs runs. Before
torch 2.6 that could be escaped (CVE-2025-32434), so older ones are refused.
"""

from __future__ import annotations

import re
import resource
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from biorag.errors import MissingError
from biorag.utils.apart import ApartError, limit_data, run_in_subprocess

OLDEST_TORCH = "2.6"
SECONDS, BYTES_A_SECOND = 60, 20 << 20  # of computing and waiting: for any file, and more for a large one
MEMORY, COPIES = 1 << 30, 3  # bytes beyond torch's own: for any file, and times its size
LARGEST = 2  # times a file's size that its tensors may take, as tied weights do
_GLOBAL = re.compile(r"GLOBAL ([\w.]+)")


def convert_file(source: Path, target: Path) -> None:
    """Write the tensors of a pickled checkpoint as a safetensors file.

    Raises `MissingError` if it holds anything else, is damaged, or takes more time or memory than its size explains.
    """
    seconds = SECONDS + source.stat().st_size / BYTES_A_SECOND
    try:
        fault = run_in_subprocess(_convert, (str(source), str(target), int(seconds)), seconds)
    except ApartError as error:
        fault = f"took {error}" if error.slow else f"ended the process that read it ({error})"
    if fault:
        raise MissingError(f"{source} {fault}: it is not converted")


def _convert(source: str, target: str, seconds: int) -> str:
    """Return an empty text, or why nothing was written; runs in the child process."""
    import torch
    from packaging.version import Version
    from safetensors.torch import save_file

    if Version(torch.__version__).release < Version(OLDEST_TORCH).release:
        return f"is read by torch {OLDEST_TORCH} or later alone, and {torch.__version__} is installed"
    size = Path(source).stat().st_size
    limit_data(MEMORY + COPIES * size)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST * size + (1 << 20),) * 2)
    warnings.simplefilter("ignore")  # the file's faults are told in one sentence
    try:
        values = torch.load(source, map_location="cpu", weights_only=True)
        if fault := _fault(values, size):
            return fault
        save_file(_apart(values), target, metadata={"format": "pt"})
    except Exception as error:  # whatever torch and pickle raise at a damaged or hostile file
        named = _GLOBAL.search(str(error))
        reason = f"it names {named[1]}" if named else type(error).__name__
        return f"cannot be read as tensors and nothing else ({reason})"
    return ""


def _apart(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tensors, those that share memory with an earlier one copied: safetensors takes none that do."""
    tensors: dict[str, Any] = {}
    memories: set[int] = set()
    for name, tensor in values.items():
        memory = tensor.untyped_storage().data_ptr()
        tensors[name] = tensor.detach().clone() if memory in memories else tensor.detach()
        tensors[name] = tensors[name].contiguous()
        memories.add(memory)
    return tensors


def _fault(values: Any, size: int) -> str:
    """Return why what a checkpoint holds is not a model's weights; empty if it is."""
    import torch

    if not isinstance(values, Mapping) or not values:
        return "does not hold tensors by name"
    for name, tensor in values.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
            return f"holds {name!r:.80}, which is not a plain tensor"
    promised = sum(tensor.numel() * tensor.element_size() for tensor in values.values())
    if promised > LARGEST * size:
        return f"has {size:,} bytes and promises tensors of {promised:,}"
    return ""
