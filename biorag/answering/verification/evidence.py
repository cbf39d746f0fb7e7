"""One claim held against one snippet: by rules, word for word, and by a judge, which reads what comes nearest."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from biorag.answering.verification.aliases import Aliases, aliases_for
from biorag.answering.verification.analysis import Analysis, analyse
from biorag.answering.verification.reading import EvidenceReader
from biorag.answering.verification.rules import LEAST_COVERAGE, Judgement, assess
from biorag.corpus.sentences import sentence_spans, sentences
from biorag.types import LABEL_OF, LABELS, ClaimJudge, Snippet, Vectors, Verdict

MOST_SENTENCES = 2000  # of a snippet; a book is better split into blocks
LONGEST_CLAIM = 300  # content words; two sentences, which are all that is held against it, never have so many
CANDIDATES = 4  # sentences of a snippet, and pairs of sentences, that are compared word by word
GAIN = 0.15  # by how much more a second sentence must cover of a claim, to be looked at
OPPOSITE = {
    Verdict.SUPPORTED: Verdict.CONTRADICTED,
    Verdict.CONTRADICTED: Verdict.SUPPORTED,
    Verdict.UNSUPPORTED: Verdict.UNSUPPORTED,
    Verdict.UNSURE: Verdict.UNSURE,
}
# Probabilities from which a judge's verdict counts, calibrated on development sets.
SUPPORTS_FROM, CONTRADICTS_FROM = 0.7, 0.7


class EvidenceWindow(NamedTuple):
    """One sentence of a snippet, or a pair of neighbours; the title neighbours every sentence."""

    start: int
    end: int
    analysis: Analysis
    keys: frozenset[str]
    pair: bool


class SnippetVerdict(NamedTuple):
    """What the best window of a snippet says of a claim."""

    verdict: Verdict
    coverage: float
    quote: str
    probability: tuple[float, ...] = ()  # by `LABELS`; empty where the rules decided alone

    @property
    def strength(self) -> float:
        """How strongly it says so: by the judge's probability of the verdict, or else by the words covered."""
        return self.probability[LABELS.index(LABEL_OF[self.verdict])] if self.probability else self.coverage

    def opposite(self) -> SnippetVerdict:
        """Return what the window says of the claim's denial."""
        exchanged = tuple(self.probability[label] for label in (1, 0, 2)) if self.probability else ()
        return self._replace(verdict=OPPOSITE[self.verdict], probability=exchanged)


class Assessed(NamedTuple):
    """What the rules say of a claim beside the window of a snippet that says most of it."""

    judgement: Judgement
    quote: str
    verbatim: bool  # whether the claim stands in the snippet as it is, and the rules support it

    @property
    def is_decided(self) -> bool:
        """Whether the rules decide, and no judge is asked: they contradict the claim, or it stands there verbatim."""
        return self.verbatim or self.judgement.verdict is Verdict.CONTRADICTED

    def by_rules(self) -> SnippetVerdict:
        """Return the verdict of the rules alone."""
        return SnippetVerdict(self.judgement.verdict, self.judgement.coverage, self.quote)


class Judging(NamedTuple):
    """A judge of claims, and what chooses the evidence that it reads."""

    judge: ClaimJudge
    reader: EvidenceReader


def snippet_verdicts(
    claim: str, snippets: Sequence[Snippet], question: str, judging: Judging | None = None
) -> list[SnippetVerdict | None]:
    """Judge a claim by each snippet: by the rules, the window that says most of it, and by a judge, what it reads.

    None stands for a snippet that says little of the claim, where the rules judge alone.

    Parameters
    ----------
    question : its words are no evidence
    judging : decides what no rule does, also of snippets that share few words with the claim; see `combined`
    """
    least = 0.0 if judging else LEAST_COVERAGE / 2
    assessed = [_assessed(claim, snippet, question, least) for snippet in snippets]
    verdicts = [item and item.by_rules() for item in assessed]
    if judging is None:
        return verdicts
    asked = [(n, item) for n, item in enumerate(assessed) if item and not item.is_decided]
    windows_of = [judging.reader.read(claim, snippets[n]) for n, _ in asked]
    pairs = [(window, claim) for read in windows_of for window in read]
    rows = iter(judging.judge.judge(pairs) if pairs else ())
    for (n, item), read in zip(asked, windows_of, strict=True):
        verdicts[n] = combined(item, read, np.stack([next(rows) for _ in read]))
    return verdicts


def pooled(rows: Vectors) -> tuple[float, ...]:
    """Return the probabilities of all windows together, by `LABELS`, of those of each, (windows, 3).

    One window suffices to support or contradict a claim, and all must do neither: the extremes, and the means, count
    alike.
    """
    extremes = np.array([rows[:, 0].max(), rows[:, 1].max(), rows[:, 2].min()])
    total = extremes / extremes.sum() + rows.mean(axis=0)
    return tuple(map(float, total / total.sum()))


