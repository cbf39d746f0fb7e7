"""What is said of an answer: the line on what it rests on, in words and in a tone, and the marks of its sentences."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from biorag.types import EXTRACT, Answer, CheckedSentence, Verdict

MARKS = {Verdict.SUPPORTED: "", Verdict.UNSUPPORTED: " [unsupported]", Verdict.CONTRADICTED: " [contradicted]"}


class Tone(StrEnum):
    """How good the news of a line is."""

    PLAIN = "plain"
    GOOD = "good"
    DOUBTFUL = "doubtful"
    BAD = "bad"


class VerdictLine(NamedTuple):
    """A line and its tone."""

    text: str
    tone: Tone


def verdict_line(answer: Answer) -> VerdictLine | None:
    """Return the line that says what the answer rests on; None where there is nothing to say it of."""
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
        line = f"Chosen by the evidence alone: {line.lower() if confirmed else 'nearest to it, and not confirmed'}"
    return VerdictLine(line, tone)


def _verdict_of(sentences: Sequence[CheckedSentence], by: str) -> VerdictLine:
    counts = {kind: sum(sentence.verdict is kind for sentence in sentences) for kind in Verdict}
    total, supported = len(sentences), counts[Verdict.SUPPORTED]
    if counts[Verdict.CONTRADICTED]:
        line = "Contradicted" if total == 1 else f"{counts[Verdict.CONTRADICTED]} of {total} sentences contradicted"
        return VerdictLine(f"{line}, {supported} supported{by}" if supported else line, Tone.BAD)
    if supported == total:
        return VerdictLine(f"Supported{by}", Tone.GOOD)
    if supported:
        return VerdictLine(f"{supported} of {total} sentences supported{by}", Tone.DOUBTFUL)
    return VerdictLine("Unsupported: no snippet at hand says this", Tone.DOUBTFUL)


def cited_numbers(sentence: CheckedSentence) -> str:
    """Return the numbers of the hits that a sentence cites, in brackets after a space; empty for none."""
    return f" [{', '.join(map(str, sentence.citations))}]" if sentence.citations else ""
