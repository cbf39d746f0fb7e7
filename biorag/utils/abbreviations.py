"""Abbreviations that a text defines: "hereditary angioedema (HAE)", "HAE (hereditary angioedema)".

Schwartz and Hearst, A simple algorithm for identifying abbreviation definitions in biomedical text, Pac Symp Biocomput
2003, 451-462.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

LONGEST_SHORT = 10  # characters of a short form
MOST_WORDS = 2  # words of a short form
_BRACKETS = re.compile(r"[(\[]([^()\[\]]{2,200})[)\]]")
_CUT = re.compile(r"[;,]\s.*|\s(?:or|i\.e\.)\s.*", re.DOTALL)  # "(HAE; n = 12)", "(HAE, also ...)"
_GREEK = str.maketrans("αβγδεκλμω", "abgdeklmo")  # "TNF-α" abbreviates "tumor necrosis factor-alpha"
_MARKS = frozenset("<>=≤≥±%·,:")
_SENTENCE = re.compile(r"[.!?;:]\s")


@lru_cache(maxsize=1 << 12)
def abbreviations(text: str) -> tuple[tuple[str, str], ...]:
    """Return the short and the long form of each abbreviation that a text defines, in their order."""
    return tuple(dict.fromkeys(_definitions(text)))


def long_form(short: str, text: str) -> str | None:
    """Return the shortest end of a text that a short form abbreviates; None if it abbreviates none.

    Its letters and figures stand there in their order, the first at the beginning of a word.
    """
    plain, position = text.lower().translate(_GREEK), len(text)
    letters = [letter for letter in short.lower().translate(_GREEK) if letter.isalnum()]
    for left in range(len(letters) - 1, -1, -1):
        position = _last(letters[left], plain, position, opens_word=left == 0)
        if position < 0:
            return None
    return text[text.rfind(" ", 0, position + 1) + 1 :] if letters else None


def _definitions(text: str) -> Iterator[tuple[str, str]]:
    for match in _BRACKETS.finditer(text):
        inner = _CUT.sub("", match[1]).strip()
        before = _SENTENCE.split(text[max(0, match.start() - 300) : match.start()])[-1].rstrip()
        if not before:
            continue
        last = before.split()[-1]
        pairs = [(inner, before)] if _is_short(inner) else [(last, inner)] if _is_short(last) else []
        for short, candidate in pairs:
            count = sum(letter.isalnum() for letter in short)
            nearest = " ".join(candidate.split()[-min(count + 5, count * 2) :])
            long = long_form(short, nearest if candidate is before else candidate)
            if long is not None and _is_long(long, short, count):
                yield short, long


def _last(letter: str, text: str, end: int, opens_word: bool) -> int:
    """Return where a letter stands last before `end`, if need be at the beginning of a word; -1 for nowhere."""
    for position in range(end - 1, -1, -1):
        opens = position == 0 or not text[position - 1].isalnum()
        if text[position] == letter and (opens or not opens_word):
            return position
    return -1


def _is_short(form: str) -> bool:
    """Whether a form looks like an abbreviation; ours, beyond the paper: it has a capital, and no sign of a figure."""
    return (
        2 <= len(form) <= LONGEST_SHORT
        and len(form.split()) <= MOST_WORDS
        and form[0].isalnum()
        and any(map(str.isupper, form))
        and _MARKS.isdisjoint(form)
    )


def _is_long(form: str, short: str, count: int) -> bool:
    words = re.split(r"[\s-]+", form)
    return (
        len(form) > len(short)
        and "(" not in form
        and short not in form.split()
        and len(words) <= min(count + 5, count * 2)
    )