def combined(assessed: Assessed, read: Sequence[str], rows: Vectors) -> SnippetVerdict:
    """Return the verdict that the rules and a judge come to, with the sentence for which the judge is surest of it.

    The judge supports and contradicts claims in whatever words. What it leans to without enough probability is unsure,
    and so is a support that the rules veto. `rows` are its probabilities for the windows `read`, (windows, 3).
    """
    probability = pooled(rows)
    supports, contradicts, neither = probability
    of_sentences = rows[:-1, int(contradicts > supports)]  # the last window is no quotation
    quote = read[int(of_sentences.argmax())] if len(of_sentences) else assessed.quote
    judged = SnippetVerdict(Verdict.UNSUPPORTED, assessed.judgement.coverage, quote, probability)
    if contradicts >= max(CONTRADICTS_FROM, supports):
        return judged._replace(verdict=Verdict.CONTRADICTED)
    if supports >= SUPPORTS_FROM and not assessed.judgement.vetoes:
        return judged._replace(verdict=Verdict.SUPPORTED)
    return judged._replace(verdict=Verdict.UNSURE) if neither < max(supports, contradicts) else judged


def _assessed(claim: str, snippet: Snippet, question: str, least: float) -> Assessed | None:
    """Return the window that says most of a claim, if one shares more than `least` of its words by weight."""
    text = snippet.contents
    aliases = aliases_for(claim, text)
    analysis = _analysis(claim, aliases)
    if not 0 < len(analysis.content) <= LONGEST_CLAIM or not text.strip():
        return None
    around = windows(text, _is_titled(snippet), aliases)
    nearest = _nearest(claim.strip(), analysis, text, around, least)
    asked = frozenset(word.key for sentence in sentences(question) for word in analyse(sentence).content)
    context = _context(text, _is_titled(snippet), aliases)
    judged = [(assess(analysis, window.analysis, asked, context), window) for window in nearest]
    if not judged:
        return None
    # A second sentence counts where it says much more of the claim, not where it lends it a name or a number.
    needed = max((judgement.coverage for judgement, window in judged if not window.pair), default=0.0) + GAIN
    judgement, window = max(
        ((judgement, window) for judgement, window in judged if not window.pair or judgement.coverage >= needed),
        key=lambda result: _rank(result[0]),
    )
    quote = text[window.start : window.end]
    stated = claim.strip().rstrip(".")
    verbatim = stated in (quote.rstrip("."), quote.rpartition(": ")[2].rstrip("."))  # or after a section's label
    return Assessed(judgement, quote, verbatim and judgement.verdict is Verdict.SUPPORTED)


@lru_cache(maxsize=1 << 12)
def windows(text: str, titled: bool, aliases: Aliases = ()) -> tuple[EvidenceWindow, ...]:
    """Return the windows of a snippet's text, those of one sentence first; none beyond `MOST_SENTENCES`."""
    spans = sentence_spans(text)[:MOST_SENTENCES]
    analyses = [analyse(text[start:end], aliases) for start, end in spans]
    single = [_window(*span, analysis) for span, analysis in zip(spans, analyses, strict=True)]
    neighbours = [_window(spans[n - 1][0], spans[n][1], *analyses[n - 1 : n + 1]) for n in range(1, len(spans))]
    under_title = [_window(*spans[n], analyses[0], analyses[n]) for n in range(2, len(spans))] if titled else []
    return (*single, *neighbours, *under_title)


def _window(start: int, end: int, first: Analysis, second: Analysis | None = None) -> EvidenceWindow:
    analysis = first.followed_by(second) if second else first
    return EvidenceWindow(start, end, analysis, frozenset(word.key for word in analysis.content), second is not None)


@lru_cache(maxsize=1 << 12)
def _context(text: str, titled: bool, aliases: Aliases) -> frozenset[str]:
    """Return the keys of all words of a snippet's text."""
    return frozenset(key for window in windows(text, titled, aliases) for key in window.keys)


def _is_titled(snippet: Snippet) -> bool:
    return bool(snippet.title and snippet.content)


def _analysis(claim: str, aliases: Aliases) -> Analysis:
    analysis = Analysis()
    for sentence in sentences(claim):
        part = analyse(sentence, aliases)
        analysis = analysis.followed_by(part) if analysis.content else part
    return analysis


def _nearest(
    stated: str, claim: Analysis, text: str, around: Sequence[EvidenceWindow], least: float
) -> Sequence[EvidenceWindow]:
    """Return the windows that share most with a claim, those that state it verbatim first; none if all share less."""
    weights = {word.key: word.weight for word in claim.content}
    shares = [(sum(weight for key, weight in weights.items() if key in window.keys), window) for window in around]
    if max(share for share, _ in shares) < least * sum(weights.values()):
        return []
    shares.sort(key=lambda pair: (stated not in text[pair[1].start : pair[1].end], -pair[0]))
    ranked = [window for _, window in shares]
    return [window for pair in (False, True) for window in [w for w in ranked if w.pair is pair][:CANDIDATES]]


def _rank(judgement: Judgement) -> tuple[int, float]:
    order = (Verdict.UNSUPPORTED, Verdict.CONTRADICTED, Verdict.SUPPORTED)
    return order.index(judgement.verdict), judgement.coverage
