"""Pairs of title and abstract, for a first phase of training (M+C paper, section 3.2.1; BMRetriever, section 3.2)."""

from __future__ import annotations

from collections.abc import Iterator

from biorag.conversion import medrag
from biorag.conversion.items import Dropped, JudgedQuestion, Request, Row
from biorag.corpus.readers import OnReject
from biorag.training.rows import normalised, title_abstract_row


def convert(request: Request, on_reject: OnReject | None) -> Iterator[Row | JudgedQuestion | Dropped]:
    """Yield a row for each snippet of the files or of the hub: its title is the query, its abstract the positive.

    A title is a question too, to which its own snippet is relevant (known-item search). A snippet without a title is
    cut in two halves, as `title_abstract_row` says; one of which no pair can be made is dropped and counted.
    """
    for snippet in medrag.convert(request, on_reject):
        row = title_abstract_row(snippet)
        if normalised(row.query) and normalised(row.positive):
            yield Row({"query": row.query, "positive": row.positive, "positive_id": row.positive_id})
            if snippet.title:
                yield JudgedQuestion(snippet.id, snippet.title, relevant={snippet.id: 1})
        else:
            yield Dropped(snippet.id)
