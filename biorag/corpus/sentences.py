"""Words and sentences of a passage: where each begins, and which shares most words with another text."""

from __future__ import annotations

import re

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]?[A-Z0-9])")
_WORD = re.compile(r"[^\W_]+(?:[-'][^\W_]+)*")
STOP_WORDS = frozenset(
    _WORD.findall(
        """
    a about also an and any are as at be been before being between both but by can could did do does during each for
    from had has have how if in into is it its may might more most no not of on only or other our over should so
    some such than that the their them then there these they this those through to under up used using was we were
    what when where which while who whose why will with within without would you your patient patients study
        """
    )
)
ENDINGS = ("ies", "es", "s", "ing", "ed")
SHORTEST_STEM = 4


def terms(text: str) -> set[str]:
    """Return the text's content words, lower-cased and cut of common endings."""
    return {_stem(word) for word in _WORD.findall(text.lower()) if word not in STOP_WORDS}


def _stem(word: str) -> str:
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= SHORTEST_STEM:
            return word[: -len(ending)]
    return word


def sentences(text: str) -> list[str]:
    """Split a passage into sentences; each stands in the passage as it is."""
    return [sentence for sentence in _SENTENCE_END.split(text.strip()) if sentence]


def sentence_starts(text: str) -> list[int]:
    """Return the positions where the second and the later sentences of a passage begin."""
    return [gap.end() for gap in _SENTENCE_END.finditer(text)]


def best_sentence(text: str, target: set[str]) -> str:
    """Return the sentence of `text` that shares most words with `target`; the first of equals."""
    return max(sentences(text) or [""], key=lambda sentence: len(terms(sentence) & target))


def matches(text: str, target: set[str]) -> list[tuple[int, int]]:
    """Return the spans (start, end) of the words of `text` that are in `target`, for highlighting."""
    words = _WORD.finditer(text)
    return [word.span() for word in words if word[0].lower() not in STOP_WORDS and _stem(word[0].lower()) in target]
