"""The check of an answer: each sentence against the snippets, each mark and quote against its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from biorag.answering.verification.analysis import Analysis, analyse
from biorag.answering.verification.judging import LEAST_COVERAGE, Fault, Judgement, judge
from biorag.answering.verification.quotes import find_quote
from biorag.answering.verification.statements import asserted, is_polar, leading_answer
from biorag.corpus.sentences import sentence_starts, sentences
from biorag.prompts.marks import MARK, numbers_in, plain_marks
from biorag.prompts.parse import CitedNumber
from biorag.types import CheckedSentence, Citation, EvidenceSpan, Hit, PairVerifier, Snippet, Verdict
from biorag.utils.text import plain_form

QUOTED = re.compile(r"“([^“”]+)”|«([^«»]+)»|\"([^\"]+)\"")
_AFTER_STOP = re.compile(r"([.!?])((?:\s*\[\d{1,9}(?:, \d{1,9})*\])+)(?![^\W\d_])")
SHORTEST_QUOTE = 3  # words
MOST_SENTENCES = 2000  # of a snippet; a book is better split into blocks
LONGEST_CLAIM = 300  # content words; two sentences, which are all that is held against it, never have so many
SPANS = 2  # spans of evidence that a sentence is given at most
CANDIDATES = 4  # sentences of a snippet, and pairs of sentences, that are compared word by word
GAIN = 0.15  # by how much more a second sentence must cover of a claim, to be looked at
MARGIN = 0.1  # by how much better a contradiction must be covered than a support to outweigh it
LIKELY, SURE = 0.5, 0.9  # probabilities from which a verifier confirms a support, and makes one
OPPOSITE = {
    Verdict.SUPPORTED: Verdict.CONTRADICTED,
    Verdict.CONTRADICTED: Verdict.SUPPORTED,
    Verdict.UNSUPPORTED: Verdict.UNSUPPORTED,
}


@dataclass(frozen=True, slots=True)
class CheckedAnswer:
    """An answer's sentences with their verdicts, the citations that hold, and a sentence for each that does not."""

    sentences: tuple[CheckedSentence, ...]
    citations: tuple[Citation, ...]
    notes: tuple[str, ...]


class Window(NamedTuple):
    """One sentence of a snippet, or a pair of neighbours; the title neighbours every sentence."""

    start: int
    end: int
    analysis: Analysis
    keys: frozenset[str]
    pair: bool


class Judged(NamedTuple):
    """What the best window of a snippet says of a claim."""

    verdict: Verdict
    coverage: float
    quote: str


@lru_cache(maxsize=1 << 12)
def windows(text: str, titled: bool) -> tuple[Window, ...]:
    """Return the windows of a snippet's text, those of one sentence first; none beyond `MOST_SENTENCES`."""
    starts = [0, *sentence_starts(text)]
    ends = [*starts[1:], len(text)]
    starts = starts[:MOST_SENTENCES]
    spans = [(start, start + len(text[start:end].rstrip())) for start, end in zip(starts, ends, strict=False)]
    analyses = [analyse(text[start:end]) for start, end in spans]
    single = [_window(*span, analysis) for span, analysis in zip(spans, analyses, strict=True)]
    neighbours = [_window(spans[n - 1][0], spans[n][1], *analyses[n - 1 : n + 1]) for n in range(1, len(spans))]
    under_title = [_window(*spans[n], analyses[0], analyses[n]) for n in range(2, len(spans))] if titled else []
    return (*single, *neighbours, *under_title)


@lru_cache(maxsize=1 << 12)
def _context(text: str, titled: bool) -> frozenset[str]:
    """Return the keys of all words of a snippet's text."""
    return frozenset(key for window in windows(text, titled) for key in window.keys)


def _window(start: int, end: int, first: Analysis, second: Analysis | None = None) -> Window:
    analysis = first.followed_by(second) if second else first
    return Window(start, end, analysis, frozenset(word.key for word in analysis.content), second is not None)


