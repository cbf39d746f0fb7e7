"""What of a snippet a judge of claims reads: the sentences nearest to the claim, each alone and as many as fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from biorag.answering.sentence_matching import EvidenceSentence, late_interaction
from biorag.corpus.sentences import sentence_spans, terms
from biorag.types import SentenceEncoder, Snippet, Vectors

CHARACTERS = 768  # of evidence and claim: about 190 tokens, which is what the judge is trained on
LONGEST = 8192  # of both, for a judge that reads long texts
NEAREST = 3  # sentences that are judged alone
MOST = 64  # sentences whose tokens are compared, of a snippet that has more those that share most words with the claim


class EvidenceReader:
    """Chooses the evidence that a judge reads; sentences are ranked by late interaction, or without encoder by words.

    `load_encoder` is called at the first snippet of more than `NEAREST` sentences; it returns None where there is no
    encoder. With `windows` False there is one window, of up to `LONGEST` characters: for a judge that reads long texts
    and is slow or costs money.
    """

    def __init__(self, load_encoder: Callable[[], SentenceEncoder | None] = lambda: None, windows: bool = True) -> None:
        self._encoder = cache(load_encoder)
        self._windows = windows

    def read(self, claim: str, snippet: Snippet) -> list[str]:
        """Return the windows of a snippet to judge a claim by: its nearest sentences, in their order, and what fits.

        The last is the snippet's text, or as many of the nearest sentences as fit beside the claim; a snippet of one
        sentence is one window.
        """
        text, room = snippet.contents, (CHARACTERS if self._windows else LONGEST) - len(claim)
        if not self._windows and len(text) <= room:
            return [text]
        spans = sentence_spans(text)
        rows: Sequence[EvidenceSentence] = [EvidenceSentence(1, start, end, text[start:end]) for start, end in spans]
        if len(rows) < 2:
            return [text]
        scores = np.zeros(len(rows), np.float32)
        if len(rows) > NEAREST:
            rows, scores = self._ranked(claim, snippet, rows)
        nearest = np.sort(np.argsort(-scores, kind="stable")[: NEAREST if self._windows else 0])
        whole = text if len(text) <= room else " ".join(row.text for row in fitting(rows, scores, room))
        return [*(rows[index].text for index in nearest), whole]

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
        return rows, late_interaction(claim, [snippet], rows, encoder) if encoder else shared


def fitting(rows: Sequence[EvidenceSentence], scores: Vectors, characters: int) -> list[EvidenceSentence]:
    """Return the best of the sentences that fit into so many characters, in their order; the first always fits."""
    chosen: list[int] = []
    for index in np.argsort(-scores, kind="stable").tolist():
        if not chosen or len(rows[index].text) < characters:
            chosen.append(index)
            characters -= len(rows[index].text) + 1
    return [rows[index] for index in sorted(chosen)]
