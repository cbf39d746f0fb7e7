"""safetensors headers: sizes, types and offsets are checked before the file is opened to be loaded.

Source: the format's description, github.com/huggingface/safetensors, README.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from biorag.errors import MissingError

LENGTH_BYTES = 8
LONGEST_HEADER = 100_000_000  # the library's own limit
METADATA = "__metadata__"
BITS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
    **{"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6},
}


class Tensor(NamedTuple):
    """A tensor's shape and type, and where it lies, in bytes from the start of the tensors' data."""

    name: str
    shape: tuple[int, ...]
    start: int
    end: int
    dtype: str


class _BadSafetensorsError(Exception):
    """What is wrong with a safetensors header."""


def read_header(path: Path) -> tuple[Tensor, ...]:
    """Return the tensors of a safetensors file whose header and offsets fill the file exactly.

    Raises
    ------
    MissingError
        Naming what does not fit.
    """
    try:
        size = path.stat().st_size - LENGTH_BYTES
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(LENGTH_BYTES), "little")
            if size < 0 or length > size:
                raise _BadSafetensorsError("its header reaches beyond the end of the file")
            if length > LONGEST_HEADER:
                raise _BadSafetensorsError(f"its header is longer than {LONGEST_HEADER:,} bytes")
            header = _parsed(stream.read(length))
        tensors = tuple(_tensor(name, value) for name, value in header.items() if name != METADATA)
        _check_extents(tensors, size - length)
    except _BadSafetensorsError as error:
        raise MissingError(f"{path} is not a safetensors file that can be loaded: {error}; fetch it again") from None
    return tensors


def _parsed(raw: bytes) -> Mapping[str, Any]:
    try:
        header = json.loads(raw, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError):
        raise _BadSafetensorsError("its header is not JSON") from None
    if not isinstance(header, dict):
        raise _BadSafetensorsError("its header is not a JSON object")
    return header


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    header = dict(pairs)
    if len(header) != len(pairs):
        raise _BadSafetensorsError("its header has a name twice")
    return header


def _tensor(name: str, value: Any) -> Tensor:
    match value:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(start), int(end)]} if dtype in BITS:
            if not all(type(side) is int and 0 <= side < 2**63 for side in (*shape, start, end)):
                raise _BadSafetensorsError(f"tensor {name!r} has a negative or huge size")
        case _:
            raise _BadSafetensorsError(f"tensor {name!r} has no known dtype, shape and data_offsets")
    bits = math.prod(shape) * BITS[dtype]
    if bits != (end - start) * 8:
        raise _BadSafetensorsError(
            f"tensor {name!r} of shape {shape} and type {dtype} does not take {end - start:,} bytes"
        )
    return Tensor(name, tuple(shape), start, end, dtype)


def _check_extents(tensors: tuple[Tensor, ...], room: int) -> None:
    """Refuse tensors that overlap, leave gaps, or do not end where the file does."""
    end = 0
    for tensor in sorted(tensors, key=lambda tensor: (tensor.start, tensor.end)):
        if tensor.start != end:
            raise _BadSafetensorsError(f"tensor {tensor.name!r} does not begin where the one before it ends")
        end = tensor.end
    if end != room:
        raise _BadSafetensorsError(f"its tensors take {end:,} bytes, but {room:,} follow the header")
