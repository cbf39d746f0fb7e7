"""Verification of citations: a quote must be in its snippet, a claim must share the words of one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from biorag.corpus.sentences import sentences, terms
from biorag.prompts.parse import CitedNumber
from biorag.types import Citation, Hit

LEAST_SUPPORT = 0.5
SHORTEST_QUOTE = 3


def find_quote(quote: str, text: str) -> str | None:
    """Return the part of `text` that `quote` repeats, up to case and white space; None if there is none."""
    words = quote.split()
    if not words:
        return None
    match = re.search(r"\s+".join(map(re.escape, words)), text, re.IGNORECASE)
    return match[0] if match else None


def support(sentence: str, text: str, question: str = "") -> float:
    """Return the share of a sentence's content words that stand in `text`.

    Words of the question are left out, since repeating it is no evidence, unless the sentence has no others.
    """
    claimed = terms(sentence) - terms(question) or terms(sentence)
    return len(claimed & terms(text)) / len(claimed) if claimed else 0.0


def verify_citations(
    cited: Sequence[CitedNumber], hits: Sequence[Hit], question: str, answer: str
) -> tuple[tuple[Citation, ...], tuple[str, ...]]:
    """Check each citation against the documents that were supplied.

    It must name one of `hits` (numbered from 1). A quote of three words or more must be in that
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
            fault = "its quote is not in" if item.quote else "the answer is not supported by"
            dropped.append(f"citation [{item.n}] was dropped: {fault} snippet {hit.snippet.id}")
            continue
        snippet = hit.snippet
        kept.append(Citation(item.n, snippet.id, snippet.pmid, snippet.title, quote, hit.score, snippet.retracted))
    return tuple(kept), tuple(dropped)


def _supported_quote(item: CitedNumber, hit: Hit, question: str, answer: str) -> str | None:
    text = hit.snippet.contents
    if len(item.quote.split()) >= SHORTEST_QUOTE:
        return find_quote(item.quote, text)
    best = max((support(sentence, text, question) for sentence in sentences(answer)), default=0.0)
    if best < LEAST_SUPPORT:
        return None
    question_terms, answer_terms = terms(question), terms(answer)
    # The answer's words decide which sentence is quoted; the question's break ties.
    return max(
        sentences(text),
        key=lambda sentence: (len((words := terms(sentence)) & answer_terms), len(words & question_terms)),
    )
