"""Making changes in an index: documents that differ from the corpus are removed, or encoded and written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from biorag.indexes.fields import kinds_of
from biorag.indexes.points import SCROLL
from biorag.indexes.records import IndexingProgress
from biorag.types import Change, Deletion, Encoded, Index, Snippet, Vectors, block_id
from biorag.utils.progress import batched

EncodeSnippets = Callable[[Sequence[Snippet]], Encoded]
SnippetVectors: TypeAlias = "tuple[Vectors, Vectors | None]"  # dense and token vectors of one snippet


class BlockSplit(Protocol):
    """Gives a document's blocks of up to `tokens` tokens, 0 where documents stay whole."""

    @property
    def tokens(self) -> int:
        """Tokens in a block at most."""

    def __call__(self, document: Snippet) -> list[Snippet]:
        """Return the blocks of a document."""


_BLOCK = re.compile(r"(.*)#([0-9]+)", re.DOTALL)
_DATE = re.compile(r"([12][0-9]{3}(-[0-9]{2}){0,2})?")


def revision(snippet: Snippet) -> tuple[int, str]:
    """Return a PubMed record's version (from 1) and date of revision; 0 and "" of any other snippet."""
    version, revised = snippet.metadata.get("version"), snippet.metadata.get("revised", "")
    if snippet.document != str(snippet.pmid) or not isinstance(version, int) or version is True or version < 1:
        return 0, ""
    if not isinstance(revised, str) or not _DATE.fullmatch(revised):
        return 0, ""
    return version, revised


class PendingChange(NamedTuple):
    """A change to be made, and the file it is in; one that is `revived` counts whatever the index holds.

    `like` is a document whose text it may have, in the index: then its vectors are taken from there.
    """

    change: Change
    revived: bool
    source: str
    like: str = ""


@dataclass(frozen=True, slots=True)
class _Document:
    """A change of a document: the blocks that it is to have, and what the index `held` as its first block, or whole.

    `differs`: whether the index holds it otherwise; of other documents nothing is looked up.
    """

    pending: PendingChange
    blocks: Sequence[Snippet]
    held: Sequence[Snippet]
    differs: bool

    @property
    def id(self) -> str:
        """The document's id."""
        return self.pending.change.id

    @property
    def is_deleted(self) -> bool:
        """Whether the document goes."""
        return isinstance(self.pending.change, Deletion)

    @property
    def is_older(self) -> bool:
        """Whether the record is older than the one that the index holds."""
        change = self.pending.change
        if isinstance(change, Deletion) or self.pending.revived or revision(change) == (0, ""):
            return False
        return any(revision(snippet) > revision(change) for snippet in self.held)

    @property
    def can_tear(self) -> bool:
        """Whether a kill in the middle of the change can leave something that is neither the old nor the new.

        The engine overwrites a point part by part, while one that is new or deleted is there or not.
        """
        if self.is_deleted:
            return any(first.id != first.document for first in self.held)
        return bool(self.held) or len(self.blocks) > 1


class _Batch(NamedTuple):
    """The documents of a batch, those of them that change, the blocks `todo`, and their vectors once encoded.

    A kill in the middle can tear the documents of `torn`. `known` are vectors of blocks that need not be encoded.
    """

    documents: Sequence[_Document]
    changed: Sequence[_Document]
    todo: Sequence[Snippet]
    torn: Mapping[str, str]
    known: Mapping[str, SnippetVectors]
    encoded: Encoded | None = None


