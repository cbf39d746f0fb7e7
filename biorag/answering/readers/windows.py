"""What of a snippet a reader reads: the sentences nearest to a claim, each alone and as many as fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from biorag.answering.sections import is_evidence, labelled_sentences
from biorag.answering.sentence_matching import EvidenceSentence, late_interaction
from biorag.corpus.sentences import terms
from biorag.types import SentenceEncoder, Snippet, Vectors

CHARACTERS = 560  # of evidence and claim: about 128 tokens, which is what the packaged reader is trained on
LONGEST = 8192  # of both, for a reader of whole texts
NEAREST = 3  # sentences that are read alone
MOST = 64  # sentences whose tokens are compared, of a snippet that has more those that share most words with the claim


class EvidenceWindows:
    """Chooses the windows that a reader reads; sentences are ranked by late interaction, or without encoder by words.

    `load_encoder` is called at the first snippet of more than `NEAREST` sentences; it returns None where there is no
    encoder. With `whole` there is one window, of up to `LONGEST` characters: for a reader that reads long texts, and
    is slow or costs money.
    """

    def __init__(self, load_encoder: Callable[[], SentenceEncoder | None] = lambda: None, whole: bool = False) -> None:
        self._encoder = cache(load_encoder)
        self._whole = whole

    def read(self, claim: str, snippet: Snippet) -> list[str]:
        """Return the windows of a snippet beside a claim: its nearest sentences, in their order, and what fits.

        They hold sentences that are evidence; the last has as many as fit beside the claim. None if there is no such
        sentence.
        """
        room = (LONGEST if self._whole else CHARACTERS) - len(claim)
        offset = len(snippet.contents) - len(snippet.content)
        rows: Sequence[EvidenceSentence] = [
            EvidenceSentence(1, offset + row.start, offset + row.end, row.text)
            for row in labelled_sentences(snippet.content)
            if is_evidence(row, claim)
        ]
        if not rows:
            return []
        whole = " ".join(row.text for row in rows)
        if len(rows) == 1 or (self._whole and len(whole) <= room):
            return [whole]
        scores = np.zeros(len(rows), np.float32)
        if len(rows) > NEAREST:
            rows, scores = self._ranked(claim, snippet, rows)
        nearest = np.sort(np.argsort(-scores, kind="stable")[: 0 if self._whole else NEAREST])
        fits = whole if len(whole) <= room else " ".join(row.text for row in fitting(rows, scores, room))
        return list(dict.fromkeys([*(rows[index].text for index in nearest), fits]))

    def _ranked(
        self, claim: str, snippet: Snippet, rows: Sequence[EvidenceSentence]
    ) -> tuple[Sequence[EvidenceSentence], Vectors]:
        """Return sentences and how near they are to the claim; of too many those that share most words with it."""
        words = terms(claim)
        shared = np.array([len(words & terms(row.text)) for row in rows], np.float32)
        if len(rows) > MOST:
            kept = np.sort(np.argsort(-shared, kind="stable")[:MOST])
            rows, shared = [rows[index] for index in kept], shared[kept]
        encoder = self._encoder()
        return rows, late_interaction(claim, [snippet], rows, encoder).sentences if encoder else shared


def fitting(rows: Sequence[EvidenceSentence], scores: Vectors, characters: int) -> list[EvidenceSentence]:
    """Return the best of the sentences that fit into so many characters, in their order; the first always fits."""
    chosen: list[int] = []
    for index in np.argsort(-scores, kind="stable").tolist():
        if not chosen or len(rows[index].text) < characters:
            chosen.append(index)
            characters -= len(rows[index].text) + 1
    return [rows[index] for index in sorted(chosen)]
