"""Words, sentences and quotes: which sentence of a snippet speaks to a text, and whether a quote is real."""

from __future__ import annotations

import re
from collections.abc import Sequence

from biorag.prompts.parse import CitedNumber
from biorag.types import Citation, Hit

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]?[A-Z0-9])")
_WORD = re.compile(r"[^\W_]+(?:[-'][^\W_]+)*")
STOP_WORDS = frozenset(
    [
        "a",
        "about",
        "also",
        "an",
        "and",
        "any",
        "are",
        "as",
        "at",
        "be",
        "been",
        "before",
        "being",
        "between",
        "both",
        "but",
        "by",
        "can",
        "could",
        "did",
        "do",
        "does",
        "during",
        "each",
        "for",
        "from",
        "had",
        "has",
        "have",
        "how",
        "if",
        "in",
        "into",
        "is",
        "it",
        "its",
        "may",
        "might",
        "more",
        "most",
        "no",
        "not",
        "of",
        "on",
        "only",
        "or",
        "other",
        "our",
        "over",
        "should",
        "so",
        "some",
        "such",
        "than",
        "that",
        "the",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "this",
        "those",
        "through",
        "to",
        "under",
        "up",
        "used",
        "using",
        "was",
        "we",
        "were",
        "what",
        "when",
        "where",
        "which",
        "while",
        "who",
        "whose",
        "why",
        "will",
        "with",
        "within",
        "without",
        "would",
        "you",
        "your",
        "patient",
        "patients",
        "study",
    ]
)
ENDINGS = ("ies", "es", "s", "ing", "ed")
SHORTEST_STEM = 4
LEAST_SUPPORT = 0.5
SHORTEST_QUOTE = 3


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
    """Return the places where the second and the later sentences of a passage begin."""
    return [gap.end() for gap in _SENTENCE_END.finditer(text)]


def best_sentence(text: str, target: set[str]) -> str:
    """Return the sentence of `text` that shares most words with `target`; the first of equals."""
    return max(sentences(text) or [""], key=lambda sentence: len(terms(sentence) & target))


def matches(text: str, target: set[str]) -> list[tuple[int, int]]:
    """Return the spans (start, end) of the words of `text` that are in `target`, for highlighting."""
    words = _WORD.finditer(text)
    return [word.span() for word in words if word[0].lower() not in STOP_WORDS and _stem(word[0].lower()) in target]


def find_quote(quote: str, text: str) -> str | None:
    """Return the part of `text` that `quote` repeats, up to case and white space; None if there is none."""
    words = quote.split()
    if not words:
        return None
    found = re.search(r"\s+".join(map(re.escape, words)), text, re.IGNORECASE)
    return found[0] if found else None


def support(sentence: str, text: str, question: str = "") -> float:
    """Return the share of a sentence's content words that stand in `text`.

    Words of the question are left out, since repeating it is no evidence, unless nothing else is left.
    """
    claimed = terms(sentence) - terms(question) or terms(sentence)
    return len(claimed & terms(text)) / len(claimed) if claimed else 0.0


def verify_citations(
    cited: Sequence[CitedNumber], hits: Sequence[Hit], question: str, answer: str
) -> tuple[tuple[Citation, ...], tuple[str, ...]]:
    """Check each citation against the documents that were supplied.

    It must name one of `hits` (numbered from 1). A quote of three words or more must stand in that
    snippet. Without one, at least half of the content words of some sentence of the answer must, and the
    citation is given the snippet's sentence nearest to the answer.

    Returns
    -------
    The citations that hold, and one sentence for each that was dropped.
    """
    kept: list[Citation] = []
    dropped: list[str] = []
    for item in cited:
        if not 1 <= item.n <= len(hits):
            dropped.append(f"citation [{item.n}] was dropped: there is no document of that number")
            continue
        hit = hits[item.n - 1]
        quote = _supported_quote(item, hit, question, answer)
        if quote is None:
            fault = "its quote does not stand in" if item.quote else "the answer is not borne out by"
            dropped.append(f"citation [{item.n}] was dropped: {fault} snippet {hit.snippet.id}")
            continue
        found = hit.snippet
        kept.append(Citation(item.n, found.id, found.pmid, found.title, quote, hit.score, found.retracted))
    return tuple(kept), tuple(dropped)


def _supported_quote(item: CitedNumber, hit: Hit, question: str, answer: str) -> str | None:
    text = hit.snippet.contents
    if len(item.quote.split()) >= SHORTEST_QUOTE:
        return find_quote(item.quote, text)
    best = max((support(sentence, text, question) for sentence in sentences(answer)), default=0.0)
    if best < LEAST_SUPPORT:
        return None
    asked, said = terms(question), terms(answer)
    # The answer's words decide which sentence is quoted; the question's break ties.
    return max(sentences(text), key=lambda sentence: (len((words := terms(sentence)) & said), len(words & asked)))
