"""Corpora of snippets: MedRAG's chunks (Xiong et al., 2024, arXiv:2402.13178) and whatever else is indexed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from biorag.conversion.entries import Entry, read_each
from biorag.conversion.items import Request, object_of
from biorag.corpus.readers import OnReject, read_snippets, snippet_of
from biorag.types import Snippet


def convert(request: Request, on_reject: OnReject | None) -> Iterator[Snippet]:
    """Yield the snippets of the files, or of the rows of a data set of the hub, in their order."""
    if request.hub:
        return read_each(request.hub.shown, request.hub.rows(), _snippet, on_reject)
    return chain.from_iterable(read_snippets(source, on_reject) for source in request.sources)


def _snippet(entry: Entry) -> Snippet:
    return snippet_of(object_of(entry.value()))
