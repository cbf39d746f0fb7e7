"""The check of an answer: each sentence against the snippets, each mark against its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from biorag.answering.guards.quotes import find_quote
from biorag.answering.guards.verdicts import Reading, SnippetVerdict, snippet_verdicts
from biorag.answering.readers.windows import EvidenceWindows
from biorag.corpus.sentences import sentences
from biorag.prompts.marks import MARK, numbers_in, plain_marks
from biorag.types import LABELS, Basis, CheckedSentence, Citation, EvidenceSpan, Hit, Reader, Snippet, Stance, Verdict

QUOTED = re.compile(r"“([^“”]+)”|«([^«»]+)»|\"([^\"]+)\"")
_AFTER_STOP = re.compile(r"([.!?])((?:\s*\[\d{1,9}(?:, \d{1,9})*\])+)(?![^\W\d_])")
_LEAD = re.compile(
    r"^\s*(?:is|are|was|were|does|do|did|can|could|has|have|had|should|would|will|may|might|must)\s+", re.IGNORECASE
)
_ANSWER = re.compile(
    r"^\s*(yes|no)\b\s*(?:[,.;:!–—-]+\s*|$)(?:it (?:is|does|has|can|will)(?: not)?\s*[.,;]\s*)?", re.IGNORECASE
)
SHORTEST_QUOTE = 3  # words
SPANS = 2  # spans of evidence that a sentence is given at most
MARGIN = 0.1  # by how much stronger a contradiction must be than a support to outweigh it


@dataclass(frozen=True, slots=True)
class CheckedAnswer:
    """An answer's sentences with their verdicts, the citations that hold, and a sentence for each that does not."""

    sentences: tuple[CheckedSentence, ...] = ()
    citations: tuple[Citation, ...] = ()
    notes: tuple[str, ...] = ()


class Checker:
    """Judges sentences by the snippets at hand; what it calls supported need not be true.

    Parameters
    ----------
    reader : is asked where the words establish nothing; without it they alone decide
    windows : chooses what of a long snippet the reader reads
    """

    def __init__(self, reader: Reader | None = None, windows: EvidenceWindows | None = None) -> None:
        self._reading = Reading(reader, windows or EvidenceWindows(whole=reader.reads_whole)) if reader else None

    @property
    def reader(self) -> Reader | None:
        """What decides where the words do not, if anything."""
        return self._reading.reader if self._reading else None

    def identity(self) -> str | None:
        """Return what determines verdicts besides the guards: the hash of the reader's weights, if there is one."""
        return self.reader.sha256 if self.reader else None

    def check_claim(self, claim: str, snippets: Sequence[Snippet]) -> CheckedSentence:
        """Judge one claim by all snippets, whose numbers are their positions from 1.

        A claim that a snippet contradicts is contradicted, unless another supports it about as well.
        """
        return _checked(claim, snippets, snippet_verdicts(claim, snippets, self._reading))

    def stances(self, claim: str, snippets: Sequence[Snippet], leaning: bool = False) -> list[Stance]:
        """Return what each snippet, retracted or not, does to a claim; with `leaning` also what a reader leans to."""
        return [_stance(item) for item in snippet_verdicts(claim, snippets, self._reading, leaning, retracted=True)]

    def check_question(self, question: str, answer: str, snippets: Sequence[Snippet]) -> CheckedSentence:
        """Judge "yes" or "no" as the answer to a question; nothing is established without a reader."""
        stated = question if self.reader and self.reader.reads_questions else statement_of(question)
        verdicts = snippet_verdicts(stated, snippets, self._reading)
        if answer == "no":
            verdicts = [item and item.opposite() for item in verdicts]
        return _checked(answer, snippets, verdicts)

    def check_answer(self, text: str, hits: Sequence[Hit], question: str, cited: Sequence[int] = ()) -> CheckedAnswer:
        """Judge each sentence of an answer, and the citations it was given with.

        A mark `[n]` belongs to the sentence that it stands in; a sentence without one is held against all hits. What
        its marks name goes before what else would support it. `hits` are the evidence that the answer was made from,
        `[1]` being the first; `cited` are the numbers given beside the text.
        """
        snippets = [hit.snippet for hit in hits]
        notes: list[str] = []
        checked = [
            self._check_sentence(sentence, marks, snippets, question, notes)
            for sentence, marks in marked_sentences(text, snippets)
        ]
        supporting = {n for sentence in checked for n in sentence.citations}
        for n in dict.fromkeys(cited):
            if n not in supporting:
                notes.append(_dropped(n, snippets, "the answer is not supported by"))
        return CheckedAnswer(tuple(checked), _citations(checked, hits), tuple(dict.fromkeys(notes)))

    def _check_sentence(
        self, sentence: str, marks: Sequence[int], snippets: Sequence[Snippet], question: str, notes: list[str]
    ) -> CheckedSentence:
        answer, rest = leading_answer(sentence)
        if answer and is_polar(question):
            checked = self.check_question(question, answer, snippets)
            if rest and checked.verdict is not Verdict.CONTRADICTED:  # it may be right, and "yes" contradicted
                checked = self.check_claim(rest, snippets)
        else:
            checked = self.check_claim(sentence, snippets)
        if any(not _is_quoted(quote, snippets) for quote in map("".join, QUOTED.findall(sentence))):
            checked = CheckedSentence(sentence, Verdict.UNSUPPORTED)
            notes.append("a quotation in the answer stands in no snippet")
        notes += [
            _dropped(n, snippets, "its sentence is not supported by") for n in marks if n not in checked.citations
        ]
        cited = tuple(n for n in checked.citations if n in marks) or checked.citations[:1]
        return replace(checked, text=sentence, citations=cited)


