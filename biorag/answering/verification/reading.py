"""What of a snippet a judge of claims reads: all of a short one, of a long one the sentences nearest to the claim."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from biorag.answering.sentence_matching import EvidenceSentence, late_interaction
from biorag.corpus.sentences import sentence_starts, terms
from biorag.types import SentenceEncoder, Snippet, Vectors

CHARACTERS = 768  # of evidence and claim: about 190 tokens, which is what the judge is trained on
MOST = 64  # sentences whose tokens are compared, of a snippet that has more those that share most words with the claim


class EvidenceReader:
    """Chooses the evidence that a judge reads; sentences are ranked by late interaction, or without encoder by words.

    `load_encoder` is called at the first snippet that is too long; it returns None where there is no encoder.
    """

    def __init__(self, load_encoder: Callable[[], SentenceEncoder | None] = lambda: None) -> None:
        self._encoder = cache(load_encoder)

    def read(self, claim: str, snippet: Snippet) -> str:
        """Return the text of a snippet that fits beside a claim: sentences, in their order; at least one."""
        text, room = snippet.contents, CHARACTERS - len(claim)
        if len(text) <= room:
            return text
        starts = [0, *sentence_starts(text), len(text)]
        rows = [
            EvidenceSentence(1, start, start + len(sentence), sentence)
            for start, end in itertools.pairwise(starts)
            if (sentence := text[start:end].rstrip())
        ]
        shared = _shared_words(claim, rows)
        if len(rows) > MOST:
            nearest = np.sort(np.argsort(-shared, kind="stable")[:MOST])
            rows, shared = [rows[index] for index in nearest], shared[nearest]
        scores = self._scores(claim, snippet, rows, shared)
        return " ".join(row.text for row in fitting(rows, scores, room))

    def _scores(self, claim: str, snippet: Snippet, rows: Sequence[EvidenceSentence], shared: Vectors) -> Vectors:
        encoder = self._encoder()
        return late_interaction(claim, [snippet], rows, encoder) if encoder else shared


def fitting(rows: Sequence[EvidenceSentence], scores: Vectors, characters: int) -> list[EvidenceSentence]:
    """Return the best of the sentences that fit into so many characters, in their order; the first always fits."""
    chosen: list[int] = []
    for index in np.argsort(-scores, kind="stable").tolist():
        if not chosen or len(rows[index].text) < characters:
            chosen.append(index)
            characters -= len(rows[index].text) + 1
    return [rows[index] for index in sorted(chosen)]


def _shared_words(claim: str, rows: Sequence[EvidenceSentence]) -> Vectors:
    """Return how many of the claim's content words each sentence has, (sentences,)."""
    words = terms(claim)
    return np.array([len(words & terms(row.text)) for row in rows], np.float32)
