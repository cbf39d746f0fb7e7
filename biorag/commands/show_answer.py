"""Answers, evidence and whole snippets as a terminal shows them, and the progress of an answer under way."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from biorag.api.answer_text import (
    Tone,
    cited_numbers,
    lead_of,
    mark_of,
    otherwise_line,
    paragraphs,
    verdict_line,
    words_of,
)
from biorag.api.results import SnippetResult
from biorag.commands import show
from biorag.corpus.sentences import best_sentence, matches, terms
from biorag.references.facts import Facts
from biorag.references.reference import PUBMED, has_concern, reference_line, reference_of, source_line
from biorag.types import EXTRACT, Answer, CheckedSentence, Hit, Snippet, Verdict
from biorag.utils.text import showable

STYLES = {
    Verdict.SUPPORTED: "",
    Verdict.UNSUPPORTED: "yellow",
    Verdict.CONTRADICTED: "red strike",
    Verdict.UNSURE: "cyan",
}
TONES = {Tone.PLAIN: "bold", Tone.GOOD: "bold green", Tone.DOUBTFUL: "bold yellow", Tone.BAD: "bold red"}
RETRACTED, CONCERN = "RETRACTED", "EXPRESSION OF CONCERN"
UNKNOWN = "unknown"


def summary(answer: Answer) -> None:
    """Print on stderr the text of an answer and its notes, where its sources are on stdout."""
    for part in filter(None, (verdict(answer), *_texts(answer))):
        show.err.print(part, soft_wrap=True)
    _notes(answer)


class Waiting:
    """The progress of an answer on a terminal: the stage, its seconds, and a reply as it grows."""

    def __init__(self) -> None:
        self._spinner, self._started = Spinner("dots"), time.monotonic()
        self._description = self._text = ""

    def __call__(self, description: str) -> None:
        """Begin a stage."""
        self._description, self._started = description, time.monotonic()

    def provisional(self, reply: str) -> None:
        """Show a reply so far."""
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
    """Show the progress of an answer on a terminal, and clear it at the end."""
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
        evidence(f"{answer.question.text} {answer.text}", answer.hits, cited, quoted=False)
    _notes(answer)


def verdict(answer: Answer) -> Text | None:
    """Return the line of the answer's verdict."""
    line = verdict_line(answer)
    return Text(line.text, TONES[line.tone]) if line else None


def _notes(answer: Answer) -> None:
    for note in answer.notes:
        show.err.print(f"note: {note}")


def _texts(answer: Answer) -> Iterator[Text]:
    """Yield the choice and the text or the reasoning, each sentence with its marks."""
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
        lead, groups = Text(showable(lead_of(answer)), "bold"), [marked(group) for group in paragraphs(answer)]
        if len(groups) > 1:
            yield from filter(None, [lead, *(Text("- ") + group for group in groups)])
        else:
            yield Text(" ").join(filter(None, [lead, *groups]))
    elif answer.text:
        yield Text(showable(answer.text))


def marked(sentences: Sequence[CheckedSentence]) -> Text:
    """Return checked sentences in one text with their marks: contradicted ones struck out, citations after."""
    text = Text()
    for sentence in sentences:
        if text:
            text.append(" ")
        text.append(showable(words_of(sentence)), style=STYLES[sentence.verdict])
        text.append(mark_of(sentence), style="bold " + STYLES[sentence.verdict].removesuffix(" strike"))
        text.append(cited_numbers(sentence), style="bold")
    return text


def _contradictions(answer: Answer) -> Iterator[Text]:
    """Yield what contradicts a sentence, or says otherwise than those that support it."""
    for sentence in answer.sentences:
        if sentence.otherwise:
            yield Text.assemble((otherwise_line(sentence), "bold yellow"), f" “{showable(sentence.text)}”")
        for one in sentence.otherwise:
            yield Text.assemble(("  otherwise ", "yellow"), (f"[{one.n}] ", "bold"), f"“{showable(one.quote)}”")
        for span in sentence.evidence:
            if sentence.difference or sentence.verdict is Verdict.CONTRADICTED:
                said = "says " if sentence.basis == "quote" else "contradicts this: "
                yield Text.assemble((f"[{span.n}] ", "bold"), (said, "red"), f"“{showable(span.quote)}”")


def _sources(answer: Answer) -> Iterator[Text]:
    """Yield a line for each citation; without its quote where the answer itself is one."""
    shown = set()
    by_rank = {hit.rank: hit.snippet for hit in answer.hits}
    verbatim = answer.answerer == EXTRACT and not answer.choice
    for citation in answer.citations:
        quote = "" if verbatim else f"“{showable(citation.quote)}” "
        if (citation.n, quote) not in shown:
            shown.add((citation.n, quote))
            source = showable(reference_line(by_rank[citation.n]))
            mark = (f" {RETRACTED}" if citation.retracted else "", "bold red")
            yield Text.assemble((f"[{citation.n}] ", "bold"), quote, (source, "" if verbatim else "dim"), mark)


