"""An answer as it is shown: its verdict, its text with marks, its sources, its evidence; and what shows meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from biorag.commands import show
from biorag.registries import OutputKind
from biorag.types import EXTRACT, Answer, CheckedSentence, Citation, Hit, Verdict
from biorag.utils.text import showable

STYLES = {Verdict.SUPPORTED: "", Verdict.UNSUPPORTED: "yellow", Verdict.CONTRADICTED: "red strike"}
MARKS = {Verdict.SUPPORTED: "", Verdict.UNSUPPORTED: " [unsupported]", Verdict.CONTRADICTED: " [contradicted]"}
PROMPT_ROWS = 2  # of a terminal, for the command and the next prompt
LEAST_HITS = 3


def answer_json(answer: Answer, models: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer as `--json` prints it."""
    return {
        "question": answer.question.text,
        "options": dict(answer.question.options),
        "answer": answer.text,
        "choice": answer.choice,
        "reasoning": answer.reasoning,
        "relevant_context": answer.relevant_context,
        "citations": [_citation_json(citation, answer) for citation in answer.citations],
        "hits": [show.hit_json(hit) for hit in answer.hits],
        "models": dict(models),
        "parsed": answer.parsed,
        "option_logprobs": dict(answer.option_logprobs),
        "supplied": answer.supplied,
        "notes": list(answer.notes),
        "timings_ms": dict(answer.timings_ms),
        "answerer": answer.answerer,
        "abstained": answer.abstained,
        "evidence_probability": answer.evidence_probability,
        "sentences": [_sentence_json(sentence) for sentence in answer.sentences],
    }


def _sentence_json(sentence: CheckedSentence) -> dict[str, Any]:
    return {
        "text": sentence.text,
        "verdict": sentence.verdict.value,
        "citations": list(sentence.citations),
        "evidence": [{"id": span.id, "quote": span.quote} for span in sentence.evidence],
    }


def _citation_json(citation: Citation, answer: Answer) -> dict[str, Any]:
    fields = {**asdict(citation), "score": round(citation.score, 6)}
    retracted, location = fields.pop("retracted"), fields.pop("location")
    metadata = next((hit.snippet.metadata for hit in answer.hits if hit.rank == citation.n), {})
    return {**fields, **show.location(location), **show.retraction(retracted), "metadata": dict(metadata)}


def sources(answer: Answer) -> list[Hit]:
    """Return the hits that an answer cites, all hits where it cites none."""
    cited = {citation.n for citation in answer.citations}
    return [hit for hit in answer.hits if hit.rank in cited or not cited]


def document(kind: OutputKind, answer: Answer) -> None:
    """Print an answer's sources in an output format on stdout, and what the answer says on stderr."""
    for part in filter(None, (verdict(answer), *_texts(answer))):
        show.err.print(part, soft_wrap=True)
    for note in answer.notes:
        show.err.print(f"note: {note}")
    show.document(kind, sources(answer))


class Waiting:
    """What stands on stderr of a terminal while one waits: the stage, its seconds, and a reply as it grows."""

    def __init__(self) -> None:
        self._spinner = Spinner("dots")
        self._description = ""
        self._started = time.monotonic()
        self._text = ""

    def __call__(self, description: str) -> None:
        """Begin a stage."""
        self._description, self._started = description, time.monotonic()

    def provisional(self, reply: str) -> None:
        """Show what a generator has written so far."""
        from biorag.prompts.grammar import growing_text

        self._text = showable(growing_text(reply))

    def __rich__(self) -> RenderableType:
        seconds = time.monotonic() - self._started
        self._spinner.update(text=Text(f"{self._description} … {seconds:.0f} s", style="dim"))
        if not self._text or not show.out.is_terminal:
            return self._spinner
        return Group(Text(f"{self._text} ", style="dim"), self._spinner)


@contextmanager
def waiting() -> Iterator[Waiting]:
    """Show what is under way, on a terminal alone; all of it is gone at the end."""
    stage = Waiting()
    if not show.err.is_terminal:
        yield stage
        return
    with Live(stage, console=show.err, transient=True, refresh_per_second=8):
        yield stage


def answer(answer: Answer) -> None:
    """Print an answer that has been checked: the verdict, the text, the sources, the evidence, the notes."""
    parts = [part for part in (verdict(answer), *_texts(answer), *_contradictions(answer), *_sources(answer)) if part]
    for part in parts:
        show.out.print(part, soft_wrap=not show.out.is_terminal)
    if answer.hits:
        show.out.print()
        cited = frozenset(citation.n for citation in answer.citations)
        if show.out.is_terminal:
            used = sum(len(show.out.render_lines(part)) for part in parts) + len(answer.notes) + PROMPT_ROWS
            _short_evidence(answer, cited, max(LEAST_HITS, show.out.height - used - 2))
        else:
            show.evidence_table(f"{answer.question.text} {answer.text}", answer.hits, cited)
    for note in answer.notes:
        show.err.print(f"note: {note}")