class Checker:
    """Judges sentences by the snippets at hand; what it calls supported need not be true.

    Parameters
    ----------
    verifier : has the last word on what the rules call supported, and on what they refuse for its words alone
    """

    def __init__(self, verifier: PairVerifier | None = None) -> None:
        self._verifier = verifier

    def identity(self) -> str | None:
        """Return what determines verdicts besides the rules: the hash of the verifier's weights, if there is one."""
        return self._verifier.sha256 if self._verifier else None

    def check_claim(self, claim: str, snippets: Sequence[Snippet], question: str = "") -> CheckedSentence:
        """Judge one claim by all snippets, whose numbers are their positions from 1.

        Words of the question are no evidence. A claim that a snippet contradicts is contradicted, unless another
        supports it about as well.
        """
        judged = [self._judge(claim, snippet, question) for snippet in snippets]
        return _checked(claim, snippets, judged)

    def check_answer(
        self, text: str, hits: Sequence[Hit], question: str, cited: Sequence[CitedNumber] = ()
    ) -> CheckedAnswer:
        """Judge each sentence of an answer, and the citations it was given with.

        A mark `[n]` belongs to the sentence that it stands in; a sentence without one is held against all hits. What a
        sentence is said to rest on, by its marks and quotes, goes before what else would support it.

        Parameters
        ----------
        hits : the evidence that the answer was made from; `[1]` is the first
        cited : citations given beside the text, some with quotes
        """
        notes: list[str] = []
        checked: list[CheckedSentence] = []
        quotes = {(item.n, item.quote) for item in cited if len(item.quote.split()) >= SHORTEST_QUOTE}
        for sentence, marks in marked_sentences(text, [hit.snippet for hit in hits]):
            checked.append(self._check_sentence(sentence, marks, hits, question, notes))
        supporting = _supporting(checked)
        for n in dict.fromkeys(item.n for item in cited):
            if not 1 <= n <= len(hits):
                notes.append(_dropped(n, "there is no document of that number"))
            elif n not in supporting:
                notes.append(_dropped(n, f"the answer is not supported by snippet {hits[n - 1].snippet.id}"))
        for n, quote in sorted(quotes):
            if n in supporting and (fault := self._fault_of_quote(quote, hits[n - 1].snippet, checked, n, question)):
                notes.append(_dropped(n, f"{fault} snippet {hits[n - 1].snippet.id}"))
                checked = [_without(sentence, n) for sentence in checked]
        return CheckedAnswer(tuple(checked), _citations(checked, hits, dict(quotes)), tuple(dict.fromkeys(notes)))

    def _check_sentence(
        self, sentence: str, marks: Sequence[int], hits: Sequence[Hit], question: str, notes: list[str]
    ) -> CheckedSentence:
        snippets = [hit.snippet for hit in hits]
        answer, rest = leading_answer(sentence)
        if answer and is_polar(question):
            checked = self._check_polar(answer, rest, snippets, question)
        else:
            checked = self.check_claim(sentence, snippets, question)
        if any(not _is_quoted(quote, snippets) for quote in map("".join, QUOTED.findall(sentence))):
            checked = CheckedSentence(sentence, Verdict.UNSUPPORTED)
            notes.append("a quotation in the answer stands in no snippet")
        for n in marks:
            if not 1 <= n <= len(hits):
                notes.append(_dropped(n, "there is no document of that number"))
            elif n not in checked.citations:
                notes.append(_dropped(n, f"its sentence is not supported by snippet {hits[n - 1].snippet.id}"))
        chosen = tuple(n for n in checked.citations if n in marks) or checked.citations[:1]
        return replace(checked, text=sentence, citations=chosen)

    def _check_polar(self, answer: str, rest: str, snippets: Sequence[Snippet], question: str) -> CheckedSentence:
        """Judge "yes" or "no" by what it asserts of the question, and whatever else its sentence says by that.

        What the rest says may be right, and "yes" or "no" still contradicted.
        """
        judged = [self._judge(asserted(question, "yes"), snippet, "") for snippet in snippets]
        if answer == "no":
            judged = [item and item._replace(verdict=OPPOSITE[item.verdict]) for item in judged]
        checked = _checked(answer, snippets, judged)
        if rest and checked.verdict is not Verdict.CONTRADICTED:
            return self.check_claim(rest, snippets, question)
        return checked

    def _judge(self, claim: str, snippet: Snippet, question: str) -> Judged | None:
        analysis, text = _claim(claim), snippet.contents
        if not 0 < len(analysis.content) <= LONGEST_CLAIM or not text.strip():
            return None
        titled = bool(snippet.title and snippet.content)
        candidates = windows(text, titled)
        wanted = {word.key: weight for word, weight in zip(analysis.content, analysis.weights, strict=True)}
        asked = frozenset(word.key for sentence in sentences(question) for word in analyse(sentence).content)
        context = _context(text, titled)
        shares = [(sum(wanted[key] for key in wanted.keys() & window.keys), window) for window in candidates]
        if max(share for share, _ in shares) < LEAST_COVERAGE / 2 * sum(wanted.values()):
            return None
        stated = claim.strip()
        shares.sort(key=lambda pair: (stated not in text[pair[1].start : pair[1].end], -pair[0]))
        ranked = [window for _, window in shares]
        chosen = [part for pairs in (False, True) for part in [w for w in ranked if w.pair is pairs][:CANDIDATES]]
        results = [(judge(analysis, window.analysis, asked, context), window) for window in chosen]
        # A second sentence counts where it says much more of the claim, not where it lends it a name or a number.
        needed = max((judgement.coverage for judgement, window in results if not window.pair), default=0.0) + GAIN
        judgement, window = max(
            ((judgement, window) for judgement, window in results if not window.pair or judgement.coverage >= needed),
            key=lambda result: _rank(result[0]),
        )
        quote = text[window.start : window.end]
        verdict = judgement.verdict if self._verifier is None else self._verified(claim, quote, judgement)
        return Judged(verdict, judgement.coverage, quote)

    def _verified(self, claim: str, quote: str, judgement: Judgement) -> Verdict:
        """Return the verdict that the rules and the verifier come to.

        The verifier may refuse what the rules support, and support what they refuse for no other reason than that it
        says too little of the claim in its words. Numbers, names, negation, direction and roles are the rules' alone.
        """
        worded = judgement.faults <= {Fault.UNCOVERED} and judgement.coverage >= LEAST_COVERAGE / 2
        if not worded or self._verifier is None:
            return judgement.verdict
        (probability,) = self._verifier.supports([(quote, claim)])
        needed = SURE if judgement.faults else LIKELY
        return Verdict.SUPPORTED if probability >= needed else Verdict.UNSUPPORTED

    def _fault_of_quote(
        self, quote: str, snippet: Snippet, checked: Sequence[CheckedSentence], n: int, question: str
    ) -> str:
        """Return why a quote does not hold, the words of a note; "" if it does."""
        text = snippet.contents
        span = find_quote(quote, text)
        if span is None:
            return "its quote is not in"
        starts = [0, *sentence_starts(text), len(text)]
        first = max(start for start in starts[:-1] if start <= span[0])
        last = min(end for end in starts[1:] if end >= span[1])
        around = Snippet(snippet.id, "", text[first:last].strip())
        supported = [sentence for sentence in checked if n in sentence.citations]
        if not any(self.check_claim(sentence.text, [around], question).citations for sentence in supported):
            return "the answer is not supported by its quote from"
        if _negated_outside(*map(plain_form, (text[first : span[0]], text[slice(*span)], text[span[1] : last]))):
            return "its quote leaves out a negation of"
        return ""


