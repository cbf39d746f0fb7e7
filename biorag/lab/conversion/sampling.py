"""Disjoint random samples of a corpus, of training rows, or of the questions of a BEIR folder, in one reading.

Each record has a number that its id and the seed alone determine: a hash of 64 bits. The records with the smallest
numbers are drawn, those to keep before all others (bottom-k sampling; Cohen and Kaplan, 2007). So the order of the
files does not matter, and samples of one seed are nested: a larger total adds records to the last sample.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from biorag.benchmarks.golden import FILES as ANSWER_FILES
from biorag.corpus.citation_graph import faults_named
from biorag.corpus.datasets import first_file, load_dataset, read_qrels
from biorag.corpus.readers import PMID_KEYS, beir_record, read_snippets
from biorag.corpus.rejects import RejectsFile
from biorag.corpus.sources import BEIR_CORPUS, STDIN, Source, find_sources, read_lines
from biorag.errors import BadInputError, MissingError, UsageError
from biorag.lab.conversion.items import JudgedQuestion
from biorag.lab.conversion.run import CORPUS, QUERIES, ROWS, DataFolder, DataRun, Written, hashes_of
from biorag.training.rows import NEXT_STEP, parsed_rows, read_records
from biorag.types import OnProgress
from biorag.utils.files import json_line
from biorag.utils.outputs import DATA_SET
from biorag.utils.progress import reported

IDS = ("_id", "id", "query_id", "positive_id")
PART = "test"  # of a BEIR folder
Key = int | str  # a PMID, or an id


class DrawnRecord(NamedTuple):
    """A record that can be drawn: its id, the fields of its line, and whether it is kept."""

    id: str
    fields: Mapping[str, Any]
    kept: bool = False


class Draw:
    """The `total` records that come first, kept ones, then those with the smallest numbers; of one id the last counts.

    They are in a temporary SQLite file in `folder`, which holds at most twice the total and `spare`.
    """

    def __init__(self, total: int, seed: int, folder: Path, spare: int = 1024) -> None:
        self._total, self._seed, self._most = total, seed, 2 * total + spare
        self._last, self._held = b"\2", 0
        path = folder / f".draw.{os.getpid()}"
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.executescript("PRAGMA journal_mode = off; PRAGMA synchronous = off;")
        self._database.execute("CREATE TABLE drawn (number BLOB PRIMARY KEY, line BLOB)")
        path.unlink()  # it is gone when it is closed, however the process ends

    def add(self, record: DrawnRecord) -> None:
        """Draw a record, for as long as not enough others come before it."""
        number = (b"\0" if record.kept else b"\1") + number_of(self._seed, record.id)
        if number <= self._last:
            self._database.execute("REPLACE INTO drawn VALUES (?, ?)", (number, json_line(record.fields)))
            self._held += 1
            if self._held >= self._most:
                self._cut()

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the records, by their numbers."""
        for (line,) in self._database.execute("SELECT line FROM drawn ORDER BY number LIMIT ?", (self._total,)):
            yield line

    def __len__(self) -> int:
        self._cut()
        return self._held

    def close(self) -> None:
        """Drop the records."""
        self._database.close()

    def _cut(self) -> None:
        last = "SELECT number FROM drawn ORDER BY number LIMIT 1 OFFSET ?"
        if row := self._database.execute(last, (self._total - 1,)).fetchone():
            self._last = row[0]
            self._database.execute("DELETE FROM drawn WHERE number > ?", row)
        (self._held,) = self._database.execute("SELECT count(*) FROM drawn").fetchone()


def number_of(seed: int, id: str) -> bytes:
    """Return the 64 bits by which a record is drawn."""
    return hashlib.blake2b(f"{seed}\0{id}".encode(), digest_size=8).digest()


