"""Sorted runs of edges, merged into one graph piece by piece, so that memory does not grow with it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from biorag.citation_graph.graph import KINDS, OFFSETS, PMIDS, TARGETS, Graph, Papers
from biorag.citation_graph.rows import Keys, distinct, edge_keys, ends_of
from biorag.utils.files import make_folder, sync_folder

PIECE = 4 << 20  # edges merged at once
STRIDE = 4096  # of how many edges one is a sample
_KEY = np.dtype("<u8")


class SortedRun(Protocol):
    """Edges in order."""

    def sample(self) -> Papers:
        """Return the citing paper of every `STRIDE`th edge."""

    def cut(self, bounds: Papers) -> list[int]:
        """Return where the pieces begin that are parted by these citing papers, and where the last one ends."""

    def read(self, start: int, stop: int) -> Keys:
        """Return the edges between two positions of `cut`."""


class FileRun:
    """A file of sorted keys."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._length = path.stat().st_size // _KEY.itemsize

    def sample(self) -> Papers:
        """Return the citing paper of every `STRIDE`th edge."""
        return ends_of(self._mapped()[::STRIDE])[0]

    def cut(self, bounds: Papers) -> list[int]:
        """Return the positions in the file."""
        firsts = edge_keys(bounds, np.zeros_like(bounds))
        return [0, *np.searchsorted(self._mapped(), firsts).tolist(), self._length]

    def read(self, start: int, stop: int) -> Keys:
        """Return the edges between two positions."""
        return np.fromfile(self._path, _KEY, stop - start, offset=start * _KEY.itemsize)

    def _mapped(self) -> Keys:
        # Mapped for a moment: an open file a run would be more than a process may have.
        return np.memmap(self._path, _KEY, "r")


class GraphRun:
    """The edges of a graph; its positions are those of the papers."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def sample(self) -> Papers:
        """Return the citing paper of every `STRIDE`th edge."""
        edges = np.arange(0, self._graph.targets.size, STRIDE, dtype=np.uint64)
        return self._graph.pmids[np.searchsorted(self._graph.offsets, edges, side="right") - 1]

    def cut(self, bounds: Papers) -> list[int]:
        """Return the positions of the papers."""
        return [0, *np.searchsorted(self._graph.pmids, bounds).tolist(), self._graph.pmids.size]

    def read(self, start: int, stop: int) -> Keys:
        """Return the edges of the papers between two positions."""
        offsets = self._graph.offsets[start : stop + 1].astype(np.int64)
        citing = np.repeat(self._graph.pmids[start:stop], np.diff(offsets))
        return edge_keys(citing, self._graph.targets[offsets[0] : offsets[-1]])


class Merged(NamedTuple):
    """A merged graph: how many papers cite, how many edges, the SHA-256 of each array."""

    papers: int
    edges: int
    sha256: dict[str, str]


def write_run(path: Path, keys: Keys) -> None:
    """Write a run, durably; its folder is synced later."""
    with path.open("wb") as stream:
        stream.write(np.ascontiguousarray(keys, _KEY).data)
        stream.flush()
        os.fsync(stream.fileno())


def merge(runs: Sequence[SortedRun], folder: Path) -> Merged:
    """Write the arrays of the graph of all edges, each once, into a folder; durable when it returns.

    Memory: `PIECE` edges, and `STRIDE` of each run, some times over.
    """
    make_folder(folder)
    with ExitStack() as stack:
        arrays = {name: stack.enter_context(_Array(folder / name)) for name in KINDS}
        arrays[OFFSETS].write(np.zeros(1, np.uint64))
        papers = edges = 0
        for keys in _pieces(runs):
            citing, cited = ends_of(keys)
            firsts = np.flatnonzero(np.diff(citing, prepend=np.uint32(0)))  # no PMID is 0
            arrays[PMIDS].write(citing[firsts])
            arrays[OFFSETS].write(edges + np.append(firsts[1:], citing.size))
            arrays[TARGETS].write(cited)
            papers, edges = papers + firsts.size, edges + citing.size
    sync_folder(folder)
    return Merged(papers, edges, {name: array.sha256 for name, array in arrays.items()})


def _pieces(runs: Sequence[SortedRun]) -> Iterator[Keys]:
    """Yield the edges of all runs in order, without repetitions; a paper's are in one piece."""
    samples = np.sort(np.concatenate([np.empty(0, np.uint32), *(run.sample() for run in runs)]))
    step = PIECE // STRIDE
    bounds = distinct(samples[step::step])
    cuts = [run.cut(bounds) for run in runs]
    for piece in range(bounds.size + 1):
        parts = [run.read(cut[piece], cut[piece + 1]) for run, cut in zip(runs, cuts, strict=True)]
        keys = distinct(np.concatenate([np.empty(0, np.uint64), *parts]))
        if keys.size:
            yield keys


class _Array:
    """An array written piece by piece, hashed meanwhile, durable at the end."""

    def __init__(self, path: Path) -> None:
        self._kind = np.dtype(KINDS[path.name])
        self._stream = path.open("wb")
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def write(self, values: NDArray[Any]) -> None:
        content = np.ascontiguousarray(values, self._kind).data
        self._stream.write(content)
        self._digest.update(content)

    def __enter__(self) -> _Array:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()