def marked_sentences(text: str, snippets: Sequence[Snippet] = ()) -> list[tuple[str, tuple[int, ...]]]:
    """Return the sentences of an answer without their marks of whatever form, each with the numbers of its marks.

    A mark after the full stop belongs to the sentence before it.
    """
    found: list[tuple[str, tuple[int, ...]]] = []
    moved = _AFTER_STOP.sub(r"\2\1", plain_marks(text, snippets))
    for line in moved.splitlines():
        for sentence in sentences(line):
            if bare := MARK.sub("", sentence).strip():
                found.append((bare, tuple(dict.fromkeys(numbers_in(sentence)))))
    return found


def _is_quoted(quote: str, snippets: Sequence[Snippet]) -> bool:
    """Whether a snippet has a quotation; a few words may be a name or a term, not a quotation."""
    return len(quote.split()) < SHORTEST_QUOTE or any(find_quote(quote, snippet.contents) for snippet in snippets)


def _claim(claim: str) -> Analysis:
    analysis = Analysis()
    for sentence in sentences(claim):
        analysis = analysis.followed_by(analyse(sentence)) if analysis.content else analyse(sentence)
    return analysis


def _rank(judgement: Judgement) -> tuple[int, float]:
    order = (Verdict.UNSUPPORTED, Verdict.CONTRADICTED, Verdict.SUPPORTED)
    return order.index(judgement.verdict), judgement.coverage


