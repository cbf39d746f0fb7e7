"""Making changes in an index: whatever differs from the corpus is removed, or encoded and written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from biorag.corpus.blocks import Splitter
from biorag.indexes.progress import IndexingProgress
from biorag.types import Change, Deletion, Encoded, Index, Snippet, block_id

EncodeSnippets = Callable[[Sequence[str]], Encoded]
_LATER_BLOCK = re.compile(r"(.*)#([1-9][0-9]*)", re.DOTALL)
_DATE = re.compile(r"([12][0-9]{3}(-[0-9]{2}){0,2})?")


def revision(snippet: Snippet) -> tuple[int, str]:
    """Return a PubMed record's version (from 1) and date of revision; 0 and "" of any other snippet."""
    version, revised = snippet.metadata.get("version"), snippet.metadata.get("revised", "")
    if snippet.document != str(snippet.pmid) or not isinstance(version, int) or version is True or version < 1:
        return 0, ""
    if not isinstance(revised, str) or not _DATE.fullmatch(revised):
        return 0, ""
    return version, revised


class Winner(NamedTuple):
    """A change to be made; one that is `revived` counts whatever the index holds."""

    change: Change
    revived: bool


class Updater:
    """Makes the changes of a batch that the index does not hold as they are; counts documents.

    `torn` are the ids of blocks that runs were writing when they ended early: they are written again, and those that
    belong to no document are removed first. `record` is told the progress before a batch is written; `torn` keeps
    what has not been written again.
    """

    def __init__(
        self,
        index: Index,
        load_encoder: Callable[[], EncodeSnippets],
        split: Splitter,
        torn: AbstractSet[str] = frozenset(),
        record: Callable[[IndexingProgress], None] = lambda _: None,
    ) -> None:
        self._index = index
        self._load_encoder = load_encoder
        self._encode: EncodeSnippets | None = None
        self._split = split
        self.torn = set(torn)
        self._record = record
        self.added = self.updated = self.unchanged = self.deleted = 0
        self.done = 0  # changes that are in the index durably, whether they were made now or before
        self._remove_orphans()

    def write(self, batch: Sequence[Winner]) -> None:
        """Bring one batch into the index.

        What a document no longer has goes before what is new of it comes, and its first block, which tells how many
        there are, goes last: so the next run repairs one that was killed in between.
        """
        wanted = {change.id: [] if isinstance(change, Deletion) else self._split(change) for change, _ in batch}
        ids = [
            id for document, blocks in wanted.items() for id in (*self._first_ids(document), *(b.id for b in blocks))
        ]
        stored = self._index.digests(list(dict.fromkeys(ids)))
        changed = [winner for winner in batch if self._differs(winner.change.id, wanted[winner.change.id], stored)]
        firsts = self._firsts([winner.change.id for winner in changed], stored)
        older = {winner.change.id for winner in changed if _is_older(winner, firsts.get(winner.change.id, ()))}
        changed = [winner for winner in changed if winner.change.id not in older]
        blocks = [block for change, _ in batch if change.id not in older for block in wanted[change.id]]
        todo = [block for block in blocks if stored.get(block.id) != block.digest or block.id in self.torn]
        if todo or changed:
            self._record(IndexingProgress(self.done, tuple(sorted(self.torn.union(block.id for block in todo)))))
        self._remove([first for change, _ in changed for first in firsts.get(change.id, ())], wanted)
        if todo:
            self._encode = self._encode or self._load_encoder()
            self._index.upsert(todo, *self._encode([block.contents for block in todo]))
            self.torn.difference_update(block.id for block in todo)
        for change, _ in changed:
            self.deleted += isinstance(change, Deletion)
            self.updated += isinstance(change, Snippet) and change.id in firsts
            self.added += change.id not in firsts
        snippets = sum(isinstance(change, Snippet) for change, _ in batch)
        self.unchanged += snippets - sum(isinstance(change, Snippet) for change, _ in changed)
        self.done += len(batch)

    def _remove_orphans(self) -> None:
        """Remove torn blocks that their document's first block does not count."""
        later = {id: _LATER_BLOCK.fullmatch(id) for id in self.torn} if self._split.tokens else {}
        numbered = {id: (match[1], int(match[2])) for id, match in later.items() if match}
        firsts = self._index.fetch([block_id(document, 0) for document, _ in numbered.values()])
        counts = {first.document: _blocks_of(first) for first in firsts.values()}
        orphans = sorted(id for id, (document, number) in numbered.items() if number >= counts.get(document, 0))
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


def _blocks_of(first: Snippet) -> int:
    return int(first.metadata["blocks"]) if first.id != first.document else 1


def _is_older(winner: Winner, stored: Iterable[Snippet]) -> bool:
    """Return whether a record is older than the one that the index holds."""
    if isinstance(winner.change, Deletion) or winner.revived or revision(winner.change) == (0, ""):
        return False
    return any(revision(snippet) > revision(winner.change) for snippet in stored)
