"""An answer as the page shows it: the verdict, the sentences, and the evidence with its quotes marked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from biorag.api.results import VerdictLine, verdict_line
from biorag.references.facts import participants
from biorag.references.reference import Reference, reference_of, source_line
from biorag.types import Answer, Hit

Span = tuple[int, int]


class TextPiece(NamedTuple):
    """A piece of a text; `mark` is the number of its span, None between spans."""

    text: str
    mark: int | None


def pieces(text: str, spans: Sequence[Span]) -> list[TextPiece]:
    """Return a text in pieces; the spans ascend and do not overlap."""
    parts, position = [], 0
    for number, (start, end) in enumerate(spans):
        if position < start:
            parts.append(TextPiece(text[position:start], None))
        parts.append(TextPiece(text[start:end], number))
        position = end
    if position < len(text):
        parts.append(TextPiece(text[position:], None))
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


@dataclass(frozen=True, slots=True)
class HitView:
    """A hit of the evidence."""

    hit: Hit
    reference: Reference
    source: str
    participants: int | None
    content: list[TextPiece]
    cited: bool


@dataclass(frozen=True, slots=True)
class AnswerView:
    """An answer as the page shows it."""

    asked: str  # the question as it was typed
    answer: Answer
    answer_id: str  # its name among those that are kept
    verdict: VerdictLine | None
    hits: list[HitView]


def answer_view(asked: str, answer: Answer, answer_id: str) -> AnswerView:
    """Return the answer to a question as the page shows it."""
    quotes: dict[int, list[str]] = {}
    for citation in answer.citations:
        quotes.setdefault(citation.n, []).append(citation.quote)
    for sentence in answer.sentences:
        for span in sentence.evidence:
            quotes.setdefault(span.n, []).append(span.quote)
    hits = [_hit_view(hit, quotes.get(hit.rank, []), answer) for hit in answer.hits]
    return AnswerView(asked, answer, answer_id, verdict_line(answer), hits)


def _hit_view(hit: Hit, quotes: list[str], answer: Answer) -> HitView:
    content, reference = hit.snippet.content, reference_of(hit.snippet)
    cited = any(citation.n == hit.rank for citation in answer.citations)
    marked = pieces(content, quoted_spans(content, quotes))
    people = participants(content)
    return HitView(hit, reference, source_line(reference), people.number if people else None, marked, cited)
