"""An answer as it is shown: its verdict, its text with marks, its sources, its evidence; and what shows meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from biorag.api.documents import cited_hits
from biorag.api.verdicts import MARKS, Tone, cited_numbers, verdict_line
from biorag.commands import show
from biorag.registries import OutputKind
from biorag.types import EXTRACT, Answer, CheckedSentence, Verdict
from biorag.utils.text import showable

STYLES = {Verdict.SUPPORTED: "", Verdict.UNSUPPORTED: "yellow", Verdict.CONTRADICTED: "red strike"}
TONES = {Tone.PLAIN: "bold", Tone.GOOD: "bold green", Tone.DOUBTFUL: "bold yellow", Tone.BAD: "bold red"}
PROMPT_ROWS = 2  # of a terminal, for the command and the next prompt
LEAST_HITS = 3


def document(kind: OutputKind, answer: Answer) -> None:
    """Print an answer's sources in an output format on stdout, and what the answer says on stderr."""
    for part in filter(None, (verdict(answer), *_texts(answer))):
        show.err.print(part, soft_wrap=True)
    for note in answer.notes:
        show.err.print(f"note: {note}")
    show.document(kind, cited_hits(answer))


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
    line = verdict_line(answer)
    return Text(line.text, TONES[line.tone]) if line else None


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
        text.append(cited_numbers(sentence), style="bold")
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
