"""The extractive answerer: candidate sentences, their scores, the selection, the text; all verbatim evidence."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np

from biorag.answering.sentence_matching import EvidenceSentence, late_interaction
from biorag.answering.subject import QuestionCue, asked_cues, elsewhere, extract_cues
from biorag.answering.verification.checker import citation_of
from biorag.answering.yes_no import yes_no_lead
from biorag.corpus.sentences import sentence_spans, terms
from biorag.types import (
    EXTRACT,
    Answer,
    AnswerItem,
    CheckedSentence,
    EvidenceSpan,
    Hit,
    Kind,
    SentenceEncoder,
    Vectors,
    Verdict,
)

_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
_LABEL = re.compile(r"([A-Za-z][A-Za-z'’/&,\- ]{2,40}?)\s*:\s+(?=[\"'(\[]?[A-Z0-9])")

_BACK = re.compile(r"\b(?:it|its|they|them|their|this|these|such)\b", re.IGNORECASE)
_FRAGMENT = re.compile(r"[a-z]+[\s,.;:]")  # the rest of a sentence whose beginning is not there

SHORTEST_SENTENCE = 4  # words
REPEATED = 7  # words in sequence that no sentence says twice
RAGGED = 2  # words, or the rest of them, between a sentence and its repetition
COVERAGE = 0.35  # weight of the share of the question's words that a sentence holds, rare ones weighing more
HIT = 0.8  # weight of the snippet's score as a share of the first hit's
CONCLUSION, AIM, QUESTION, HEADING = 0.2, -0.1, -0.3, -0.3  # of sentences of such a kind
LEANING = -0.2  # of a sentence that points at something said before it
TITLE = -0.3  # of a title, which is shown where nothing else is
ELSEWHERE = -0.3  # of a sentence in a snippet without the question's subject
COMPLEMENT = 0.3  # for a further sentence, weight of the question's words that those before it lack


class Length(NamedTuple):
    """How many sentences are shown, and which further ones count."""

    most: int  # sentences
    margin: float  # how far below the best score a further sentence may lie
    redundancy: float  # share of its words that a further sentence may have in common with those before it


SHORT = Length(most=3, margin=0.12, redundancy=0.4)
LIST = Length(most=6, margin=0.3, redundancy=0.55)  # the items of a list stand one to a snippet


@cache
def _sections() -> Mapping[str, str]:
    return {label: section for section, labels in extract_cues()["sections"].items() for label in labels}


@cache
def _pattern(name: str) -> re.Pattern[str]:
    phrases = sorted(extract_cues()["phrases"][name], key=len, reverse=True)
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, phrases))})\b", re.IGNORECASE)


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
    section, rows = "", []
    for start, end in sentence_spans(body):
        label = _LABEL.match(body[start:end])
        if label and (named := _sections().get(label[1].strip().lower().replace("’", "'"))):
            section, start = named, start + label.end()
        start, end = _without_repetition(body, start, end)
        text = body[start:end]
        if text and not _is_instruction(text):
            rows.append(EvidenceSentence(n, offset + start, offset + end, text, section, hit.snippet.title))
    return [row for row in rows if not _FRAGMENT.match(row.text)] or rows


def _without_repetition(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span of a sentence, or of its part before or after a stretch of words that it says twice.

    Records that were put together from overlapping passages say a stretch again, often from the middle of a word. If
    neither part is a sentence, the span is empty.
    """
    words = list(_WORD.finditer(text, start, end))
    first: dict[tuple[str, ...], int] = {}
    for index in range(len(words) - REPEATED + 1):
        stretch = tuple(word[0].lower() for word in words[index : index + REPEATED])
        if first.setdefault(stretch, index) != index:
            cut = words[index].start()
            ends = [stop.end() for stop in re.finditer(r"[.!?](?=\s)", text[start:cut])]
            if ends and len(text[start + ends[-1] : cut].split()) <= RAGGED:
                return start, start + ends[-1]
            return (cut, end) if text[cut].isupper() and text[end - 1] in ".!?" else (end, end)
    return start, end


def _is_instruction(text: str) -> bool:
    order = _pattern("order").match(text)
    return bool(order or _pattern("reply").search(text)) or text.startswith(("</", "<|"))


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
    """Return the part of each sentence's score for which no encoder is needed, (sentences,)."""
    top = max((hit.score for hit in hits), default=0.0)
    scores: Vectors = COVERAGE * held_words(question, [row.text for row in rows]).sum(axis=1)
    wanted = asked_cues("wanted", question)
    for index, row in enumerate(rows):
        share = max(0.0, hits[row.n - 1].score / top) if top > 0 else 1.0 / row.n
        scores[index] += HIT * share + _kind(wanted, row)
        scores[index] += TITLE * (row.text == hits[row.n - 1].snippet.title)
    return scores


