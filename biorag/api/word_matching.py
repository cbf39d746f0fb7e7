"""Which words of a passage match one of a question, for showing why it was found: late interaction of their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from biorag.answering.sentence_matching import owners_of, sentence_matches
from biorag.corpus.sentences import matches, terms
from biorag.types import SentenceEncoder

GRADES = 5  # of matching words
LEAST = 0.45  # how far above the usual pair of words a match begins


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
