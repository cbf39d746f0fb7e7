"""The extractive answerer: candidate sentences, their scores, the selection, the text; all verbatim evidence."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np

from biorag.answering.guards.checker import citation_of
from biorag.answering.guards.words import rarity, stems
from biorag.answering.kinds import lacks_number
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

SHORTEST_SENTENCE = 4  # words
COVERAGE = 0.35  # weight of the share of the question's words that a sentence holds, rare ones weighing more
HIT = 0.8  # weight of the snippet's score as a share of the first hit's
CONCLUSION, AIM, QUESTION, HEADING = 0.1, -0.2, -0.3, -0.3  # of sentences of such a kind
LEANING = -0.2  # of a sentence that points at something said before it
TITLE = -0.3  # of a title, which is shown where nothing else is
NUMBERLESS = -0.2  # of a sentence without a number where one is asked for
RARE = 0.65  # rarity of a word of the question from which it can be its subject
APART = 0.3  # share of a sentence's score that comes from the question's other words: of "How is X treated?" not from X
OFF_TOPIC = -0.3  # of a sentence in a snippet without the question's subject
ELSEWHERE = -1.0  # of a sentence in a snippet without the topic of words that name no subject of their own
COMPLEMENT = 0.3  # for a further sentence, weight of the question's words that those before it lack
READ = 12  # sentences that the reader reads
WINDOW = 420  # characters of a window, of which a sentence may have all


class Length(NamedTuple):
    """How many sentences are shown, and which further ones count."""

    most: int  # sentences
    margin: float  # how far below the best score a further sentence may lie
    redundancy: float  # share of its words that a further sentence may have in common with those before it
    adding: float = 0.0  # rarity of a word, one of which a further sentence must have that those before it lack


SHORT = Length(most=3, margin=0.2, redundancy=0.5)
LIST = Length(most=6, margin=0.3, redundancy=0.55, adding=0.65)  # the items of a list stand one to a snippet


class ScoredSentences(NamedTuple):
    """The sentences of some hits, and what was found out about them.

    Attributes
    ----------
    rows : the sentences, in the order of the hits
    scores : (sentences,); larger is better
    read : positions of the sentences that the reader read, those that seem nearest first
    answers : probabilities (read,) that each answers the question; empty without a reader
    stances : probabilities (read, 3) of yes, no and neither, by `LABELS`
    matches : how near each hit comes to the question by the packaged encoder, (hits,); empty without an encoder
    """

    rows: Sequence[EvidenceSentence]
    scores: Vectors
    read: Sequence[int] = ()
    answers: Vectors = np.zeros(0, np.float32)
    stances: Vectors = np.zeros((0, 3), np.float32)
    matches: Vectors = np.zeros(0, np.float32)


def candidates(hits: Sequence[Hit]) -> list[EvidenceSentence]:
    """Return the sentences of the hits, in their order, without the labels of structured abstracts.

    Sentences that give orders to a reader are left out: a snippet is evidence, not instruction. A snippet without
    content gives its title.
    """
    return [candidate for n, hit in enumerate(hits, 1) for candidate in _of_hit(n, hit)]


def _of_hit(n: int, hit: Hit) -> list[EvidenceSentence]:
    contents = hit.snippet.contents
    body = hit.snippet.content or hit.snippet.title
    offset = len(contents) - len(body)
    rows = [
        EvidenceSentence(n, offset + row.start, offset + row.end, row.text, row.section, hit.snippet.title)
        for row in labelled_sentences(body)
        if not _is_instruction(row.text)
    ]
    return [row for row in rows if not _FRAGMENT.match(row.text)] or rows


def _is_instruction(text: str) -> bool:
    order = pattern("order").match(text)
    return bool(order or pattern("reply").search(text)) or text.startswith(("</", "<|"))


def held_words(question: str, texts: Sequence[str]) -> Vectors:
    """Return which of the question's content words each text holds, by weight, (texts, words); a full row sums to 1.

    A word in `d` of `N` texts weighs ln(1 + N / (d + 1/2)).
    """
    asked = sorted(terms(question))
    if not asked or not texts:
        return np.zeros((len(texts), 0), np.float32)
    held = np.array([[word in words for word in asked] for words in map(terms, texts)], dtype=np.float32)
    weights = np.log1p(len(texts) / (held.sum(axis=0) + 0.5))
    weighted: Vectors = (held * (weights / weights.sum())).astype(np.float32)
    return weighted


def features(question: str, hits: Sequence[Hit], rows: Sequence[EvidenceSentence]) -> Vectors:
    """Return the part of each sentence's score for which no model is needed, (sentences,)."""
    top = max((hit.score for hit in hits), default=0.0)
    scores: Vectors = COVERAGE * held_words(question, [row.text for row in rows]).sum(axis=1)
    for index, row in enumerate(rows):
        share = max(0.0, hits[row.n - 1].score / top) if top > 0 else 1.0 / row.n
        scores[index] += HIT * share + _kind(row)
        scores[index] += TITLE * (row.text == hits[row.n - 1].snippet.title)
        scores[index] += NUMBERLESS * lacks_number(question, row.text)
    return scores + OFF_TOPIC * off_topic(question, hits, rows)


