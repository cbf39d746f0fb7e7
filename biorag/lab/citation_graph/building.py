"""Building a graph: the citations of files, sorted some millions at a time, are merged into its SQLite file.

Citations are published as PubMed's XML, and as the CSV of NIH's Open Citation Collection. Where there are none, BEIR's
judgements stand in for them: papers that are relevant to one question refer to each other.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biorag.corpus.citation_graph import (
    FILE,
    FORMAT,
    LARGEST,
    PACKED,
    SOURCE,
    connected,
    distinct,
    faults_named,
    size_of,
)
from biorag.corpus.datasets import read_qrels
from biorag.corpus.pubmed import ARTICLE, read_records, read_references
from biorag.corpus.sources import DamagedSourceError, Source, files_of, read_lines
from biorag.errors import BadInputError, MissingError
from biorag.registries import READERS
from biorag.types import OnProgress
from biorag.utils.files import disk_bytes, make_folder, timestamp
from biorag.utils.locks import DirectoryLock
from biorag.utils.progress import batched

HEADER = b"citing,referenced"
XML, CSV = READERS["PubMed XML"].suffixes, (".csv", ".csv.gz")  # ends of names
QRELS = (".tsv", ".tsv.gz")
EDGES = 50_000  # of one file, yielded at once
_ROW = re.compile(rb'\s*"?\s*([0-9]{1,10})\s*"?\s*,\s*"?\s*([0-9]{1,10})\s*"?\s*')
_LAST = re.compile(r"[0-9]{1,10}\Z")

Pairs = NDArray[np.uint64]  # citing and cited PMID, (edges, 2)

RUN = 4 << 20  # edges sorted at once
CACHE = 64 << 10  # KiB of the file that SQLite holds in memory
SCHEMA = f"""
    CREATE TABLE papers (pmid INTEGER PRIMARY KEY, cited BLOB NOT NULL);
    CREATE TABLE sources (name TEXT, bytes INTEGER, sha256 TEXT UNIQUE, edges INTEGER, updated TEXT);
    PRAGMA user_version = {FORMAT};
