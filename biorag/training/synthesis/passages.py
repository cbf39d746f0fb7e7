"""What a generated passage must be to serve as a negative: complete, long enough, and not a copy."""

from __future__ import annotations

from collections.abc import Iterable

from biorag.training.contamination import jaccard
from biorag.training.rows import normalised

LEAST_WORDS = 8
NEAR = 0.9  # Jaccard index of the words above which two passages are near-copies


def passage_fault(passage: str, capped: bool, others: Iterable[str]) -> str | None:
    """Return the name of the count of a passage's fault; None if it has none.

    Parameters
    ----------
    others : texts that it must not be part of, nor contain if they are long enough, nor share nearly all words with
    """
    words = normalised(passage)
    if not words:
        return "empty"
    if capped:
        return "cut"
    if len(words.split()) < LEAST_WORDS:
        return "short"
    texts = [normalised(other) for other in others]
    if any(holds(other, words) or (len(other.split()) >= LEAST_WORDS and holds(words, other)) for other in texts):
        return "copied"
    return "near_copies" if any(word_overlap(words, other) > NEAR for other in texts) else None


def holds(text: str, part: str) -> bool:
    """Return whether a normalised text contains another's words in sequence."""
    return f" {part} " in f" {text} "


def word_overlap(text: str, other: str) -> float:
    """Return the Jaccard index of two normalised texts' words; 0 for two empty ones."""
    words, other_words = set(text.split()), set(other.split())
    return jaccard(words, other_words) if words or other_words else 0.0


def on_one_line(text: str) -> str:
    """Return a text with all white space as single spaces."""
    return " ".join(text.split())