@dataclass(frozen=True)
class SampleRequest:
    """Samples to draw by `biorag data sample`, of these sizes.

    `names` are a corpus, files of rows, or one BEIR folder, of which questions are drawn. Snippets that the BEIR
    folders `keep` judge are in the first sample; no record of `exclude` is drawn. Raises `MissingError` and
    `UsageError`.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    seed: int
    home: Path
    exclude: tuple[Path, ...] = ()
    keep: tuple[Path, ...] = ()
    rejects: RejectsFile | None = None

    def __post_init__(self) -> None:
        if STDIN in self.names:
            raise UsageError("standard input is not sampled: name files")
        for path in self.exclude:
            if not path.exists():
                raise MissingError(f"--exclude {path} is not there: name a file, or the folder of a data set")
        for folder in self.keep:
            if not qrels_of(folder).is_file():
                raise MissingError(f"--keep {folder} has no qrels/{PART}.tsv: name a folder in BEIR's layout")
        if self.folder and self.keep:
            raise UsageError(
                "--keep is for samples of snippets: those relevant to the questions drawn are written anyway"
            )
        assert self.folder or self.sources

    @cached_property
    def folder(self) -> Path | None:
        """The BEIR folder whose questions are drawn, if it is one."""
        folder = Path(self.names[0])
        return folder if len(self.names) == 1 and (folder / QUERIES).is_file() else None

    @cached_property
    def sources(self) -> list[Source]:
        """The files of a corpus or of rows."""
        return [] if self.folder else find_sources(self.names, Path(), self.home)

    def identity(self) -> dict[str, Any]:
        """Return everything that determines the result."""
        return {
            DATA_SET: "sample",
            "inputs": hashes_of(self.inputs()),
            "exclude": hashes_of(map(_listed, self.exclude)),
            **({"keep": hashes_of(map(qrels_of, self.keep))} if self.keep else {}),
            "split": PART if self.folder or self.keep else None,
            "sizes": list(self.sizes),
            "seed": self.seed,
            "on_bad_line": "skip" if self.rejects else "stop",
        }

    def inputs(self) -> list[Path]:
        """Return the files that are read."""
        if self.folder is None:
            return [source.path for source in self.sources]
        corpus = first_file(self.folder, BEIR_CORPUS)
        return [self.folder / QUERIES, qrels_of(self.folder), *([corpus] if corpus else [])]


def sizes_of(text: str) -> tuple[int, ...]:
    """Return the sizes that `--sizes` lists; raises `UsageError` if they are not positive whole numbers."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < len(part) < 13 and int(part) > 0 for part in parts):
        raise UsageError(f"--sizes {text!r} is not a list of positive numbers: write 10000 or 10000,1000000")
    return tuple(map(int, parts))


def qrels_of(folder: Path) -> Path:
    """Return the file of a BEIR folder's judgements."""
    return folder / "qrels" / f"{PART}.tsv"


def sample(request: SampleRequest, out: Path, on_progress: OnProgress) -> dict[str, Any]:
    """Write the samples, each a folder `sample-N`, and return the manifest; see `biorag.lab.conversion.run.convert`.

    A corpus's sample is a `corpus.jsonl`, that of rows a `rows.jsonl`, both in the order of their numbers. That of a
    BEIR folder is one again: the questions drawn, their judgements as `qrels/test.tsv`, their answers, and the snippets
    judged for them. Raises `BadInputError` as `convert` does, or at fewer records than asked for.
    """
    run = DataRun(out, request.identity())
    return run.made(lambda: _sampled(request, out, on_progress), request.rejects, request.inputs())


def _sampled(request: SampleRequest, out: Path, on_progress: OnProgress) -> Written:
    excluded = read_keys(request.exclude)
    total, read, left_out = sum(request.sizes), 0, 0
    kept: set[str] = set()
    name, records = _records(request)
    with faults_named(out), closing(Draw(total, request.seed, out)) as draw, ExitStack() as stack:
        for record in reported(records, on_progress):
            read += 1
            if not excluded.isdisjoint(keys_of(record.fields)):
                left_out += 1
                continue
            draw.add(record)
            if record.kept:
                kept.add(record.id)
        if len(kept) > request.sizes[0]:
            raise BadInputError(f"--keep asks for {len(kept):,} snippets: raise the first of --sizes to that or more")
        if len(draw) < total:
            raise BadInputError(
                f"{total:,} records were asked for, and there are {len(draw):,} distinct ones"
                + (f" besides {left_out:,} excluded ones" if left_out else "")
                + ": lower --sizes, or name more files"
            )
        lines = draw.lines()
        samples = [
            (stack.enter_context(DataFolder(out / f"sample-{number}")), islice(lines, size))
            for number, size in enumerate(request.sizes, 1)
        ]
        if request.folder:
            _write_questions(request.folder, samples, request.rejects)
        else:
            for folder, drawn in samples:
                folder.stream(name).writelines(drawn)
        files = [f"{folder.path.name}/{file}" for folder, _ in samples for file in folder.streams]
    counts: dict[str, Any] = {"read": read, "excluded": left_out, "samples": list(request.sizes)}
    return counts | ({"kept": len(kept)} if request.keep else {}), sorted(files)


