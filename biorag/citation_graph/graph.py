"""The graph on disk: sorted PMIDs, and for each the PMIDs it cites, in memory-mapped arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biorag.citation_graph.rows import distinct
from biorag.errors import MismatchError, MissingError
from biorag.settings.settings import Settings
from biorag.types import Count, Label, Sha256
from biorag.utils.parsing import parse_json, read_regular, validated

FORMAT = 1
MANIFEST = "manifest.json"
PMIDS, OFFSETS, TARGETS = "pmids.u32", "offsets.u64", "targets.u32"
READ_AT_ONCE = 1 << 22  # citations
KINDS = {PMIDS: "<u4", OFFSETS: "<u8", TARGETS: "<u4"}

Papers = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class CitationSource:
    """A file whose citations are in the graph; `edges` counts its rows, repetitions too."""

    name: Label
    bytes: Count
    sha256: Sha256
    edges: Count
    rejected: Count
    seconds: float


@dataclass(frozen=True, slots=True)
class GraphManifest:
    """What a graph holds and what it was made of; `papers` are those that cite, `sha256` that of each array."""

    generation: Count
    papers: Count
    edges: Count
    sha256: Mapping[Label, Sha256]
    sources: tuple[CitationSource, ...]
    seconds: float
    updated: Label
    versions: Mapping[Label, Label]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of the manifest's file."""
        return {"format": FORMAT, **asdict(self)}


class Neighbourhood(NamedTuple):
    """The papers that a paper cites, and those that they cite without them and itself; sorted."""

    one_hop: Papers
    two_hop: Papers


class Graph:
    """A graph opened for reading; a build meanwhile does not touch what is open.

    Raises
    ------
    MissingError
        If there is no graph in the folder.
    MismatchError
        If its manifest or an array is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        manifest, arrays = _opened(folder)
        self.manifest = manifest
        self.pmids: Papers = arrays[PMIDS]
        self.offsets: NDArray[np.uint64] = arrays[OFFSETS]
        self.targets: Papers = arrays[TARGETS]

    def cited(self, pmid: int) -> Papers:
        """Return the PMIDs that a paper cites, sorted; none for a paper that the graph does not have."""
        row = int(np.searchsorted(self.pmids, np.uint32(pmid)))
        if row == self.pmids.size or self.pmids[row] != pmid:
            return self.targets[:0]
        return self.targets[int(self.offsets[row]) : int(self.offsets[row + 1])]

    def cites(self, pmid: int, other: int) -> bool:
        """Return whether a paper cites another."""
        cited = self.cited(pmid)
        index = int(np.searchsorted(cited, np.uint32(other)))
        return index < cited.size and bool(cited[index] == other)

    def neighbourhood(self, pmid: int) -> Neighbourhood:
        """Return the papers one and two citations away."""
        one_hop = self.cited(pmid)
        beyond = distinct(self._cited_by_all(one_hop))
        return Neighbourhood(one_hop, beyond[~among(beyond, one_hop) & (beyond != pmid)])

    def times_cited(self, pmid: int) -> int:
        """Return how many papers of the graph cite a paper; reads all citations once."""
        parts = range(0, self.targets.size, READ_AT_ONCE)
        return sum(int(np.count_nonzero(self.targets[start : start + READ_AT_ONCE] == pmid)) for start in parts)

    def citing(self, pmids: Papers) -> NDArray[np.bool_]:
        """Return which of some papers cite any, (papers,)."""
        return among(pmids, self.pmids)

    def _cited_by_all(self, pmids: Papers) -> Papers:
        """Return what some papers cite, one paper's after the other's."""
        rows = np.searchsorted(self.pmids, pmids[self.citing(pmids)])
        starts = self.offsets[rows].astype(np.int64)
        counts = self.offsets[rows + 1].astype(np.int64) - starts
        if (counts < 0).any() or (starts < 0).any() or (starts + counts > self.targets.size).any():
            raise MismatchError(f"{self.folder} is damaged ({OFFSETS}): delete the folder and build the graph again")
        before = np.cumsum(counts) - counts
        cited: Papers = self.targets[np.repeat(starts - before, counts) + np.arange(counts.sum())]
        return cited


def among(values: Papers, ordered: Papers) -> NDArray[np.bool_]:
    """Return which values are among sorted ones, (values,)."""
    if not ordered.size:
        return np.zeros(values.size, np.bool_)
    indices = np.minimum(np.searchsorted(ordered, values), ordered.size - 1)
    present: NDArray[np.bool_] = ordered[indices] == values
    return present


def open_graph(settings: Settings) -> Graph:
    """Open the configured graph.

    Raises
    ------
    MissingError
        Naming the graphs there are.
    """
    folder = settings.graphs / settings.graph
    if not (folder / MANIFEST).is_file():
        names = sorted(path.parent.name for path in settings.graphs.glob(f"*/{MANIFEST}"))
        known = f"there are {', '.join(names)}" if names else "there is none yet"
        raise MissingError(
            f"citation graph {settings.graph!r} is not there ({known}): make it with 'biorag graph build SOURCE "
            f"--graph {settings.graph}'"
        )
    return Graph(folder)


def read_manifest(folder: Path) -> GraphManifest | None:
    """Return the manifest of the graph in a folder; None if there is no graph.

    Raises
    ------
    MismatchError
        If it is damaged or of another format.
    """
    path = folder / MANIFEST
    try:
        values = parse_json(read_regular(path))
        if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
            raise ValueError(f"not of format {FORMAT}")
        manifest: GraphManifest = validated(GraphManifest, values)
        return manifest
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise MismatchError(f"{path} is damaged ({error}): delete the folder and build the graph again") from None


def generation_folder(folder: Path, generation: int) -> Path:
    """Return where the arrays of a generation lie."""
    return folder / f"generation-{generation}"


def _opened(folder: Path) -> tuple[GraphManifest, dict[str, NDArray[Any]]]:
    """Map the arrays of the generation that the manifest names; again if a build replaced it meanwhile."""
    while True:
        manifest = read_manifest(folder)
        if manifest is None:
            raise MissingError(f"there is no citation graph in {folder}: make it with 'biorag graph build SOURCE'")
        lengths = {PMIDS: manifest.papers, OFFSETS: manifest.papers + 1, TARGETS: manifest.edges}
        generation = generation_folder(folder, manifest.generation)
        try:
            return manifest, {name: _mapped(generation / name, length) for name, length in lengths.items()}
        except FileNotFoundError as error:
            if read_manifest(folder) == manifest:
                raise MismatchError(f"{error.filename} is not there: delete the folder and build it again") from None


def _mapped(path: Path, length: int) -> NDArray[Any]:
    kind = np.dtype(KINDS[path.name])
    if path.stat().st_size != length * kind.itemsize:
        raise MismatchError(f"{path} is damaged (not {length:,} entries): delete the folder and build the graph again")
    return np.asarray(np.memmap(path, kind, "r")) if length else np.empty(0, kind)
