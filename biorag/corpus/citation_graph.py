"""The citation graph: an SQLite file that has, for each paper that cites, the sorted PMIDs that it cites."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biorag.errors import MismatchError, MissingError, ServiceError
from biorag.settings.settings import Settings
from biorag.types import Snippet
from biorag.utils.files import sha256_of_json

FILE = "graph.sqlite"
FORMAT = 2
LARGEST = 2**32 - 1  # the largest PMID that a graph can hold
PACKED = np.dtype("<u4")
SOURCE = ("name", "bytes", "sha256", "edges", "updated")  # columns of the table of sources; edges: rows as read

Papers = NDArray[np.uint32]


class Neighbourhood(NamedTuple):
    """The papers that a paper cites, and those that they cite without them and itself; sorted."""

    one_hop: Papers
    two_hop: Papers


class Graph:
    """A graph opened for reading; a build meanwhile does not change an open graph.

    Raises `MissingError` without a graph, and `MismatchError`, at a look-up too, if it is damaged or of another format.
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

    def neighbourhood(self, pmid: int) -> Neighbourhood:
        """Return the papers one and two citations away."""
        one_hop = self.cited(pmid)
        beyond = distinct(np.concatenate([one_hop[:0], *map(self.cited, one_hop.tolist())]))
        return Neighbourhood(one_hop, beyond[~np.isin(beyond, one_hop) & (beyond != pmid)])

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

    def size(self) -> tuple[int, int]:
        """Return how many papers cite, and how many edges there are."""
        with faults_named(self._path):
            return size_of(self._connection)

    @property
    def history(self) -> list[dict[str, Any]]:
        """The files that the graph was made of, in order, with size, hash and when they were added."""
        rows = self._rows(f"SELECT {', '.join(SOURCE)} FROM sources ORDER BY rowid")
        return [dict(zip(SOURCE, row, strict=True)) for row in rows]

    @property
    def sha256(self) -> str:
        """A hash of the hashes of the files that the graph was made of."""
        return sha256_of_json(sorted(source["sha256"] for source in self.history))

    def _rows(self, query: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        with faults_named(self._path):
            yield from self._connection.execute(query, values)


def connected(path: Path, mode: str) -> sqlite3.Connection:
    """Open a graph's file: "ro" to read it, "rwc" to write it too; raises `MismatchError` at another format."""
    address = f"{path.resolve().as_uri()}?mode={mode}"
    connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if version != FORMAT and (tables or mode == "ro"):
        raise MismatchError(f"{path} is of another format: delete the folder and build the graph again")
    return connection


def size_of(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return how many papers of a graph's file cite, and how many edges there are."""
    papers, size = connection.execute("SELECT count(*), coalesce(sum(length(cited)), 0) FROM papers").fetchone()
    return papers, size // PACKED.itemsize


@contextmanager
def faults_named(path: Path, advice: str = "delete the folder and build the graph again") -> Iterator[None]:
    """Turn an error of SQLite into one that names the file."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise ServiceError(f"{path}: {error}: check the disk's room and rights, then run the command again") from None
    except sqlite3.DatabaseError as error:
        raise MismatchError(f"{path} is damaged ({error}): {advice}") from None


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """Return values sorted, each once; sorting them is ten times as fast as the hash table of `np.unique`."""
    ordered = np.sort(values)
    first = np.append(np.ones(min(1, ordered.size), np.bool_), ordered[1:] != ordered[:-1])
    unique: NDArray[Any] = ordered[first]
    return unique


def open_graph(settings: Settings) -> Graph:
    """Open the configured graph; raises `MissingError`, naming the existing graphs."""
    folder = settings.graphs / settings.graph
    if not (folder / FILE).is_file():
        names = sorted(path.parent.name for path in settings.graphs.glob(f"*/{FILE}"))
        known = f"there are {', '.join(names)}" if names else "there is none yet"
        raise MissingError(
            f"citation graph {settings.graph!r} is not there ({known}): make it with 'biorag graph build SOURCE "
            f"--graph {settings.graph}'"
        )
    return Graph(folder)


def paper_of(snippet: Snippet) -> int | None:
    """Return the PMID of a snippet; None without one, or if no graph can hold it."""
    return snippet.pmid if snippet.pmid is not None and 0 < snippet.pmid <= LARGEST else None