def verdict(answer: Answer) -> Text | None:
    """Return the line that says what the answer rests on."""
    if answer.question.options and not answer.choice and answer.reply:
        return Text("Answer: the model's reply names no option", style="bold red")
    if not answer.sentences:
        return None
    judged = answer.sentences[:1] if answer.choice else answer.sentences
    numbers = sorted({n for sentence in judged for n in sentence.citations})
    by = f" by {', '.join(f'[{n}]' for n in numbers)}" if numbers else ""
    if answer.answerer == EXTRACT and not answer.choice:
        count = len(judged)
        return Text(f"Extract: {count} {'sentence' if count == 1 else 'sentences'} of the evidence, verbatim", "bold")
    line, style = _verdict_of(judged, by)
    if answer.answerer == EXTRACT:
        confirmed = judged[0].verdict is not Verdict.UNSUPPORTED
        line = f"Chosen by the evidence alone: {line.lower() if confirmed else 'nearest to it, and not confirmed'}"
    return Text(line, style)


def _verdict_of(sentences: Sequence[CheckedSentence], by: str) -> tuple[str, str]:
    counts = {kind: sum(sentence.verdict is kind for sentence in sentences) for kind in Verdict}
    total, supported = len(sentences), counts[Verdict.SUPPORTED]
    if counts[Verdict.CONTRADICTED]:
        line = "Contradicted" if total == 1 else f"{counts[Verdict.CONTRADICTED]} of {total} sentences contradicted"
        return f"{line}, {supported} supported{by}" if supported else line, "bold red"
    if supported == total:
        return f"Supported{by}", "bold green"
    if supported:
        return f"{supported} of {total} sentences supported{by}", "bold yellow"
    return "Unsupported: no snippet at hand says this", "bold yellow"


def _texts(answer: Answer) -> Iterator[Text]:
    """Yield the choice and the text or the reasoning, each sentence with its marks and what was found of it."""
    sentences = answer.sentences
    if answer.choice:
        line = Text.assemble(("Answer: ", "bold"), (f"{answer.choice}. ", "bold"))
        if answer.supplied or answer.answerer == EXTRACT:
            yield line.append_text(marked(sentences[:1]))
            sentences = sentences[1:]
        else:
            yield line.append(showable(answer.text), style="bold")
        if sentences:
            yield Text.assemble(("Reasoning: ", "bold"), marked(sentences))
    elif sentences:
        yield marked(sentences)
    elif answer.text:
        yield Text(showable(answer.text))


def marked(sentences: Sequence[CheckedSentence]) -> Text:
    """Return checked sentences in one text: unsupported ones marked, contradicted ones struck out, citations after."""
    text = Text()
    for sentence in sentences:
        if text:
            text.append(" ")
        text.append(showable(sentence.text), style=STYLES[sentence.verdict])
        text.append(MARKS[sentence.verdict], style="bold " + STYLES[sentence.verdict].removesuffix(" strike"))
        if sentence.citations:
            text.append(f" [{', '.join(map(str, sentence.citations))}]", style="bold")
    return text


def _contradictions(answer: Answer) -> Iterator[Text]:
    """Yield the sentences of the evidence that contradict the answer."""
    for sentence in answer.sentences:
        for span in sentence.evidence:
            if sentence.verdict is Verdict.CONTRADICTED and span.verdict is Verdict.CONTRADICTED:
                yield Text.assemble(("contradicted by ", "red"), (f"[{span.n}] ", "bold"), f"“{showable(span.quote)}”")


def _sources(answer: Answer) -> Iterator[Text]:
    """Yield a line for each citation; without its quote where the answer itself is one."""
    shown = set()
    for citation in answer.citations:
        source = ", ".join(filter(None, [f"PMID {citation.pmid}" if citation.pmid else citation.id, citation.location]))
        mark = (f" {show.RETRACTED}" if citation.retracted else "", "bold red")
        verbatim = answer.answerer == EXTRACT and not answer.choice
        quote = showable(citation.title) + " " if verbatim else f"“{showable(citation.quote)}” "
        if (citation.n, quote) not in shown:
            shown.add((citation.n, quote))
            yield Text.assemble((f"[{citation.n}] ", "bold"), quote, (showable(source), "dim"), mark)


def _short_evidence(answer: Answer, cited: frozenset[int], rows: int) -> None:
    """Print a line or two a hit, as many as the screen has room for."""
    shown = 0
    for hit in answer.hits:
        star = "*" if hit.rank in cited else " "
        title = showable(hit.snippet.title or hit.snippet.content)
        place = f", {showable(hit.snippet.location)}" if hit.snippet.location else ""
        head = (f"{hit.rank:>3}{star} ", show.pmid(hit), " ", show.warnings(hit.snippet), title)
        lines = [Text.assemble(*head, (place, "dim"), (f" {hit.score:.3f}", "dim"))]
        if origin := show.source(hit.snippet):
            lines.append(Text("     ").append_text(origin))
        if shown and len(lines) > rows:
            break
        for line in lines:
            line.truncate(show.out.width, overflow="ellipsis")
            show.out.print(line, no_wrap=True)
        shown, rows = shown + 1, rows - len(lines)
    if len(answer.hits) > shown:
        show.out.print(Text(f"    and {len(answer.hits) - shown} more (--json)", style="dim"))
