"""A model with pickled weights made into one with safetensors, which biorag loads.

Each file is read in a process of its own, by torch with `weights_only=True`: nothing but tensors and containers, so
that no code of theirs runs. Before torch 2.6 that could be escaped (CVE-2025-32434), so older ones are refused.
"""

from __future__ import annotations

import re
import resource
import shutil
import warnings
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from biorag.errors import MissingError, UsageError
from biorag.models.finding import SETTINGS_PATTERNS, check_model_name, find_pickled, weights_hash
from biorag.models.formats.directory import INDEX, check_folder, check_place, read_tensors
from biorag.models.resources import Need, admit
from biorag.types import OnProgress
from biorag.utils.apart import ApartError, limit_data, run_in_subprocess
from biorag.utils.files import make_folder, scratch_folder, write_json

# pytorch_model.bin, or its parts; sentence-transformers' modules have theirs in folders of their own.
_PART = re.compile(r"pytorch_model(?:-(\d{5})-of-(\d{5}))?\.bin")
PICKLED_INDEX = "pytorch_model.bin.index.json"
OLDEST_TORCH = "2.6"
SECONDS, BYTES_A_SECOND = 60, 20 << 20  # of computing and waiting: for any file, and more for a large one
MEMORY, COPIES = 1 << 30, 3  # bytes beyond torch's own: for any file, and times its size
LARGEST = 2  # times a file's size that its tensors may take, as tied weights do
_GLOBAL = re.compile(r"GLOBAL ([\w.]+)")


def convert(model: str, out: Path, on_progress: OnProgress) -> dict[str, Any]:
    """Write a model, a directory or a Hugging Face id, with safetensors and its settings into a new folder.

    Returns the files converted, their tensors and bytes, and the hash of the new weights.

    Raises `UsageError` if `out` is not empty, and as `check_model_name` does; `MissingError` if the model cannot be
    found, has safetensors already, has no pickled weights, or holds something else or a link out of its folder;
    `ServiceError` if a file does not fit into memory.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} is there and not empty: name a new folder with --out")
    check_model_name(out)
    source = find_pickled(model)
    if any(source.rglob("*.safetensors")):
        raise MissingError(f"model {model} has .safetensors weights already: name it as it is")
    for path in source.rglob("*"):
        check_place(path, source)
    pickled = sorted(path for path in source.rglob("*.bin") if _PART.fullmatch(path.name) and path.is_file())
    if not any(path.parent == source for path in pickled):
        raise MissingError(f"model {model} has no pytorch_model.bin to convert in {source}")
    make_folder(out.parent)
    with scratch_folder(out.parent, out.name) as scratch:
        draft = scratch / "model"
        _copy_settings(source, draft)
        for path in pickled:
            largest = COPIES * path.stat().st_size
            admit(Need(f"converting {path.name}", largest, MEMORY), "cpu", "a checkpoint in smaller parts")
            convert_file(path, draft / path.relative_to(source).with_name(_renamed(path.name)))
            on_progress(1)
        for folder in {path.parent for path in pickled}:
            _write_index(draft / folder.relative_to(source))
        check_folder(draft)
        tensors = [tensor for path in sorted(draft.rglob("*.safetensors")) for tensor in read_tensors(path)]
        if out.exists():
            out.rmdir()
        draft.rename(out)
    return {
        "model": model,
        "files": [str(path.relative_to(source)) for path in pickled],
        "tensors": len(tensors),
        "bytes": sum(path.stat().st_size for path in out.rglob("*.safetensors")),
        "sha256": weights_hash(out),
    }


def _renamed(name: str) -> str:
    """Return the name of the safetensors file, as transformers looks for it."""
    part = _PART.fullmatch(name)
    assert part, "a pickled checkpoint's name"
    return f"model-{part[1]}-of-{part[2]}.safetensors" if part[1] else "model.safetensors"


def _copy_settings(source: Path, draft: Path) -> None:
    for path in sorted(source.rglob("*")):
        wanted = any(fnmatch(path.name, pattern) for pattern in SETTINGS_PATTERNS)
        if wanted and path.is_file() and path.name != PICKLED_INDEX:
            target = draft / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def _write_index(folder: Path) -> None:
    """Write the index of a folder's parts, if there are several: which tensor is in which."""
    parts = sorted(folder.glob("model-*.safetensors"))
    if parts:
        tensors = {tensor.name: path.name for path in parts for tensor in read_tensors(path)}
        total = sum(path.stat().st_size for path in parts)
        write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": tensors})


def convert_file(source: Path, target: Path) -> None:
    """Write the tensors of a pickled checkpoint as a safetensors file.

    Raises `MissingError` if it holds anything else, is damaged, or takes more time or memory than its size explains.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
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
        tensors[name] = (tensor.detach().clone() if memory in memories else tensor.detach()).contiguous()
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
