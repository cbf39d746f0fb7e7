"""The citation graph: an SQLite file that has, for each paper that cites, the sorted PMIDs that it cites; its size."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biorag.errors import MismatchError, MissingError, ServiceError
from biorag.indexes.reading import stored_snippets
from biorag.settings.settings import Settings
from biorag.types import Index, OnProgress, Snippet
from biorag.utils.files import sha256_of_json

FILE = "graph.sqlite"
FORMAT = 2
LARGEST = 2**32 - 1  # the largest PMID that a graph can hold
PACKED = np.dtype("<u4")

Papers = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class CitationSource:
    """A file whose citations are in the graph; `edges` counts its rows, repetitions too."""

    name: str
    bytes: int
    sha256: str
    edges: int
    rejected: int
    seconds: float


@dataclass(frozen=True, slots=True)
class GraphHistory:
    """The sources of a graph, the seconds that they took, and when and with which versions it last grew."""

    updated: str | None
    seconds: float
    versions: Mapping[str, str]
    sources: tuple[CitationSource, ...]


class Neighbourhood(NamedTuple):
    """The papers that a paper cites, and those that they cite without them and itself; sorted."""

    one_hop: Papers
    two_hop: Papers


class Graph:
    """A graph opened for reading; a build meanwhile does not change an open graph.

    Raises `MissingError` if there is no graph in the folder. Raises `MismatchError` if its file is damaged or of
    another format, here or at a look-up.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        if not self._path.is_file():
            raise MissingError(f"there is no citation graph in {folder}: make it with 'biorag graph build SOURCE'")
        with faults_named(self._path):
            self._connection = connected(self._path, "ro")
            self._connection.execute("BEGIN")  # everything read is of the state at the first reading
            self._connection.execute("SELECT 1 FROM papers, sources LIMIT 1").fetchone()

    def cited(self, pmid: int) -> Papers:
        """Return the PMIDs that a paper cites, sorted; none for a paper that the graph does not have."""
        with faults_named(self._path):
            row = self._connection.execute("SELECT cited FROM papers WHERE pmid = ?", (pmid,)).fetchone()
            packed = row[0] if row else b""
            if len(packed) % PACKED.itemsize:
                raise sqlite3.DatabaseError(f"the citations of {pmid}")
            return np.frombuffer(packed, PACKED)

    def cites(self, pmid: int, other: int) -> bool:
        """Return whether a paper cites another."""
        return bool((self.cited(pmid) == other).any())

    def neighbourhood(self, pmid: int) -> Neighbourhood:
        """Return the papers one and two citations away."""
        one_hop = self.cited(pmid)
        beyond = distinct(np.concatenate([one_hop[:0], *map(self.cited, one_hop.tolist())]))
        return Neighbourhood(one_hop, beyond[~among(beyond, one_hop) & (beyond != pmid)])

    def times_cited(self, pmid: int) -> int:
        """Return how many papers of the graph cite a paper; reads all citations once."""
        if pmid > LARGEST:
            return 0
        packed = np.array([pmid], PACKED).tobytes()
        rows = self._rows("SELECT cited FROM papers WHERE instr(cited, ?)", packed)
        return sum(bool((np.frombuffer(cited, PACKED) == pmid).any()) for (cited,) in rows)

    def pmids(self) -> Papers:
        """Return the papers that cite, sorted."""
        return np.fromiter((pmid for (pmid,) in self._rows("SELECT pmid FROM papers ORDER BY pmid")), np.uint32)

    def out_degrees(self) -> NDArray[np.int64]:
        """Return how many papers each paper cites, in the order of `pmids`."""
        lengths = self._rows("SELECT length(cited) FROM papers ORDER BY pmid")
        return np.fromiter((length // PACKED.itemsize for (length,) in lengths), np.int64)

    def targets(self) -> Papers:
        """Return all cited papers, one paper's after another's."""
        return np.frombuffer(b"".join(cited for (cited,) in self._rows("SELECT cited FROM papers")), PACKED)

    @property
    def history(self) -> GraphHistory:
        """The sources of the graph."""
        names = ", ".join(CitationSource.__slots__)
        rows = list(self._rows(f"SELECT {names}, updated, versions FROM sources ORDER BY rowid"))
        sources = tuple(CitationSource(*row[:-2]) for row in rows)
        updated, versions = rows[-1][-2:] if rows else (None, "{}")
        seconds = round(sum(source.seconds for source in sources), 3)
        return GraphHistory(updated, seconds, json.loads(versions), sources)

    @property
    def sha256(self) -> str:
        """A hash of the hashes of the files that the graph was made of."""
        return sha256_of_json(sorted(source.sha256 for source in self.history.sources))

    def _rows(self, query: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        with faults_named(self._path):
            yield from self._connection.execute(query, values)


def connected(path: Path, mode: str) -> sqlite3.Connection:
    """Open a graph's file: "ro" to read it, "rwc" to write it, too, or make it.

    Raises `MismatchError` if it is of another format.
    """
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False
    )
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if version != FORMAT and (tables or mode == "ro"):
        raise MismatchError(f"{path} is of another format: delete the folder and build the graph again")
    return connection


@contextmanager
def faults_named(path: Path) -> Iterator[None]:
    """Turn what SQLite raises into the error that names the file."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise ServiceError(f"{path}: {error}: check the disk's room and rights, then run the command again") from None
    except sqlite3.DatabaseError as error:
        raise MismatchError(f"{path} is damaged ({error}): delete the folder and build the graph again") from None


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """Return values sorted, each once; sorting them is ten times as fast as the hash table of `np.unique`."""
    ordered = np.sort(values)
    first = np.append(np.ones(min(1, ordered.size), np.bool_), ordered[1:] != ordered[:-1])
    unique: NDArray[Any] = ordered[first]
    return unique


def among(values: Papers, ordered: Papers) -> NDArray[np.bool_]:
    """Return which values are among sorted ones, (values,)."""
    if not ordered.size:
        return np.zeros(values.size, np.bool_)
    indices = np.minimum(np.searchsorted(ordered, values), ordered.size - 1)
    present: NDArray[np.bool_] = ordered[indices] == values
    return present


def open_graph(settings: Settings) -> Graph:
    """Open the configured graph.

    Raises `MissingError`, naming the existing graphs.
    """
    folder = settings.graphs / settings.graph
    if not (folder / FILE).is_file():
        names = sorted(path.parent.name for path in settings.graphs.glob(f"*/{FILE}"))
        known = f"there are {', '.join(names)}" if names else "there is none yet"
        raise MissingError(
            f"citation graph {settings.graph!r} is not there ({known}): make it with 'biorag graph build SOURCE "
            f"--graph {settings.graph}'"
        )
    return Graph(folder)


@dataclass(frozen=True, slots=True)
class Distribution:
    """The spread of a number over papers; a quantile is the number of the paper at that rank."""

    min: int
    p10: int
    median: int
    p90: int
    p99: int
    max: int
    mean: float


@dataclass(frozen=True, slots=True)
class Size:
    """Papers that cite, papers in all, edges; references of those that cite, citations of those that are cited."""

    citing: int
    papers: int
    edges: int
    out_degree: Distribution
    in_degree: Distribution


@dataclass(frozen=True, slots=True)
class Coverage:
    """Of an index's snippets those with a PMID, with references, and with one- and two-hop papers in the index."""

    snippets: int
    with_pmid: int
    with_references: int
    with_one_hop: int
    with_two_hop: int


def distribution(values: NDArray[np.integer]) -> Distribution:
    """Return the distribution of values, (papers,); all 0 without values."""
    if not values.size:
        return Distribution(0, 0, 0, 0, 0, 0, 0.0)
    low, p10, median, p90, p99, high = np.quantile(values, [0, 0.1, 0.5, 0.9, 0.99, 1], method="nearest").tolist()
    return Distribution(low, p10, median, p90, p99, high, round(float(values.mean()), 2))


def measure(graph: Graph) -> Size:
    """Return the size of a graph. Memory: some copies of the edges' ends."""
    pmids, targets = graph.pmids(), np.sort(graph.targets())
    firsts = np.flatnonzero(np.diff(targets, prepend=np.uint32(0)))  # no PMID is 0
    cited, cites = targets[firsts], np.diff(firsts, append=targets.size)
    return Size(
        citing=pmids.size,
        papers=int(pmids.size + cited.size - among(cited, pmids).sum()),
        edges=targets.size,
        out_degree=distribution(graph.out_degrees()),
        in_degree=distribution(cites),
    )


def cover(graph: Graph, index: Index, on_progress: OnProgress) -> Coverage:
    """Return how much of an index's snippets the graph covers."""
    pmids: list[int] = []
    snippets = 0
    for snippet in stored_snippets(index):
        snippets += 1
        pmid = paper_of(snippet)
        pmids += [pmid] if pmid is not None else []
        on_progress(1)
    papers, counts = np.unique(np.array(pmids, np.uint32), return_counts=True)
    referring = one = two = 0
    for pmid, count in zip(papers.tolist(), counts.tolist(), strict=True):
        hops = graph.neighbourhood(pmid)
        referring += count * bool(hops.one_hop.size)
        one += count * bool(among(hops.one_hop, papers).any())
        two += count * bool(among(hops.two_hop, papers).any())
    return Coverage(snippets, len(pmids), referring, one, two)


def paper_of(snippet: Snippet) -> int | None:
    """Return the PMID of a snippet; None without one, or if no graph can hold it."""
    return snippet.pmid if snippet.pmid is not None and 0 < snippet.pmid <= LARGEST else None
