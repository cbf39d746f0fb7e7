"""Making changes in an index: documents that differ from the corpus are removed, or encoded and written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, zip_longest
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from biorag.indexes.fields import kinds_of
from biorag.indexes.progress import IndexingProgress
from biorag.types import Change, Deletion, Encoded, Index, Snippet, Vectors, block_id

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


class _Batch(NamedTuple):
    """The changes of a batch, and its vectors once they are encoded.

    `changed` are the winners that the index holds differently, `wanted` the blocks of each document, `firsts` the
    first blocks that the index holds of the changed ones, `documents` those that are not older than the index's. The
    snippets of `todo` are written; a kill in the middle can tear the documents of `torn`. `known` are vectors of those
    that need not be encoded.
    """

    winners: Sequence[PendingChange]
    changed: Sequence[PendingChange]
    wanted: Mapping[str, Sequence[Snippet]]
    firsts: Mapping[str, Sequence[Snippet]]
    documents: AbstractSet[str]
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
        wanted = {
            winner.change.id: [] if isinstance(winner.change, Deletion) else self._split(winner.change)
            for winner in batch
        }
        self.fields = kinds_of(chain.from_iterable(wanted.values()), self.fields)
        ids = [
            id for document, blocks in wanted.items() for id in (*self._first_ids(document), *(b.id for b in blocks))
        ]
        stored = self._index.digests(list(dict.fromkeys(ids)))
        changed = [winner for winner in batch if self._differs(winner.change.id, wanted[winner.change.id], stored)]
        firsts = self._firsts([winner.change.id for winner in changed], stored)
        older = {winner.change.id for winner in changed if _is_older(winner, firsts.get(winner.change.id, ()))}
        changed = [winner for winner in changed if winner.change.id not in older]
        blocks = [block for document, parts in wanted.items() if document not in older for block in parts]
        todo = [block for block in blocks if stored.get(block.id) != block.digest or block.id in self.again]
        torn = {
            winner.change.id: winner.source
            for winner in changed
            if _can_tear(winner.change, firsts.get(winner.change.id, ()), wanted[winner.change.id])
        }
        known = self._known({winner.change.id: winner.like for winner in changed if winner.like}, wanted, todo)
        return _Batch(batch, changed, wanted, firsts, frozenset(wanted.keys() - older), todo, torn, known)

    def _known(
        self, like: Mapping[str, str], wanted: Mapping[str, Sequence[Snippet]], todo: Sequence[Snippet]
    ) -> Mapping[str, SnippetVectors]:
        """Return the vectors of snippets that the index holds with the same text, where documents like theirs are.

        What a killed run may have left half written is not looked at: it may have an old vector beside a new text.
        """
        lacking = {block.id for block in todo}
        pairs = [
            (block, other + block.id.removeprefix(id))
            for id, other in like.items()
            if other not in self.torn
            for block in wanted[id]
            if block.id in lacking
        ]
        twins = list({twin for _, twin in pairs} - self.again)
        held = self._index.fetch(twins) if twins else {}
        same = {block.id: twin for block, twin in pairs if twin in held and held[twin].contents == block.contents}
        vectors = self._index.vectors(list(set(same.values()))) if same else {}
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
        firsts = (first for winner in batch.changed for first in batch.firsts.get(winner.change.id, ()))
        self._remove(list(firsts), batch.wanted)
        if batch.encoded:
            self._index.upsert(batch.todo, *batch.encoded)

    def _count(self, batch: _Batch) -> None:
        """Count a batch that is in the index durably."""
        self._settle(batch.documents)
        for change in (winner.change for winner in batch.changed):
            self.deleted += isinstance(change, Deletion)
            self.updated += isinstance(change, Snippet) and change.id in batch.firsts
            self.added += change.id not in batch.firsts
        snippets = sum(isinstance(winner.change, Snippet) for winner in batch.winners)
        self.unchanged += snippets - sum(isinstance(winner.change, Snippet) for winner in batch.changed)
        self.done += len(batch.winners)

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

    def _firsts(self, documents: Sequence[str], stored: Mapping[str, str]) -> dict[str, list[Snippet]]:
        """Return what the index holds of documents as first block, or whole."""
        owners = {id: document for document in documents for id in self._first_ids(document) if id in stored}
        firsts: dict[str, list[Snippet]] = {}
        for id, snippet in (self._index.fetch(list(owners)) if owners else {}).items():
            firsts.setdefault(owners[id], []).append(snippet)
        return firsts

    def _remove(self, firsts: Sequence[Snippet], wanted: Mapping[str, Sequence[Snippet]]) -> None:
        """Remove what the documents of these first blocks no longer have."""
        kept = {block.id for first in firsts for block in wanted[first.document]}
        rest = (block_id(first.document, number) for first in firsts for number in range(1, _blocks_of(first)))
        for ids in (rest, (first.id for first in firsts)):
            if gone := [id for id in ids if id not in kept]:
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


def _blocks_of(first: Snippet) -> int:
    return int(first.metadata["blocks"]) if first.id != first.document else 1


def _can_tear(change: Change, firsts: Sequence[Snippet], blocks: Sequence[Snippet]) -> bool:
    """Return whether a kill in the middle of a change can leave something that is neither the old nor the new.

    The engine overwrites a point part by part, while one that is new or deleted is there or not.
    """
    if isinstance(change, Deletion):
        return any(first.id != first.document for first in firsts)
    return bool(firsts) or len(blocks) > 1


def _is_older(winner: PendingChange, stored: Iterable[Snippet]) -> bool:
    """Return whether a record is older than the one that the index holds."""
    if isinstance(winner.change, Deletion) or winner.revived or revision(winner.change) == (0, ""):
        return False
    return any(revision(snippet) > revision(winner.change) for snippet in stored)