class Updater:
    """Makes the changes of a batch that the index does not hold as they are; counts documents.

    A batch is encoded while the one before it is written, so two may be under way when a run is killed. The blocks of
    the batches in `progress` are written again; those that belong to no document are removed first. `record` is called
    before a batch is encoded, and again before anything of it is written that could be torn. `fields` are those of the
    index, to which those of the batches are added.
    """

    def __init__(
        self,
        index: Index,
        load_encoder: Callable[[], EncodeSnippets],
        split: BlockSplit,
        progress: IndexingProgress,
        record: Callable[[IndexingProgress], None],
        fields: Mapping[str, str] | None = None,
    ) -> None:
        self.fields = fields
        self._index = index
        self._load_encoder = load_encoder
        self._encode: EncodeSnippets | None = None
        self._encoded: _Batch | None = None  # the batch that is to be written
        self._split = split
        self._record = record
        self.again = set(progress.batch)
        self.added = self.updated = self.unchanged = self.deleted = 0
        self.done = 0  # changes that are in the index durably, whether they were made now or before
        self.torn = dict(progress.torn)
        self._remove_orphans()

    @property
    def progress(self) -> IndexingProgress:
        """The durable changes, and those to be written again."""
        return IndexingProgress(self.done, tuple(sorted(self.again)), self.torn)

    def write(self, batch: Sequence[PendingChange]) -> int:
        """Encode a batch while the one before it is written; return how many changes that made durable.

        What a document no longer has goes before what is new of it comes, and its first block, which tells how many
        there are, goes last: so the next run repairs one that was killed in between.
        """
        prepared = self._prepare(batch)
        self.again.update(block.id for block in prepared.todo)
        torn = self._encoded.torn if self._encoded else {}
        self.torn.update(torn)
        if prepared.todo or torn:
            self._record(self.progress)
        before = self.done
        if prepared.todo:
            fresh = [snippet for snippet in prepared.todo if snippet.id not in prepared.known]
            if fresh:
                self._encode = self._encode or self._load_encoder()
            with self._writing():
                encoded = self._encode(fresh) if self._encode and fresh else None
            prepared = prepared._replace(encoded=_joined(prepared.todo, prepared.known, encoded))
        else:
            self._write_encoded()
        self._encoded = prepared
        return self.done - before

    def finish(self) -> int:
        """Write the last batch; return how many changes that made durable."""
        before = self.done
        if self._encoded and self._encoded.torn:
            self.torn.update(self._encoded.torn)
            self._record(self.progress)
        self._write_encoded()
        return self.done - before

    def _prepare(self, batch: Sequence[PendingChange]) -> _Batch:
        """Compare a batch with the index. No batch before it changes what is read: a document is in one alone."""
        blocks = {
            pending.change.id: [] if isinstance(pending.change, Deletion) else self._split(pending.change)
            for pending in batch
        }
        self.fields = kinds_of(chain.from_iterable(blocks.values()), self.fields)
        ids = {id for name, wanted in blocks.items() for id in (*self._first_ids(name), *(one.id for one in wanted))}
        stored = self._index.digests(sorted(ids))
        differing = dict.fromkeys(id for id, wanted in blocks.items() if self._differs(id, wanted, stored))
        held = self._firsts(differing, stored)
        documents = [
            _Document(pending, blocks[id], held.get(id, ()), id in differing)
            for pending, id in ((pending, pending.change.id) for pending in batch)
        ]
        changed = [document for document in documents if document.differs and not document.is_older]
        todo = [
            block
            for document in documents
            for block in document.blocks
            if not document.is_older and (stored.get(block.id) != block.digest or block.id in self.again)
        ]
        torn = {document.id: document.pending.source for document in changed if document.can_tear}
        return _Batch(documents, changed, todo, torn, self._known(changed, {block.id for block in todo}))

    def _known(self, changed: Sequence[_Document], lacking: AbstractSet[str]) -> Mapping[str, SnippetVectors]:
        """Return the vectors of snippets that the index holds with the same text, where documents like theirs are.

        What a killed run may have left half written is not looked at: it may have an old vector beside a new text.
        """
        pairs = [
            (block, document.pending.like + block.id.removeprefix(document.id))
            for document in changed
            if document.pending.like and document.pending.like not in self.torn
            for block in document.blocks
            if block.id in lacking
        ]
        held = self._index.fetch(sorted({twin for _, twin in pairs} - self.again)) if pairs else {}
        same = {block.id: twin for block, twin in pairs if twin in held and held[twin].contents == block.contents}
        vectors = self._index.vectors(sorted(set(same.values()))) if same else {}
        return {id: vectors[twin] for id, twin in same.items() if twin in vectors}

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Write the encoded batch in another thread meanwhile; what is durable is recorded if the work here fails."""
        if self._encoded is None:
            yield
            return
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(self._replace, self._encoded)
            try:
                yield
            except BaseException:
                if not writing.exception():
                    self._count(self._encoded)
                    self._record(self.progress)
                raise
            writing.result()
        self._count(self._encoded)

    def _write_encoded(self) -> None:
        """Write the encoded batch, if there is one."""
        if self._encoded:
            self._replace(self._encoded)
            self._count(self._encoded)
            self._encoded = None

    def _replace(self, batch: _Batch) -> None:
        """Remove what a batch takes the place of, and write it."""
        self._remove(batch.changed)
        if batch.encoded:
            self._index.upsert(batch.todo, *batch.encoded)

    def _count(self, batch: _Batch) -> None:
        """Count a batch that is in the index durably."""
        self._settle({document.id for document in batch.documents if not document.is_older})
        for document in batch.changed:
            self.deleted += document.is_deleted
            self.updated += not document.is_deleted and bool(document.held)
            self.added += not document.held
        self.unchanged += sum(not document.is_deleted for document in batch.documents)
        self.unchanged -= sum(not document.is_deleted for document in batch.changed)
        self.done += len(batch.documents)

    def _settle(self, documents: AbstractSet[str]) -> None:
        """Note that these documents are in the index as they should be."""
        self.again = {id for id in self.again if self._place(id)[0] not in documents}
        for document in documents & self.torn.keys():
            del self.torn[document]

    def _place(self, id: str) -> tuple[str, int | None]:
        """Return the document of a block's id and its number there; None of a whole document."""
        match = _BLOCK.fullmatch(id) if self._split.tokens else None
        return (match[1], int(match[2])) if match else (id, None)

    def _remove_orphans(self) -> None:
        """Remove blocks to be written again that come after those which their document's first block counts."""
        places = {id: located for id in self.again if (located := self._place(id))[1]}
        firsts = self._index.fetch([block_id(document, 0) for document, _ in places.values()])
        counts = {first.document: _blocks_of(first) for first in firsts.values()}
        orphans = sorted(id for id, (document, number) in places.items() if (number or 0) >= counts.get(document, 0))
        if orphans:
            self._index.delete(orphans)

    def _first_ids(self, document: str) -> list[str]:
        """Return the ids that a document's first block can have: whole, or split."""
        return [document, block_id(document, 0)] if self._split.tokens else [document]

    def _differs(self, document: str, blocks: Sequence[Snippet], stored: Mapping[str, str]) -> bool:
        """Return whether the index holds a document differently from these blocks."""
        wanted = {block.id: block.digest for block in blocks}
        return any(stored.get(id) != wanted.get(id) for id in {*self._first_ids(document), *wanted})

    def _firsts(self, documents: Iterable[str], stored: Mapping[str, str]) -> dict[str, list[Snippet]]:
        """Return what the index holds of documents as first block, or whole."""
        owners = {id: document for document in documents for id in self._first_ids(document) if id in stored}
        firsts: dict[str, list[Snippet]] = {}
        for id, snippet in (self._index.fetch(list(owners)) if owners else {}).items():
            firsts.setdefault(owners[id], []).append(snippet)
        return firsts

    def _remove(self, changed: Sequence[_Document]) -> None:
        """Remove what these documents no longer have, their first blocks last."""
        wanted = {block.id for document in changed for block in document.blocks}
        firsts = [first for document in changed for first in document.held]
        later = (block_id(first.document, number) for first in firsts for number in range(1, _blocks_of(first)))
        for ids in (later, (first.id for first in firsts)):
            if gone := [id for id in ids if id not in wanted]:
                self._index.delete(gone)


def _joined(
    snippets: Sequence[Snippet], known: Mapping[str, SnippetVectors], encoded: Encoded | None
) -> Encoded | None:
    """Return the vectors of snippets, of which those that are not known were encoded, in their order."""
    if not known:
        return encoded
    fresh = iter(zip_longest(encoded.vectors, encoded.tokens) if encoded else ())
    rows = [known[snippet.id] if snippet.id in known else next(fresh) for snippet in snippets]
    return Encoded(np.stack([dense for dense, _ in rows]), [tokens for _, tokens in rows if tokens is not None])


def count_snippets(index: Index, documents: Sequence[str]) -> int:
    """Return how many snippets the index has of documents: one each, of a split one its blocks."""
    ids = (id for document in documents for id in (document, block_id(document, 0)))
    return sum(_blocks_of(first) for batch in batched(ids, SCROLL) for first in index.fetch(batch).values())


def _blocks_of(first: Snippet) -> int:
    return int(first.metadata["blocks"]) if first.id != first.document else 1
