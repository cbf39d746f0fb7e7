"""Verification of citations: a quote must stand in its snippet, a claim must share the words of one."""

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
