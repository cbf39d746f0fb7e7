"""Disjoint random samples of a corpus, of training rows, or of the questions of a BEIR folder, in one reading.

Each record has a number that its id and the seed alone determine: a hash of 64 bits. The records with the smallest
numbers are drawn, the first sample the smallest of them (bottom-k sampling; Cohen and Kaplan, 2007). So neither the
order of the files nor what else is in them changes who comes before whom, and samples of one seed are nested: a larger
total adds records to the last sample. Records that are to be kept are drawn before all others.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import numpy as np

from biorag.benchmarks.answers.questions import FILES as ANSWER_FILES
from biorag.conversion.items import WHOLE
from biorag.conversion.run import DataRun, hashes_of
from biorag.conversion.writing import ANSWERS, CORPUS, QUERIES, ROWS, DataFiles
from biorag.corpus.datasets import QRELS_HEADER, load_dataset, read_qrels
from biorag.corpus.readers import PMID_KEYS, beir_record, read_snippets
from biorag.corpus.rejects import RejectsFile
from biorag.corpus.sources import BEIR_CORPUS, STDIN, Source, find_sources, read_lines
from biorag.errors import BadInputError, MissingError, UsageError
from biorag.settings.settings import Settings
from biorag.training.rows import NEXT_STEP, parsed_rows, read_records
from biorag.types import OnProgress
from biorag.utils.files import json_line, replacing
from biorag.utils.outputs import DATA_SET
from biorag.utils.progress import reported

IDS = ("_id", "id", "query_id", "positive_id")
Key = int | str  # a PMID, or an id


@dataclass(frozen=True, slots=True)
class Record:
    """What can be drawn: its id, the keys by which it is excluded, what its line holds, and whether it is kept."""

    id: str
    keys: tuple[Key, ...]
    fields: Mapping[str, Any]
    kept: bool = False


class Draw:
    """The records with the `total` smallest numbers, their lines in a temporary file; of one id the last counts.

    Memory is about 200 bytes for each of `total` records. The file holds about `total` · (1 + ln(records / total))
    lines.

    Parameters
    ----------
    keeps : whether records that are kept come before all others
    spare : records that are held beyond twice the total, before the largest numbers are dropped
    """

    def __init__(self, total: int, seed: int, spool: BinaryIO, keeps: bool = False, spare: int = 1024) -> None:
        self._total, self._seed, self._spool, self._keeps, self._spare = total, seed, spool, keeps, spare
        self._limit = 2**64
        self._numbers, self._starts, self._sizes = array("Q"), array("Q"), array("L")
        self._end = 0

    def add(self, record: Record) -> None:
        """Draw a record, for as long as no smaller ones take its place."""
        number = number_of(self._seed, record.id)
        if self._keeps:  # half of the numbers for what is kept, the larger half for all else
            number = number >> 1 if record.kept else 2**63 + (number >> 1)
        if number >= self._limit:
            return
        line = json_line(record.fields)
        self._numbers.append(number)
        self._starts.append(self._end)
        self._sizes.append(len(line))
        self._end += self._spool.write(line)
        if len(self._numbers) >= 2 * self._total + self._spare:
            self._cut()

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the records, by their numbers."""
        self._cut()
        for start, size in zip(self._starts, self._sizes, strict=True):
            self._spool.seek(start)
            yield self._spool.read(size)

    def __len__(self) -> int:
        self._cut()
        return len(self._numbers)

    def _cut(self) -> None:
        """Keep the smallest `total` of distinct numbers, in their order; of equal ones the last."""
        numbers, starts, sizes = (np.array(values) for values in (self._numbers, self._starts, self._sizes))
        distinct, last = np.unique(numbers[::-1], return_index=True)
        kept = (len(numbers) - 1 - last)[: self._total]
        if len(distinct) >= self._total:
            # A later record of an id that is drawn has the same number, and takes the place of the earlier.
            self._limit = int(distinct[self._total - 1]) + 1
        self._numbers = array("Q", distinct[: self._total].tobytes())
        self._starts, self._sizes = array("Q", starts[kept].tobytes()), array("L", sizes[kept].tobytes())


def number_of(seed: int, id: str) -> int:
    """Return the 64 bits by which a record is drawn."""
    return int.from_bytes(hashlib.blake2b(f"{seed}\0{id}".encode(), digest_size=8).digest(), "big")