def off_topic(question: str, hits: Sequence[Hit], rows: Sequence[EvidenceSentence]) -> Vectors:
    """Return which sentences are about something else than the question, 1 or 0, (sentences,).

    Neither they nor the sentences before them name its subject, the rarest of its words that a hit holds, and their
    snippets do not either, or only in passing: not in the title nor in the first sentence.
    """
    subject = _subject(question, hits)
    named = [_names(subject, row.text) for row in rows]
    opening = {row.n: index for index, row in reversed(list(enumerate(rows)))}
    about = {n: named[index] or _names(subject, rows[index].title) for n, index in opening.items()}
    others = (
        not (about[row.n] or named[index] or (index > opening[row.n] and named[index - 1]))
        for index, row in enumerate(rows)
    )
    return np.fromiter(others, np.float32, len(rows))


def _subject(question: str, hits: Sequence[Hit]) -> str | None:
    """Return the rarest word of the question that any of the snippets holds, if it is rare."""
    rare_stems = sorted(
        {stem for stem in stems(question) if rarity(stem) >= RARE}, key=lambda stem: (-rarity(stem), stem)
    )
    hit_stems = {stem for hit in hits for stem in stems(hit.snippet.contents)}
    return next((stem for stem in rare_stems if stem in hit_stems), None)


def _without_subject(question: str) -> str:
    """Return a question without the rare words that can be its subject; "" if it has none, or nothing beside them."""
    others = _WORD.sub(lambda word: "" if max(map(rarity, stems(word[0])), default=0.0) >= RARE else word[0], question)
    return others if others != question and stems(others) else ""


def _names(subject: str | None, text: str) -> bool:
    return subject is None or subject in stems(text)


def _kind(row: EvidenceSentence) -> float:
    """Return the weight of a sentence's kind."""
    text = row.text
    ends = text.endswith((".", "!", "?", ")", '"', "'", "]"))
    weights = (
        (CONCLUSION, row.section in ("conclusions", "results")),
        (AIM, row.section in ("objective", "methods", "background") or pattern("aim").search(text)),
        (LEANING, pattern("opener").match(text)),
        (QUESTION, text.rstrip("\"')").endswith("?")),
        (HEADING, not ends or len(_WORD.findall(text)) < SHORTEST_SENTENCE),
    )
    return sum(weight for weight, applies in weights if applies)


def window_of(rows: Sequence[EvidenceSentence], index: int) -> str:
    """Return a sentence as it is read: after the one before it, if it leans on that."""
    text = rows[index].text
    if _leans(rows, index) and len(rows[index - 1].text) + len(text) < WINDOW:
        return f"{rows[index - 1].text} {text}"
    return text


def select(
    rows: Sequence[EvidenceSentence], scores: Vectors, held: Vectors, length: Length = SHORT
) -> list[EvidenceSentence]:
    """Return the sentences of an extract in the order to be read.

    The best comes first; further ones score nearly as much, or add missing words, and repeat nothing. One that leans on
    the sentence before it ("It prevents …") brings that one along, and loses nothing by leaning on one that is shown.
    `scores` are (sentences,), `held` is (sentences, words) of `held_words`.
    """
    if not rows:
        return []
    left = scores.copy()
    floor = float(scores.max()) - length.margin
    chosen: list[int] = []
    while len(chosen) < length.most:
        missing = (held[chosen].max(axis=0) == 0) if chosen else np.zeros(held.shape[1], bool)
        totals = left + COMPLEMENT * held[:, missing].sum(axis=1)
        index = int(totals.argmax())
        if totals[index] < floor:
            break
        left[index] = -np.inf
        before = [index - 1] if _leans(rows, index) and index - 1 not in chosen else []
        if len(chosen) + len(before) >= length.most or _repeats(rows, index, chosen, length):
            continue
        place = len(chosen)
        if index - 1 in chosen and _points_back(rows, index):
            place = chosen.index(index - 1) + 1
        elif index + 1 in chosen and _points_back(rows, index + 1):
            place = chosen.index(index + 1)
        chosen[place:place] = [*before, index]
        left[before] = -np.inf
        if index + 1 < len(rows) and _leans(rows, index + 1):
            left[index + 1] -= LEANING
    return [rows[index] for index in chosen]


def _points_back(rows: Sequence[EvidenceSentence], index: int) -> bool:
    return rows[index - 1].n == rows[index].n and bool(_BACK.search(rows[index].text))


def _leans(rows: Sequence[EvidenceSentence], index: int) -> bool:
    opener = pattern("opener").match(rows[index].text)
    return bool(opener) and index > 0 and rows[index - 1].n == rows[index].n


