"""One corpus file read into Parquet, by any process, once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from biorag.corpus.blocks import Splitter
from biorag.corpus.readers import read_changes
from biorag.corpus.rejects import REJECTS, RejectsFile
from biorag.corpus.sources import Source, reader_of
from biorag.errors import BadInputError
from biorag.indexes.bm25 import LengthCounter
from biorag.indexes.manifest import BlockParameters, SourceRecord
from biorag.indexes.surveying import Tally
from biorag.scale.parquet import snippet_table, write_table
from biorag.types import Count, Deletion, Snippet
from biorag.utils.files import make_folder, sha256_of_json, write_json
from biorag.utils.parsing import parsed, read_regular

PART_ROWS = 16_384
CHANGE = "change"  # the column with the number, in its file, of the change that a row belongs to
ROWS, DELETED, SAMPLED, TALLY, HELD = "rows-*.parquet", "deleted.parquet", "sample.parquet", "tally.npz", "source.json"


@dataclass(frozen=True, slots=True)
class Held:
    """What a file held: its record, the number and the BM25 terms of its snippets' blocks, and where it is damaged."""

    record: SourceRecord
    incremental: bool
    blocks: Count
    terms: Count
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
        """Return the folder and what the file held; read it if that was not done.

        Raises
        ------
        BadInputError
            As `read_changes` does.
        """
        place = self.place(source, source.sha256())
        if not place.is_dir():
            scratch = place.with_name(f".{place.name}.{os.getpid()}")
            try:
                make_folder(scratch)
                self._read(source, scratch)
                scratch.rename(place)
            except BadInputError as error:  # its kinds cannot all be pickled
                raise BadInputError(str(error)) from None
            except OSError:
                if not place.is_dir():  # of the same file twice, one reading is enough
                    raise
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        held: Held = parsed(Held, read_regular(place / HELD))
        return place, held

    def _read(self, source: Source, folder: Path) -> None:
        split, length_of = self.load()
        tally, deleted, rows = Tally(length_of), _Deletions(), _Rows(folder)
        rejects = RejectsFile(folder / REJECTS) if self.skips else None
        with rejects.written([source.path]) if rejects else nullcontext():
            for change in read_changes(source, rejects, split.check):
                number = len(tally.ids)
                tally.add(change, split)
                if isinstance(change, Deletion):
                    deleted.add(number, change.id)
                else:
                    rows.add(number, split(change))
        rows.close()
        write_table(folder / DELETED, deleted.table())
        write_table(folder / SAMPLED, snippet_table([snippet for *_, snippet in sorted(tally.sample)]))
        np.savez(folder / TALLY, ids=np.array(tally.ids, np.uint64), texts=np.array(tally.texts, np.uint64))
        count = rejects.count if rejects else 0
        record = SourceRecord(source.name, source.sha256(), source.bytes, tally.snippets, tally.deletions, count)
        damaged = tuple(rejects.damaged) if rejects else ()
        held = Held(record, reader_of(source).incremental, tally.blocks, tally.tokens, damaged)
        write_json(folder / HELD, asdict(held))


class _Deletions:
    def __init__(self) -> None:
        self._ids: list[str] = []
        self._numbers: list[int] = []

    def add(self, number: int, id: str) -> None:
        self._numbers.append(number)
        self._ids.append(id)

    def table(self) -> pa.Table:
        return pa.table({"id": pa.array(self._ids, pa.string()), CHANGE: pa.array(self._numbers, pa.int64())})


class _Rows:
    """Writes the blocks of changes to files of about `PART_ROWS`, each change into one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._blocks: list[Snippet] = []
        self._numbers: list[int] = []
        self._files = 0

    def add(self, number: int, blocks: Sequence[Snippet]) -> None:
        self._blocks.extend(blocks)
        self._numbers.extend([number] * len(blocks))
        if len(self._blocks) >= PART_ROWS:
            self.close()

    def close(self) -> None:
        if self._blocks:
            table = snippet_table(self._blocks).append_column(CHANGE, pa.array(self._numbers, pa.int64()))
            write_table(self._folder / ROWS.replace("*", f"{self._files:05d}"), table)
            self._files += 1
            self._blocks, self._numbers = [], []
