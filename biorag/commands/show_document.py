"""A whole snippet as it is shown: its text, its reference, and what is known of the study behind it."""

from __future__ import annotations

from rich.text import Text

from biorag.commands import show
from biorag.corpus.sentences import matches
from biorag.references.facts import Facts
from biorag.references.reference import reference_of
from biorag.references.vancouver import citation
from biorag.types import Snippet
from biorag.utils.text import showable

UNKNOWN = "unknown"


def document(snippet: Snippet, facts: Facts, words: set[str]) -> None:
    """Print a whole snippet, these words marked, its reference, and the facts of its study."""
    reference = reference_of(snippet)
    if notes := show.warnings(snippet):
        show.out.print(notes)
    show.out.print(_marked(snippet.title or snippet.id, words, "bold"), soft_wrap=not show.out.is_terminal)
    show.out.print()
    for paragraph in snippet.content.splitlines():
        show.out.print(_marked(paragraph, words), soft_wrap=not show.out.is_terminal)
    show.out.print()
    show.out.print(Text(showable(citation(reference))), soft_wrap=not show.out.is_terminal)
    show.table("Facts of the evidence", ["", ""], _rows(facts))


def _marked(text: str, words: set[str], style: str = "") -> Text:
    shown = Text(showable(text), style=style)
    for start, end in matches(shown.plain, words):
        shown.stylize("black on yellow", start, end)
    return shown


def _rows(facts: Facts) -> list[tuple[str, str]]:
    """Return each fact with its value; what is not known is said so."""
    people = facts.participants
    cited = facts.cited_by
    return [
        ("publication type", ", ".join(facts.publication_types or (UNKNOWN,))),
        ("retracted", _yes(facts.retracted)),
        ("expression of concern", _yes(facts.concern)),
        *[("notices", ", ".join(facts.notices))][: len(facts.notices)],
        *[("corrections", ", ".join(facts.corrections))][: len(facts.corrections)],
        ("participants", f"{people.number:,} (“{people.quote}”)" if people else UNKNOWN),
        ("cited by", UNKNOWN if cited is None else f"{cited:,} {'paper' if cited == 1 else 'papers'} of the graph"),
    ]


def _yes(fact: bool | None) -> str:
    return UNKNOWN if fact is None else "yes" if fact else "no"
