"""How near sentences of snippets come to a question or a claim: late interaction of their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biorag.types import SentenceEncoder, Snippet, Vectors
from biorag.utils.progress import batched

NO_PART = -1
AT_ONCE = 100  # sentences that are encoded at a time: more would load the encoder that is for whole corpora


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


class Matches(NamedTuple):
    """The mean MaxSim of a question or claim to each sentence, (sentences,), and to each snippet, (snippets,).

    `least` is the smallest MaxSim of its tokens to each snippet, (snippets,).
    """

    sentences: Vectors
    snippets: Vectors
    least: Vectors


def late_interaction(
    query: str, snippets: Sequence[Snippet], rows: Sequence[EvidenceSentence], encoder: SentenceEncoder
) -> Matches:
    """Return how near sentences and snippets come to a question or claim; tokens have seen the whole snippet.

    A sentence that the encoder's window cuts off or does not reach is encoded apart, after its title.
    """
    (matched,) = encoder.query_tokens([query])
    scores = np.full(len(rows), np.nan, np.float32)
    wholes, least = np.zeros((2, len(snippets)), np.float32)
    located = encoder.located_tokens([snippet.contents for snippet in snippets])
    for n, (vectors, spans) in enumerate(located, 1):
        if len(vectors):
            found = (matched @ vectors.T).max(axis=1)
            wholes[n - 1], least[n - 1] = found.mean(), found.min()
        limit = spans[len(vectors) - 1][0] if len(spans) > len(vectors) > 0 else len(snippets[n - 1].contents)
        whole = [index for index, row in enumerate(rows) if row.n == n and row.end <= limit]
        if whole and len(vectors):
            bounds = [(rows[index].start, rows[index].end) for index in whole]
            scores[whole] = sentence_matches(matched, vectors, spans, bounds).mean(axis=1)
    beyond = np.flatnonzero(np.isnan(scores)).tolist()
    texts = [replace(snippets[rows[index].n - 1], content=rows[index].text).contents for index in beyond]
    located = [row for some in batched(texts, AT_ONCE) for row in encoder.located_tokens(some)]
    for index, text, (vectors, spans) in zip(beyond, texts, located, strict=True):
        bounds = [(len(text) - len(rows[index].text), len(text))]
        scores[index] = sentence_matches(matched, vectors, spans, bounds)[0].mean()
    return Matches(np.nan_to_num(scores), wholes, least)