def _repeats(rows: Sequence[EvidenceSentence], index: int, chosen: Sequence[int], length: Length) -> bool:
    words = terms(rows[index].text)
    if any(
        len(words & (other := terms(rows[earlier].text))) >= length.redundancy * max(1, min(len(words), len(other)))
        for earlier in chosen
    ):
        return True
    if not chosen or not length.adding:
        return False
    added = set(stems(rows[index].text)).difference(*(stems(rows[earlier].text) for earlier in chosen))
    return max(map(rarity, added), default=0.0) < length.adding


class Extractor:
    """Chooses the sentences of the hits that answer a question; without an encoder and a reader, by their words alone.

    `load_reader` gives what tells whether a sentence answers, `load_gauge` the encoder whose matches tell how near hits
    come, which is the same one for all indexes; both are called at the first question.
    """

    def __init__(
        self,
        encoder: SentenceEncoder | None = None,
        load_reader: Callable[[], Reader | None] = lambda: None,
        load_gauge: Callable[[], SentenceEncoder | None] = lambda: None,
    ) -> None:
        self._encoder = encoder
        self._reader = cache(load_reader)
        self._gauge = cache(load_gauge)

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
        scored = ScoredSentences(rows, features(question, hits, rows))
        if not rows:
            return scored
        snippets = [hit.snippet for hit in hits]
        if self._encoder:
            matched = late_interaction(question, snippets, rows, self._encoder)
            scored = scored._replace(scores=scored.scores + matched.sentences)
            if own_words := _without_subject(question):
                apart = self.by_own_words(own_words, question, hits, scored)
                scored = scored._replace(scores=(1 - APART) * scored.scores + APART * apart.scores)
            if gauge := self._gauge():
                gauged = matched if gauge is self._encoder else late_interaction(question, snippets, [], gauge)
                scored = scored._replace(matches=gauged.snippets)
        reader = self._reader()
        if reader is None or not reader.trust.answers:
            return scored
        read = np.argsort(-scored.scores, kind="stable")[:READ].tolist()
        reading = reader.read(question, [window_of(rows, index) for index in read])
        scored = scored._replace(read=read, stances=reading.stances)
        if reading.answers is None:
            return scored
        scored.scores[read] += reader.trust.answers * reading.answers
        return scored._replace(answers=reading.answers)

    def by_own_words(
        self, own_words: str, question: str, hits: Sequence[Hit], scored: ScoredSentences
    ) -> ScoredSentences:
        """Return the sentences with the scores of some words of a question, and what the reader says of them.

        These are a follow-up's own words, or a question's without its subject; the rest of `question` is the topic. A
        sentence of a hit that does not name that loses `ELSEWHERE`, or `OFF_TOPIC` where the words name a subject of
        their own ("And heparin?").
        """
        scores = features(own_words, hits, scored.rows)
        if self._encoder and scored.rows:
            snippets = [hit.snippet for hit in hits]
            scores = scores + late_interaction(own_words, snippets, scored.rows, self._encoder).sentences
        if len(scored.answers) and (reader := self._reader()):
            scores[scored.read] += reader.trust.answers * scored.answers
        hit_stems = [set(stems(hit.snippet.contents)) for hit in hits]
        topic = set(stems(question)).difference(stems(own_words)).intersection(set().union(*hit_stems))
        subjects = {stem for stem in topic if rarity(stem) >= RARE} or set(sorted(topic, key=rarity)[-1:])
        others = [bool(subjects) and subjects.isdisjoint(hit_stems[row.n - 1]) for row in scored.rows]
        weight = ELSEWHERE if _subject(own_words, hits) is None else OFF_TOPIC
        return scored._replace(scores=scores + weight * np.array(others, np.float32))

    def similarities(self, texts: Sequence[str], rows: Sequence[EvidenceSentence]) -> Vectors:
        """Return the mean MaxSim of each text to each sentence alone, (texts, sentences); 0 without an encoder."""
        if not self._encoder or not rows:
            return np.zeros((len(texts), len(rows)), np.float32)
        from biorag.models.late_interaction import mean_maxsim

        tokens = [located.vectors for located in self._encoder.located_tokens([row.text for row in rows])]
        return np.stack([mean_maxsim(query, tokens) for query in self._encoder.query_tokens(texts)])

    def extract(self, question: str, hits: Sequence[Hit], kind: AnswerKind | None = None) -> list[EvidenceSentence]:
        """Return the sentences that answer the question best: one to three, of a list up to six."""
        return chosen(question, self.scored(question, hits), kind)


def chosen(question: str, scored: ScoredSentences, kind: AnswerKind | None = None) -> list[EvidenceSentence]:
    """Return the sentences of an extract; see `Extractor.extract`."""
    length = LIST if kind == "list" else SHORT
    return select(scored.rows, scored.scores, held_words(question, [row.text for row in scored.rows]), length)


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