def _checked(claim: str, snippets: Sequence[Snippet], judged: Sequence[Judged | None]) -> CheckedSentence:
    by_verdict: dict[Verdict, list[tuple[float, int]]] = {verdict: [] for verdict in Verdict}
    for n, item in enumerate(judged, 1):
        if item is not None:
            by_verdict[item.verdict].append((item.coverage, -n))
    supports, contradictions = by_verdict[Verdict.SUPPORTED], by_verdict[Verdict.CONTRADICTED]
    verdict = Verdict.UNSUPPORTED
    if contradictions and max(contradictions)[0] > max(supports, default=(0.0, 0))[0] + MARGIN:
        verdict = Verdict.CONTRADICTED
    elif supports:
        verdict = Verdict.SUPPORTED
    if verdict is Verdict.UNSUPPORTED:
        return CheckedSentence(claim, verdict)
    numbers = [-n for _, n in sorted(by_verdict[verdict], reverse=True)]
    evidence = []
    for n in numbers[:SPANS]:
        item, snippet = judged[n - 1], snippets[n - 1]
        assert item is not None, "it has a verdict"
        evidence.append(EvidenceSpan(n, snippet.id, snippet.pmid, item.quote, verdict))
    return CheckedSentence(claim, verdict, tuple(numbers) if verdict is Verdict.SUPPORTED else (), tuple(evidence))


def _supporting(checked: Sequence[CheckedSentence]) -> set[int]:
    return {n for sentence in checked for n in sentence.citations}


def _without(sentence: CheckedSentence, n: int) -> CheckedSentence:
    """Return a sentence without a citation that fell; unsupported where it had no other."""
    if n not in sentence.citations:
        return sentence
    left = tuple(number for number in sentence.citations if number != n)
    evidence = tuple(span for span in sentence.evidence if span.n != n)
    return replace(
        sentence, citations=left, evidence=evidence, verdict=Verdict.SUPPORTED if left else Verdict.UNSUPPORTED
    )


def _citations(checked: Sequence[CheckedSentence], hits: Sequence[Hit], quotes: dict[int, str]) -> tuple[Citation, ...]:
    """Return a citation of each supporting hit, in the order of the sentences, with its quote as the snippet has it."""
    spans = {(span.n): span.quote for sentence in reversed(checked) for span in sentence.evidence}
    citations = []
    for n in dict.fromkeys(n for sentence in checked for n in sentence.citations):
        hit = hits[n - 1]
        snippet = hit.snippet
        span = find_quote(quotes.get(n, ""), snippet.contents)
        quote = snippet.contents[slice(*span)] if span else spans.get(n, "")
        citations.append(
            Citation(n, snippet.id, snippet.pmid, snippet.title, quote, hit.score, snippet.retracted, snippet.location)
        )
    return tuple(citations)


def _negated_outside(before: str, quote: str, after: str) -> bool:
    """Whether a negation outside of a quote governs its words, so that the quote says the opposite."""
    within, around = analyse(quote), analyse(before + quote + after)
    start, end = len(before), len(before + quote)
    outer = [
        negated
        for word, negated in zip(around.content, around.negated, strict=True)
        if word.start >= start and word.end <= end
    ]
    return len(outer) == len(within.negated) and any(
        now and not before for now, before in zip(outer, within.negated, strict=True)
    )


def _dropped(n: int, reason: str) -> str:
    return f"citation [{n}] was dropped: {reason}"
