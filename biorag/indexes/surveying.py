"""A first pass over a corpus: its faults, its statistics, which changes supersede others, and what its files lost."""

from __future__ import annotations

import hashlib
import heapq
import os
import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from biorag.corpus.blocks import WHOLE, Splitter
from biorag.corpus.joining import faults_beside
from biorag.corpus.readers import Reject, read_changes
from biorag.corpus.rejects import RejectsFile
from biorag.corpus.sources import PIPED, FoundFiles, Source, reader_of
from biorag.errors import BadInputError
from biorag.indexes.bm25 import LengthCounter
from biorag.indexes.manifest import SourceRecord
from biorag.indexes.records import MOST, HeldFile, SourceLedger, beside_hash, is_held, key_of
from biorag.indexes.updating import PendingChange, revision
from biorag.types import Change, Deletion, OnProgress, Snippet
from biorag.utils.progress import reported

SAMPLE = 256  # snippets of a survey's sample
NAMED = 20  # files that an error names

# Changes of one id are ordered by a number: a PubMed record's version and date, 0 of another snippet.
DELETED, UNDATED = 2**32 - 1, 0
HIGHEST_VERSION = 126  # so that no record's number is a deletion's


@dataclass(frozen=True, slots=True)
class Survey:
    """The statistics of a corpus, and the order of its changes.

    Positions count changes (snippets and deletions) in reading order, from 0. `superseded` holds those that another
    change of the same id takes the place of; `conflicts` those of them that are snippets without a version whose text
    is another; `revived` the snippets that count whatever the index holds, since a deletion came before. `skipped` are
    the PubMed files that the index has taken in before, and files that it holds unchanged, with `known` snippets;
    `unread` those that cannot be read, or not to their ends, or hold nothing. `documents` are the ids in files that are
    read and no later one changes, up to `MOST` in all. `blocks` is about the number of snippets after splitting,
    without the superseded; `avg_len` is their mean length in BM25 tokens, `sample` some of them, drawn by the hash of
    their ids. `ids` are these hashes of all changes. `seconds` is how long it took to read the files.
    """

    sources: tuple[SourceRecord, ...]
    snippets: int
    rejected: int
    superseded: frozenset[int]
    conflicts: frozenset[int]
    avg_len: float
    blocks: int
    sample: tuple[Snippet, ...] = ()
    deletions: int = 0
    revived: frozenset[int] = frozenset()
    skipped: Mapping[Source, SourceRecord] = field(default_factory=dict)
    unread: frozenset[Source] = frozenset()
    documents: Mapping[Source, Mapping[str, None]] = field(default_factory=dict)
    known: int = 0
    ids: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64), compare=False, repr=False)
    seconds: float = field(default=0.0, compare=False)

    @property
    def changes(self) -> int:
        """How many changes remain to be made."""
        return self.snippets + self.deletions - len(self.superseded)

    def read(self, ids: Iterable[str]) -> set[str]:
        """Return those of these ids of which the corpus holds a change."""
        hashes = {hash64(id): id for id in ids}
        common = np.intersect1d(np.fromiter(hashes, np.uint64, len(hashes)), self.ids)
        return {hashes[number] for number in common.tolist()}


@dataclass(slots=True)
class CorpusTally:
    """The sums of a survey: per change the hash of its id, and its number (32 bits) before the hash of its text.

    `sample` are the blocks with the largest hashes of their ids, each with the hash and its number among the blocks: a
    draw of equal chances that a second run repeats.
    """

    split: Splitter
    length_of: LengthCounter
    ids: array[int] = field(default_factory=lambda: array("Q"))
    texts: array[int] = field(default_factory=lambda: array("Q"))
    snippets: int = 0
    deletions: int = 0
    blocks: int = 0
    tokens: int = 0
    sample: list[tuple[int, int, Snippet]] = field(default_factory=list)
    documents: dict[Source, dict[str, None]] = field(default_factory=dict)
    noted: int = 0

    def add(self, change: Change) -> None:
        """Count one change."""
        self.ids.append(hash64(change.id))
        if isinstance(change, Deletion):
            self.texts.append(DELETED << 32)
            self.deletions += 1
            return
        self.texts.append(_number(change) << 32 | hash64(change.digest) >> 32)
        self.snippets += 1
        for block in self.split(change):
            self.blocks += 1
            self.tokens += self.length_of(block.contents)
            heapq.heappush(self.sample, (hash64(block.id), self.blocks, block))
            if len(self.sample) > SAMPLE:
                heapq.heappop(self.sample)

    def counted(
        self, source: Source, record: SourceRecord, changes: Iterable[Change], rejects: RejectsFile | None
    ) -> SourceRecord:
        """Count all changes of a source; return its record with their numbers."""
        snippets, deletions, rejected = self.snippets, self.deletions, rejects.count if rejects else 0
        ids = self.documents.setdefault(source, {}) if is_held(source) else None
        for change in changes:
            self.add(change)
            if ids is not None and change.id not in ids and self.noted <= MOST:  # of more nothing is held
                ids[change.id] = None
                self.noted += 1
        return replace(
            record,
            snippets=self.snippets - snippets,
            deletions=self.deletions - deletions,
            rejected=rejects.count - rejected if rejects else 0,
        )


