"""Pairs of title and abstract from any corpus, and its records that have an abstract."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from biorag.corpus.readers import OnReject, read_snippets
from biorag.corpus.sentences import sentence_starts
from biorag.lab.conversion.items import Item, JudgedQuestion, Request
from biorag.training.rows import normalised, title_abstract_row

SHORTEST = 6  # words of a conclusion


def convert(request: Request, on_reject: OnReject | None) -> Iterator[Item]:
    """Yield a row for each snippet, its title the query, its abstract the positive: M+C, 3.2.1; BMRetriever, 3.2.

    A title is a question too, to which its own snippet is relevant (known-item search). A snippet that makes no pair,
    as `title_abstract_row` says, is dropped and counted.
    """
    for snippet in chain.from_iterable(read_snippets(source, on_reject) for source in request.sources):
        row = title_abstract_row(snippet)
        if normalised(row.query) and normalised(row.positive):
            yield {"query": row.query, "positive": row.positive, "positive_id": row.positive_id}
            if snippet.title:
                yield JudgedQuestion(snippet.id, snippet.title, relevant={snippet.id: 1})
        else:
            yield None


def conclusions(request: Request, on_reject: OnReject | None) -> Iterator[Item]:
    """Yield a row for each abstract of three sentences or more: the last one the query, title and rest the positive.

    Last sentences conclude, as claims do. A shorter text, or a last sentence of few words, is dropped and counted.
    """
    for snippet in chain.from_iterable(read_snippets(source, on_reject) for source in request.sources):
        starts = sentence_starts(snippet.content)
        query = snippet.content[starts[-1] :].strip() if len(starts) >= 2 else ""
        if len(query.split()) < SHORTEST:
            yield None
        else:
            rest = replace(snippet, content=snippet.content[: starts[-1]].strip())
            yield {"query": query, "positive": rest.contents, "positive_id": snippet.id}


def with_abstract(request: Request, on_reject: OnReject | None) -> Iterator[Item]:
    """Yield the snippets that have a text besides their title; the others are dropped and counted.

    The hybrid paper leaves out the 10 million of 28 million records that have a title alone (Ma et al., BioASQ 8,
    section 5).
    """
    for snippet in chain.from_iterable(read_snippets(source, on_reject) for source in request.sources):
        yield snippet if normalised(snippet.content) else None
