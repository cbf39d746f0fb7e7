"""GGUF headers: metadata and shapes, read without llama.cpp and never past the file's end.

llama.cpp checks the rest (blocks, overlaps, names) when it loads a file, first in a process of its own
(`biorag.generators.preflight`).

Source: the specification, github.com/ggml-org/ggml, docs/gguf.md.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from biorag.errors import MissingError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
MOST_DIMENSIONS = 4
ALIGNMENT = "general.alignment"


class GgufTensor(NamedTuple):
    """A tensor of a GGUF file."""

    name: str
    shape: tuple[int, ...]
    offset: int  # in bytes from the start of the tensors' data


class Header(NamedTuple):
    """The metadata (arrays as their lengths), the tensors, and the bytes of their data."""

    metadata: Mapping[str, Any]
    tensors: tuple[GgufTensor, ...]
    data_bytes: int

    def trained_window(self) -> int | None:
        """Return the tokens of context that the model was trained with, if the header tells."""
        window = self._setting("context_length")
        return window if isinstance(window, int) else None

    def number(self, name: str, otherwise: int = 0) -> int:
        """Return a size that the architecture sets; for an array, such as one value a layer, its length."""
        value = self._setting(name)
        return value if isinstance(value, int) else otherwise

    def _setting(self, name: str) -> Any:
        return self.metadata.get(f"{self.metadata.get('general.architecture')}.{name}")


class _BadGgufError(Exception):
    """A fault of a GGUF header."""


def read_header(path: Path) -> Header:
    """Return the header of a GGUF file.

    Raises `MissingError` if it is not one, or a length or an offset reaches beyond the file.
    """
    state = path.stat()
    return _read_header(path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=4)
def _read_header(path: Path, size: int, modified_ns: int) -> Header:
    """Read a header once per process while its file stays as it is."""
    try:
        with path.open("rb") as stream:
            return _header(_Reader(stream, size))
    except _BadGgufError as error:
        raise MissingError(f"{path} is not a GGUF model that can be loaded: {error}; fetch the file again") from None


class _Reader:
    """Reads little-endian values, never past the file's end."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream = stream
        self.size = size
        self.position = 0

    def bytes(self, count: int) -> bytes:
        if count > self.size - self.position:
            raise _BadGgufError("its header reaches beyond the end of the file")
        self.position += count
        return self._stream.read(count)

    def number(self, kind: str) -> Any:
        return struct.unpack(f"<{kind}", self.bytes(struct.calcsize(f"<{kind}")))[0]

    def text(self) -> str:
        return self.bytes(self.number("Q")).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        """Return a scalar or a text; of an array its length, its values skipped."""
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            return self.number(_scalar(kind))
        inner, length = self.number("I"), self.number("Q")
        if inner == STRING:
            for _ in range(length):
                self.bytes(self.number("Q"))
        else:
            self.bytes(length * struct.calcsize(f"<{_scalar(inner)}"))
        return length


def _scalar(kind: int) -> str:
    if kind not in SCALARS:
        raise _BadGgufError(f"a value is of the unknown type {kind}")
    return SCALARS[kind]


def _header(reader: _Reader) -> Header:
    if reader.bytes(len(MAGIC)) != MAGIC:
        raise _BadGgufError("it does not begin with 'GGUF'")
    if (version := reader.number("I")) not in VERSIONS:
        raise _BadGgufError(f"its version is {version}, of which only {VERSIONS} are known")
    tensors, keys = reader.number("Q"), reader.number("Q")
    metadata = {}
    for _ in range(keys):
        key = reader.text()
        metadata[key] = reader.value(reader.number("I"))
    alignment = metadata.get(ALIGNMENT, 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise _BadGgufError(f"{ALIGNMENT} is {alignment!r}")
    listed = tuple(_tensor(reader) for _ in range(tensors))
    data_bytes = reader.size - -(-reader.position // alignment) * alignment
    for tensor in listed:
        if tensor.offset >= data_bytes:
            raise _BadGgufError(f"tensor {tensor.name!r} begins beyond the end of the file")
    return Header(metadata, listed, data_bytes)


def _tensor(reader: _Reader) -> GgufTensor:
    name, dimensions = reader.text(), reader.number("I")
    if dimensions > MOST_DIMENSIONS:
        raise _BadGgufError(f"tensor {name!r} has {dimensions:,} dimensions")
    shape = tuple(reader.number("Q") for _ in range(dimensions))
    _, offset = reader.number("I"), reader.number("Q")  # the type
    return GgufTensor(name, shape, offset)