@dataclass(frozen=True, slots=True)
class Sampling:
    """What `biorag data sample` was asked for: samples of these sizes, `seed`, and what is not to be drawn.

    Snippets that the part `split` of the BEIR folders `keep` judges are in the first sample. `folder` is a BEIR folder
    whose questions are sampled, of the part `split`; else `sources` are a corpus or rows.
    """

    sources: tuple[Source, ...]
    sizes: tuple[int, ...]
    seed: int
    out: Path
    exclude: tuple[Path, ...] = ()
    keep: tuple[Path, ...] = ()
    folder: Path | None = None
    split: str = "test"
    rejects: RejectsFile | None = None

    def identity(self) -> dict[str, Any]:
        """Return everything that determines the result."""
        return {
            DATA_SET: "sample",
            "inputs": hashes_of(self.inputs()),
            "exclude": hashes_of(map(_listed, self.exclude)),
            **({"keep": hashes_of(self.kept_qrels)} if self.keep else {}),
            "split": self.split if self.folder or self.keep else None,
            "sizes": list(self.sizes),
            "seed": self.seed,
            "on_bad_line": "skip" if self.rejects else "stop",
        }

    def inputs(self) -> list[Path]:
        """Return the files that are read."""
        if self.folder is None:
            return [source.path for source in self.sources]
        return [path for path in (self.folder / QUERIES, self.qrels, _corpus(self.folder)) if path]

    @property
    def qrels(self) -> Path:
        """The judgements of the questions that are sampled."""
        assert self.folder, "asked for with a BEIR folder only"
        return qrels_of(self.folder, self.split)

    @property
    def kept_qrels(self) -> list[Path]:
        """The judgements whose snippets are kept."""
        return [qrels_of(folder, self.split) for folder in self.keep]


def qrels_of(folder: Path, split: str) -> Path:
    """Return where a BEIR folder has a part's judgements."""
    return folder / "qrels" / f"{split}.tsv"


def sampling_of(
    names: Sequence[str],
    sizes: tuple[int, ...],
    settings: Settings,
    out: Path,
    exclude: tuple[Path, ...],
    keep: tuple[Path, ...],
    split: str,
    rejects: RejectsFile | None,
) -> Sampling:
    """Return what is to be sampled: a BEIR folder where one folder with `queries.jsonl` is named, else the files.

    Raises
    ------
    MissingError
        If a file is not there.
    UsageError
        If standard input is named, or snippets are to be kept of questions.
    """
    if STDIN in names:
        raise UsageError("standard input is not sampled: name files")
    for path in exclude:
        if not path.exists():
            raise MissingError(f"--exclude {path} is not there: name a file, or the folder of a data set")
    for path in keep:
        if not qrels_of(path, split).is_file():
            raise MissingError(f"--keep {path} has no qrels/{split}.tsv: name a folder in BEIR's layout")
    folder = Path(names[0]) if len(names) == 1 and (Path(names[0]) / QUERIES).is_file() else None
    if folder and keep:
        raise UsageError("--keep is for samples of snippets: those relevant to the questions drawn are written anyway")
    sources = () if folder else tuple(find_sources(names, Path(), settings.home))
    return Sampling(sources, sizes, settings.seed, out, exclude, keep, folder, split, rejects)


def sample(sampling: Sampling, on_progress: OnProgress) -> dict[str, Any]:
    """Write the samples, each a folder `sample-N`, and return the manifest; see `biorag.conversion.run.convert`.

    A corpus's sample is a `corpus.jsonl`, that of rows a `rows.jsonl`, both in the order of their numbers. That of a
    BEIR folder is one again: the questions drawn, their judgements as `qrels/test.tsv`, and the snippets relevant to
    them, in the order of the folder.

    Raises
    ------
    BadInputError
        At a bad record if there are no rejects, or if there are fewer records than asked for, saying how many.
    MismatchError, ServiceError
        As `convert` does.
    """
    run = DataRun(sampling.out, sampling.identity())
    if (manifest := run.finished()) is not None:
        return manifest
    with run.locked():
        run.begin({})
        if sampling.rejects is None:
            return _sampled(sampling, run, on_progress)
        with sampling.rejects.written(sampling.inputs()):
            return _sampled(sampling, run, on_progress)


def _sampled(sampling: Sampling, run: DataRun, on_progress: OnProgress) -> dict[str, Any]:
    excluded = read_keys(sampling.exclude)
    total, read, left_out = sum(sampling.sizes), 0, 0
    kept: set[str] = set()
    name, records = _records(sampling)
    with TemporaryFile(dir=sampling.out) as spool:
        draw = Draw(total, sampling.seed, spool, bool(sampling.keep))
        for record in reported(records, on_progress):
            read += 1
            if any(key in excluded for key in record.keys):
                left_out += 1
            else:
                draw.add(record)
                if record.kept:
                    kept.add(record.id)
        if sampling.keep and len(kept) > sampling.sizes[0]:
            raise BadInputError(f"--keep asks for {len(kept):,} snippets: raise the first of --sizes to that or more")
        if len(draw) < total:
            raise BadInputError(
                f"{total:,} records were asked for, and there are {len(draw):,} distinct ones"
                + (f" besides {left_out:,} excluded ones" if left_out else "")
                + ": lower --sizes, or name more files"
            )
        files = list(_write(sampling, name, draw.lines()))
    rejected = sampling.rejects.count if sampling.rejects else 0
    counts = {"read": read, "excluded": left_out, "samples": list(sampling.sizes), "rejected": rejected}
    if sampling.keep:
        counts["kept"] = len(kept)
    return run.end(counts, files)


def _records(sampling: Sampling) -> tuple[str, Iterator[Record]]:
    """Return what the samples' files are called, and the records to draw from."""
    if sampling.folder:
        return QUERIES, _questions(sampling.folder, sampling.split)
    if all(_holds_rows(source) for source in sampling.sources):
        return ROWS, _rows(sampling.sources)
    judged = frozenset(id for path in sampling.kept_qrels for ids in read_qrels(path, 0).values() for id in ids)
    return CORPUS, _snippets(sampling.sources, sampling.rejects, judged)


