"""Claims and citing sentences as queries for the abstracts that they are judged by."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from biorag.corpus.claims import read_claims
from biorag.corpus.readers import OnReject
from biorag.lab.conversion.items import Item, Request


def convert(request: Request, on_reject: OnReject | None) -> Iterator[Item]:
    """Yield a row for each claim that brings its text: a search should find the text whatever it does to the claim.

    Each text is a snippet too, for an index to mine negatives from. A claim without a text is dropped and counted.
    """
    written: set[str] = set()
    for claim in chain.from_iterable(read_claims(source.path) for source in request.sources):
        if (text := claim.text) is None or not text.content:
            yield None
            continue
        yield {"query": claim.claim, "positive": text.contents, "positive_id": text.id}
        if text.contents not in written:
            written.add(text.contents)
            yield text
