"""How near sentences and words of snippets come to a question or a claim: late interaction of their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biorag.corpus.sentences import matches, terms
from biorag.types import SentenceEncoder, Snippet, Vectors

NO_PART = -1
GRADES = 5  # of matching words
LEAST = 0.45  # how far above the usual pair of words a match begins


@dataclass(frozen=True, slots=True)
class EvidenceSentence:
    """A sentence of the `n`-th snippet (from 1), at `start` to `end` of its contents, and the title of the snippet."""

    n: int
    start: int
    end: int
    text: str
    section: str = ""
    title: str = ""


def owners_of(spans: Sequence[tuple[int, int]], parts: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Return the number of the part of a text in which each token begins, (tokens,); `NO_PART` outside all parts.

    Parts ascend and do not overlap. A token of empty span, such as a special one, has no part.
    """
    if not parts:
        return np.full(len(spans), NO_PART, np.int64)
    starts, ends = np.array(parts, np.int64).T
    begins, stops = np.array(spans, np.int64).reshape(-1, 2).T
    owners = np.searchsorted(starts, begins, side="right") - 1
    outside = (owners < 0) | (begins == stops) | (begins >= ends[owners])
    return np.where(outside, NO_PART, owners)


def sentence_matches(
    query: Vectors, tokens: Vectors, spans: Sequence[tuple[int, int]], bounds: Sequence[tuple[int, int]]
) -> Vectors:
    """Return `max_{j in s} ⟨q_i, d_j⟩` for each sentence s and query token i, (sentences, query tokens) float32.

    `query` is (query tokens, dim), `tokens` the passage's (tokens, dim); `spans` and `bounds` are the (start, end) of
    tokens and sentences in the passage. A sentence without a token has NaN.
    """
    matches = np.full((len(bounds), len(query)), np.nan, np.float32)
    owners = owners_of(spans[: len(tokens)], bounds)
    similarity = query @ tokens[: len(owners)].T
    for sentence in range(len(bounds)):
        columns = owners == sentence
        if columns.any():
            matches[sentence] = similarity[:, columns].max(axis=1)
    return matches


def late_interaction(
    query: str, snippets: Sequence[Snippet], rows: Sequence[EvidenceSentence], encoder: SentenceEncoder
) -> Vectors:
    """Return each sentence's mean MaxSim to a question or claim, (sentences,); tokens have seen the whole snippet.

    A sentence that the encoder's window cuts off or does not reach is encoded apart, after its title.
    """
    (matched,) = encoder.query_tokens([query])
    scores = np.full(len(rows), np.nan, np.float32)
    located = encoder.located_tokens([snippet.contents for snippet in snippets])
    for n, (vectors, spans) in enumerate(located, 1):
        limit = spans[len(vectors) - 1][0] if len(spans) > len(vectors) > 0 else len(snippets[n - 1].contents)
        whole = [index for index, row in enumerate(rows) if row.n == n and row.end <= limit]
        if whole and len(vectors):
            bounds = [(rows[index].start, rows[index].end) for index in whole]
            scores[whole] = sentence_matches(matched, vectors, spans, bounds).mean(axis=1)
    beyond = np.flatnonzero(np.isnan(scores)).tolist()
    texts = [replace(snippets[rows[index].n - 1], content=rows[index].text).contents for index in beyond]
    located = encoder.located_tokens(texts) if texts else []
    for index, text, (vectors, spans) in zip(beyond, texts, located, strict=True):
        bounds = [(len(text) - len(rows[index].text), len(text))]
        scores[index] = sentence_matches(matched, vectors, spans, bounds)[0].mean()
    return np.nan_to_num(scores)


class WordMatch(NamedTuple):
    """A word of a passage at `span`, the word of the question that is nearest to it, and how near: a cosine.

    `grade` is 1 to `GRADES`, by how far the cosine lies above that of the median pair of words.
    """

    span: tuple[int, int]
    asked: str
    similarity: float
    grade: int


def word_matches(question: str, texts: Sequence[str], encoder: SentenceEncoder) -> list[list[WordMatch]]:
    """Return the content words of each text that match one of a question, in the text's order.

    A pair of words is as near as the mean, over the tokens of the question's word, of the best match among the tokens
    of the other. Words beyond the encoder's window match nothing. The question is read as a passage is.
    """
    asked, *passages = encoder.located_tokens([question, *texts])
    words = matches(question, terms(question))
    owners = owners_of(asked.spans[: len(asked.vectors)], words)
    read = [number for number in range(len(words)) if (owners == number).any()]
    places = [matches(text, terms(text)) for text in texts]
    if not read or not any(places):
        return [[] for _ in texts]
    pairs = []  # of each text, (its words, words read of the question)
    for spans, (vectors, token_spans) in zip(places, passages, strict=True):
        of_tokens = sentence_matches(asked.vectors, vectors, token_spans, spans)
        pairs.append(np.stack([of_tokens[:, owners == number].mean(axis=1) for number in read], axis=1))
    usual = float(np.nanmedian(np.concatenate(pairs)))
    return [
        [
            WordMatch(span, question[slice(*words[read[int(row.argmax())]])], float(row.max()), grade)
            for span, row in zip(spans, table, strict=True)
            if (grade := _grade(float(row.max()), usual)) > 0
        ]
        for spans, table in zip(places, pairs, strict=True)
    ]


def _grade(similarity: float, usual: float) -> int:
    """Return the grade of a match; 0 for none, as of a word that has no token."""
    if np.isnan(similarity) or usual >= 1:
        return 0
    above = (similarity - usual) / (1 - usual)
    return min(GRADES, int(np.ceil(GRADES * (above - LEAST) / (1 - LEAST))))
