"""Follow-up questions by rule: which question leaves out what it is about, and the words that it lacks; pure."""

from __future__ import annotations

import re

from biorag.corpus.sentences import matches, terms

LONGEST = 40  # words of a follow-up; what is longer says what it is about
SHORTEST = 3  # words of a question that is complete
MOST_CARRIED = 12  # words that a question takes over
_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
_OPENING = re.compile(r"(?:and|but|or|also|then|so|what about|how about|what of|what if)\b", re.IGNORECASE)
_REFERRING = re.compile(
    r"\b(?:it|its|itself|they|them|their|theirs|those|these|this|such|former|latter|same|instead|else|otherwise)\b"
    r"|\b(?:too|either|as well)\W*$",
    re.IGNORECASE,
)
# "that" refers where a verb or a preposition stands before it, or nothing; else it mostly begins a clause.
_THAT = re.compile(
    r"(?:^|\b(?:is|are|was|were|be|do|does|did|can|could|should|would|will|may|might|has|have|had|of|for|in|with|to|at"
    r"|on|by|from|about|after|before|during|without|than|like|and|or|why|how|when|where)\s+)that\b(?!\s+of\b)",
    re.IGNORECASE,
)
# "Is it true that metformin …" and "Is it safe to give aspirin …" say what they are about.
_EMPTY_IT = re.compile(r"\b(?:is|was|would|can|could|will)\s+it\s+(?:be\s+)?\w+\s+(?:that|to|for)\b", re.IGNORECASE)
ENOUGH_TERMS = 4  # content words by which such a question says it
_PREPOSITION = re.compile(
    r"(?:in|for|with|without|during|after|before|at|by|among|under|versus|vs|compared|than|if|when)\b", re.IGNORECASE
)
_DEFINITION = re.compile(r"(?:what|who)\s+(?:is|are|was|were|does|do|causes?)\b|define\b", re.IGNORECASE)


def is_follow_up(question: str) -> bool:
    """Return whether a question looks as if it left out what it is about."""
    text = question.strip()
    words = _WORD.findall(text)
    if not words or len(words) > LONGEST:
        return False
    if _OPENING.match(text) or _THAT.search(text):
        return True
    if _EMPTY_IT.search(text) and len(terms(text)) >= ENOUGH_TERMS:
        text = _EMPTY_IT.sub(" ", text)
    return bool(_REFERRING.search(text)) or _is_fragment(text, len(words))


def with_words_of(last: str, question: str) -> str:
    """Return a follow-up question with the content words of the last question that it lacks, in their order.

    `last` is the last question as it was searched, so that a subject stays from one follow-up to the next.
    """
    wanted = terms(last) - terms(question)
    carried: dict[str, str] = {}
    for start, end in matches(last, wanted):
        carried.setdefault(" ".join(sorted(terms(last[start:end]))), last[start:end])
    words = list(carried.values())[:MOST_CARRIED]
    return f"{question.strip()} ({' '.join(words)})" if words else question.strip()


def _is_fragment(text: str, count: int) -> bool:
    """Return whether a few words are no complete question: one word of content, or a phrase such as "in children"."""
    if count > SHORTEST + bool(_PREPOSITION.match(text)) or _DEFINITION.match(text):
        return False
    return len(terms(text)) <= 1 or bool(_PREPOSITION.match(text))
