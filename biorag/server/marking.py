"""Texts in pieces, some of them marked: quotes in a passage, words of a heat map."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

Span = tuple[int, int]


class TextPiece(NamedTuple):
    """A piece of a text; `mark` is the number of the span that it is, None for what lies between spans."""

    text: str
    mark: int | None


def pieces(text: str, spans: Sequence[Span]) -> list[TextPiece]:
    """Return a text in pieces; the spans ascend and do not overlap."""
    parts, place = [], 0
    for number, (start, end) in enumerate(spans):
        if place < start:
            parts.append(TextPiece(text[place:start], None))
        parts.append(TextPiece(text[start:end], number))
        place = end
    if place < len(text):
        parts.append(TextPiece(text[place:], None))
    return parts


def quoted_spans(text: str, quotes: Iterable[str]) -> list[Span]:
    """Return where quotes stand in a text, ascending; overlapping ones are joined, absent ones left out."""
    spans = sorted((start, start + len(quote)) for quote in quotes if quote and (start := text.find(quote)) >= 0)
    joined: list[Span] = []
    for start, end in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined
