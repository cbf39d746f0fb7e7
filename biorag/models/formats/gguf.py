"""GGUF headers: what llama.cpp would allocate, seek to or abort at is checked first.

Source: the specification, github.com/ggml-org/ggml, docs/gguf.md.
"""

from __future__ import annotations

import math
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
MOST_TENSORS = 100_000
MOST_KEYS = 100_000
LONGEST_KEY = 65_535
LONGEST_NAME = 63
MOST_DIMENSIONS = 4
ALIGNMENT = "general.alignment"

# ggml's number of a tensor type -> (weights in a block, bytes of a block). Left out are the types that weights are
# not stored in, whole numbers and activations: llama.cpp aborts, or reads beyond a tensor, when it computes with them.
BLOCKS = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    16: (256, 66),
    17: (256, 74),
    18: (256, 98),
    19: (256, 50),
    20: (32, 18),
    21: (256, 110),
    22: (256, 82),
    23: (256, 136),
    29: (256, 56),
    30: (1, 2),
    34: (256, 54),
    35: (256, 66),
    39: (32, 17),
}


class GgufTensor(NamedTuple):
    """Where one tensor lies, in bytes from the start of the tensors' data."""

    name: str
    shape: tuple[int, ...]
    offset: int
    bytes: int


class Header(NamedTuple):
    """The metadata (arrays as their lengths), and the tensors."""

    metadata: Mapping[str, Any]
    tensors: tuple[GgufTensor, ...]

    def trained_window(self) -> int | None:
        """Return the tokens of context that the model was trained with; None if the header does not tell."""
        window = self._setting("context_length")
        return window if isinstance(window, int) else None

    def number(self, name: str, otherwise: int = 0) -> int:
        """Return a size that the architecture sets; for an array, such as one value a layer, its length."""
        value = self._setting(name)
        return value if isinstance(value, int) else otherwise

    def _setting(self, name: str) -> Any:
        return self.metadata.get(f"{self.metadata.get('general.architecture')}.{name}")


class _BadGgufError(Exception):
    """What is wrong with a GGUF header."""


def read_header(path: Path) -> Header:
    """Return the header of a GGUF file in which every count, length and offset fits the file.

    Raises
    ------
    MissingError
        Naming what does not fit.
    """
    state = path.stat()
    return _read_header(path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=4)
def _read_header(path: Path, size: int, modified_ns: int) -> Header:
    """Read a header once in a process for as long as its file stays as it is."""
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

    def bytes(self, count: int, what: str) -> bytes:
        if count > self.size - self.position:
            raise _BadGgufError(f"{what} reaches beyond the end of the file")
        content = self._stream.read(count)
        self.position += count
        if len(content) != count:
            raise _BadGgufError("the file was cut while it was read")
        return content

    def value(self, kind: str, what: str) -> Any:
        return struct.unpack(f"<{kind}", self.bytes(struct.calcsize(f"<{kind}"), what))[0]

    def text(self, what: str, longest: int | None = None) -> str:
        length = self.value("Q", what)
        if longest is not None and length > longest:
            raise _BadGgufError(f"{what} is longer than {longest:,} bytes")
        return self.bytes(length, what).decode("utf-8", "replace")


def _header(reader: _Reader) -> Header:
    if reader.size < len(MAGIC) or reader.bytes(len(MAGIC), "the magic") != MAGIC:
        raise _BadGgufError("it does not begin with 'GGUF'")
    version = reader.value("I", "the version")
    if version not in VERSIONS:
        raise _BadGgufError(f"its version is {version}, of which only {VERSIONS} are known")
    count = _count(reader, "tensors", MOST_TENSORS)
    keys = _count(reader, "keys", MOST_KEYS)
    metadata: dict[str, Any] = {}
    for _ in range(keys):
        key = reader.text("a key", LONGEST_KEY)
        if key in metadata:
            raise _BadGgufError(f"the key {key!r} appears twice")
        metadata[key] = _value(reader, reader.value("I", "a key's type"), f"the value of {key!r}")
    alignment = metadata.get(ALIGNMENT, 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment > 2**20 or alignment & (alignment - 1):
        raise _BadGgufError(f"{ALIGNMENT} is {alignment!r}, not a power of two")
    tensors = tuple(_tensor(reader, alignment) for _ in range(count))
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise _BadGgufError("two tensors have the same name")
    data_start = -(-reader.position // alignment) * alignment
    _check_extents(tensors, reader.size - data_start)
    return Header(metadata, tensors)


def _count(reader: _Reader, what: str, most: int) -> int:
    count: int = reader.value("Q", f"the number of {what}")
    if count > most:
        raise _BadGgufError(f"it says that it has {count:,} {what}")
    return count


def _value(reader: _Reader, kind: int, what: str) -> Any:
    """Return a scalar or a text; of an array its length, its values skipped."""
    if kind == STRING:
        return reader.text(what)
    if kind != ARRAY:
        return reader.value(_scalar(kind, what), what)
    inner, length = reader.value("I", what), reader.value("Q", what)
    if inner == STRING:
        if length > (reader.size - reader.position) // 8:
            raise _BadGgufError(f"{what} reaches beyond the end of the file")
        for _ in range(length):
            reader.text(what)
    else:
        reader.bytes(length * struct.calcsize(f"<{_scalar(inner, what)}"), what)
    return length


def _scalar(kind: int, what: str) -> str:
    if kind not in SCALARS:
        raise _BadGgufError(f"{what} is of the unknown type {kind}")
    return SCALARS[kind]


def _tensor(reader: _Reader, alignment: int) -> GgufTensor:
    name = reader.text("a tensor's name", LONGEST_NAME)
    dimensions = reader.value("I", f"tensor {name!r}")
    if dimensions > MOST_DIMENSIONS:
        raise _BadGgufError(f"tensor {name!r} has {dimensions:,} dimensions")
    shape = tuple(reader.value("Q", f"tensor {name!r}") for _ in range(dimensions))
    kind, offset = reader.value("I", f"tensor {name!r}"), reader.value("Q", f"tensor {name!r}")
    if kind not in BLOCKS:
        raise _BadGgufError(f"tensor {name!r} is of the unknown type {kind}")
    weights, size = BLOCKS[kind]
    if not all(shape) or (shape and shape[0] % weights):
        raise _BadGgufError(f"tensor {name!r} has the shape {shape}, which is not in blocks of {weights}")
    if offset % alignment:
        raise _BadGgufError(f"tensor {name!r} does not begin at a multiple of {alignment} bytes")
    return GgufTensor(name, shape, offset, math.prod(shape) // weights * size)


def _check_extents(tensors: tuple[GgufTensor, ...], room: int) -> None:
    """Refuse tensors that reach beyond the file or into one another."""
    end, last = 0, ""
    for tensor in sorted(tensors, key=lambda tensor: tensor.offset):
        if tensor.offset < end:
            raise _BadGgufError(f"tensors {last!r} and {tensor.name!r} overlap")
        end, last = tensor.offset + tensor.bytes, tensor.name
        if end > room:
            raise _BadGgufError(f"tensor {tensor.name!r} reaches beyond the end of the file")
