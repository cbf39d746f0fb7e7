"""A corpus as Parquet: each of its files read once, and of each document what the corpus says of it last."""

from __future__ import annotations

import heapq
import logging
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa

from biorag.corpus.readers import Reject
from biorag.corpus.rejects import REJECTS, RejectsFile
from biorag.corpus.sources import FoundFiles, Source
from biorag.errors import BadInputError, ServiceError
from biorag.indexes.surveying import SAMPLE as SAMPLE_SIZE
from biorag.indexes.surveying import hash64, repeated
from biorag.scale.parquet import SNIPPETS, link_or_copy, read_table, row_count, snippet_table, snippets_of, write_table
from biorag.scale.snippet_folder import (
    DELETION_COLUMNS,
    DELETIONS,
    SAMPLE,
    SOURCES,
    ChangedDocument,
    Export,
    ExportedSource,
    Part,
    SnippetFolder,
)
from biorag.scale.sources import (
    CHANGE,
    DELETED,
    DELETED_COLUMNS,
    ROW_COLUMNS,
    ROWS,
    SAMPLED,
    SCRATCH,
    Held,
    SourceReader,
    tally_in,
)
from biorag.types import OnProgress, Snippet
from biorag.utils.cores import usable_cores
from biorag.utils.files import timestamp
from biorag.utils.runs import whole_rows
from biorag.utils.versions import installed_versions

logger = logging.getLogger(__name__)

PARTS = "part-*.parquet"
# Reads files, here or elsewhere, and gives each one's number with what it held.
ReadAll = Callable[[SourceReader, Sequence[Source]], Iterator[tuple[int, tuple[Path, Held]]]]


def read_here(reader: SourceReader, sources: Sequence[Source]) -> Iterator[tuple[int, tuple[Path, Held]]]:
    """Read files one after the other, in this process."""
    return ((number, reader(source)) for number, source in enumerate(sources))


def read_by_processes(reader: SourceReader, sources: Sequence[Source]) -> Iterator[tuple[int, tuple[Path, Held]]]:
    """Read files side by side, a process of this machine a core; a single file in this one.

    Raises
    ------
    ServiceError
        If a process is lost.
    """
    count = min(len(sources), usable_cores())
    if count == 1:
        yield from read_here(reader, sources)
        return
    # Ctrl-C reaches all processes of a terminal; this one alone answers.
    initializer = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=initializer)
    try:
        numbers = {pool.submit(reader, source): number for number, source in enumerate(sources)}
        for future in as_completed(numbers):
            yield numbers[future], future.result()
    except BrokenProcessPool:
        raise ServiceError("a process that read a file was lost: is memory short? Run the same command again") from None
    finally:
        pool.shutdown(cancel_futures=True)


def export_corpus(
    out: Path,
    reader: SourceReader,
    files: FoundFiles,
    rejects: RejectsFile | None,
    read_all: ReadAll,
    on_progress: OnProgress,
) -> Export:
    """Write the snippets of a corpus as Parquet; files that were read before are not read again.

    Parameters
    ----------
    reader : reads the corpus files into folders below `out`

    Raises
    ------
    BadInputError
        At the first bad line if there are no rejects, or if there is no snippet.
    MismatchError
        If the folder holds an export made otherwise, or something else.
    """
    sources, blocks = files.sources, asdict(reader.blocks) if reader.blocks else None
    identity = {"blocks": blocks, "terms": reader.terms, "encoder": reader.encoder}
    folder = SnippetFolder(out, identity)
    folder.finished()
    with folder.locked():
        folder.begin({})
        _tidy(out)
        found: dict[int, tuple[Path, Held]] = {}
        for number, read in read_all(reader, sources):
            found[number] = read
            on_progress(read[1].record.snippets)
        places, held = zip(*(found[number] for number in range(len(sources))), strict=True)
        if not any(one.record.snippets for one in held):
            raise BadInputError(f"the corpus {', '.join(source.name for source in sources)} holds no snippet")
        if rejects:
            _collect(rejects, places, sources)
            for source, one in zip(sources, held, strict=True):
                rejects.damaged.extend(f"{source.name}, {fault}" for fault in one.damaged)
        export = _Assembly(out, places, held).export(reader, files)
        folder.finish({"export": export.to_json(), "made": timestamp(), "versions": installed_versions()})
    return export


def _tidy(out: Path) -> None:
    """Remove what killed runs left of the files and folders that they were writing."""
    for folder in (out / SOURCES).glob(SCRATCH.format("[0-9a-f]" * 20, "*")):
        shutil.rmtree(folder, ignore_errors=True)
    for name in (PARTS, DELETIONS, SAMPLE):
        for path in out.glob(f".{name}.*"):
            path.unlink()


def _collect(rejects: RejectsFile, places: Sequence[Path], sources: Sequence[Source]) -> None:
    """Put the rejects of all files into one file."""
    with rejects.written([source.path for source in sources]):
        for place, source in zip(places, sources, strict=True):
            for _, reject in whole_rows(place / REJECTS, Reject):
                rejects(reject._replace(file=source.name))