def _kind(wanted: Sequence[QuestionCue], row: EvidenceSentence) -> float:
    """Return the weight of a sentence's kind, where its question wants this told."""
    text = row.text
    concludes = row.section in ("conclusions", "results") or _pattern("conclusion").search(text)
    aims = row.section in ("objective", "methods", "background") or _pattern("aim").search(text)
    ends = text.endswith((".", "!", "?", ")", '"', "'", "]"))
    told = [kind.weight for kind in wanted if kind.told.search(text)]
    weights = (
        (CONCLUSION, concludes),
        (AIM, aims and not told),
        (LEANING, _pattern("opener").match(text)),
        (QUESTION, text.rstrip("\"')").endswith("?")),
        (HEADING, not ends or len(_WORD.findall(text)) < SHORTEST_SENTENCE),
    )
    return sum(weight for weight, applies in weights if applies) + max(told, default=0.0)


def select(
    rows: Sequence[EvidenceSentence], scores: Vectors, held: Vectors, length: Length = SHORT
) -> list[EvidenceSentence]:
    """Return the best sentence and a few more, the best first, but after the one before it that it points back to.

    A further sentence must score nearly as much, count words of the question still missing, and repeat nothing. One
    that leans on the sentence before it ("It prevents …") brings that one along, and loses nothing by leaning on one
    that is shown. `scores` are (sentences,), `held` is (sentences, words) of `held_words`.
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
        if len(chosen) + len(before) >= length.most or _repeats(rows, index, chosen, length.redundancy):
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
    opener = _pattern("opener").match(rows[index].text)
    return bool(opener) and index > 0 and rows[index - 1].n == rows[index].n


def _repeats(rows: Sequence[EvidenceSentence], index: int, chosen: Sequence[int], redundancy: float) -> bool:
    words = terms(rows[index].text)
    return any(
        len(words & (other := terms(rows[earlier].text))) >= redundancy * max(1, min(len(words), len(other)))
        for earlier in chosen
    )


class Extract(NamedTuple):
    """The sentences that are shown, and of a yes/no question what they come to: "yes", "no" or "unclear"."""

    rows: Sequence[EvidenceSentence]
    short: str = ""


class Extractor:
    """Chooses the sentences of the hits that answer a question; without an encoder, by their words alone."""

    def __init__(self, encoder: SentenceEncoder | None = None) -> None:
        self._encoder = encoder

    def scored(self, question: str, hits: Sequence[Hit]) -> tuple[list[EvidenceSentence], Vectors]:
        """Return the sentences of the hits and their scores, (sentences,); larger is better."""
        rows = candidates(hits)
        scores = features(question, hits, rows)
        if self._encoder and rows:
            scores = scores + late_interaction(question, [hit.snippet for hit in hits], rows, self._encoder)
        return rows, scores

    def similarities(self, texts: Sequence[str], rows: Sequence[EvidenceSentence]) -> Vectors:
        """Return the mean MaxSim of each text to each sentence alone, (texts, sentences); 0 without an encoder."""
        if not self._encoder or not rows:
            return np.zeros((len(texts), len(rows)), np.float32)
        from biorag.models.late_interaction import mean_maxsim

        tokens = [located.vectors for located in self._encoder.located_tokens([row.text for row in rows])]
        return np.stack([mean_maxsim(query, tokens) for query in self._encoder.query_tokens(texts)])

    def extract(self, question: str, hits: Sequence[Hit], kind: Kind | None = None) -> Extract:
        """Return the sentences that answer the question best: one to three, of a list up to six.

        Those of a yes/no question begin with the one that decides it, and with one of another snippet that says the
        opposite, if there is one.
        """
        rows, scores = self.scored(question, hits)
        length = LIST if kind == "list" else SHORT
        beside = elsewhere(question, hits, rows)
        guarded = scores + ELSEWHERE * beside
        chosen = select(rows, guarded, held_words(question, [row.text for row in rows]), length)
        lead = yes_no_lead(question, rows, guarded) if kind == "yesno" else None
        if lead is None:
            return Extract(chosen)
        about = [row for row, is_beside in zip(rows, beside, strict=True) if not is_beside]
        deciding = [lead.deciding, *([lead.other] if lead.other in about else [])]
        return Extract([*deciding, *(row for row in chosen if row not in deciding)][: SHORT.most], lead.answer)


def extracted(answer: Answer, extract: Extract) -> Answer:
    """Return an answer whose text is sentences of its hits, each followed by the number of its hit.

    They need no check: each is its own evidence.
    """
    rows = extract.rows
    snippets = [answer.hits[row.n - 1].snippet for row in rows]
    spans = [
        EvidenceSpan(row.n, snippet.id, snippet.pmid, row.text, Verdict.SUPPORTED)
        for row, snippet in zip(rows, snippets, strict=True)
    ]
    return replace(
        answer,
        answerer=EXTRACT,
        short_answer=extract.short,
        items=tuple(AnswerItem(row.text, (row.n,)) for row in rows) if answer.kind == "list" else (),
        text=" ".join(f"{row.text} [{row.n}]" for row in rows),
        sentences=tuple(CheckedSentence(span.quote, Verdict.SUPPORTED, (span.n,), (span,)) for span in spans),
        citations=tuple(citation_of(answer.hits[row.n - 1], row.n, row.text) for row in rows),
    )
