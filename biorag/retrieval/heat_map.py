"""Which words of a snippet gave a question its MaxSim: the reranker's score, divided among the question's words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from biorag.errors import MismatchError
from biorag.indexes.manifest import TokenParameters
from biorag.models.token_projection import projected
from biorag.types import Index, IndexQuery, LocatedTokens, SentenceEncoder, Snippet, Vectors

NO_WORD = -1
Span = tuple[int, int]
_WORD = re.compile(r"\S+")


class LocatingEncoder(SentenceEncoder, Protocol):
    """A token encoder that says where the tokens of passages and of questions stand."""

    def located_query(self, text: str) -> LocatedTokens:
        """Return the token vectors of a question, with the place of each token."""


class NearestTokens(NamedTuple):
    """The snippet's token that is nearest each token of the question, and how near: `argmax_j` and `max_j ⟨q_i, d_j⟩`.

    Both are (question tokens,).
    """

    places: NDArray[np.int64]
    similarities: Vectors


@dataclass(frozen=True, slots=True)
class WordMatch:
    """A word of the question at `span`, and the word of the snippet that matched the best of its tokens."""

    span: Span
    share: float  # its part of the score
    matched: Span | None  # the place of the snippet's word in `HeatMap.text`; None where only a special token matched
    similarity: float  # of the best token


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A reranker's score of a snippet, divided among the question's words; `rest` is the special tokens' share."""

    question: str
    id: str
    text: str  # the snippet's title and content, as the reranker reads them
    words: tuple[WordMatch, ...]
    rest: float
    score: float  # the sum of all shares, which is the reranker's score
    # the words of `text` that matched any word of the question, each with the sum of what it gave
    passage: tuple[tuple[Span, float], ...]
    # whether the similarities are those of the index's own token vectors; their places are found by vectors that are
    # encoded anew
    stored: bool

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "question": self.question,
            "id": self.id,
            "text": self.text,
            "score": round(self.score, 6),
            "rest": round(self.rest, 6),
            "words": [
                {
                    "word": self.question[slice(*match.span)],
                    "share": round(match.share, 6),
                    "matched": match.matched and self.text[slice(*match.matched)],
                    "similarity": round(match.similarity, 6),
                    "span": list(match.span),
                    "matched_span": match.matched and list(match.matched),
                }
                for match in self.words
            ],
        }


def token_matches(query: Vectors, passage: Vectors) -> NearestTokens:
    """Return the best match of each token of a query in a passage.

    Parameters
    ----------
    query : (query tokens, dim)
    passage : (tokens, dim); without tokens every similarity is 0, and the places are 0
    """
    if not len(passage):
        return NearestTokens(np.zeros(len(query), np.int64), np.zeros(len(query), np.float32))
    similarities = query.astype(np.float32) @ passage.astype(np.float32).T
    return NearestTokens(similarities.argmax(axis=1), similarities.max(axis=1))


def shares(similarities: Vectors, owners: NDArray[np.int64], words: int) -> tuple[NDArray[np.float64], float]:
    """Return each word's share of the mean MaxSim `1/m Σ_i max_j ⟨q_i, d_j⟩`, and the share of tokens of no word.

    Parameters
    ----------
    similarities : (m,), the best of each token
    owners : (m,), the number of the word that each token is of, `NO_WORD` for none
    words : how many there are

    Returns
    -------
    (words,), whose sum with the second is the mean of the similarities
    """
    parts = similarities.astype(np.float64) / max(1, len(similarities))
    of_words = np.zeros(words)
    np.add.at(of_words, owners[owners != NO_WORD], parts[owners != NO_WORD])
    return of_words, float(parts[owners == NO_WORD].sum())


