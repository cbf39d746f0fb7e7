"""The subject of a question, and which sentences speak of another one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from biorag.answering.sentence_matching import EvidenceSentence
from biorag.answering.verification.cues import rarity
from biorag.answering.verification.words import stems
from biorag.types import Hit, Vectors

RARE = 0.65  # rarity of a word from which it can be the subject


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
