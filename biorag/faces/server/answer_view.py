"""An answer as the page shows it: the verdict, the sentences, and the evidence with its quotes and matches marked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, TypeVar

from biorag.api.results import VerdictLine, verdict_line
from biorag.api.word_matching import WordMatch
from biorag.faces.server.bodies import CONDITIONS
from biorag.references.facts import participants
from biorag.references.formats import citation
from biorag.references.reference import Reference, reference_of, source_line
from biorag.types import Answer, Hit, Verdict

T = TypeVar("T")
Span = tuple[int, int]
SECTION = re.compile(r"(?:^|(?<=[.?!)]))\s*([A-Z][A-Z ,/&-]{3,48}:)(?=\s)")  # a label of a structured abstract
_MARK = re.compile(r"(\[\d{1,4}\])")
KEPT_FIELDS = ("index", *CONDITIONS, "k", "include_retracted")
CHIPS = ("Preprint", "Retracted Publication")  # types of publication that stand apart from the others


class Piece(NamedTuple, Generic[T]):
    """A piece of a text, and what stands at its span; None between spans."""

    text: str
    mark: T | None


def pieces(text: str, spans: Mapping[Span, T]) -> list[Piece[T]]:
    """Return a text in pieces; the spans ascend and do not overlap."""
    parts: list[Piece[T]] = []
    position = 0
    for (start, end), mark in spans.items():
        if position < start:
            parts.append(Piece(text[position:start], None))
        parts.append(Piece(text[start:end], mark))
        position = end
    if position < len(text):
        parts.append(Piece(text[position:], None))
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


class Passage(NamedTuple):
    """A stretch of a text, and the sentences of the answer, from 1, that rest on it; 0 is a citation of none."""

    words: list[Piece[WordMatch]]
    quoted_by: tuple[int, ...] = ()


class Quote(NamedTuple):
    """A quote from a hit, and the sentence of the answer that rests on it."""

    sentence: int
    text: str


def passages(text: str, quotes: Sequence[Quote], matches: Sequence[WordMatch]) -> list[Passage]:
    """Return a text in stretches, quoted and others, whose matching words stand apart; no quote begins inside a word.

    The spans of `matches` ascend; those outside of the text, and in labels such as "METHODS:", are left out.
    """
    labels = [label.span(1) for label in SECTION.finditer(text)]
    matches = [match for match in matches if not any(start <= match.span[0] < end for start, end in labels)]
    found, position = [], 0
    quoted = dict.fromkeys(quoted_spans(text, [quote.text for quote in quotes]), True)
    for piece in pieces(text, quoted):
        end = position + len(piece.text)
        inside = [match for match in matches if position <= match.span[0] and match.span[1] <= end]
        words = pieces(piece.text, {(match.span[0] - position, match.span[1] - position): match for match in inside})
        by = {quote.sentence for quote in quotes if piece.mark and quote.text in piece.text}
        found.append(Passage(words, tuple(sorted(by))))
        position = end
    return found


@dataclass(frozen=True, slots=True)
class HitView:
    """A hit of the evidence."""

    hit: Hit
    reference: Reference
    line: str  # its source, and the place in it
    vancouver: str
    participants: int | None
    title: list[Passage]
    content: list[Passage]
    near: dict[tuple[str, str], float]  # how near a word of the question and one of the hit are, the nearest first
    cited: bool


@dataclass(frozen=True, slots=True)
class AnswerView:
    """An answer as the page shows it."""

    asked: str  # the question as it was typed
    answer: Answer
    answer_id: str  # its name among those that are kept
    verdict: VerdictLine | None
    hits: list[HitView]
    fields: Mapping[str, str] = field(default_factory=dict)  # of the form
    conditions: Sequence[str] = ()  # the filters
    index: str = ""
    others: Sequence[str] = ()  # indexes that may be asked too

    @property
    def kept(self) -> dict[str, str]:
        """The fields that a further question takes over."""
        return {name: self.fields[name] for name in KEPT_FIELDS if name in self.fields}

    @property
    def is_reworded(self) -> bool:
        """Whether the verdict of a sentence rests on other words than its own."""
        return any(span.quote != sentence.text for sentence in self.answer.sentences for span in sentence.evidence)

    @property
    def is_doubtful(self) -> bool:
        """Whether a sentence is not supported."""
        return any(sentence.verdict is not Verdict.SUPPORTED for sentence in self.answer.sentences)

    @property
    def is_matched(self) -> bool:
        """Whether a word of the evidence matches one of the question."""
        return any(hit.near for hit in self.hits)

    @property
    def parts(self) -> list[str | int]:
        """The text of an answer, in which numbers of hits stand apart."""
        marks = {f"[{hit.hit.rank}]": hit.hit.rank for hit in self.hits}
        return [marks.get(part, part) for part in _MARK.split(self.answer.text)]

    def source_of(self, n: int) -> str:
        """Return what a citation leads to, in one line."""
        hit = self.hits[n - 1]
        return ": ".join(filter(None, (hit.line, hit.hit.snippet.title)))


def answer_view(
    asked: str, answer: Answer, answer_id: str, matches: Sequence[Sequence[WordMatch]] = (), **shown: Any
) -> AnswerView:
    """Return the answer to a question as the page shows it; `matches` are those of each hit's contents.

    `shown` are the other fields of the view.
    """
    quotes: dict[int, list[Quote]] = {}
    for cited in answer.citations:
        quotes.setdefault(cited.n, []).append(Quote(0, cited.quote))
    for number, sentence in enumerate(answer.sentences, 1):
        for span in sentence.evidence:
            quotes.setdefault(span.n, []).append(Quote(number, span.quote))
    numbers = {cited.n for cited in answer.citations}
    hits = [
        _hit_view(hit, quotes.get(hit.rank, []), of_hit, hit.rank in numbers)
        for hit, of_hit in zip(answer.hits, matches or [()] * len(answer.hits), strict=True)
    ]
    return AnswerView(asked, answer, answer_id, verdict_line(answer), hits, **shown)


def _hit_view(hit: Hit, quotes: list[Quote], matches: Sequence[WordMatch], cited: bool) -> HitView:
    snippet, reference = hit.snippet, reference_of(hit.snippet)
    before = len(snippet.contents) - len(snippet.content)  # the title's, which matches count from
    of_content = [match._replace(span=(match.span[0] - before, match.span[1] - before)) for match in matches]
    people = participants(snippet.content)
    other_types = tuple(name for name in reference.types if name not in CHIPS)
    line = source_line(replace(reference, types=other_types))
    return HitView(
        hit,
        reference,
        " · ".join(filter(None, (line, snippet.location))),
        citation(reference),
        people.number if people else None,
        # A title that is all of the text is shown once.
        passages("" if snippet.title.rstrip(".") == snippet.content.rstrip(".") else snippet.title, [], matches),
        passages(snippet.content, quotes, of_content),
        _near(snippet.contents, matches),
        cited,
    )


def _near(text: str, matches: Sequence[WordMatch]) -> dict[tuple[str, str], float]:
    near: dict[tuple[str, str], float] = {}
    for match in sorted(matches, key=lambda match: -match.similarity):
        near.setdefault((match.asked, text[slice(*match.span)].lower()), match.similarity)
    return near