def owners_of(spans: Sequence[Span], words: Sequence[Span]) -> NDArray[np.int64]:
    """Return the number of the word, or other part of the text, that each token begins in, (tokens,).

    Parts are in the order of the text and do not overlap. A token of empty span, or outside of all, is of `NO_WORD`.
    """
    if not words:
        return np.full(len(spans), NO_WORD, np.int64)
    starts, ends = np.array(words, np.int64).T
    begins, stops = np.array(spans, np.int64).reshape(-1, 2).T
    owners = np.searchsorted(starts, begins, side="right") - 1
    outside = (owners < 0) | (begins == stops) | (begins >= ends[owners])
    return np.where(outside, NO_WORD, owners)


def word_spans(text: str) -> list[Span]:
    """Return the places of a text's words: what stands between white space, so that no token is of two."""
    return [word.span() for word in _WORD.finditer(text)]


def heat_map(
    question: str, snippet: Snippet, encoder: LocatingEncoder, index: Index, stored: TokenParameters | None
) -> HeatMap:
    """Divide the score that late interaction gives a snippet among the words of a question.

    Raises `MismatchError` if the index is to hold token vectors of the snippet, and holds none.

    Parameters
    ----------
    encoder : the reranker's
    stored : how the index keeps this encoder's token vectors, by which the reranker scores; None where it encodes them
    """
    text = snippet.contents
    asked, (passage,) = encoder.located_query(question), encoder.located_tokens([text])
    query, vectors = projected([asked.vectors, passage.vectors], stored.matrix if stored else None)
    places, similarities = token_matches(query, vectors)
    if stored:
        similarities = _stored_similarities(index, query, snippet.id)
    words, passage_words = word_spans(question), word_spans(text)
    owners = owners_of(_placed(asked), words)
    in_words = owners != NO_WORD
    matched = owners_of(_placed(passage), passage_words)[places] if len(vectors) else np.full(len(query), NO_WORD)
    of_words, rest = shares(similarities, owners, len(words))
    parts, _ = shares(similarities, np.where(in_words, matched, NO_WORD), len(passage_words))
    return HeatMap(
        question,
        snippet.id,
        text,
        tuple(
            _word_match(span, float(share), owners == number, similarities, matched, passage_words)
            for number, (span, share) in enumerate(zip(words, of_words, strict=True))
        ),
        rest,
        float(of_words.sum() + rest),
        tuple((passage_words[number], float(parts[number])) for number in sorted({*matched[in_words]} - {NO_WORD})),
        stored is not None,
    )


def _word_match(
    span: Span,
    share: float,
    own: NDArray[np.bool_],
    similarities: Vectors,
    matched: NDArray[np.int64],
    words: Sequence[Span],
) -> WordMatch:
    """Return the match of a word; one beyond the encoder's window has none.

    Parameters
    ----------
    own : (question tokens,), which of them are the word's
    similarities, matched : (question tokens,), how near the best is, and the number of its word in the snippet
    """
    if not own.any():
        return WordMatch(span, share, None, 0.0)
    best = int(np.where(own, similarities, -np.inf).argmax())
    owner = int(matched[best])
    return WordMatch(span, share, None if owner == NO_WORD else words[owner], float(similarities[best]))


def _stored_similarities(index: Index, query: Vectors, id: str) -> Vectors:
    """Return the best match of each token of a query in a stored snippet, (query tokens,), as the engine computes it.

    MaxSim of a single token is its best match, so each token is asked for alone; what the engine keeps are four bits a
    number, which it compares in its own way.
    """
    probes = [IndexQuery(query[token : token + 1], 1, among=frozenset([id])) for token in range(len(query))]
    scored = index.search(probes)
    if not all(scored):
        raise MismatchError(f"the index holds no token vectors of {id!r}: index the corpus again")
    return np.array([best[0].score for best in scored], np.float32)


def _placed(tokens: LocatedTokens) -> list[Span]:
    """Return the place of each vector's token; where a text was cut, the last vector is of a special token."""
    count, spans = len(tokens.vectors), list(tokens.spans)
    if len(spans) > count:
        return [*spans[: count - 1], (0, 0)][:count]
    return spans + [(0, 0)] * (count - len(spans))
