"""A conversation as Markdown: each question, its answer with marks, and the references that it cites."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from biorag.chat.conversation import Turn
from biorag.references.reference import reference_of
from biorag.references.tables import plain
from biorag.references.vancouver import citation
from biorag.types import Hit
from biorag.utils.text import showable


def markdown(index: str, turns: Sequence[Turn]) -> str:
    """Return a conversation as Markdown, quotes escaped."""
    lines = [f"# Questions to the index {plain(index)}"]
    for turn in turns:
        lines += ["", *_turn(turn)]
    return showable("\n".join(lines) + "\n")


def _turn(turn: Turn) -> Iterator[str]:
    answer = turn.answer
    yield f"## {plain(turn.question)}"
    if turn.searched != turn.question:
        yield from ("", f"*Searched: {plain(turn.searched)}*")
    if turn.filter:
        yield from ("", f"*Filter: {plain(turn.filter)}*")
    if answer.question.options:
        yield ""
        yield from (f"- {letter}. {plain(text)}" for letter, text in answer.question.options.items())
    yield from ("", plain(str(answer)) or "*No answer.*")
    for note in answer.notes:
        yield from ("", f"*Note: {plain(note)}*")
    if answer.hits:
        yield ""
        yield from map(_reference, answer.cited_hits)


def _reference(hit: Hit) -> str:
    reference = reference_of(hit.snippet)
    link = f" <{reference.url}>" if reference.url else ""
    return f"- {plain(f'[{hit.rank}] {citation(reference)}')}{link}"
