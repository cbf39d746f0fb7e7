"""Low-rank additions to an encoder's weights, W + U·V, which the biomedical starter is (LoRA, Hu et al. 2021)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from biorag.errors import MissingError
from biorag.types import Vectors

UP, DOWN = ".up", ".down"  # a weight's factors, (out, rank) and (rank, in)


def write_adapter(path: Path, changes: Mapping[str, Vectors], rank: int) -> float:
    """Write the changes of weights, each (out, in), in their best `rank` factors as float16.

    Return the part of their squared sum that the factors leave out.
    """
    factors: dict[str, Vectors] = {}
    lost = whole = 0.0
    for name, change in changes.items():
        left, values, right = np.linalg.svd(change.astype(np.float64), full_matrices=False)
        root = np.sqrt(values[:rank])
        factors[name + UP] = (left[:, :rank] * root).astype(np.float16)
        factors[name + DOWN] = (root[:, None] * right[:rank]).astype(np.float16)
        lost, whole = lost + float((values[rank:] ** 2).sum()), whole + float((values**2).sum())
    save_file(factors, path)
    return lost / whole


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
