"""One claim held against one snippet: by its words, and by a reader, which reads the windows that come nearest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from biorag.answering.guards.quotes import find_quote
from biorag.answering.guards.stated import APART, Comparison, Relation, compared, nearest
from biorag.answering.readers.windows import EvidenceWindows
from biorag.answering.sections import is_evidence, labelled_sentences
from biorag.types import LABEL_OF, LABELS, Basis, Reader, Snippet, Vectors, Verdict

MOST_SENTENCES = 2000  # of a snippet; a book is better split into blocks
OPPOSITE = {
    Verdict.SUPPORTED: Verdict.CONTRADICTED,
    Verdict.CONTRADICTED: Verdict.SUPPORTED,
    Verdict.UNSUPPORTED: Verdict.UNSUPPORTED,
    Verdict.UNSURE: Verdict.UNSURE,
}
_RETRACTED = re.compile(r"\W*retract(?:ed|ion)\b", re.IGNORECASE)  # as PubMed's titles begin
_RELATIONS = {Relation.STATED: Verdict.SUPPORTED, Relation.DIFFERS: Verdict.UNSUPPORTED}


class SnippetVerdict(NamedTuple):
    """What a snippet does to a claim; see `CheckedSentence` for basis, difference and probability."""

    verdict: Verdict
    basis: Basis
    quote: str
    difference: str = ""
    probability: tuple[float, ...] = ()  # by `LABELS`; empty where no reader was asked

    @property
    def strength(self) -> float:
        """How surely it says so; 1 by its words."""
        return self.probability[LABELS.index(LABEL_OF[self.verdict])] if self.basis == "reader" else 1.0

    def opposite(self) -> SnippetVerdict:
        """Return what the snippet does to the claim's denial."""
        exchanged = tuple(self.probability[label] for label in (1, 0, 2)) if self.probability else ()
        return self._replace(verdict=OPPOSITE[self.verdict], probability=exchanged)


class Reading(NamedTuple):
    """A reader, and what chooses the windows that it reads."""

    reader: Reader
    windows: EvidenceWindows


def snippet_verdicts(
    claim: str,
    snippets: Sequence[Snippet],
    reading: Reading | None = None,
    leaning: bool = False,
    retracted: bool = False,
) -> list[SnippetVerdict | None]:
    """Return what each snippet does to a claim; None where nothing of it is established.

    Titles, aims, questions and background are no evidence, and neither is a retracted article, unless `retracted`. A
    reader is asked where the words establish nothing; one that is never trusted with a verdict is asked of nearly the
    same words alone, or, with `leaning`, of all, and its verdict is unsure.
    """
    verdicts: list[SnippetVerdict | None] = []
    for snippet in snippets:
        comparison, sentence = APART, ""
        counts = retracted or not (snippet.retracted or _RETRACTED.match(snippet.title))
        if counts:
            comparison, sentence = by_words(claim, snippet.content)
        verdicts.append(_of_words(comparison, sentence))
        if verdicts[-1] is None and reading and counts:
            verdicts[-1] = _read(claim, snippet, comparison.relation, sentence, reading, leaning)
    return verdicts


@lru_cache(maxsize=1 << 10)
def by_words(claim: str, content: str) -> tuple[Comparison, str]:
    """Return how the sentence of a text that is nearest to a claim relates to it, and the sentence."""
    rows = [row for row in labelled_sentences(content)[:MOST_SENTENCES] if is_evidence(row, claim)]
    texts = [row.text for row in rows]
    best = (APART, "")
    for position in nearest(claim, texts, content):
        comparison = compared(claim, texts[position], content)
        best = max(best, (comparison, texts[position]), key=lambda pair: pair[0].relation)
    return best


def _of_words(comparison: Comparison, sentence: str) -> SnippetVerdict | None:
    if comparison.relation not in _RELATIONS:
        return None
    verdict = Verdict.CONTRADICTED if comparison.opposed else _RELATIONS[comparison.relation]
    return SnippetVerdict(verdict, "quote", sentence, comparison.difference)


def _read(
    claim: str, snippet: Snippet, relation: Relation, sentence: str, reading: Reading, leaning: bool
) -> SnippetVerdict | None:
    reader, trust = reading.reader, reading.reader.trust
    if relation is Relation.NEAR and trust.nearly <= 1:
        stances = reader.read(claim, [sentence]).stances
        if stances[0, 0] >= trust.nearly:
            return SnippetVerdict(Verdict.SUPPORTED, "quote", sentence, probability=tuple(map(float, stances[0])))
    if min(trust.supports, trust.contradicts) > 1 and not leaning:
        return None
    windows = reading.windows.read(claim, snippet)
    if not windows:
        return None
    said = reader.read(claim, windows)
    probability, best = pooled(said.stances)
    quote = (said.quotes[best] if said.quotes else "") or _quotable(windows, said.stances, best, snippet)
    supports, contradicts, _ = probability
    verdict = Verdict.UNSUPPORTED
    if contradicts >= max(trust.contradicts, supports):
        verdict = Verdict.CONTRADICTED
    elif supports >= trust.supports:
        verdict = Verdict.SUPPORTED
    elif max(supports, contradicts) > 0.5:  # it leans to one
        verdict = Verdict.UNSURE
    return SnippetVerdict(verdict, "reader", quote, probability=probability)


def _quotable(windows: Sequence[str], stances: Vectors, best: int, snippet: Snippet) -> str:
    """Return the window that decides, or, where it is put together, the single sentence that says most of the same."""
    if find_quote(windows[best], snippet.content):
        return windows[best]
    side = int(stances[best, 1] > stances[best, 0])
    whole = [index for index, window in enumerate(windows) if find_quote(window, snippet.content)]
    return windows[max(whole, key=lambda index: stances[index, side])] if whole else ""


def pooled(stances: Vectors) -> tuple[tuple[float, ...], int]:
    """Return the probabilities of all windows together, and the window that decides; `stances` are (windows, 3).

    One window suffices to support or contradict a claim: the largest probabilities count, and "neither" has the rest.
    """
    supports, contradicts = float(stances[:, 0].max()), float(stances[:, 1].max())
    best = int(stances[:, int(contradicts > supports)].argmax())
    total = max(1.0, supports + contradicts)
    probability = (supports / total, contradicts / total, max(0.0, 1 - (supports + contradicts) / total))
    return tuple(np.round(probability, 6).tolist()), best
