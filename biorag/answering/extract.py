"""The extractive answerer: the sentences of the evidence that answer a question best, verbatim."""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biorag.corpus.sentences import sentence_starts, terms
from biorag.types import (
    EXTRACT,
    Answer,
    CheckedSentence,
    Citation,
    EvidenceSpan,
    Hit,
    SentenceEncoder,
    Vectors,
    Verdict,
)

_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
_LABEL = re.compile(r"([A-Za-z][A-Za-z'’/&,\- ]{2,40}?)\s*:\s+(?=[\"'(\[]?[A-Z0-9])")
_REASON = re.compile(r"\s*(?:why|how (?:do|does|did|is|are|can))\b", re.IGNORECASE)
_AMOUNT = re.compile(
    r"\b(?:how (?:many|much|long|often|old|high|large)|what (?:percentage|proportion|share|dose|age)|"
    r"when|at what|how fast|threshold|within how)\b",
    re.IGNORECASE,
)

SHORTEST_SENTENCE = 4  # words
NEW_TERMS = 3.0  # content words besides the question's: a sentence with so many says something of its own


@dataclass(frozen=True, slots=True)
class ExtractWeights:
    """How much each feature of a sentence counts, and what a further sentence needs.

    Attributes
    ----------
    coverage : the share of the question's words that the sentence holds, rare ones weighing more
    complement : for a further sentence, that share of the words that those before it lack
    hit : the snippet's score as a share of the first hit's
    novelty : whether the sentence holds words that the question does not
    conclusion, aim, question, heading : for a sentence of such a kind
    cue : a cue of what the question asks for: a reason, a number
    margin : how far below the best score a further sentence may lie
    redundancy : the share of its words that a further sentence may have in common with those before it
    most : sentences at most
    """

    coverage: float = 0.35
    hit: float = 0.8
    novelty: float = 0.1
    conclusion: float = 0.2
    aim: float = -0.1
    question: float = -0.3
    heading: float = -0.3
    cue: float = 0.05
    complement: float = 0.3
    margin: float = 0.12
    redundancy: float = 0.4
    most: int = 3


WEIGHTS = ExtractWeights()


@dataclass(frozen=True, slots=True)
class EvidenceSentence:
    """A sentence of the `n`-th hit (from 1), at `start` to `end` of the snippet's contents."""

    n: int
    start: int
    end: int
    text: str
    section: str = ""


@cache
def _cues() -> Mapping[str, Any]:
    return tomllib.loads(files("biorag.answering").joinpath("extract_cues.toml").read_text(encoding="utf-8"))


@cache
def _sections() -> Mapping[str, str]:
    return {label: section for section, labels in _cues()["sections"].items() for label in labels}


@cache
def _pattern(group: str, name: str) -> re.Pattern[str]:
    phrases = sorted(_cues()[group][name], key=len, reverse=True)
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
    starts = [0, *sentence_starts(body), len(body)]
    section, rows = "", []
    for start, end in itertools.pairwise(starts):
        sentence = body[start:end]
        label = _LABEL.match(sentence)
        if label and (named := _sections().get(label[1].strip().lower().replace("’", "'"))):
            section, start = named, start + label.end()
        start += len(body[start:end]) - len(body[start:end].lstrip())
        text = body[start:end].rstrip()
        if text and not _is_instruction(text):
            rows.append(EvidenceSentence(n, offset + start, offset + start + len(text), text, section))
    return rows


def _is_instruction(text: str) -> bool:
    order = _pattern("phrases", "order").match(text)
    return bool(order or _pattern("phrases", "reply").search(text)) or text.startswith(("</", "<|"))


def sentence_maxsim(query: Vectors, tokens: Vectors, owners: NDArray[np.int64], sentences: int) -> Vectors:
    """Return `1/m Σ_i max_{j in s} ⟨q_i, d_j⟩` for each sentence s of a passage: its mean MaxSim.

    Parameters
    ----------
    query : (query tokens, dim)
    tokens : (tokens, dim) of the passage
    owners : (tokens,), the sentence that each token stands in, -1 for none
    sentences : their number

    Returns
    -------
    (sentences,) float32, NaN for a sentence without a token
    """
    scores = np.full(sentences, np.nan, np.float32)
    similarity = query @ tokens.T
    for sentence in range(sentences):
        columns = owners == sentence
        if columns.any():
            scores[sentence] = similarity[:, columns].max(axis=1).mean()
    return scores


