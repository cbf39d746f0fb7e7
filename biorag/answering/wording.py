"""A question in the words of the literature: without what is only said in a chat, spelt as the evidence spells."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from biorag.answering.guards.words import is_symbol, rarity, stems
from biorag.types import Hit
from biorag.utils.parsing import packaged_toml

_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
SHORTEST = 5  # letters of a word that is corrected
LONG = 8  # letters from which two may be wrong, not one
UNSEEN = 1.0  # rarity of a word that no snippet held of those that words were counted in


@cache
def _lists() -> Mapping[str, Any]:
    return packaged_toml(__file__, "wording.toml")


@cache
def _chat() -> tuple[re.Pattern[str], re.Pattern[str]]:
    opening, closing = ("|".join(map(re.escape, _lists()["chat"][name])) for name in ("opening", "closing"))
    return (
        re.compile(rf"(?:(?:{opening})\b[\s,.!:;-]*)+(?=\w+\W+\w)", re.IGNORECASE),
        re.compile(rf"(?<=\w)[\s,.!?]+(?:(?:{closing})\b[\s,.!?]*)+$", re.IGNORECASE),
    )


def plainly_worded(question: str) -> str:
    """Return a question without greetings and thanks, and with clinical shorthand written out: "moa", "pts"."""
    opening, closing = _chat()
    kept = opening.sub("", question, count=1) if opening.match(question) else question
    kept = closing.sub("?" if "?" in question else "", kept)
    shorthand = dict(_lists()["shorthand"])
    return re.sub(r"[^\W_]+", lambda word: shorthand.get(word[0].lower(), word[0]), kept).strip() or question


def respelled(question: str, hits: Sequence[Hit]) -> str:
    """Return a question with words that no snippet is known to hold spelt as the hits spell the nearest word.

    A letter may be wrong, missing, too many, or change places with the next; in a long word two. What the hits hold
    stays, and so do symbols and names with digits, which differ in one character from others.
    """
    words = (word for hit in hits for word in _WORD.findall(hit.snippet.contents))
    held = {word.lower(): word for word in words if len(word) >= SHORTEST}
    known = {stem for word in held for stem in stems(word)}

    def spelt(match: re.Match[str]) -> str:
        word = match[0].lower()
        if len(word) < SHORTEST or is_symbol(match[0]) or _joined(question, match) or _known(word):
            return match[0]
        if word in held or known.issuperset(stems(word)):
            return match[0]
        faults = {other: _faults(word, other) for other in held if other[0] == word[0]}
        nearest = min(faults, key=lambda other: faults[other], default=word)
        return held[nearest] if faults.get(nearest, LONG) <= 1 + (len(word) >= LONG) else match[0]

    return _WORD.sub(spelt, question)


def is_guess(question: str, spelled: str) -> bool:
    """Return whether a word of a question may have been meant as it was: a short one with another letter in it.

    A letter that is missing, too many or in its neighbour's place is a slip, and so is one without its accent.
    """
    pairs = zip(_WORD.findall(question.lower()), _WORD.findall(spelled.lower()), strict=True)
    return any(
        len(one) == len(other) < LONG and sorted(one) != sorted(other) and other.isascii() for one, other in pairs
    )


def _faults(word: str, other: str) -> int:
    """Return by how many letters two words differ: their optimal string alignment distance."""
    if abs(len(word) - len(other)) > 2:
        return LONG
    before: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(word, 1):
        line = [row]
        for column, theirs in enumerate(other, 1):
            line.append(min(last[column] + 1, line[-1] + 1, last[column - 1] + (letter != theirs)))
            if row > 1 < column and (letter, word[row - 2]) == (other[column - 2], theirs):
                line[-1] = min(line[-1], before[column - 2] + 1)
        before, last = last, line
    return last[-1]


def _known(word: str) -> bool:
    return all(rarity(stem) < UNSEEN for stem in stems(word))


def _joined(text: str, match: re.Match[str]) -> bool:
    """Whether a digit or a hyphen stands beside a word."""
    around = text[max(0, match.start() - 1) : match.start()] + text[match.end() : match.end() + 1]
    return bool(re.search(r"[\d_-]", around))