def survey(
    sources: Sequence[Source],
    rejects: RejectsFile | None,
    on_progress: OnProgress,
    split: Splitter = WHOLE,
    taken: Sequence[SourceRecord] = (),
    length_of: LengthCounter | None = None,
    is_unchanged: Callable[[Source, str], bool] | None = None,
) -> Survey:
    """Read the whole corpus once, so that nothing bad is indexed and the statistics are known.

    Memory: 16 bytes a change, up to `MOST` ids, and a sample. Files of an incremental format that stand in `taken`,
    what the index was made from, are not read again: later ones may have changed them. Nor are those that the index
    holds as they are, by their hash (`is_unchanged`). `length_of` counts BM25 terms, by default words.

    Raises `BadInputError` at the first bad line, or if the corpus holds no snippet.
    """
    started = time.perf_counter()
    tally, before = CorpusTally(split, length_of or LengthCounter()), {record.sha256: record for record in taken}
    records: list[SourceRecord] = []
    skipped: dict[Source, SourceRecord] = {}
    unread: set[Source] = set()
    with rejects.written([source.path for source in sources]) if rejects else nullcontext():
        for source in sources:
            damaged = len(rejects.damaged) if rejects else 0
            try:
                record = SourceRecord(source.name, source.sha256(), source.bytes, 0)
            except OSError as error:
                if rejects is None:
                    raise
                rejects(Reject(source.name, 1, f"cannot be read: {error.strerror}", "", damaged=True))
                unread.add(source)
                continue
            known = before.get(record.sha256)
            if known and ((is_unchanged and is_unchanged(source, record.sha256)) or reader_of(source).incremental):
                skipped[source] = known
                # Its faults are reported again.
                deque(read_changes(source, rejects, split.check) if known.rejected else (), maxlen=0)
            else:
                changes = reported(read_changes(source, rejects, split.check), on_progress)
                records.append(tally.counted(source, record, changes, rejects))
                unread.update([source] if rejects and len(rejects.damaged) > damaged else [])
            last = skipped.get(source) or records[-1]
            unread.update([] if last.snippets + last.deletions else [source])  # an empty one may have been cut to that
    held = {record.name for record in taken} - {PIPED}  # which is another file each time
    is_kept = any(source.name in held for source in unread)  # what the index held of it
    if sources and (not (tally.ids or skipped or is_kept) or not (tally.snippets or taken)):
        raise BadInputError(_nothing_read(sources, rejects))
    texts = np.frombuffer(tally.texts, np.uint64)
    superseded, conflicts, revived = repeated(np.frombuffer(tally.ids, np.uint64), texts)
    remaining = tally.snippets - sum(int(texts[position]) >> 32 != DELETED for position in superseded)
    return Survey(
        sources=tuple(records),
        snippets=tally.snippets,
        rejected=rejects.count if rejects else 0,
        superseded=superseded,
        conflicts=conflicts,
        avg_len=tally.tokens / max(1, tally.blocks),
        blocks=round(tally.blocks * remaining / max(1, tally.snippets)),
        sample=tuple(snippet for _, _, snippet in sorted(tally.sample, reverse=True)),
        deletions=tally.deletions,
        revived=revived,
        skipped=skipped,
        unread=frozenset(unread),
        documents=tally.documents,
        known=sum(record.snippets for record in skipped.values()),
        ids=np.array(tally.ids, np.uint64),
        seconds=time.perf_counter() - started,
    )


def _nothing_read(sources: Sequence[Source], rejects: RejectsFile | None) -> str:
    """Return why no file of a corpus gave a snippet, for each of the first `NAMED`."""
    reasons = [(rejects.first if rejects else {}).get(source.name, f"{source.name}: no record") for source in sources]
    others = [f"and {len(reasons) - NAMED:,} more files"] if len(reasons) > NAMED else []
    return f"the corpus holds no snippet: {'; '.join([*reasons[:NAMED], *others])}"