"""
MERGE = "INSERT INTO papers VALUES (?, ?) ON CONFLICT (pmid) DO UPDATE SET cited = merged(cited, excluded.cited)"
_SHIFT = np.uint64(32)


def find_citations(names: Sequence[str]) -> list[Source]:
    """Return the files behind the names: files, and those of folders and their sub-folders, in order.

    Raises `MissingError` if nothing has a name, `BadInputError` at another suffix, or a folder without any of them.
    """
    sources: list[Source] = []
    endings = (*XML, *CSV, *QRELS)
    for name in names:
        path = Path(name)
        if not path.exists():
            raise MissingError(
                f"{name!r} is not there: name PubMed XML, the Open Citation Collection's CSV, qrels, or folders"
            )
        files = files_of(path, endings) if path.is_dir() else [path] * name.endswith(endings)
        if not files:
            raise BadInputError(f"{name} has no citations: expected names ending in {', '.join(endings)}")
        sources += [Source(str(file) if path.is_dir() else name, file) for file in files]
    return sources


def read_edges(source: Source) -> Iterator[Pairs]:
    """Yield the edges of a file in its order, self-citations and repetitions among them.

    Raises `DamagedSourceError` at a record that cannot be read, or a CSV without its header.
    """
    if source.path.name.endswith(QRELS):
        return read_judgements(source)
    return read_csv(source) if source.path.name.endswith(CSV) else read_xml(source)


def read_xml(source: Source) -> Iterator[Pairs]:
    """Yield the edges of PubMed XML, from reference lists and `CommentsCorrections` of type `Cites`."""
    rows: list[tuple[int, int]] = []
    for line, record in read_records(source):
        if record.tag != ARTICLE:
            continue
        try:
            pmid, cited = read_references(record)
        except ValueError as error:
            raise DamagedSourceError(source.name, line, str(error)) from None
        if pmid > LARGEST:
            raise DamagedSourceError(source.name, line, f"PMID {pmid} is larger than {LARGEST}")
        rows += [(pmid, other) for other in cited if other <= LARGEST]
        if len(rows) >= EDGES:
            yield pairs_of(rows)
            rows = []
    yield pairs_of(rows)


def read_csv(source: Source) -> Iterator[Pairs]:
    """Yield the edges of a CSV of two columns, citing and referenced; see `read_edges`."""
    lines = read_lines(source)
    _, header = next(lines, (1, b""))
    if header.replace(b'"', b"").replace(b" ", b"").strip().lower() != HEADER:
        reason = f"expected the header {HEADER.decode()}, not {header[:60].decode(errors='replace')!r}"
        raise DamagedSourceError(source.name, 1, reason)
    for batch in batched(lines, EDGES):
        yield _parsed(source, batch)


def read_judgements(source: Source) -> Iterator[Pairs]:
    """Yield, for each question of a BEIR folder's qrels, its relevant papers in pairs, both ways.

    A paper's id ends in its PMID. Raises `BadInputError` naming an id that does not.
    """
    for judged in read_qrels(source.path).values():
        pmids = []
        for id in judged:
            match = _LAST.search(id)
            if match is None or not 1 <= int(match[0]) <= LARGEST:
                raise BadInputError(f"{source.name}: expected ids that end in a PMID, such as pubmed_123, not {id!r}")
            pmids.append(int(match[0]))
        yield pairs_of(list(itertools.permutations(pmids, 2)))


def pairs_of(rows: Sequence[tuple[int, int]]) -> Pairs:
    """Return edges as an array, (edges, 2)."""
    return np.array(rows, np.uint64).reshape(-1, 2)


def _parsed(source: Source, lines: Sequence[tuple[int, bytes]]) -> Pairs:
    """Return the edges of numbered lines, parsed all at once; raises DamagedSourceError naming the first bad one."""
    with suppress(ValueError):
        pairs = np.loadtxt([row for _, row in lines], np.uint64, None, delimiter=",", quotechar='"', ndmin=2)
        if pairs.shape[1] == 2 and pairs.min() > 0 and pairs.max() <= LARGEST:
            return pairs
    number, bad = next((line for line in lines if not _is_edge(line[1])), lines[0])
    reason = f"expected two PMIDs, citing,referenced, not {bad[:60].decode(errors='replace')!r}"
    raise DamagedSourceError(source.name, number, reason)


def _is_edge(row: bytes) -> bool:
    match = _ROW.fullmatch(row)
    return match is not None and all(1 <= int(pmid) <= LARGEST for pmid in match.groups())


def build(folder: Path, sources: Sequence[Source], on_progress: OnProgress) -> dict[str, Any]:
    """Add the citations of files to the graph in a folder, which may be new, and report its size.

    A file takes effect as a whole, and one whose SHA-256 the graph knows is not read again. Raises `BadInputError`,
    naming file and line, or `ServiceError` during another build.
    """
    started = time.perf_counter()
    read = 0
    with _writing(folder) as connection:
        _, before = size_of(connection)
        for source in sources:
            sha256 = source.sha256()
            if not _is_known(connection, sha256):
                _add(connection, source.name, source.bytes, sha256, read_edges(source), on_progress)
                read += 1
        papers, after = size_of(connection)
    return {
        "graph": folder.name,
        "papers": papers,
        "edges": after,
        "added": after - before,
        "read": read,
        "known": len(sources) - read,
        "bytes": disk_bytes(folder),
        "seconds": round(time.perf_counter() - started, 3),
    }


def add(folder: Path, name: str, pairs: Pairs) -> int:
    """Add some edges, of a source of this name, to the graph in a folder; return how many edges it has."""
    sha256 = hashlib.sha256(np.ascontiguousarray(pairs).data).hexdigest()
    with _writing(folder) as connection:
        if not _is_known(connection, sha256):
            _add(connection, name, pairs.nbytes, sha256, iter([pairs]), lambda _: None)
        return size_of(connection)[1]


@contextmanager
def _writing(folder: Path) -> Iterator[sqlite3.Connection]:
    """Open the graph as its only writer; readers are not kept out."""
    make_folder(folder)
    path = folder / FILE
    with (
        DirectoryLock(folder, exclusive=True, what="graph"),
        faults_named(path),
        closing(connected(path, "rwc")) as connection,
    ):
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute(f"PRAGMA cache_size = -{CACHE}")
        connection.create_function("merged", 2, _merged, deterministic=True)
        if not connection.execute("PRAGMA user_version").fetchone()[0]:
            connection.executescript(f"BEGIN; {SCHEMA} COMMIT;")
        try:
            yield connection
        except BaseException:
            if not connection.execute("SELECT 1 FROM sources").fetchone():  # no graph at all, rather than an empty one
                connection.close()
                path.unlink()
            raise


def _merged(one: bytes, other: bytes) -> bytes:
    """Return two packed lists of papers as one."""
    return distinct(np.frombuffer(one + other, PACKED)).tobytes()


def _is_known(connection: sqlite3.Connection, sha256: str) -> bool:
    return connection.execute("SELECT 1 FROM sources WHERE sha256 = ?", (sha256,)).fetchone() is not None


def _add(
    connection: sqlite3.Connection, name: str, size: int, sha256: str, edges: Iterator[Pairs], on_progress: OnProgress
) -> None:
    """Add the edges of a file, all or none."""
    rows = held = 0
    blocks: list[Pairs] = []
    connection.execute("BEGIN IMMEDIATE")
    try:
        for pairs in edges:
            blocks.append(pairs)
            rows, held = rows + len(pairs), held + len(pairs)
            on_progress(len(pairs))
            if held >= RUN:
                _merge(connection, np.concatenate(blocks))
                blocks, held = [], 0
        if blocks:
            _merge(connection, np.concatenate(blocks))
        values = (name, size, sha256, rows, timestamp())
        connection.execute(f"INSERT INTO sources ({', '.join(SOURCE)}) VALUES (?, ?, ?, ?, ?)", values)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _merge(connection: sqlite3.Connection, pairs: Pairs) -> None:
    """Add edges; self-citations are dropped."""
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    keys = distinct(pairs[:, 0] << _SHIFT | pairs[:, 1])
    citing, packed = keys >> _SHIFT, keys.astype(PACKED).tobytes()
    starts = np.flatnonzero(np.diff(citing, prepend=np.uint64(0)))  # no PMID is 0
    bounds = itertools.pairwise((PACKED.itemsize * np.append(starts, keys.size)).tolist())
    papers = zip(citing[starts].tolist(), bounds, strict=True)
    connection.executemany(MERGE, ((pmid, packed[start:end]) for pmid, (start, end) in papers))
