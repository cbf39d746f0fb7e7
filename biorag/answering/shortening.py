"""Snippets cut to the sentences nearest a question, for the prompt alone: what is cited is held to whole snippets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from biorag.answering.extract import EvidenceSentence, Extractor, candidates
from biorag.types import Hit, Snippet

ELLIPSIS = "…"


def shortened(question: str, hits: Sequence[Hit], most: int, extractor: Extractor) -> list[Snippet]:
    """Return the hits' snippets, each with its `most` sentences nearest the question; for 0 as they are.

    The sentences stay in their order; an ellipsis stands for those left out. A snippet of no more sentences is whole.
    """
    snippets = [hit.snippet for hit in hits]
    if not most:
        return snippets
    rows = candidates(hits)
    nearness = extractor.nearness(question, hits, rows)
    for n, snippet in enumerate(snippets, 1):
        places = [place for place, row in enumerate(rows) if row.n == n]
        if snippet.content and len(places) > most:
            nearest = sorted(sorted(places, key=lambda place: -nearness[place])[:most])
            snippets[n - 1] = replace(snippet, content=_joined(rows, places, nearest))
    return snippets


def _joined(rows: Sequence[EvidenceSentence], places: Sequence[int], kept: Sequence[int]) -> str:
    """Return the kept ones of a snippet's sentences, with an ellipsis for each gap between, before or after them."""
    parts: list[str] = []
    for place in places:
        if place in kept:
            parts.append(rows[place].text)
        elif parts[-1:] != [ELLIPSIS]:
            parts.append(ELLIPSIS)
    return " ".join(parts)
