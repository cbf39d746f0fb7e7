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
from biorag.types import LABEL_OF, LABELS, Basis, Reader, Snippet, Trust, Vectors, Verdict

LEANS = 0.5  # probability from which a reader leans to a verdict
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
        return 1.0 if self.basis == "quote" else self.probability[LABELS.index(LABEL_OF[self.verdict])]

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
    reader is asked where the words establish nothing, or only that something differs; one that is never trusted with a
    verdict is asked with `leaning` alone, and its verdict is unsure.
    """
    counts = [retracted or not (one.retracted or _RETRACTED.match(one.title)) for one in snippets]
    compared = [by_words(claim, one.content) if ok else (APART, "") for one, ok in zip(snippets, counts, strict=True)]
    verdicts = [_of_words(*pair) for pair in compared]
    if reading is None:
        return verdicts
    trust = reading.reader.trust
    if min(trust.supports, trust.contradicts) <= 1 or leaning:
        open_ = [n for n, ok in enumerate(counts) if ok and (verdicts[n] is None or _names_differ(verdicts[n]))]
        said = _read(claim, [snippets[n] for n in open_], reading)
        for n, verdict in zip(open_, said, strict=True):
            if verdict and (verdicts[n] is None or verdict.verdict is Verdict.SUPPORTED):
                verdicts[n] = verdict
    return verdicts


def _names_differ(verdict: SnippetVerdict | None) -> bool:
    return verdict is not None and verdict.verdict is Verdict.UNSUPPORTED


@lru_cache(maxsize=1 << 10)
def by_words(claim: str, content: str) -> tuple[Comparison, str]:
    """Return how the sentence of a text that is nearest to a claim relates to it, and the sentence."""
    sentences = labelled_sentences(content)[:MOST_SENTENCES]
    texts = [sentence.text for sentence in sentences if is_evidence(sentence, claim)]
    compared_sentences = ((compared(claim, texts[index]), texts[index]) for index in nearest(claim, texts))
    return max(compared_sentences, key=lambda pair: pair[0].relation, default=(APART, ""))


def _of_words(comparison: Comparison, sentence: str) -> SnippetVerdict | None:
    if comparison.relation not in _RELATIONS:
        return None
    verdict = Verdict.CONTRADICTED if comparison.opposed else _RELATIONS[comparison.relation]
    return SnippetVerdict(verdict, "quote", sentence, comparison.difference)


def _read(claim: str, snippets: Sequence[Snippet], reading: Reading) -> list[SnippetVerdict | None]:
    """Return what a reader says of a claim by each snippet; None where it has nothing to read. All are read at once."""
    windows_of = [reading.windows.read(claim, snippet) for snippet in snippets]
    if not any(windows_of):
        return [None] * len(snippets)
    said = reading.reader.read(claim, [window for windows in windows_of for window in windows])
    verdicts: list[SnippetVerdict | None] = []
    trust, start = reading.reader.trust, 0
    for snippet, windows in zip(snippets, windows_of, strict=True):
        part = slice(start, start + len(windows))
        start = part.stop
        if not windows:
            verdicts.append(None)
            continue
        stances = said.stances[part]
        probability, best = pooled(stances)
        quote = (said.quotes[part][best] if said.quotes else "") or _quotable(windows, stances, best, snippet)
        verdict = _verdict_of(probability, trust)
        basis: Basis = "reader" if min(trust.supports, trust.contradicts) <= 1 else "none"
        verdicts.append(SnippetVerdict(verdict, basis, quote, probability=probability))
    return verdicts


def _verdict_of(probability: tuple[float, ...], trust: Trust) -> Verdict:
    supports, contradicts, _ = probability
    if contradicts >= max(trust.contradicts, supports):
        return Verdict.CONTRADICTED
    if supports >= trust.supports:
        return Verdict.SUPPORTED
    return Verdict.UNSURE if max(supports, contradicts) > LEANS else Verdict.UNSUPPORTED


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