def _write(sampling: Sampling, name: str, lines: Iterator[bytes]) -> Iterator[str]:
    """Write the samples; yield the paths of their files within the folder."""
    drawn: dict[str, str] = {}
    for number, size in enumerate(sampling.sizes, 1):
        folder = f"sample-{number}"
        with replacing(sampling.out / folder / name) as stream:
            for line in islice(lines, size):
                stream.write(line)
                if sampling.folder:
                    drawn[json.loads(line)["_id"]] = folder
        yield f"{folder}/{name}"
    if sampling.folder:
        yield from _write_judged(sampling, sampling.folder, drawn)


def _write_judged(sampling: Sampling, folder: Path, drawn: Mapping[str, str]) -> Iterator[str]:
    """Write what belongs to the questions drawn, by sample: judgements, answers and snippets."""
    relevant: dict[str, set[str]] = {}
    with DataFiles(sampling.out) as files:
        for question, judged in read_qrels(sampling.qrels, 0).items():
            if question in drawn:
                qrels = files.stream(f"{drawn[question]}/qrels/{WHOLE}.tsv", QRELS_HEADER.encode())
                for id, relevance in judged.items():
                    qrels.write(f"{question}\t{id}\t{relevance}\n".encode())
                    relevant.setdefault(id, set()).add(drawn[question])
        for path in (folder / name for name in ANSWER_FILES if (folder / name).is_file()):
            for _, record in read_records(path):
                if (sample := drawn.get(str(record.get("_id")))) is not None:
                    files.stream(f"{sample}/{ANSWERS}").write(json_line(record))
        if corpus := _corpus(folder):
            for snippet in read_snippets(Source(str(corpus), corpus), sampling.rejects):
                for sample in sorted(relevant.get(snippet.id, ())):
                    files.stream(f"{sample}/{CORPUS}").write(json_line(beir_record(snippet)))
    yield from sorted(files.streams)


def _snippets(sources: Sequence[Source], rejects: RejectsFile | None, kept: Container[str]) -> Iterator[Record]:
    for source in sources:
        for snippet in read_snippets(source, rejects):
            keys: tuple[Key, ...] = (snippet.id,) if snippet.pmid is None else (snippet.id, snippet.pmid)
            yield Record(snippet.id, keys, beir_record(snippet), snippet.id in kept)


def _rows(sources: Sequence[Source]) -> Iterator[Record]:
    for source in sources:
        for row, fields in parsed_rows(source.path):
            keys = tuple(id for id in (row.query_id, row.positive_id) if id)
            yield Record(json.dumps([row.query, row.positive]), keys, fields)


def _questions(folder: Path, split: str) -> Iterator[Record]:
    for question in load_dataset(folder, split).questions:
        yield Record(question.id, (question.id,), {"_id": question.id, "text": question.text})


def _holds_rows(source: Source) -> bool:
    """Return whether a file's first line is a training row."""
    if not source.path.name.endswith((".jsonl", ".jsonl.gz")):
        return False
    try:
        _, first = next(iter(read_lines(source)), (0, b"{}"))
        return "positive" in json.loads(first)
    except (ValueError, TypeError, BadInputError):
        return False


def read_keys(paths: Iterable[Path]) -> frozenset[Key]:
    """Return what is not to be drawn: ids and PMIDs of the records of JSON Lines files or data folders.

    A record's id is its `_id` or `id`; of a row they are `query_id` and `positive_id`.

    Raises
    ------
    BadInputError
        Naming file, line and reason.
    """
    keys: set[Key] = set()
    for path in map(_listed, paths):
        for location, record in read_records(path):
            if not (named := set(_keys(record))):
                raise BadInputError(f"{location}: no {', '.join((*IDS, *PMID_KEYS))} to exclude; {NEXT_STEP}")
            keys |= named
    return frozenset(keys)


def _keys(record: Mapping[str, Any]) -> Iterator[Key]:
    """Yield the ids of a record, and its PMID as a number."""
    metadata = record.get("metadata")
    for fields, names in ((record, IDS), (record, PMID_KEYS), (metadata, PMID_KEYS)):
        for value in (fields.get(name) for name in names) if isinstance(fields, dict) else ():
            if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
                text = str(value)
                yield int(text) if names is PMID_KEYS and text.isascii() and text.isdigit() else text


def _listed(path: Path) -> Path:
    """Return the file of what a path excludes: of a folder its corpus, its rows or its questions."""
    if not path.is_dir():
        return path
    names = (*BEIR_CORPUS, ROWS, QUERIES)
    file = next((path / name for name in names if (path / name).is_file()), None)
    if file is None:
        raise UsageError(f"--exclude {path} has none of {', '.join(names)}: name a file, or the folder of a data set")
    return file


def _corpus(folder: Path) -> Path | None:
    return next((folder / name for name in BEIR_CORPUS if (folder / name).is_file()), None)
