"""A model with pickled weights made into one with safetensors, which biorag loads."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from biorag.errors import MissingError, UsageError
from biorag.models.finding import SETTINGS_PATTERNS, check_model_name, find_pickled, weights_hash
from biorag.models.formats.directory import INDEX, check_folder, read_tensors
from biorag.models.formats.pickles import COPIES, MEMORY, convert_file
from biorag.models.resources import Need, admit
from biorag.types import OnProgress
from biorag.utils.files import make_folder, write_json

# pytorch_model.bin, or its parts; sentence-transformers' modules have theirs in folders of their own.
_PART = re.compile(r"pytorch_model(?:-(\d{5})-of-(\d{5}))?\.bin")
PICKLED_INDEX = "pytorch_model.bin.index.json"


def convert(model: str, out: Path, on_progress: OnProgress) -> dict[str, Any]:
    """Write a model, a directory or a Hugging Face id, with safetensors and its settings into a new folder.

    Returns the files converted, their tensors and bytes, and the hash of the new weights.

    Raises `UsageError` if `out` is not empty, and as `check_model_name` does; `MissingError` if the model cannot be
    found, has safetensors already, has no pickled weights, or holds something else; `ServiceError` if a file does not
    fit into memory.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} is there and not empty: name a new folder with --out")
    check_model_name(out)
    source = find_pickled(model)
    if any(source.rglob("*.safetensors")):
        raise MissingError(f"model {model} has .safetensors weights already: name it as it is")
    pickled = sorted(path for path in source.rglob("*.bin") if _PART.fullmatch(path.name) and path.is_file())
    if not any(path.parent == source for path in pickled):
        raise MissingError(f"model {model} has no pytorch_model.bin to convert in {source}")
    make_folder(out.parent)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as scratch:
        draft = Path(scratch) / "model"
        _copy_settings(source, draft)
        for path in pickled:
            largest = COPIES * path.stat().st_size
            admit(Need(f"converting {path.name}", largest, MEMORY), "cpu", "a checkpoint in smaller parts")
            target = draft / path.relative_to(source).parent / _renamed(path.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            convert_file(path, target)
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
    for path in _settings(source):
        target = draft / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def _settings(source: Path) -> Iterator[Path]:
    for path in sorted(source.rglob("*")):
        wanted = any(fnmatch(path.name, pattern) for pattern in SETTINGS_PATTERNS)
        if wanted and path.is_file() and path.name != PICKLED_INDEX:
            yield path


def _write_index(folder: Path) -> None:
    """Write the index of a folder's parts, if there are several: which tensor is in which."""
    parts = sorted(folder.glob("model-*.safetensors"))
    if parts:
        tensors = {tensor.name: path.name for path in parts for tensor in read_tensors(path)}
        total = sum(path.stat().st_size for path in parts)
        write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": tensors})
