"""One corpus file read into Parquet, by any process, once."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa

from biorag.corpus.blocks import Splitter
from biorag.corpus.readers import read_changes
from biorag.corpus.rejects import REJECTS, RejectsFile
from biorag.corpus.sources import Source, reader_of
from biorag.errors import BadInputError, MismatchError
from biorag.indexes.bm25 import LengthCounter
from biorag.indexes.manifest import BlockParameters, SourceRecord
from biorag.indexes.surveying import Tally
from biorag.scale.parquet import SNIPPETS, row_count, snippet_table, write_table
from biorag.types import Count, Deletion, Snippet
from biorag.utils.files import make_folder, sha256_of_json, write_json
from biorag.utils.parsing import parsed, read_regular

PART_ROWS = 16_384
CHANGE = "change"  # the column with the number, in its file, of the change that a row belongs to
ROWS, DELETED, SAMPLED, TALLY, HELD = "rows-*.parquet", "deleted.parquet", "sample.parquet", "tally.npz", "source.json"
SCRATCH = ".{}.{}"  # a folder that is being written, of this name by this process
NUMBERED = pa.field(CHANGE, pa.int64(), nullable=False)
ROW_COLUMNS = SNIPPETS.append(NUMBERED)
DELETED_COLUMNS = pa.schema([SNIPPETS.field("id"), NUMBERED])


@dataclass(frozen=True, slots=True)
class Held:
    """What a file held: its record, the number and the BM25 terms of its snippets' blocks, and where it is damaged.

    `rows` are those of each file of rows.
    """

    record: SourceRecord
    incremental: bool
    blocks: Count
    terms: Count
    rows: tuple[Count, ...]
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceReader:
    """Reads corpus files into folders of their own below `folder`; travels to other processes.

    Parameters
    ----------
    load : gives the splitter and what counts BM25 terms, called where a file is read
    terms : what BM25 counts
    encoder : hash of the encoder whose tokens make blocks or terms; empty where none does
    skips : whether bad lines are left out and kept as rejects
    """

    folder: Path
    load: Callable[[], tuple[Splitter, LengthCounter]]
    blocks: BlockParameters | None
    terms: str
    encoder: str
    skips: bool

    def place(self, source: Source, sha256: str) -> Path:
        """Return the folder of what a file holds."""
        blocks = asdict(self.blocks) if self.blocks else None
        read = [sha256, source.label, source.columns, blocks, self.terms, self.encoder, self.skips]
        return self.folder / sha256_of_json(read)[:20]

    def __call__(self, source: Source) -> tuple[Path, Held]:
        """Return the folder and what the file held; read it if that was not done, or is damaged.

        Raises
        ------
        BadInputError
            As `read_changes` does.
        """
        place = self.place(source, source.sha256())
        held = held_in(place) or self._read_into(place, source)
        return place, replace(held, record=replace(held.record, name=source.name))  # it may have moved

    def _read_into(self, place: Path, source: Source) -> Held:
        """Read a file into a folder, which is there as a whole or not at all."""
        scratch = place.with_name(SCRATCH.format(place.name, os.getpid()))
        try:
            make_folder(scratch)
            held = self._read(source, scratch)
            if held_in(place) is None:
                shutil.rmtree(place, ignore_errors=True)
                scratch.rename(place)
            return held
        except BadInputError as error:  # its kinds cannot all be pickled
            raise BadInputError(str(error)) from None
        except OSError:
            if other := held_in(place):  # the same file was read twice at once
                return other
            raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _read(self, source: Source, folder: Path) -> Held:
        split, length_of = self.load()
        tally, rows = Tally(length_of), _Rows(folder)
        deleted: dict[str, list[str | int]] = {"id": [], CHANGE: []}
        rejects = RejectsFile(folder / REJECTS) if self.skips else None
        with rejects.written([source.path]) if rejects else nullcontext():
            for change in read_changes(source, rejects, split.check):
                number = len(tally.ids)
                tally.add(change, split)
                if isinstance(change, Deletion):
                    deleted["id"].append(change.id)
                    deleted[CHANGE].append(number)
                else:
                    rows.add(number, split(change))
        rows.close()
        write_table(folder / DELETED, pa.table(deleted, DELETED_COLUMNS))
        write_table(folder / SAMPLED, snippet_table([snippet for *_, snippet in sorted(tally.sample)]))
        np.savez(folder / TALLY, ids=np.array(tally.ids, np.uint64), texts=np.array(tally.texts, np.uint64))
        count = rejects.count if rejects else 0
        record = SourceRecord(source.name, source.sha256(), source.bytes, tally.snippets, tally.deletions, count)
        damaged = tuple(fault.removeprefix(f"{source.name}, ") for fault in rejects.damaged) if rejects else ()
        incremental = reader_of(source).incremental
        held = Held(record, incremental, tally.blocks, tally.tokens, tuple(rows.counts), damaged)
        write_json(folder / HELD, asdict(held))
        return held


def held_in(place: Path) -> Held | None:
    """Return what a file held, as a folder says; None if that is not there, or is seen to be damaged."""
    try:
        held: Held = parsed(Held, read_regular(place / HELD))
        rows = tuple(row_count(path) for path in sorted(place.glob(ROWS)))
        changes = tally_in(place)["ids"].size
    except (FileNotFoundError, ValueError, MismatchError):
        return None
    return held if (rows, changes) == (held.rows, held.record.snippets + held.record.deletions) else None


def tally_in(place: Path) -> dict[str, np.ndarray]:
    """Return the hashes of the ids and the texts of a file's changes, as `surveying.Tally` has them.

    Raises
    ------
    ValueError
        If they are damaged.
    """
    try:
        with np.load(place / TALLY) as file:
            tally = {name: file[name] for name in ("ids", "texts")}
    except (BadZipFile, KeyError, EOFError, zlib.error) as error:
        raise ValueError(str(error)) from None
    if any(values.dtype != np.uint64 or values.shape != tally["ids"].shape for values in tally.values()):
        raise ValueError("not two arrays of hashes")
    return tally


class _Rows:
    """Writes the blocks of changes to files of about `PART_ROWS`, each change into one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._blocks: list[Snippet] = []
        self._numbers: list[int] = []
        self.counts: list[int] = []  # of the files that are written

    def add(self, number: int, blocks: Sequence[Snippet]) -> None:
        self._blocks.extend(blocks)
        self._numbers.extend([number] * len(blocks))
        if len(self._blocks) >= PART_ROWS:
            self.close()

    def close(self) -> None:
        if self._blocks:
            table = snippet_table(self._blocks).append_column(NUMBERED, pa.array(self._numbers, pa.int64()))
            write_table(self._folder / ROWS.replace("*", f"{len(self.counts):05d}"), table)
            self.counts.append(len(self._blocks))
            self._blocks, self._numbers = [], []