@dataclass(frozen=True, slots=True)
class _Changes:
    """Positions of changes, counted in one file, that do not count, that differ from what does, and that do again."""

    superseded: np.ndarray
    conflicting: np.ndarray
    revived: np.ndarray


class _Assembly:
    """Makes the parts of what all files held."""

    def __init__(self, out: Path, places: Sequence[Path], held: Sequence[Held]) -> None:
        self._out, self._places, self._held = out, places, held

    def export(self, reader: SourceReader, files: FoundFiles) -> Export:
        """Write parts, deletions and sample, and remove the parts of an earlier export."""
        parts: list[Part] = []
        changed: list[ChangedDocument] = []
        sources: list[ExportedSource] = []
        for number, (one, changes) in enumerate(zip(self._held, self._changes(), strict=True)):
            parts += self._parts(number, changes)
            changed += self._changed(number, changes)
            sources.append(ExportedSource(one.record, one.incremental, len(changes.superseded)))
        for path in self._out.glob(PARTS):
            if path.name not in {part.name for part in parts}:
                path.unlink()
        rows = [document._asdict() for document in changed]
        write_table(self._out / DELETIONS, pa.Table.from_pylist(rows, DELETION_COLUMNS))
        write_table(self._out / SAMPLE, snippet_table(self._sample()))
        held = self._held
        deletions = sum(not document.restored for document in changed)
        return Export(
            sources=tuple(sources),
            parts=tuple(parts),
            documents=sum(source.changes for source in sources) - deletions,
            rows=sum(part.rows for part in parts),
            deletions=deletions,
            duplicates=sum(source.duplicates for source in sources),
            rejected=sum(one.record.rejected for one in held),
            avg_len=sum(one.terms for one in held) / max(1, sum(one.blocks for one in held)),
            blocks=reader.blocks,
            terms=reader.terms,
            encoder=reader.encoder,
            files={"taken": dict(files.taken), "left": dict(files.left)},
        )

    def _changes(self) -> Iterator[_Changes]:
        """Yield, for each file, which of its changes count; see `surveying.repeated`."""
        tallies = [tally_in(place) for place in self._places]
        ends = np.cumsum([0, *(len(tally["ids"]) for tally in tallies)])
        found = repeated(*(np.concatenate([tally[name] for tally in tallies]) for name in ("ids", "texts")))
        positions = [np.array(sorted(part), np.int64) for part in found]
        for start, end in pairwise(ends):
            yield _Changes(*(part[(part >= start) & (part < end)] - start for part in positions))

    def _parts(self, number: int, changes: _Changes) -> Iterator[Part]:
        for count, rows in enumerate(sorted(self._places[number].glob(ROWS))):
            path = self._out / PARTS.replace("*", f"{number:05d}-{count:05d}")
            if len(changes.superseded):
                table = read_table(rows, ROW_COLUMNS)
                positions = table.column(CHANGE).to_numpy()
                conflicts = table.filter(pa.array(np.isin(positions, changes.conflicting)))
                _, firsts = np.unique(conflicts.column(CHANGE).to_numpy(), return_index=True)
                for id in (snippet.document for snippet in snippets_of(conflicts.take(firsts))):
                    logger.warning("id %r appears again with other text; the later one wins", id)
                write_table(path, kept := table.filter(pa.array(~np.isin(positions, changes.superseded))))
                size = kept.num_rows
            else:
                link_or_copy(rows, path)
                size = row_count(path)
            yield Part(path.name, size, number)

    def _changed(self, number: int, changes: _Changes) -> Iterator[ChangedDocument]:
        place = self._places[number]
        deleted = read_table(place / DELETED, DELETED_COLUMNS)
        for id in deleted.filter(pa.array(~np.isin(deleted.column(CHANGE).to_numpy(), changes.superseded)))["id"]:
            yield ChangedDocument(id.as_py(), number, restored=False)
        for rows in sorted(place.glob(ROWS)) if len(changes.revived) else ():
            table = read_table(rows, ROW_COLUMNS)
            again = snippets_of(table.filter(pa.array(np.isin(table.column(CHANGE).to_numpy(), changes.revived))))
            for document in dict.fromkeys(snippet.document for snippet in again):
                yield ChangedDocument(document, number, restored=True)

    def _sample(self) -> list[Snippet]:
        """Return the snippets with the largest hashes of their ids, as a survey of the whole corpus keeps them."""
        rows = (
            (hash64(snippet.id), number, place, snippet)
            for number, folder in enumerate(self._places)
            for place, snippet in enumerate(snippets_of(read_table(folder / SAMPLED, SNIPPETS)))
        )
        return [snippet for *_, snippet in heapq.nlargest(SAMPLE_SIZE, rows, key=lambda row: row[:3])]
