"""An answer's text with its marks of citation, and where in it they stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from biorag.api.verdicts import MARKS
from biorag.types import Answer
from biorag.utils.text import showable


@dataclass(frozen=True, slots=True)
class CitedSpan:
    """The place of a mark of citation, `[1]` or `[1, 3]`, in a text, and the hit `n` that it names."""

    n: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class CitedPiece:
    """A piece of a text, with the marks that end in it; their places are those in the whole text."""

    text: str
    citations: tuple[CitedSpan, ...] = ()


def cited_pieces(answer: Answer) -> Iterator[CitedPiece]:
    """Yield an answer's text sentence by sentence, marked as `biorag.api.results.marked_text` marks it.

    Where there is no sentence to check, the text stands as it is; where there is none, what the notes say of it.
    """
    place = 0

    def piece(text: str, numbers: tuple[int, ...] = ()) -> CitedPiece:
        nonlocal place
        mark = f"[{', '.join(map(str, numbers))}]" if numbers else ""
        text = showable(text)  # before its length counts
        whole = f"{text} {mark}" if mark else text
        place += len(whole)
        return CitedPiece(whole, tuple(CitedSpan(n, place - len(mark), place) for n in numbers))

    if answer.choice:
        yield piece(f"{answer.choice}. ")
    if not answer.sentences:
        yield piece(answer.text or "\n".join(answer.notes) or "The evidence gives no answer.")
        return
    for number, sentence in enumerate(answer.sentences):
        yield piece((" " if number else "") + sentence.text + MARKS[sentence.verdict], sentence.citations)
