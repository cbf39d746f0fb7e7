"""The tensors of a safetensors file, one at a time as float32; and files of its layout with other values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from biorag.models.formats.safetensors import LENGTH_BYTES, Tensor, read_header
from biorag.types import Vectors

BF16 = "BF16"
FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", BF16: "<u2"}  # bfloat16 as the upper half of a float32


class TensorFile:
    """A safetensors file mapped into memory, so that only the tensors that are asked for are read.

    Raises
    ------
    MissingError
        If its header does not fit it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tensors: Mapping[str, Tensor] = {tensor.name: tensor for tensor in read_header(path)}
        self._bytes = np.memmap(path, np.uint8, "r")
        self._start = LENGTH_BYTES + int.from_bytes(self._bytes[:LENGTH_BYTES].tobytes(), "little")

    def raw(self, name: str) -> bytes:
        """Return a tensor's bytes."""
        tensor = self.tensors[name]
        return self._bytes[self._start + tensor.start : self._start + tensor.end].tobytes()

    def floats(self, name: str) -> Vectors:
        """Return a tensor of floating-point numbers as float32."""
        tensor = self.tensors[name]
        return decoded(self.raw(name), tensor.dtype).reshape(tensor.shape)

    def write_with(self, values: Callable[[str], Vectors], stream: BinaryIO) -> None:
        """Write a file of this one's header and whole numbers, its floating-point tensors as `values` gives them."""
        stream.write(self._bytes[: self._start].tobytes())
        for tensor in sorted(self.tensors.values(), key=lambda tensor: (tensor.start, tensor.end)):
            floats = tensor.dtype in FLOATS
            stream.write(encoded(values(tensor.name), tensor.dtype) if floats else self.raw(tensor.name))


def decoded(raw: bytes, dtype: str) -> Vectors:
    """Return little-endian floating-point numbers of a safetensors type as float32."""
    stored = np.frombuffer(raw, FLOATS[dtype])
    if dtype == BF16:
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32)


def encoded(values: Vectors, dtype: str) -> bytes:
    """Return float32 numbers as the bytes of a safetensors type, bfloat16 rounded to the nearest, ties to even."""
    if dtype != BF16:
        return values.astype(FLOATS[dtype]).tobytes()
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    quiet = (bits >> 16) | 0x40  # of a NaN the rounding could make an infinity
    return np.where(np.isnan(values), quiet, rounded).astype(FLOATS[BF16]).tobytes()
