"""Low-rank additions to an encoder's weights, W + U·V, which the biomedical starter is (LoRA, Hu et al. 2021)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from biorag.errors import MissingError
from biorag.types import Vectors

UP, DOWN = ".up", ".down"  # a weight's factors, (out, rank) and (rank, in)


def read_changes(path: Path) -> Iterator[tuple[str, Vectors]]:
    """Yield the name and the change, (out, in) float32, of each weight that an adapter adds to.

    Raises `MissingError` if the file is not an adapter.
    """
    try:
        factors = load_file(path)
        for name in sorted(name.removesuffix(UP) for name in factors if name.endswith(UP)):
            yield name, factors[name + UP].astype(np.float32) @ factors[name + DOWN].astype(np.float32)
    except (OSError, KeyError, ValueError, SafetensorError) as error:
        raise MissingError(f"{path} is not the adapter of an encoder ({error}): install biorag again") from error


def write_adapted(weights: Path, adapter: Path) -> None:
    """Add an adapter's changes to the weights of a safetensors file, which is replaced.

    Raises `MissingError` if the file is not an adapter.
    """
    whole = load_file(weights)
    for name, change in read_changes(adapter):
        whole[name] = whole[name] + change
    save_file(whole, weights, metadata={"format": "pt"})
