"""The subject of a question, and which sentences speak of another one."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from biorag.answering.sentence_matching import EvidenceSentence
from biorag.answering.verification.cues import general, rarity
from biorag.answering.verification.words import stems
from biorag.types import Hit, Vectors

_PART = re.compile(r"[^\W\d_]+")
_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
RARE = 0.65  # rarity of a word from which it can be the subject
LONGEST_ABBREVIATION = 6  # letters
TELLING = 0.6  # rarity of a word without which hits are hardly an answer


def elsewhere(question: str, hits: Sequence[Hit], rows: Sequence[EvidenceSentence]) -> Vectors:
    """Return which sentences stand in snippets without the question's subject, 1 or 0, (sentences,).

    The subject is the rarest word of the question that any of the snippets holds; where they hold none that is rare,
    all speak of it.
    """
    asked = sorted({stem for stem in stems(question) if rarity(stem) >= RARE}, key=lambda stem: (-rarity(stem), stem))
    held = [set(stems(hit.snippet.contents)) for hit in hits]
    subject = next((stem for stem in asked if any(stem in words for words in held)), None)
    lacking = [subject is not None and subject not in words for words in held]
    return np.array([lacking[row.n - 1] for row in rows], np.float32)


def lacking(question: str, hits: Sequence[Hit]) -> list[str]:
    """Return the telling words of a question that none of the hits holds, the rarest first, as they are written.

    A short word is held by words in sequence of which it has the initials, "ACE" by "angiotensin-converting enzyme",
    a long one by its parts, "heatshock" by "heat shock". Adverbs tell nothing.
    """
    texts = [hit.snippet.contents.lower() for hit in hits]
    joined = " ".join("".join(_PART.findall(text)) for text in texts)
    initials = " ".join("".join(word[0] for word in _PART.findall(text)) for text in texts)
    held = {stem for hit in hits for stem in stems(hit.snippet.contents)}
    missed = {
        match[0]: max(rarity(stem) for stem in own)
        for match in _WORD.finditer(question)
        if (own := [stem for stem in stems(match[0]) if stem not in general()])
        and held.isdisjoint(own)
        and not match[0].endswith("ly")
        and match[0].lower() not in (initials if len(match[0]) <= LONGEST_ABBREVIATION else joined)
    }
    return sorted((word for word, rare in missed.items() if rare >= TELLING), key=lambda word: -missed[word])
