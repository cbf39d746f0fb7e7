"""The extractive answerer: candidate sentences, their scores, the selection, the text; all verbatim evidence.

A sentence scores by the rank of its snippet, by late interaction with the question, and by what a reader says of it:
whether it answers. What an answer looks like is the reader's to know; no word is scored by a rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np

from biorag.answering.guards.checker import citation_of
from biorag.answering.sections import labelled_sentences, pattern
from biorag.answering.sentence_matching import EvidenceSentence, late_interaction
from biorag.corpus.sentences import terms
from biorag.types import (
    EXTRACT,
    Answer,
    AnswerItem,
    AnswerKind,
    CheckedSentence,
    EvidenceSpan,
    Hit,
    Reader,
    SentenceEncoder,
    Vectors,
    Verdict,
)

_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
_BACK = re.compile(r"\b(?:it|its|they|them|their|this|these|such)\b", re.IGNORECASE)
_FRAGMENT = re.compile(r"[a-z]+[\s,.;:]")  # the rest of a sentence whose beginning is not there

LONGEST_HEADING = 8  # words of a line without an end; a longer one is a sentence
HIT = 1.2  # weight of the snippet's score as a share of the first hit's
COVERAGE = 0.35  # weight of the share of the question's words that a sentence holds, where no encoder compares them
READ = 16  # sentences that the reader reads
READ_AGAIN = 6  # the best sentences, which the second reader reads; ten are no better
SPREAD = 0.8  # of scores with its word, which lie further apart
FLOOR = -4.0  # log-odds of an answer of a sentence that is not read, and the least that count
SIDED = 0.5  # probability from which a sentence is on a side of a yes/no question
REDUNDANCY = 0.5  # share of its words from which a further sentence repeats one before it
WINDOW = 420  # characters of a window, of which a sentence may have all


class Length(NamedTuple):
    """How many sentences are shown, and which further ones count."""

    most: int  # sentences
    margin: float  # how far below the best score a further sentence may lie


SHORT = Length(most=3, margin=0.4)
LIST = Length(most=6, margin=0.65)


class SecondReader(Protocol):
    """Reads sentences in their records."""

    def log_odds(self, question: str, rows: Sequence[EvidenceSentence]) -> Vectors:
        """Return the log-odds (rows,) that each sentence answers a question."""


class ScoredSentences(NamedTuple):
    """The sentences of some hits, and what was found out about them.

    Attributes
    ----------
    rows : the sentences, in the order of the hits
    scores : (sentences,); larger is better
    read : positions of the sentences that the reader read, those that seem nearest first
    answers : log-odds (read,) that each answers the question; empty without a reader
    stances : probabilities (read, 3) of yes, no and neither, by `LABELS`
    matches : how near each hit comes to the question by the packaged encoder, (hits,); empty without an encoder
    least : how near the question's token comes to each hit that comes least near, (hits,); empty without an encoder
    """

    rows: Sequence[EvidenceSentence]
    scores: Vectors
    read: Sequence[int] = ()
    answers: Vectors = np.zeros(0, np.float32)
    stances: Vectors = np.zeros((0, 3), np.float32)
    matches: Vectors = np.zeros(0, np.float32)
    least: Vectors = np.zeros(0, np.float32)


def candidates(hits: Sequence[Hit]) -> list[EvidenceSentence]:
    """Return the sentences of the hits, in their order, without the labels of structured abstracts.

    Sentences that give orders to a reader are left out: a snippet is evidence, not instruction. A snippet whose title
    is longer than its content, as of a letter without abstract, gives its title, too. What has not the form of a
    sentence is left out where any hit has one.
    """
    rows = [candidate for n, hit in enumerate(hits, 1) for candidate in _of_hit(n, hit)]
    return [row for row in rows if _is_sentence(row.text)] or rows


def _of_hit(n: int, hit: Hit) -> list[EvidenceSentence]:
    title, body = hit.snippet.title, hit.snippet.content
    offset = len(hit.snippet.contents) - len(body)
    parts = [(0, title)] if len(title) > len(body) else []
    return [
        EvidenceSentence(n, start + row.start, start + row.end, row.text, row.section, title)
        for start, part in (*parts, (offset, body))
        for row in labelled_sentences(part)
        if not _is_instruction(row.text)
    ]


def _is_sentence(text: str) -> bool:
    """Return whether a text has the form of a statement: no heading, no question, no rest of a sentence."""
    words = len(_WORD.findall(text))
    ends = text.endswith((".", "!", ")", '"', "'", "]")) or words >= LONGEST_HEADING
    return ends and words > 1 and not text.rstrip("\"')").endswith("?") and not _FRAGMENT.match(text)


def _is_instruction(text: str) -> bool:
    order = pattern("order").match(text)
    return bool(order or pattern("reply").search(text)) or text.startswith(("</", "<|"))


def window_of(rows: Sequence[EvidenceSentence], index: int) -> str:
    """Return a sentence as it is read: after its snippet's title, and after the one before it, if it leans on that."""
    row = rows[index]
    texts = [row.text]
    if _leans(rows, index):
        texts.insert(0, rows[index - 1].text)
    if row.title and row.title.strip() != row.text:
        texts.insert(0, f"{row.title.rstrip('.')}.")
    while len(texts) > 1 and sum(map(len, texts)) >= WINDOW:
        del texts[-2]
    return " ".join(texts)


