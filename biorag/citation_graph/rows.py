"""Rows `citing,cited` of a CSV as numbers, many at a time."""

from __future__ import annotations

import re
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]  # an edge: the citing PMID in the upper 32 bits, the cited one in the lower

Unsigned = TypeVar("Unsigned", np.uint32, np.uint64)

LARGEST = 2**32 - 1
DIGITS = len(str(LARGEST))
_COMMA, _NEWLINE, _ZERO = b",\n0"
_SHIFT = np.uint64(32)
_ROW = re.compile(rb'\s*"?([0-9]{1,10})"?\s*,\s*"?([0-9]{1,10})"?\s*')


def edge_keys(citing: NDArray[np.integer], cited: NDArray[np.integer]) -> Keys:
    """Return the keys of edges, whose order is that of the citing papers, then of the cited ones."""
    return (citing.astype(np.uint64) << _SHIFT) | cited.astype(np.uint64)


def ends_of(keys: Keys) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the citing and the cited papers of edges."""
    return (keys >> _SHIFT).astype(np.uint32), keys.astype(np.uint32)


def distinct(values: NDArray[Unsigned]) -> NDArray[Unsigned]:
    """Return values sorted, each once; sorting them is ten times as fast as the hash table of `np.unique`."""
    ordered = np.sort(values)
    first = np.append(np.ones(min(1, ordered.size), np.bool_), ordered[1:] != ordered[:-1])
    unique: NDArray[Unsigned] = ordered[first]
    return unique


def parse_rows(block: bytes) -> Keys | None:
    """Return the edges of whole lines, all at once; None if one is not plainly `PMID,PMID`.

    The bytes that are not digits must be a comma and a line's end in turn, and the numbers between them PMIDs.
    """
    if not block:
        return np.empty(0, np.uint64)
    characters = np.frombuffer(block, np.uint8)
    digits = characters - np.uint8(_ZERO)
    ends = np.flatnonzero(digits > 9)
    marks = characters[ends]
    if ends.size % 2 or not block.endswith(b"\n") or (marks[0::2] != _COMMA).any() or (marks[1::2] != _NEWLINE).any():
        return None
    lengths = np.diff(ends, prepend=-1) - 1
    if lengths.min() < 1 or lengths.max() > DIGITS:
        return None
    values = np.zeros(ends.size, np.uint64)
    for power in range(int(lengths.max())):
        digit = digits[np.maximum(ends - 1 - power, 0)].astype(np.uint64)
        values += np.where(lengths > power, digit * np.uint64(10**power), np.uint64(0))
    if values.min() < 1 or values.max() > LARGEST:
        return None
    return edge_keys(values[0::2], values[1::2])


def parse_row(line: bytes) -> int:
    """Return the key of one line, which may have spaces and quotation marks.

    Raises
    ------
    ValueError
        With the reason.
    """
    match = _ROW.fullmatch(line)
    citing, cited = (int(match[1]), int(match[2])) if match else (0, 0)
    if not (1 <= citing <= LARGEST and 1 <= cited <= LARGEST):
        raise ValueError(f"expected two PMIDs, citing,referenced, not {line[:60].decode(errors='replace')!r}")
    return citing << 32 | cited
