"""An answer in words: how the evidence supports it, and the marks after its sentences."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from biorag.corpus.publications import plain
from biorag.types import EXTRACT, LABEL_OF, MAY, Answer, CheckedSentence, Reader, Verdict

CERTAIN = 0.95  # a reader's probability of a verdict, from which on marks leave it out
CHOSEN = "Chosen, not confirmed: no sentence states it"
_OWN_MARK = re.compile(r"\s?\[\d{1,4}(?:\s?[,;–-]\s?\d{1,4}){0,40}\](?![\w-])")  # of a source: "[1,2]", not "[18]F"
_LINE_END = re.compile(r"\\n(?![a-z])")  # spelt out, as in SciFact's abstracts; "\nu" is LaTeX
LEADS = {"yes": "Yes.", "no": "No."}


class Tone(StrEnum):
    """Whether a line is good news."""

    PLAIN = "plain"
    GOOD = "good"
    DOUBTFUL = "doubtful"
    BAD = "bad"


class VerdictLine(NamedTuple):
    """A line and its tone."""

    text: str
    tone: Tone


def verdict_line(answer: Answer) -> VerdictLine | None:
    """Return the line that says how the evidence supports an answer; None for an answer without sentences."""
    if answer.question.options and not answer.choice and answer.reply:
        return VerdictLine("Answer: the model's reply names no option", Tone.BAD)
    if not answer.sentences:
        return None
    judged = answer.sentences[:1] if answer.choice else answer.sentences
    numbers = sorted({n for sentence in judged for n in sentence.citations})
    by = f" by {', '.join(f'[{n}]' for n in numbers)}" if numbers else ""
    if answer.answerer == EXTRACT and not answer.choice:
        count = len(judged)
        sentences = "sentence" if count == 1 else "sentences"
        return VerdictLine(f"Extract: {count} {sentences} of the evidence, verbatim", Tone.PLAIN)
    line, tone = _verdict_of(judged, by)
    if answer.answerer == EXTRACT:
        confirmed = judged[0].verdict is not Verdict.UNSUPPORTED
        line = f"Chosen by the evidence alone: {line[0].lower() + line[1:]}" if confirmed else CHOSEN
    return VerdictLine(line, tone)


def _verdict_of(sentences: Sequence[CheckedSentence], by: str) -> VerdictLine:
    counts = {kind: sum(sentence.verdict is kind for sentence in sentences) for kind in Verdict}
    total, supported, unsure = len(sentences), counts[Verdict.SUPPORTED], counts[Verdict.UNSURE]
    by_reader = any(one.basis == "reader" for one in sentences if one.verdict is Verdict.SUPPORTED)
    said = "supported" if by_reader else "stated"
    if counts[Verdict.CONTRADICTED]:
        first = next(sentence for sentence in sentences if sentence.verdict is Verdict.CONTRADICTED)
        line = said_of(first).capitalize()
        if total > 1:
            line = f"{counts[Verdict.CONTRADICTED]} of {total} sentences {said_of(first)}"
        return VerdictLine(f"{line}, {supported} {said}{by}" if supported else line, Tone.BAD)
    if supported == total:
        return VerdictLine(f"{said.capitalize()}{by}", Tone.GOOD)
    if supported:
        line = f"{supported} of {total} sentences {said}{by}"
        return VerdictLine(f"{line}, {unsure} not sure" if unsure else line, Tone.DOUBTFUL)
    if unsure:
        this = "this" if total == 1 else f"{unsure} of {total} sentences"
        return VerdictLine(f"Not sure whether the evidence says {this}", Tone.DOUBTFUL)
    return VerdictLine(said_of(sentences[0]).capitalize(), Tone.DOUBTFUL)


def lead_of(answer: Answer) -> str:
    """Return what an extract begins with: a trusted reader's yes or no, or that it may be an answer; else "".

    What a generator wrote begins with it already.
    """
    if answer.answerer != EXTRACT or answer.choice:
        return ""
    return MAY if answer.certainty == "may" and answer.sentences else LEADS.get(answer.short_answer, "")


def said_of(sentence: CheckedSentence) -> str:
    """Return what is established of a sentence, by its words or by a reader: "stated", "differs", "contradicted"."""
    if sentence.verdict is Verdict.UNSURE:
        return "not sure"
    if sentence.basis == "reader":
        return sentence.verdict.value
    if sentence.difference:
        return "differs"
    return "stated" if sentence.verdict is Verdict.SUPPORTED else "not stated in these words"


def difference_line(sentence: CheckedSentence) -> str:
    """Return "[2] says 12 %, not 21 %" of a sentence from which the evidence differs; "" of any other."""
    numbers = ", ".join(f"[{n}]" for n in dict.fromkeys(span.n for span in sentence.evidence))
    return f"{numbers or 'the evidence'} says {sentence.difference}" if sentence.difference else ""


def paragraphs(answer: Answer) -> list[list[CheckedSentence]]:
    """Return the sentences of an answer as they are shown: of a list of evidence, those of each snippet apart."""
    if answer.kind != "list" or answer.answerer != EXTRACT:
        return [list(answer.sentences)] if answer.sentences else []
    return [list(group) for _, group in itertools.groupby(answer.sentences, lambda sentence: sentence.citations)]


def words_of(sentence: CheckedSentence) -> str:
    """Return a sentence without tags, and the marks of its paper, which would look like citations of the answer."""
    return _OWN_MARK.sub("", plain(_LINE_END.sub(" ", sentence.text)))


def mark_of(sentence: CheckedSentence) -> str:
    """Return the mark after a sentence: its verdict, unless it is supported, and how sure a reader is of it.

    Of a sentence that the reader is not sure of it is the probability of what it leans to.
    """
    mark, label = said_of(sentence), LABEL_OF[sentence.verdict]
    probability = sentence.probability.get(label, 1.0) if sentence.basis == "reader" else 1.0
    if sentence.verdict is Verdict.UNSURE and sentence.probability:
        leaning = max((Verdict.SUPPORTED, Verdict.CONTRADICTED), key=lambda kind: sentence.probability[LABEL_OF[kind]])
        mark += f": {percent(sentence.probability[LABEL_OF[leaning]])} {leaning.value}"
    elif probability < CERTAIN:
        mark += f", {percent(probability)}"
    elif sentence.verdict is Verdict.SUPPORTED:
        return ""
    return f" [{mark}]"


def otherwise_line(sentence: CheckedSentence) -> str:
    """Return "2 studies say otherwise than" of a sentence that others support."""
    count = len(sentence.otherwise)
    return f"{count} {'study says' if count == 1 else 'studies say'} otherwise than"


def percent(probability: float) -> str:
    """Return a probability as "83 %"."""
    return f"{100 * probability:.0f} %"


def cited_numbers(sentence: CheckedSentence) -> str:
    """Return the numbers of the hits that a sentence cites, in brackets after a space; empty for none."""
    return f" [{', '.join(map(str, sentence.citations))}]" if sentence.citations else ""


def read_by(reader: Reader | None) -> str:
    """Return whose words a reader's verdicts are, how often they were right, and their cost; "" where none count."""
    if reader is None or min(reader.trust.supports, reader.trust.contradicts, reader.trust.polar) > 1:
        return ""
    measured = reader.trust.precision
    right = f", right {measured:.0%} of the time where it was measured" if measured else ""
    return f"read by {reader.name}{right}" + (f" ({reader.spent})" if reader.spent else "")
