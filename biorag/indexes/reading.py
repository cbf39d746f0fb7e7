"""Reading an index from one end to the other."""

from __future__ import annotations

from collections.abc import Iterator

from biorag.types import Index, Snippet
from biorag.utils.batched import batched

FETCHED_AT_ONCE = 1000


def stored_snippets(index: Index) -> Iterator[Snippet]:
    """Yield every snippet of an index, in the order of its ids."""
    for ids in batched(index.ids(), FETCHED_AT_ONCE):
        snippets = index.fetch(ids)
        yield from (snippets[id] for id in ids if id in snippets)