def select(
    rows: Sequence[EvidenceSentence], scores: Vectors, length: Length = SHORT, sides: Vectors | None = None
) -> list[EvidenceSentence]:
    """Return the sentences of an extract in the order to be read.

    The best comes first; further ones score nearly as much, and repeat nothing, unless they are on another side. One
    that points back ("It prevents …") follows the sentence before it, if both are chosen. `scores` are (sentences,),
    `sides` above 0 for yes and below for no.
    """
    if not rows:
        return []
    sides = np.zeros(len(rows), np.float32) if sides is None else sides
    floor = float(scores.max()) - length.margin
    chosen: list[int] = []
    for index in np.argsort(-scores, kind="stable").tolist():
        if len(chosen) >= length.most or scores[index] < floor:
            break
        said = (_repeats(rows[index], rows[earlier]) and sides[index] * sides[earlier] >= 0 for earlier in chosen)
        if any(said):
            continue
        place = len(chosen)
        if index - 1 in chosen and _points_back(rows, index):
            place = chosen.index(index - 1) + 1
        elif index + 1 in chosen and _points_back(rows, index + 1):
            place = chosen.index(index + 1)
        chosen.insert(place, index)
    return [rows[index] for index in chosen]


def _points_back(rows: Sequence[EvidenceSentence], index: int) -> bool:
    return rows[index - 1].n == rows[index].n and bool(_BACK.search(rows[index].text))


def _leans(rows: Sequence[EvidenceSentence], index: int) -> bool:
    opener = pattern("opener").match(rows[index].text)
    return bool(opener) and index > 0 and rows[index - 1].n == rows[index].n


def _repeats(row: EvidenceSentence, earlier: EvidenceSentence) -> bool:
    words, other = terms(row.text), terms(earlier.text)
    return len(words & other) >= REDUNDANCY * max(1, min(len(words), len(other)))


def _shares(hits: Sequence[Hit]) -> Vectors:
    """Return the score of each hit as a share of the first's, (hits,); by ranks where scores are not positive."""
    top = max((hit.score for hit in hits), default=0.0)
    shares = [max(0.0, hit.score / top) if top > 0 else 1.0 / n for n, hit in enumerate(hits, 1)]
    return np.array(shares, np.float32)


def log_odds(probabilities: Vectors) -> Vectors:
    """Return log(p / (1 − p)), between ±13.8."""
    clipped = np.clip(probabilities.astype(np.float64), 1e-6, 1 - 1e-6)
    values: Vectors = np.log(clipped / (1 - clipped)).astype(np.float32)
    return values