def _records(request: SampleRequest) -> tuple[str, Iterator[DrawnRecord]]:
    """Return the name of the samples' files, and the records to draw from."""
    if request.folder:
        questions = load_dataset(request.folder, PART).questions
        return QUERIES, (DrawnRecord(one.id, {"_id": one.id, "text": one.text}) for one in questions)
    if all(map(_holds_rows, request.sources)):
        rows = (row for source in request.sources for row in parsed_rows(source.path))
        return ROWS, (DrawnRecord(json.dumps([row.query, row.positive]), fields) for row, fields in rows)
    judgements = [read_qrels(qrels_of(folder), 0) for folder in request.keep]
    judged = {id for qrels in judgements for ids in qrels.values() for id in ids}
    snippets = (snippet for source in request.sources for snippet in read_snippets(source, request.rejects))
    return CORPUS, (DrawnRecord(one.id, beir_record(one), one.id in judged) for one in snippets)


def _write_questions(
    source: Path, samples: Sequence[tuple[DataFolder, Iterator[bytes]]], rejects: RejectsFile | None
) -> None:
    """Write the questions drawn from a BEIR folder, with their judgements, answers and snippets."""
    qrels = read_qrels(qrels_of(source), 0)
    files = [source / name for name in ANSWER_FILES if (source / name).is_file()]
    answers = {str(record.get("_id")): record for path in files for _, record in read_records(path)}
    folders: dict[str, set[DataFolder]] = {}
    for folder, drawn in samples:
        for question in map(json.loads, drawn):
            id = question["_id"]
            answer = answers.get(id, {})
            folder.add(JudgedQuestion(id, question["text"], relevant=qrels[id], answer=answer))
            for snippet_id in qrels[id]:
                folders.setdefault(snippet_id, set()).add(folder)
    if corpus := first_file(source, BEIR_CORPUS):
        for snippet in read_snippets(Source(str(corpus), corpus), rejects):
            for folder in folders.get(snippet.id, ()):
                folder.add(snippet)


def _holds_rows(source: Source) -> bool:
    """Return whether a file's first line is a training row."""
    if not source.path.name.endswith((".jsonl", ".jsonl.gz")):
        return False
    try:
        _, first = next(iter(read_lines(source)), (0, b"{}"))
        return "positive" in json.loads(first)
    except (ValueError, TypeError, BadInputError):
        return False


def read_keys(paths: Iterable[Path]) -> set[Key]:
    """Return the ids and PMIDs not to be drawn: those of the records of JSON Lines files or data folders."""
    excluded: set[Key] = set()
    for path in map(_listed, paths):
        for location, record in read_records(path):
            keys = keys_of(record)
            if not keys:
                raise BadInputError(f"{location}: no {', '.join((*IDS, *PMID_KEYS))} to exclude; {NEXT_STEP}")
            excluded |= keys
    return excluded


def keys_of(record: Mapping[str, Any]) -> set[Key]:
    """Return the ids of a record, and its PMID as a number, by which it is excluded."""
    metadata = record.get("metadata")
    fields = {**(metadata if isinstance(metadata, dict) else {}), **record}
    pmids = {str(fields[name]) for name in PMID_KEYS if fields.get(name)}
    ids: set[Key] = {str(record[name]) for name in IDS if record.get(name) not in (None, "")}
    return ids | {int(pmid) for pmid in pmids if pmid.isascii() and pmid.isdigit()}


def _listed(path: Path) -> Path:
    """Return the file whose records a path excludes: of a folder its corpus, its rows or its questions."""
    if not path.is_dir():
        return path
    names = (*BEIR_CORPUS, ROWS, QUERIES)
    if (file := first_file(path, names)) is None:
        raise UsageError(f"--exclude {path} has none of {', '.join(names)}: name a file, or the folder of a data set")
    return file