def owners_of(spans: Sequence[tuple[int, int]], bounds: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Return the sentence, by its (start, end) in `bounds`, that each token begins in; -1 for none.

    Bounds are in the order of the text and do not overlap. A special token, of empty span, is of none.
    """
    starts = np.array([start for start, _ in bounds])
    ends = np.array([end for _, end in bounds])
    begins = np.array([start for start, _ in spans])
    owners = np.searchsorted(starts, begins, side="right") - 1
    empty = np.array([start == end for start, end in spans])
    outside = (owners < 0) | empty | (begins >= ends[owners])
    return np.where(outside, -1, owners)


def late_interaction(
    question: str, hits: Sequence[Hit], rows: Sequence[EvidenceSentence], encoder: SentenceEncoder
) -> Vectors:
    """Return each sentence's mean MaxSim to the question, (sentences,); tokens have seen the whole snippet.

    A sentence that the encoder's window cuts off or does not reach is encoded apart, after its title.
    """
    (query,) = encoder.query_tokens([question])
    scores = np.full(len(rows), np.nan, np.float32)
    located = encoder.located_tokens([hit.snippet.contents for hit in hits])
    for n, (vectors, spans) in enumerate(located, 1):
        indices = [index for index, row in enumerate(rows) if row.n == n]
        if indices and len(vectors):
            owners = owners_of(spans[: len(vectors)], [(rows[index].start, rows[index].end) for index in indices])
            whole = sentence_maxsim(query, vectors[: len(owners)], owners, len(indices))
            limit = spans[len(vectors) - 1][0] if len(spans) > len(vectors) else len(hits[n - 1].snippet.contents)
            scores[indices] = [
                score if rows[index].end <= limit else np.nan for index, score in zip(indices, whole, strict=True)
            ]
    beyond = [index for index in range(len(rows)) if math.isnan(scores[index])]
    if beyond:
        texts = [replace(hits[rows[index].n - 1].snippet, content=rows[index].text).contents for index in beyond]
        for index, text, tokens in zip(beyond, texts, encoder.located_tokens(texts), strict=True):
            start = len(text) - len(rows[index].text)
            owners = owners_of(tokens.spans[: len(tokens.vectors)], [(start, len(text))])
            scores[index] = sentence_maxsim(query, tokens.vectors[: len(owners)], owners, 1)[0]
    return np.nan_to_num(scores)


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


def features(
    question: str, hits: Sequence[Hit], rows: Sequence[EvidenceSentence], weights: ExtractWeights = WEIGHTS
) -> Vectors:
    """Return the part of each sentence's score that no encoder takes part in, (sentences,)."""
    top = max((hit.score for hit in hits), default=0.0)
    asked = terms(question)
    scores: Vectors = weights.coverage * held_words(question, [row.text for row in rows]).sum(axis=1)
    for index, row in enumerate(rows):
        new = len(terms(row.text) - asked)
        share = max(0.0, hits[row.n - 1].score / top) if top > 0 else 1.0 / row.n
        scores[index] += (
            weights.hit * share + weights.novelty * min(1.0, new / NEW_TERMS) + _kind(question, row, weights)
        )
    return scores


def _kind(question: str, row: EvidenceSentence, weights: ExtractWeights) -> float:
    score = 0.0
    if row.section in ("conclusions", "results") or _pattern("phrases", "conclusion").search(row.text):
        score += weights.conclusion
    if row.section in ("objective", "methods", "background") or _pattern("phrases", "aim").search(row.text):
        score += weights.aim
    if row.text.rstrip("\"')").endswith("?"):
        score += weights.question
    if len(_WORD.findall(row.text)) < SHORTEST_SENTENCE or not row.text.endswith((".", "!", "?", ")", '"', "'", "]")):
        score += weights.heading
    wants_reason = _REASON.match(question) and _pattern("asked", "reason").search(row.text)
    wants_amount = _AMOUNT.search(question) and re.search(r"\d", row.text)
    return score + (weights.cue if wants_reason or wants_amount else 0.0)


def select(
    rows: Sequence[EvidenceSentence],
    scores: Vectors,
    held: Vectors,
    weights: ExtractWeights = WEIGHTS,
) -> list[EvidenceSentence]:
    """Return the best sentence and at most two more, in the order of their snippets' best and of the text.

    A further one must score nearly as much, words of the question that are still missing counting for it, and say
    something else. One that leans on the sentence before it ("It prevents …") brings that one along.

    Parameters
    ----------
    scores : (sentences,)
    held : (sentences, words), as `held_words` gives it
    """
    if not rows:
        return []
    floor = float(scores.max()) - weights.margin
    chosen: list[int] = []
    refused: set[int] = set()
    while len(chosen) < weights.most and len(chosen) + len(refused) < len(rows):
        missing = (held[chosen].max(axis=0) == 0) if chosen else np.zeros(held.shape[1], bool)
        totals = scores + weights.complement * held[:, missing].sum(axis=1)
        totals[[*chosen, *refused]] = -np.inf
        index = int(totals.argmax())
        if totals[index] < floor:
            break
        added = [place for place in ([index - 1] if _leans(rows, index) else []) if place not in chosen] + [index]
        if len(chosen) + len(added) > weights.most or _repeats(rows, index, chosen, weights):
            refused.add(index)
        else:
            chosen += added
            refused.discard(added[0])
    snippets = list(dict.fromkeys(rows[index].n for index in chosen))
    return [rows[index] for index in sorted(chosen, key=lambda index: (snippets.index(rows[index].n), index))]


def _leans(rows: Sequence[EvidenceSentence], index: int) -> bool:
    opener = _pattern("phrases", "opener").match(rows[index].text)
    return bool(opener) and index > 0 and rows[index - 1].n == rows[index].n


def _repeats(rows: Sequence[EvidenceSentence], index: int, chosen: Sequence[int], weights: ExtractWeights) -> bool:
    words = terms(rows[index].text)
    return any(
        len(words & (other := terms(rows[place].text))) >= weights.redundancy * max(1, min(len(words), len(other)))
        for place in chosen
    )


class Extractor:
    """Chooses the sentences of the hits that answer a question; without an encoder, by their words alone."""

    def __init__(self, encoder: SentenceEncoder | None = None, weights: ExtractWeights = WEIGHTS) -> None:
        self._encoder = encoder
        self._weights = weights

    def scored(self, question: str, hits: Sequence[Hit]) -> tuple[list[EvidenceSentence], Vectors]:
        """Return the sentences of the hits and their scores, (sentences,); larger is better."""
        rows = candidates(hits)
        scores = features(question, hits, rows, self._weights)
        if self._encoder and rows:
            scores = scores + late_interaction(question, hits, rows, self._encoder)
        return rows, scores

    def nearness(self, question: str, hits: Sequence[Hit], rows: Sequence[EvidenceSentence]) -> Vectors:
        """Return how near each sentence is to the question, (sentences,): by its tokens, else by the words it holds."""
        if self._encoder and rows:
            return late_interaction(question, hits, rows, self._encoder)
        held: Vectors = held_words(question, [row.text for row in rows]).sum(axis=1)
        return held

    def similarities(self, texts: Sequence[str], rows: Sequence[EvidenceSentence]) -> Vectors:
        """Return the mean MaxSim of each text to each sentence alone, (texts, sentences); 0 without an encoder."""
        if not self._encoder or not rows:
            return np.zeros((len(texts), len(rows)), np.float32)
        from biorag.models.late_interaction import mean_maxsim

        tokens = [located.vectors for located in self._encoder.located_tokens([row.text for row in rows])]
        return np.stack([mean_maxsim(query, tokens) for query in self._encoder.query_tokens(texts)])

    def extract(self, question: str, hits: Sequence[Hit]) -> list[EvidenceSentence]:
        """Return one to three sentences that answer the question best; none where there is no hit."""
        rows, scores = self.scored(question, hits)
        return select(rows, scores, held_words(question, [row.text for row in rows]), self._weights)


def extracted(answer: Answer, sentences: Sequence[EvidenceSentence]) -> Answer:
    """Return an answer whose text is sentences of its hits, each followed by the number of its hit.

    They need no check: each is its own evidence.
    """
    hits = {row.n: answer.hits[row.n - 1] for row in sentences}
    spans = [
        EvidenceSpan(row.n, hits[row.n].snippet.id, hits[row.n].snippet.pmid, row.text, Verdict.SUPPORTED)
        for row in sentences
    ]
    return replace(
        answer,
        answerer=EXTRACT,
        text=" ".join(f"{row.text} [{row.n}]" for row in sentences),
        sentences=tuple(CheckedSentence(span.quote, Verdict.SUPPORTED, (span.n,), (span,)) for span in spans),
        citations=tuple(citation_of(hits[span.n], span.n, span.quote) for span in spans),
    )


def citation_of(hit: Hit, n: int, quote: str) -> Citation:
    """Return the citation of a quote that stands in the `n`-th hit."""
    snippet = hit.snippet
    return Citation(n, snippet.id, snippet.pmid, snippet.title, quote, hit.score, snippet.retracted, snippet.location)
