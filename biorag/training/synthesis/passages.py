"""What a generated passage must be to serve as a negative: whole, long enough, and no copy."""

from __future__ import annotations

from collections.abc import Iterable

from biorag.training.rows import normalised

LEAST_WORDS = 8
NEAR = 0.9  # Jaccard index of the words above which two passages are near-copies


def passage_fault(passage: str, capped: bool, others: Iterable[str]) -> str | None:
    """Return the name of the count of what is wrong with a passage; None if nothing is.

    Parameters
    ----------
    others : texts that it must not be part of, nor hold if they are long enough, nor share nearly all its words with
    """
    words = normalised(passage)
    if not words:
        return "empty"
    if capped:
        return "cut"
    if len(words.split()) < LEAST_WORDS:
        return "short"
    compared = [normalised(other) for other in others]
    if any(holds(other, words) or (len(other.split()) >= LEAST_WORDS and holds(words, other)) for other in compared):
        return "copied"
    return "near_copies" if any(jaccard(words, other) > NEAR for other in compared) else None


def holds(text: str, part: str) -> bool:
    """Return whether a normalised text has another's words in a row."""
    return f" {part} " in f" {text} "


def jaccard(one: str, other: str) -> float:
    """Return the share of two normalised texts' distinct words that both have; 0 for two empty ones."""
    first, second = set(one.split()), set(other.split())
    return len(first & second) / len(first | second) if first or second else 0.0


def on_one_line(text: str) -> str:
    """Return a text with one space for all white space."""
    return " ".join(text.split())