def evidence(query: str, hits: Sequence[Hit], cited: frozenset[int] = frozenset(), quoted: bool = True) -> None:
    """Print hits with rank, PMID or id (a link), title and score; with `quoted` the sentence that matches best, too."""
    target = terms(query)
    if not show.out.is_terminal:
        columns = ["#", "Source", "Score", "Title", "Reference", "Sentence"]
        show.table("Evidence", columns, [_cells(hit, target, cited) for hit in hits])
        return
    shown = Table.grid(padding=(0, 1))
    shown.add_column(no_wrap=True)
    shown.add_column(no_wrap=True)
    shown.add_column(overflow="fold")
    for hit in hits:
        star, lines = "*" if hit.rank in cited else " ", _lines(hit)
        if quoted:
            lines.append(_marked(best_sentence(hit.snippet.content, target), target, mark="yellow"))
        shown.add_row(f"{hit.rank:>3}{star}", Text(f"{hit.score:.3f}", "dim"), Text("\n").join(lines))
    show.out.print(shown)


def _lines(hit: Hit) -> list[Text]:
    """Return the title of a hit, and a line of what tells it from others of that title: PMID or id, place, source."""
    snippet = hit.snippet
    named = [_pmid(hit), Text(showable(snippet.location), "dim"), _source(snippet)]
    title = Text.assemble(_warnings(snippet), showable(reference_of(snippet).noted_heading))
    return [title, Text(" · ", "dim").join(part for part in named if part)]


def _cells(hit: Hit, target: set[str], cited: frozenset[int]) -> list[object]:
    """Return a hit as a row of text."""
    snippet, star = hit.snippet, "*" if hit.rank in cited else ""
    title = f"{_warnings(snippet)}{', '.join(filter(None, (reference_of(snippet).noted_heading, snippet.location)))}"
    sentence = best_sentence(snippet.content, target)
    return [f"{hit.rank}{star}", _pmid(hit), f"{hit.score:.3f}", title, _source(snippet), sentence]


def _pmid(hit: Hit) -> Text:
    """Return a hit's PMID as a link; its id if it has none."""
    number = hit.snippet.pmid
    if number is None:
        return Text(showable(hit.snippet.id), style="dim")
    return Text(str(number), style=f"link {PUBMED}/{number}/")


def _warnings(snippet: Snippet) -> Text:
    marks = [(f"{RETRACTED} ", "bold red")] * snippet.retracted
    return Text.assemble(*marks, *[(f"{CONCERN} ", "bold yellow")] * has_concern(snippet))


def _source(snippet: Snippet) -> Text:
    """Return first author, year, journal and publication types in one line; empty if none is known."""
    return Text(showable(source_line(reference_of(snippet))), style="dim")


def snippets(result: SnippetResult, words: set[str]) -> None:
    """Print whole snippets, these words marked, each with its reference and the facts of its study."""
    from biorag.references.formats import citation

    wraps = not show.out.is_terminal
    for snippet, facts in zip(result.snippets, result.facts, strict=True):
        if notes := _warnings(snippet):
            show.out.print(notes)
        show.out.print(_marked(reference_of(snippet).heading, words, "bold"), soft_wrap=wraps)
        show.out.print()
        for paragraph in snippet.content.splitlines():
            show.out.print(_marked(paragraph, words), soft_wrap=wraps)
        show.out.print()
        show.out.print(Text(showable(citation(reference_of(snippet)))), soft_wrap=wraps)
        show.table("Facts of the evidence", ["", ""], _rows(facts))


def _marked(text: str, words: set[str], style: str = "", mark: str = "black on yellow") -> Text:
    """Return a text whose words that are among `words` have the style `mark`."""
    shown = Text(showable(text), style=style)
    for start, end in matches(shown.plain, words):
        shown.stylize(mark, start, end)
    return shown


def _rows(facts: Facts) -> list[tuple[str, str]]:
    people, cited = facts.participants, facts.cited_by
    return [
        ("publication type", ", ".join(facts.publication_types or (UNKNOWN,))),
        ("retracted", _yes(facts.retracted)),
        ("expression of concern", _yes(facts.concern)),
        *([("notices", ", ".join(facts.notices))] if facts.notices else []),
        *([("corrections", ", ".join(facts.corrections))] if facts.corrections else []),
        ("participants", f"{people.number:,} (“{people.quote}”)" if people else UNKNOWN),
        ("cited by", UNKNOWN if cited is None else f"{cited:,} {'paper' if cited == 1 else 'papers'} of the graph"),
    ]


def _yes(fact: bool | None) -> str:
    return UNKNOWN if fact is None else "yes" if fact else "no"