def _number(snippet: Snippet) -> int:
    """Return 32 bits that order the snippets of one id: version, then the date of revision."""
    version, revised = revision(snippet)
    return min(version, HIGHEST_VERSION) << 25 | int(revised.replace("-", "").ljust(8, "0"))


def hash64(text: str) -> int:
    """Return 64 bits of a text's hash."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def repeated(ids: np.ndarray, texts: np.ndarray) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
    """Return the superseded, conflicting and revived positions of a survey.

    Of the changes of one id since its last deletion the one with the highest number wins, the last of equals; where
    there is none since, the deletion does. `ids` and `texts` are of each change, as `CorpusTally` has them.
    """
    order = np.argsort(ids, kind="stable")
    starts = np.flatnonzero(np.r_[True, ids[order][1:] != ids[order][:-1]])
    ends = np.r_[starts[1:], len(order)]
    superseded: set[int] = set()
    conflicts: set[int] = set()
    revived: set[int] = set()
    for group in np.flatnonzero(ends - starts > 1):
        positions = order[starts[group] : ends[group]].tolist()
        words = texts[positions].tolist()
        numbers = [word >> 32 for word in words]
        deletion = max((index for index, number in enumerate(numbers) if number == DELETED), default=-1)
        winner = max(range(deletion + 1, len(positions)), key=lambda index: (numbers[index], index), default=deletion)
        superseded.update(positions[:winner] + positions[winner + 1 :])
        if winner > deletion >= 0:
            revived.add(positions[winner])
        if numbers[winner] == UNDATED:
            others = (index for index, number in enumerate(numbers) if number == UNDATED)
            conflicts.update(positions[index] for index in others if words[index] != words[winner])
    return frozenset(superseded), frozenset(conflicts), frozenset(revived)


@dataclass(frozen=True, slots=True)
class FileSync:
    """What an index loses as files and folders are read again.

    `gone` are the documents that no file holds any more, each with the file that held it; `left_out` the files that are
    no longer there; `kept` those that cannot be read now, new ones too, or fewer records of them than before; `held`
    these, if they are not new, and others whose documents stay; `emptied` are folders that held some and hold no file.
    `read` are the ids of the documents of the files that are read, as `records` has them; those of `twins` have the
    content of a file whose documents are these, which was renamed, moved or copied. `is_shared`: a file that was not
    read again shares documents with others, and which one counts depends on their order.
    """

    ledger: SourceLedger
    gone: Mapping[str, str]
    left_out: Sequence[str]
    kept: Sequence[str]
    held: AbstractSet[str]
    emptied: Sequence[str]
    files: FoundFiles
    records: Mapping[Source, SourceRecord]
    read: Mapping[Source, Mapping[str, None]]
    twins: Mapping[Source, Sequence[str]]
    is_shared: bool
    lacking: list[str] = field(default_factory=list)
    noted: Counter[Source] = field(default_factory=Counter)

    @classmethod
    def of(
        cls,
        ledger: SourceLedger,
        files: FoundFiles,
        survey: Survey,
        keep_missing: bool = False,
        taken: Sequence[SourceRecord] = (),
    ) -> FileSync:
        """Compare a corpus with what its files held before, also those `taken`; `keep_missing`: nothing is lost."""
        by_name = {record.name: record for record in survey.sources}
        new = {source: by_name[source.name] for source in files.sources if source.name in by_name and is_held(source)}
        moved = ledger.moved(files, [record.sha256 for record in new.values()])
        missing = [*ledger.left_out(files), *moved]
        before_faults = {source: ledger.files[key].faults for source in new if (key := key_of(source)) in ledger.files}
        damaged = (source for source, faults in before_faults.items() if faults and new[source].rejected > faults[0])
        unread = {*map(key_of, (*survey.unread, *damaged)), *ledger.inside(files.unread)}
        left_out = [] if keep_missing else list(dict.fromkeys(missing))
        changed = {*map(key_of, new), *left_out}
        before = ledger.documents_of(changed)
        others = ledger.documents_of((ledger.files.keys() - changed) | unread)
        skipped = ledger.documents_of(map(key_of, survey.skipped))
        present = survey.read(before) | others.keys()
        lost = {document: file for document, file in before.items() if document not in present}
        gone = {} if keep_missing else lost
        is_shared = bool(survey.read(skipped)) or not before.keys().isdisjoint(skipped)
        known = {held.sha256: held.documents for held in ledger.files.values() if held.sha256}
        twins = {source: known[record.sha256] for source, record in new.items() if record.sha256 in known}
        kept = sorted(
            key for key in unread & ledger.files.keys() if survey.read(ids := ledger.files[key].documents) < {*ids}
        )
        held = {*kept, *(lost.values() if keep_missing else ())}
        unheld = (key for key in _less_read(files, survey, taken) if not ledger.documents_of([key]))
        closed = (key_of(one) for one in survey.unread if one.name not in by_name and one not in survey.skipped)
        kept = sorted({*kept, *unheld, *closed, *ledger.unknown(files.unread)})
        emptied = _emptied(set(gone.values()) - set(moved), files)
        read = {source: survey.documents.get(source, {}) for source in new}
        return cls(ledger, gone, left_out, kept, held, emptied, files, new, read, twins, is_shared)

    def note(self, source: Source, change: Change) -> str:
        """Note a document that is read from a file; return one whose text it may have: of its twin, else itself."""
        if source not in self.read:
            return ""
        number, twins = self.noted[source], self.twins.get(source, ())
        self.noted[source] += 1
        if not number and isinstance(change, Snippet) and reader_of(source).paper:
            lacks = not (change.metadata.get("authors") and change.metadata.get("year"))
            self.lacking.extend([source.label] * lacks)
        return twins[number] if number < len(twins) else change.id

    @property
    def moved(self) -> list[str]:
        """The files that were renamed or moved, also to where another one was, and those that lose what another has."""
        now = {key_of(source): record.sha256 for source, record in self.records.items()}
        before = {key: self.ledger.files[key].sha256 for key in (*self.left_out, *self.gone.values())}
        times: Counter[str | None] = Counter(now.values())
        return [key for key, sha256 in before.items() if times[sha256] > (now.get(key) == sha256)]

    @property
    def renamed(self) -> int:
        """How many documents of these files go."""
        moved = set(self.moved)
        return sum(file in moved for file in self.gone.values())

    def removals(self) -> Iterator[PendingChange]:
        """Yield the removals of what is gone."""
        for document, file in self.gone.items():
            yield PendingChange(Deletion(document), revived=True, source=file)

    def replaces(self, record: SourceRecord) -> bool:
        """Return whether a record is of a file as it was before, or that is no longer there."""
        changed = {*map(key_of, self.read), *self.left_out}
        return not changed.isdisjoint(self.ledger.files) and os.path.realpath(record.name) in changed

    def after(self, is_done: bool = True) -> SourceLedger:
        """Return the ledger once all was read and written; before, with what may be: so a killed run's is known."""
        read: dict[str, HeldFile] = {}
        for source, documents in self.read.items():
            key, record = key_of(source), self.records[source]
            libraries = (os.path.realpath(source.library),) if source.library else ()
            held = self.ledger.files.get(key, HeldFile(None, (), libraries=libraries))
            if not is_done and held.sha256 == record.sha256 and documents.keys() <= {*held.documents}:
                continue
            before = held.documents if key in self.held or not is_done else ()
            keeps_faults = not is_done or (before and key in self.kept)  # those of its last whole reading
            faults = held.faults if keeps_faults else (record.rejected, len(faults_beside(source)))
            ids, beside = tuple(dict.fromkeys([*before, *documents])), beside_hash(source) or ""
            sha256 = record.sha256 if is_done and not before else None
            read[key] = replace(held, sha256=sha256, documents=ids, beside=beside, faults=faults)
        if not is_done:
            return replace(self.ledger, files={**self.ledger.files, **read})
        return self.ledger.taken(read, self.left_out, self.files)


def _less_read(files: FoundFiles, survey: Survey, taken: Sequence[SourceRecord]) -> Iterator[str]:
    """Yield the files that had more snippets when they were taken in, and cannot be read as far as then."""
    most = {os.path.realpath(record.name): record for record in sorted(taken, key=lambda record: record.snippets)}
    read = {record.name: record for record in (*survey.sources, *survey.skipped.values())}
    for source in files.sources:
        if before := most.get(key_of(source)):
            record = read.get(source.name, replace(before, snippets=0))
            is_worse = source in survey.unread or record.rejected > before.rejected
            yield from [key_of(source)] * (is_worse and record.snippets < before.snippets)


def _emptied(gone: AbstractSet[str], files: FoundFiles) -> list[str]:
    """Return the folders that held these files, are still there, and hold no corpus file any more, readable or not."""
    parents = {next(folder for folder in Path(key).parents if folder.is_dir()) for key in gone}
    paths = [*(source.path for source in files.sources), *files.unread]
    full = {folder for path in paths for folder in (path.parent.resolve() / path.name).parents}
    return sorted(map(str, parents - full))