class Extractor:
    """Chooses the sentences of the hits that answer a question; without an encoder and a reader, by their words alone.

    `load_reader` gives what tells whether a sentence answers, `load_gauge` the encoder whose matches tell how near hits
    come, which is the same one for all indexes, `load_second` a slower reader of the best sentences, for a question
    that is to be answered; all are called at the first question.
    """

    def __init__(
        self,
        encoder: SentenceEncoder | None = None,
        load_reader: Callable[[], Reader | None] = lambda: None,
        load_gauge: Callable[[], SentenceEncoder | None] = lambda: None,
        load_second: Callable[[], SecondReader | None] = lambda: None,
    ) -> None:
        self._encoder = encoder
        self._reader = cache(load_reader)
        self._gauge = cache(load_gauge)
        self._second = cache(load_second)

    @property
    def reader(self) -> Reader | None:
        """What tells whether a sentence answers."""
        return self._reader()

    @property
    def matches(self) -> bool:
        """Whether it tells how near hits come."""
        return self._encoder is not None and self._gauge() is not None

    def scored(self, question: str, hits: Sequence[Hit]) -> ScoredSentences:
        """Return the sentences of the hits with their scores, and what the reader says of the nearest."""
        rows = candidates(hits)
        if not rows:
            return ScoredSentences(rows, np.zeros(0, np.float32))
        snippets = [hit.snippet for hit in hits]
        scored = ScoredSentences(rows, HIT * _shares(hits)[[row.n - 1 for row in rows]])
        if self._encoder:
            matched = late_interaction(question, snippets, rows, self._encoder)
            scored = scored._replace(scores=scored.scores + matched.sentences)
            if gauge := self._gauge():
                gauged = matched if gauge is self._encoder else late_interaction(question, snippets, [], gauge)
                scored = scored._replace(matches=gauged.snippets, least=gauged.least)
        else:
            asked = terms(question)
            covered = [len(asked & terms(row.text)) / max(1, len(asked)) for row in rows]
            scored = scored._replace(scores=scored.scores + COVERAGE * np.array(covered, np.float32))
        reader = self._reader()
        return self._read(question, scored, reader) if reader and reader.trust.answers else scored

    @staticmethod
    def _read(question: str, scored: ScoredSentences, reader: Reader) -> ScoredSentences:
        read = np.argsort(-scored.scores, kind="stable")[:READ].tolist()
        reading = reader.read(question, [window_of(scored.rows, index) for index in read])
        scored = scored._replace(read=read, stances=reading.stances)
        if reading.answers is None:
            return scored
        answers = log_odds(reading.answers)
        log_odds_of_all = np.full(len(scored.rows), FLOOR, np.float32)
        log_odds_of_all[read] = np.maximum(answers, FLOOR)
        return scored._replace(answers=answers, scores=scored.scores + reader.trust.answers * log_odds_of_all)

    def read_again(self, question: str, scored: ScoredSentences) -> ScoredSentences:
        """Return sentences of which, in their scores, the mean of the two readers' log-odds stands for the first's."""
        reader, second = self._reader(), self._second()
        if reader is None or second is None or not len(scored.answers):
            return scored
        best = np.argsort(-scored.scores, kind="stable")[:READ_AGAIN].tolist()
        told = second.log_odds(question, [scored.rows[index] for index in best])
        first, said = (np.full(len(scored.rows), FLOOR, np.float32) for _ in range(2))
        first[scored.read], said[best] = np.maximum(scored.answers, FLOOR), np.maximum(told, FLOOR)
        scores = scored.scores + reader.trust.answers / 2 * (said - first)
        return scored._replace(scores=(SPREAD * scores).astype(np.float32))

    def similarities(self, texts: Sequence[str], rows: Sequence[EvidenceSentence]) -> Vectors:
        """Return the mean MaxSim of each text to each sentence alone, (texts, sentences); 0 without an encoder."""
        if not self._encoder or not rows:
            return np.zeros((len(texts), len(rows)), np.float32)
        from biorag.models.late_interaction import mean_maxsim

        tokens = [located.vectors for located in self._encoder.located_tokens([row.text for row in rows])]
        return np.stack([mean_maxsim(query, tokens) for query in self._encoder.query_tokens(texts)])

    def extract(self, question: str, hits: Sequence[Hit], kind: AnswerKind | None = None) -> list[EvidenceSentence]:
        """Return the sentences that answer the question best: one to three, of a list up to six."""
        return chosen(self.scored(question, hits), kind)


def chosen(scored: ScoredSentences, kind: AnswerKind | None = None) -> list[EvidenceSentence]:
    """Return the sentences of an extract; see `Extractor.extract`."""
    length = LIST if kind == "list" else SHORT
    sides = np.zeros(len(scored.rows), np.float32)
    if kind == "yesno" and len(scored.stances):
        yes, no, _ = scored.stances.T
        sides[scored.read] = np.where(np.maximum(yes, no) > SIDED, yes - no, 0.0)
    return select(scored.rows, scored.scores, length, sides)


def extracted(answer: Answer, rows: Sequence[EvidenceSentence]) -> Answer:
    """Return an answer whose text is sentences of its hits, each followed by the number of its hit.

    They need no check: each is its own evidence.
    """
    snippets = [answer.hits[row.n - 1].snippet for row in rows]
    spans = [
        EvidenceSpan(row.n, snippet.id, snippet.pmid, row.text, Verdict.SUPPORTED)
        for row, snippet in zip(rows, snippets, strict=True)
    ]
    return replace(
        answer,
        answerer=EXTRACT,
        items=tuple(AnswerItem(row.text, (row.n,)) for row in rows) if answer.kind == "list" else (),
        text=" ".join(f"{row.text} [{row.n}]" for row in rows),
        sentences=tuple(
            CheckedSentence(span.quote, Verdict.SUPPORTED, (span.n,), (span,), basis="quote") for span in spans
        ),
        citations=tuple(citation_of(answer.hits[row.n - 1], row.n, row.text) for row in rows),
    )