def marked_sentences(text: str, snippets: Sequence[Snippet] = ()) -> list[tuple[str, tuple[int, ...]]]:
    """Return the sentences of an answer without their marks of whatever form, each with the numbers of its marks.

    A mark after the full stop belongs to the sentence before it.
    """
    moved = _AFTER_STOP.sub(r"\2\1", plain_marks(text, snippets))
    return [
        (bare, tuple(dict.fromkeys(numbers_in(sentence))))
        for line in moved.splitlines()
        for sentence in sentences(line)
        if (bare := MARK.sub("", sentence).strip())
    ]


def statement_of(question: str) -> str:
    """Return the statement that "yes" to a question asserts, for a reader of claims alone: without its auxiliary."""
    return f"{_LEAD.sub('', question.strip().rstrip('?').strip())}."


def is_polar(question: str) -> bool:
    """Return whether a question asks for yes or no."""
    return bool(_LEAD.match(question))


def leading_answer(sentence: str) -> tuple[str, str]:
    """Split "Yes, it was associated" into "yes" and the rest; "" where a sentence begins with neither yes nor no."""
    match = _ANSWER.match(sentence)
    return (match[1].lower(), sentence[match.end() :].strip()) if match else ("", sentence)


def citation_of(hit: Hit, n: int, quote: str) -> Citation:
    """Return the citation of a quote that stands in the `n`-th hit."""
    snippet = hit.snippet
    return Citation(n, snippet.id, snippet.pmid, snippet.title, quote, hit.score, snippet.retracted, snippet.location)


def _is_quoted(quote: str, snippets: Sequence[Snippet]) -> bool:
    """Whether a snippet has a quotation; a few words may be a name or a term, not a quotation."""
    return len(quote.split()) < SHORTEST_QUOTE or any(find_quote(quote, snippet.contents) for snippet in snippets)


def _stance(item: SnippetVerdict | None) -> Stance:
    if item is None:
        return Stance(Verdict.UNSUPPORTED, 0.0, "")
    leaning = None
    if item.verdict is Verdict.UNSURE:
        leaning = Verdict.CONTRADICTED if item.probability[1] > item.probability[0] else Verdict.SUPPORTED
    return Stance(item.verdict, item.strength if leaning is None else max(item.probability[:2]), item.quote, leaning,
                  item.basis)  # fmt: skip


def _checked(claim: str, snippets: Sequence[Snippet], verdicts: Sequence[SnippetVerdict | None]) -> CheckedSentence:
    """Return the verdict of all snippets together, with the strongest as evidence."""
    numbered = [(n, item) for n, item in enumerate(verdicts, 1) if item is not None]
    ranked = sorted(numbered, key=lambda pair: (-pair[1].strength, pair[0]))
    supports = [(n, item) for n, item in ranked if item.verdict is Verdict.SUPPORTED]
    contradictions = [(n, item) for n, item in ranked if item.verdict is Verdict.CONTRADICTED]
    most = supports[0][1].strength if supports else 0.0
    if contradictions and contradictions[0][1].strength > most + MARGIN:
        verdict, decisive = Verdict.CONTRADICTED, contradictions
    elif supports:
        verdict, decisive = Verdict.SUPPORTED, supports
    else:
        unsure = any(item.verdict is Verdict.UNSURE for _, item in ranked)
        verdict, decisive = Verdict.UNSURE if unsure else Verdict.UNSUPPORTED, []
    shown = decisive or [(n, item) for n, item in ranked if item.difference]
    evidence = tuple(
        EvidenceSpan(n, snippets[n - 1].id, snippets[n - 1].pmid, item.quote, verdict) for n, item in shown[:SPANS]
    )
    first = next((item for _, item in shown or ranked), None)
    probability = dict(zip(LABELS, first.probability, strict=True)) if first and first.probability else {}
    citations = tuple(n for n, _ in supports) if decisive is supports else ()
    basis: Basis = first.basis if first and (shown or first.probability) else "none"
    return CheckedSentence(
        claim, verdict, citations, evidence, probability, basis=basis, difference=first.difference if first else ""
    )


def _citations(checked: Sequence[CheckedSentence], hits: Sequence[Hit]) -> tuple[Citation, ...]:
    """Return a citation of each supporting hit, in the order of the sentences, with the quote that supports it."""
    spans = {span.n: span.quote for sentence in reversed(checked) for span in sentence.evidence}
    numbers = dict.fromkeys(n for sentence in checked for n in sentence.citations)
    return tuple(citation_of(hits[n - 1], n, spans.get(n, "")) for n in numbers)


def _dropped(n: int, snippets: Sequence[Snippet], fault: str) -> str:
    """Return the note of a citation that was dropped for a fault of its snippet, or because it has none."""
    if not 1 <= n <= len(snippets):
        return f"citation [{n}] was dropped: there is no document of that number"
    return f"citation [{n}] was dropped: {fault} snippet {snippets[n - 1].id}"
