"""Building a graph: files into sorted runs, runs and the present graph into a new one that replaces it."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from biorag.citation_graph.graph import (
    MANIFEST,
    CitationSource,
    Graph,
    GraphManifest,
    generation_folder,
    read_manifest,
)
from biorag.citation_graph.merge import FileRun, GraphRun, SortedRun, merge, write_run
from biorag.citation_graph.rows import Keys, distinct, ends_of
from biorag.citation_graph.sources import read_edges
from biorag.corpus.sources import Source
from biorag.errors import MismatchError
from biorag.types import OnProgress
from biorag.utils.files import disk_bytes, make_folder, require_room, sync_folder, timestamp, write_json
from biorag.utils.locks import DirectoryLock
from biorag.utils.parsing import parsed_file
from biorag.utils.versions import installed_versions

RUN = 4 << 20  # edges sorted at once
PENDING = "pending"


@dataclass(frozen=True, slots=True)
class Built:
    """The result of a build: the graph's size, new edges, files read now and files known before."""

    graph: str
    papers: int
    edges: int
    added: int
    read: int
    known: int
    rejected: int
    bytes: int
    seconds: float


def build(folder: Path, sources: Sequence[Source], skip: bool, on_progress: OnProgress) -> Built:
    """Add the citations of files to the graph in a folder, which is made if it is not there.

    A record given again adds to what its paper cites; nothing is ever taken away. Files are known by their
    SHA-256: one that is in the graph is not read again, nor one that an interrupted build had finished. The new
    graph replaces the old one atomically.

    Raises
    ------
    BadInputError
        Naming the file and line that cannot be read.
    ServiceError
        If another build is under way, or the disk is full.
    """
    started = time.perf_counter()
    with _writing(folder) as pending:
        manifest = new = read_manifest(folder)
        known = {source.sha256 for source in manifest.sources} if manifest else set()
        records = []
        read = 0
        for source in sources:
            sha256 = source.sha256()
            if sha256 not in known:
                known.add(sha256)
                record = pending.done(sha256)
                read += record is None
                records.append(record or pending.read(source, sha256, skip, on_progress))
        if new is None or records:
            new = _replaced(folder, manifest, pending, records, started)
        _remove_rest(folder, new.generation)
    return Built(
        graph=folder.name,
        papers=new.papers,
        edges=new.edges,
        added=new.edges - (manifest.edges if manifest else 0),
        read=read,
        known=len(sources) - read,
        rejected=sum(record.rejected for record in records),
        bytes=disk_bytes(generation_folder(folder, new.generation)),
        seconds=round(time.perf_counter() - started, 3),
    )


def add(folder: Path, name: str, keys: Keys) -> GraphManifest:
    """Add some edges, of a source of this name, to the graph in a folder, which is made if it is not there.

    Raises
    ------
    ServiceError
        If a build is under way, or the disk is full.
    """
    started = time.perf_counter()
    sha256 = hashlib.sha256(keys.data).hexdigest()
    with _writing(folder) as pending:
        manifest = read_manifest(folder)
        if manifest is None or sha256 not in {source.sha256 for source in manifest.sources}:
            pending.write(sha256, iter([keys]))
            record = CitationSource(name, keys.nbytes, sha256, keys.size, 0, round(time.perf_counter() - started, 3))
            manifest = _replaced(folder, manifest, pending, [record], started)
        _remove_rest(folder, manifest.generation)
        return manifest


@contextmanager
def _writing(folder: Path) -> Iterator[Pending]:
    """Hold the folder's lock, and make the folder of what is not in the graph yet."""
    make_folder(folder)
    with DirectoryLock(folder, exclusive=True, what="graph"):
        make_folder(folder / PENDING)
        yield Pending(folder / PENDING)


@dataclass(frozen=True, slots=True)
class Pending:
    """The runs of files that are not in the graph yet; beside them a record of each file that was read whole."""

    folder: Path

    def done(self, sha256: str) -> CitationSource | None:
        """Return the record of a file that was read before; None if it was not."""
        path = self._record(sha256)
        return parsed_file(CitationSource, path, MismatchError, "delete it") if path.is_file() else None

    def read(self, source: Source, sha256: str, skip: bool, on_progress: OnProgress) -> CitationSource:
        """Sort the edges of a file into runs."""
        started = time.perf_counter()
        edges = rejected = 0

        def counted() -> Iterator[Keys]:
            nonlocal edges, rejected
            for block in read_edges(source, skip):
                edges += block.keys.size
                rejected += block.rejected
                on_progress(block.keys.size)
                yield block.keys

        self.write(sha256, counted())
        seconds = round(time.perf_counter() - started, 3)
        record = CitationSource(source.name, source.bytes, sha256, edges, rejected, seconds)
        write_json(self._record(sha256), asdict(record))
        return record

    def runs(self, records: Sequence[CitationSource]) -> list[Path]:
        """Return the runs of some files."""
        return [path for record in records for path in sorted(self.folder.glob(f"{record.sha256}.*.run"))]

    def write(self, sha256: str, blocks: Iterator[Keys]) -> None:
        """Write sorted runs of about `RUN` edges."""
        for torn in list(self.folder.glob(f"{sha256}.*.run")):
            torn.unlink()
        for number, keys in enumerate(_gathered(blocks)):
            citing, cited = ends_of(keys)
            keys = distinct(keys[citing != cited])
            require_room(self.folder, keys.nbytes)
            if keys.size:
                write_run(self.folder / f"{sha256}.{number:06}.run", keys)
        sync_folder(self.folder)

    def _record(self, sha256: str) -> Path:
        return self.folder / f"{sha256}.json"


def _gathered(blocks: Iterator[Keys]) -> Iterator[Keys]:
    """Yield the same edges in larger pieces."""
    buffer: list[Keys] = []
    size = 0
    for keys in blocks:
        buffer.append(keys)
        size += keys.size
        if size >= RUN:
            yield np.concatenate(buffer)
            buffer, size = [], 0
    if buffer:
        yield np.concatenate(buffer)


def _replaced(
    folder: Path, old: GraphManifest | None, pending: Pending, records: Sequence[CitationSource], started: float
) -> GraphManifest:
    """Merge what is pending with the present graph, and replace that."""
    paths = pending.runs(records)
    runs: list[SortedRun] = [FileRun(path) for path in paths]
    if old and old.edges:
        runs.append(GraphRun(Graph(folder)))
    require_room(folder, sum(path.stat().st_size for path in paths) + (8 * old.edges if old else 0))
    generation = old.generation + 1 if old else 1
    target = generation_folder(folder, generation)
    if target.exists():  # of a build that was stopped before it took effect
        shutil.rmtree(target)
    merged = merge(runs, target)
    sync_folder(folder)
    new = GraphManifest(
        generation=generation,
        papers=merged.papers,
        edges=merged.edges,
        sha256=merged.sha256,
        sources=((*old.sources, *records) if old else tuple(records)),
        seconds=round((old.seconds if old else 0.0) + time.perf_counter() - started, 3),
        updated=timestamp(),
        versions=installed_versions(),
    )
    write_json(folder / MANIFEST, new.to_json())
    return new


def _remove_rest(folder: Path, generation: int) -> None:
    """Delete what is not of this generation, which has taken effect; a build that was killed may have left some."""
    for other in folder.glob("generation-*"):
        if other != generation_folder(folder, generation):
            shutil.rmtree(other)
    shutil.rmtree(folder / PENDING)
