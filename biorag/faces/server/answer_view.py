"""An answer as the page shows it: the verdict, the sentences, and the evidence with its quotes and matches marked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

from biorag.api.answer_text import VerdictLine, verdict_line
from biorag.api.word_matching import WordMatch
from biorag.corpus.sentences import first_sentences
from biorag.faces.server.bodies import CONDITIONS
from biorag.references.facts import participants
from biorag.references.formats import citation
from biorag.references.reference import Reference, reference_of, source_line
from biorag.types import MAY, Answer, Hit, Verdict
from biorag.utils.text import cut

SECTION = re.compile(r"(?:^|(?<=[.?!)]))\s*([A-Z][A-Z ,/&-]{3,48}:)(?=\s)")  # a label of a structured abstract
_MARK = re.compile(r"(\[\d{1,4}\])")
KEPT_FIELDS = ("index", *CONDITIONS, "k", "include_retracted")
SAID = 300  # characters of an answer that the address of a follow-up has
CHIPS = ("Preprint", "Retracted Publication")  # types of publication that stand apart from the others


class Piece(NamedTuple):
    """A piece of a text, and the word of the question that it matches, if any."""

    text: str
    mark: WordMatch | None


class Passage(NamedTuple):
    """A stretch of a text, and the sentences of the answer, from 1, that rest on it; 0 is a citation of none."""

    words: list[Piece]
    quoted_by: tuple[int, ...] = ()


class Quote(NamedTuple):
    """A quote from a hit, and the sentence of the answer that rests on it."""

    sentence: int
    text: str


def passages(text: str, quotes: Sequence[Quote], matches: Sequence[WordMatch]) -> list[Passage]:
    """Return a text in stretches by what quotes them, whose matching words stand apart.

    Matches outside of the text, in labels such as "METHODS:", or across the end of a quote are left out.
    """
    starts = [(text.find(quote.text), quote) for quote in quotes if quote.text]
    quoted = [(start, start + len(quote.text), quote.sentence) for start, quote in starts if start >= 0]
    ends = {end for start, stop, _ in quoted for end in (start, stop)}
    labels = [label.span(1) for label in SECTION.finditer(text)]
    words = {
        start: match
        for match in matches
        if 0 <= (start := match.span[0]) < (stop := match.span[1]) <= len(text)
        and not any(first <= start < last for first, last in labels)
        and not any(start < end < stop for end in ends)
    }
    cuts = sorted({0, len(text), *ends, *words, *(match.span[1] for match in words.values())})
    stretches: list[Passage] = []
    for start, stop in pairwise(cuts):
        by = tuple(sorted({sentence for first, last, sentence in quoted if first <= start < last}))
        if not stretches or stretches[-1].quoted_by != by:
            stretches.append(Passage([], by))
        stretches[-1].words.append(Piece(text[start:stop], words.get(start)))
    return stretches


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
    files: Mapping[str, str] = field(default_factory=dict)  # addresses of one's own papers, by the ids of snippets

    @property
    def kept(self) -> dict[str, str]:
        """The fields that a further question takes over."""
        return {name: self.fields[name] for name in KEPT_FIELDS if name in self.fields}

    @property
    def first_sentence(self) -> str:
        """Its first sentence, of which a follow-up may speak, as far as an address may have it."""
        return cut(first_sentences(self.answer.text.removeprefix(MAY).strip(), 1), SAID)

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
        return ": ".join(filter(None, (hit.line, hit.reference.heading)))


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
    content = passages(snippet.content, quotes, of_content)
    is_title_alone = snippet.title.rstrip(".") == snippet.content.rstrip(".")  # it is shown once
    return HitView(
        hit,
        reference,
        " · ".join(filter(None, (line, snippet.location))),
        citation(reference),
        people.number if people else None,
        content if is_title_alone else passages(snippet.title if reference.title else "", [], matches),
        [] if is_title_alone else content,
        _near(snippet.contents, matches),
        cited,
    )


def _near(text: str, matches: Sequence[WordMatch]) -> dict[tuple[str, str], float]:
    near: dict[tuple[str, str], float] = {}
    for match in sorted(matches, key=lambda match: -match.similarity):
        near.setdefault((match.asked, text[slice(*match.span)].lower()), match.similarity)
    return near
