"""Bringing a surveyed corpus into an index: new and changed snippets are encoded and written."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter
from typing import Protocol

from biorag.corpus.blocks import WHOLE, Splitter
from biorag.corpus.readers import OnReject, read_changes
from biorag.corpus.rejects import RejectsFile
from biorag.corpus.sources import FoundFiles, Source, by_kind
from biorag.errors import MismatchError, ServiceError
from biorag.indexes.estimating import IndexEstimate, estimate
from biorag.indexes.manifest import Manifest, SourceRecord, TokenParameters
from biorag.indexes.published import PublishedVectors
from biorag.indexes.records import (
    IndexingProgress,
    SourceLedger,
    clear_progress,
    read_ledger,
    read_progress,
    torn_note,
    write_ledger,
    write_progress,
)
from biorag.indexes.store import Store, check_encoder
from biorag.indexes.surveying import FileSync, Survey
from biorag.indexes.updating import BlockSplit, EncodeSnippets, PendingChange, Updater, count_snippets
from biorag.types import Encoded, Encoder, OnProgress, Progress, Snippet
from biorag.utils.files import timestamp
from biorag.utils.progress import batched
from biorag.utils.versions import installed_versions

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IndexReport:
    """The report of an indexing run, as `biorag index --json` prints it.

    All but `snippets`, the size of the index in the end, count documents. An interrupted run may have left those of
    `torn` half written. `files` counts by kind
    those that were taken or `rejected` whole, and of folders those that were left. Documents
    of files that were `renamed` or moved are neither added nor deleted. `lacking` are papers that were read
    and have no authors or year. `vectors` counts snippets whose vectors were published, and that were encoded, where
    published ones are named. Documents of files that are `unreadable` now are kept; new ones are named, too.
    """

    name: str
    added: int
    updated: int
    unchanged: int
    deleted: int
    rejected: int
    duplicates: int
    snippets: int
    seconds: float
    complete: bool
    torn: tuple[str, ...]
    files: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    renamed: int = 0
    lacking: tuple[str, ...] = ()
    vectors: Mapping[str, int] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Incoming:
    """Changes on their way into an index, one a document, and the records of their files.

    `rejected` counts lines that could not be read, `duplicates` changes that others take the place of, `known`
    snippets of files that the index has taken in before. `replaces` tells which records of files are no longer true.
    An index is complete once a corpus is in it; removing documents by hand `completes` none, and `after` makes of the
    ledger what the index holds then; where files are followed, `sync` does, which tells what they may bring before.
    """

    winners: Iterable[PendingChange]
    split: BlockSplit
    sources: tuple[SourceRecord, ...]
    rejected: int = 0
    duplicates: int = 0
    known: int = 0
    replaces: Callable[[SourceRecord], bool] = lambda record: False
    completes: bool = True
    sync: FileSync | None = None
    after: Callable[[SourceLedger], SourceLedger] = lambda ledger: ledger


def surveyed_changes(
    sources: Sequence[Source],
    survey: Survey,
    rejects: OnReject | None = None,
    split: Splitter = WHOLE,
    sync: FileSync | None = None,
) -> Incoming:
    """Return the changes of a surveyed corpus, read once more; and those of `sync`, which notes what was read."""
    winners = _winners(sources, survey, rejects, split, sync)
    return Incoming(
        winners=chain(winners, sync.removals() if sync else ()),
        replaces=sync.replaces if sync else lambda record: False,
        split=split,
        sources=survey.sources,
        rejected=survey.rejected,
        duplicates=len(survey.superseded),
        known=survey.known,
        sync=sync,
    )


def write_index(
    store: Store,
    manifest: Manifest,
    incoming: Incoming,
    load_encoder: Callable[[], EncodeSnippets],
    on_progress: OnProgress,
) -> IndexReport:
    """Bring changes into the index; what it holds unchanged is neither encoded nor written.

    Every batch is durable when it is counted, so a killed run resumes where its progress record stopped.

    Raises `ServiceError` if another process is using the index, has changed its files since they were surveyed, or the
    store fails.
    """
    started = time.perf_counter()
    with closing(store.open(manifest, writable=True)) as index:
        # Under the lock, so that what another run wrote meanwhile is not overwritten.
        manifest, before = _still_fits(store.manifest(), manifest), read_progress(store.folder)
        sync, ledger = incoming.sync, read_ledger(store.folder)
        if sync and sync.ledger != ledger:
            raise ServiceError(f"another run has changed index {manifest.name!r} meanwhile: run the same command again")
        record = _begin(store, manifest, incoming, before)
        if sync:
            write_ledger(store.folder, sync.after(is_done=False))
        updater = Updater(index, load_encoder, incoming.split, before, record, manifest.fields)
        for batch in batched(incoming.winners, store.settings.index.batch_size):
            on_progress(updater.write(batch))
        on_progress(updater.finish())
        record(updater.progress)
        if updater.added or updater.updated or updater.deleted or not manifest.complete or index.deleted_share():
            index.optimize()
        seconds = round(time.perf_counter() - started, 3)
        finished = replace(_finished(manifest, incoming, seconds), snippets=index.count(), fields=updater.fields)
        only_torn = bool(before.torn) and not before.batch and not before.done
        is_whole = manifest.complete or incoming.completes or only_torn
        finished = replace(finished, complete=is_whole and not updater.torn, checksums=index.seal())
        store.save(finished, incoming.sources, [source for source in manifest.sources if incoming.replaces(source)])
        write_ledger(store.folder, sync.after() if sync else incoming.after(ledger))
        if not (updater.again or updater.torn):
            clear_progress(store.folder)
    if updater.torn:
        logger.warning("index %r stays incomplete: %s", manifest.name, torn_note(updater.torn))
    return IndexReport(
        name=manifest.name,
        added=updater.added,
        updated=updater.updated,
        unchanged=updater.unchanged + incoming.known,
        deleted=updater.deleted,
        rejected=incoming.rejected,
        duplicates=incoming.duplicates,
        snippets=finished.snippets,
        seconds=seconds,
        complete=finished.complete,
        torn=tuple(sorted(updater.torn)),
    )


def _begin(
    store: Store, manifest: Manifest, incoming: Incoming, before: IndexingProgress
) -> Callable[[IndexingProgress], None]:
    """Say in the manifest that the index is written; return what records the progress.

    A deletion leaves an index complete until documents may be torn, and the count of the run before it.
    """
    begun = replace(manifest, complete=manifest.complete and not incoming.completes, checksums=None)
    begun = replace(begun, updated=timestamp())
    store.save(begun)
    is_complete = begun.complete  # as it is saved

    def record(progress: IndexingProgress) -> None:
        nonlocal is_complete
        was_complete, is_complete = is_complete, begun.complete and not progress.torn
        # An index that says so is complete, whenever this is killed.
        if is_complete and not was_complete:
            store.save(replace(begun, complete=True))
        write_progress(store.folder, progress if incoming.completes else replace(progress, done=before.done))
        if was_complete and not is_complete:
            store.save(replace(begun, complete=False))

    return record


def _still_fits(current: Manifest | None, planned: Manifest) -> Manifest:
    """Return the manifest as it is now; another run may have made the index since this one was planned."""
    if current is None:
        return planned
    encoder = planned.encoder
    check_encoder(current, encoder.sha256, encoder.id, encoder.configuration)
    fixed = attrgetter("tokens", "blocks", "similarity", "quantized", "bm25", "vectors")
    if fixed(current) != fixed(planned):
        raise MismatchError(f"index {current.name!r} was made meanwhile, with other settings: run the command again")
    return replace(current, encoder=replace(current.encoder, configuration=encoder.configuration))


def _winners(
    sources: Sequence[Source], survey: Survey, rejects: OnReject | None, split: Splitter, sync: FileSync | None
) -> Iterator[PendingChange]:
    """Yield the changes of all sources that no other change supersedes; `sync` notes the documents of each."""
    new = (source for source in sources if source not in survey.skipped)
    changes = ((source, change) for source in new for change in read_changes(source, rejects, split.check))
    first = min(survey.conflicts, default=-1)
    for position, (source, change) in enumerate(changes):
        like = sync.note(source, change) if sync else ""
        if position == first:
            times = f" (one of {len(survey.conflicts)} such repetitions)" if len(survey.conflicts) > 1 else ""
            logger.warning("id %r appears again with other text; the later one wins%s", change.id, times)
        if position not in survey.superseded:
            yield PendingChange(change, position in survey.revived, source.name, like)


def _finished(manifest: Manifest, incoming: Incoming, seconds: float) -> Manifest:
    """Return the manifest after a run; a source read again unchanged keeps one record, in its first place."""
    still_true = (source for source in manifest.sources if not incoming.replaces(source))
    sources = {(source.name, source.sha256): source for source in (*still_true, *incoming.sources)}
    return replace(
        manifest,
        sources=tuple(sources.values()),
        seconds=round(manifest.seconds + seconds, 3),
        updated=timestamp(),
        versions=installed_versions(),
    )


class SnippetEncoding(Protocol):
    """Encodes snippets by the bi-encoder, and by a token model if an index stores its vectors."""

    @property
    def encoder(self) -> Encoder:
        """The bi-encoder."""

    @property
    def parameters(self) -> TokenParameters | None:
        """Whose token vectors are stored."""

    def __call__(self, snippets: Sequence[Snippet]) -> Encoded:
        """Encode snippets."""


@dataclass(frozen=True, slots=True)
class SurveyedCorpus:
    """A corpus that was read once, and the index it goes into, whose manifest is None if it is yet to be made."""

    store: Store
    manifest: Manifest | None
    files: FoundFiles
    survey: Survey
    split: Splitter
    load_encoding: Callable[[], SnippetEncoding]
    rejects: RejectsFile | None
    sync: FileSync
    published: PublishedVectors | None = None

    def _planned(self) -> Manifest:
        """Return the manifest of the index, or of the one to be made."""
        if self.manifest is not None:
            return self.manifest
        encoding = self.load_encoding()
        new = self.store.new_manifest(encoding.encoder.identity, self.survey.avg_len, encoding.parameters)
        return replace(new, vectors=self.published.sha256 if self.published else None)

    def estimate(self) -> IndexEstimate:
        """Return an estimate of indexing it; nothing is written."""
        return estimate(self._planned, self.survey, self.load_encoding)

    def doubt(self) -> str:
        """Return what to ask before much of an index goes, or what an emptied folder held; "" if there is no need."""
        moved = set(self.sync.moved)
        lost = [document for document, file in self.sync.gone.items() if file not in moved]
        if not (lost and self.manifest):
            return ""
        with closing(self.store.open(self.manifest)) as index:
            snippets, held = count_snippets(index, lost), index.count()  # a killed run's may not have come
        if not snippets or (snippets * 3 <= held and not self.sync.emptied):
            return ""
        empty = f"; now empty: {', '.join(self.sync.emptied[:3])}" if self.sync.emptied else ""
        return f"Remove {snippets:,} of {held:,} snippets, which no file holds any more{empty} (else: --keep-missing)?"

    def write(self, progress: Progress) -> IndexReport:
        """Bring it into the index; see `write_index`."""
        on_reject = (lambda _: None) if self.rejects else None
        if moved := len(self.sync.moved):
            logger.info("files recognised as renamed or moved: %d", moved)
        with progress("Indexing", self.survey.changes + len(self.sync.gone)) as advance:
            incoming = surveyed_changes(self.files.sources, self.survey, on_reject, self.split, self.sync)
            report = write_index(self.store, self._planned(), incoming, self.load_encoding, advance)
        rejected = {source for source in self.survey.unread if not self.sync.read.get(source)}
        taken = by_kind(source for source in self.files.sources if source not in rejected)
        files = {"taken": taken, "left": self.files.left} | ({"rejected": by_kind(rejected)} if rejected else {})
        renamed = min(report.added, report.deleted, self.sync.renamed)
        added, deleted, lacking = report.added - renamed, report.deleted - renamed, tuple(self.sync.lacking)
        report = replace(report, files=files, added=added, deleted=deleted, renamed=renamed, lacking=lacking)
        vectors = self.published.counts if self.published else report.vectors
        return replace(report, unreadable=tuple(self.sync.kept), vectors=vectors)
