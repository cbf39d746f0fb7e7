"""An answer as the page shows it: the verdict, the sentences, and the evidence with its quotes marked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from biorag.api.results import VerdictLine, verdict_line
from biorag.references.reference import Reference, reference_of, source_line
from biorag.retrieval.heat_map import HeatMap
from biorag.types import Answer, Hit, block_id

SHADES = 9  # of the heat map, as the style sheet has them
Span = tuple[int, int]


class TextPiece(NamedTuple):
    """A piece of a text; `mark` is the number of the span that it is, None for what lies between spans."""

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
    content: list[TextPiece]
    cited: bool
    stored_id: str


@dataclass(frozen=True, slots=True)
class AnswerView:
    """An answer as the page shows it."""

    answer: Answer
    answer_id: str  # its name among those that are kept
    verdict: VerdictLine | None
    hits: list[HitView]


def answer_view(answer: Answer, answer_id: str) -> AnswerView:
    """Return an answer as the page shows it."""
    quotes: dict[int, list[str]] = {}
    for citation in answer.citations:
        quotes.setdefault(citation.n, []).append(citation.quote)
    for sentence in answer.sentences:
        for span in sentence.evidence:
            quotes.setdefault(span.n, []).append(span.quote)
    hits = [_hit_view(hit, quotes.get(hit.rank, []), answer) for hit in answer.hits]
    return AnswerView(answer, answer_id, verdict_line(answer), hits)


def _hit_view(hit: Hit, quotes: list[str], answer: Answer) -> HitView:
    content, reference = hit.snippet.content, reference_of(hit.snippet)
    cited = any(citation.n == hit.rank for citation in answer.citations)
    marked = pieces(content, quoted_spans(content, quotes))
    return HitView(hit, reference, source_line(reference), marked, cited, stored_id(hit))


def stored_id(hit: Hit) -> str:
    """Return the id under which the index stores a hit's passage: of a document in blocks, the block's."""
    snippet = hit.snippet
    block = snippet.metadata.get("block")
    if snippet.metadata.get("document") == snippet.id and isinstance(block, int):
        return block_id(snippet.id, block)
    return snippet.id


@dataclass(frozen=True, slots=True)
class QuestionWord:
    """A word of the question: its share of the score, how dark it is shown, and what matched it."""

    text: str
    share: float
    shade: int
    matched: str
    similarity: float
    target: int | None


@dataclass(frozen=True, slots=True)
class PassageWord:
    """A piece of the snippet; `number` counts the words that matched, None for what did not."""

    text: str
    number: int | None
    shade: int
    share: float
    words: str


@dataclass(frozen=True, slots=True)
class HeatMapView:
    """A heat map as the page shows it."""

    heat_map: HeatMap
    words: list[QuestionWord]
    passage: list[PassageWord]


def heat_map_view(heat_map: HeatMap) -> HeatMapView:
    """Return a heat map as the page shows it: shades in proportion to the largest share."""
    spans = [span for span, _ in heat_map.passage]
    numbers = {span: number for number, span in enumerate(spans)}
    most = max((match.share for match in heat_map.words), default=0.0)
    words = [
        QuestionWord(
            heat_map.question[slice(*match.span)],
            match.share,
            _shade(match.share, most),
            heat_map.text[slice(*match.matched)] if match.matched else "",
            match.similarity,
            numbers.get(match.matched) if match.matched else None,
        )
        for match in heat_map.words
    ]
    largest = max((share for _, share in heat_map.passage), default=0.0)
    passage = []
    for text, number in pieces(heat_map.text, spans):
        share = 0.0 if number is None else heat_map.passage[number][1]
        asked = ", ".join(word.text for word in words if number is not None and word.target == number)
        passage.append(PassageWord(text, number, _shade(share, largest), share, asked))
    return HeatMapView(heat_map, words, passage)


def _shade(share: float, most: float) -> int:
    """Return 1 (palest) to `SHADES`; 0 for nothing."""
    return max(1, round(SHADES * share / most)) if share > 0 and most > 0 else 0
