"""The subject of a question: which sentences are about another one, and which names of it no hit holds."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from biorag.answering.guards.lexicon import rarity
from biorag.answering.guards.words import stems
from biorag.answering.sentence_matching import EvidenceSentence
from biorag.types import Hit, Vectors

_PART = re.compile(r"[^\W\d_]+")
_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
RARE = 0.65  # rarity of a word from which it can be the subject
LONGEST_ABBREVIATION = 6  # letters


def off_topic(question: str, hits: Sequence[Hit], rows: Sequence[EvidenceSentence]) -> Vectors:
    """Return which sentences are about something else than the question, 1 or 0, (sentences,).

    Neither they nor the sentences before them name its subject, the rarest of its words that a hit holds, and their
    snippets do not either, or only in passing: not in the title nor in the first sentence.
    """
    subject = _subject(question, hits)
    named = [_names(subject, row.text) for row in rows]
    opening = {row.n: index for index, row in reversed(list(enumerate(rows)))}
    about = {n: named[index] or _names(subject, rows[index].title) for n, index in opening.items()}
    others = (
        not (about[row.n] or named[index] or (index > opening[row.n] and named[index - 1]))
        for index, row in enumerate(rows)
    )
    return np.fromiter(others, np.float32, len(rows))


def _subject(question: str, hits: Sequence[Hit]) -> str | None:
    """Return the rarest word of the question that any of the snippets holds, if it is rare."""
    asked = sorted({stem for stem in stems(question) if rarity(stem) >= RARE}, key=lambda stem: (-rarity(stem), stem))
    held = {stem for hit in hits for stem in stems(hit.snippet.contents)}
    return next((stem for stem in asked if stem in held), None)


def _names(subject: str | None, text: str) -> bool:
    return subject is None or subject in stems(text)


def missing_words(question: str, texts: Sequence[str]) -> dict[str, float]:
    """Return the words of a question that no text holds, as they are written, with their rarity, 0 to 1.

    A short word is held by words in sequence of which it has the initials, "ACE" by "angiotensin-converting enzyme",
    a long one by its parts, "heatshock" by "heat shock".
    """
    lower = [text.lower() for text in texts]
    joined = " ".join("".join(_PART.findall(text)) for text in lower)
    initials = " ".join("".join(word[0] for word in _PART.findall(text)) for text in lower)
    held = {stem for text in texts for stem in stems(text)}
    return {
        match[0]: max(map(rarity, own))
        for match in _WORD.finditer(question)
        if (own := stems(match[0]))
        and held.isdisjoint(own)
        and match[0].lower() not in (initials if len(match[0]) <= LONGEST_ABBREVIATION else joined)
    }
