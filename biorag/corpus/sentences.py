"""Words and sentences of a passage: where each begins, and which shares most words with another text."""

from __future__ import annotations

import itertools
import re

_SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!\bvs\.)(?<!\bal\.)(?<!\bFig\.)(?<!\bcf\.)(?<!\be\.g\.)(?<!\bi\.e\.)"
    r"(?<!\bDr\.)(?<!\bProf\.)(?<!\bSt\.)(?<!\bU\.S\.)(?<!\bU\.K\.)"
    r"[\"')\]]*(?:\[\d[\d,; –-]{0,60}\])?\s+(?=[\"'(\[]?[A-Z0-9])"  # a paper's own mark may follow the stop
    r"(?!(?<!\d{3}\d\. )(?<=\d\. )\d)"  # "0. 5 percent", a number with a space in it; "In 2010. 52 died" is none
    r"(?!(?<=\b[Nn]o\. )[A-Z]{0,8}\d)"  # "ClinicalTrials.gov, No. NCT0123"
    r"|(?<=[a-z0-9)\]][.!?])(?=[A-Z][A-Za-z]+(?: (?:and |AND )?[A-Z][A-Za-z]+){0,3}: )"  # "… of cancer.FUNDING: None."
    r"|(?<=[a-z]{3}[.!?])(?=[A-Z][a-z]{3,} [a-z])"  # "… by this technique.Loneliness was …"
    r"|\s*\n\s*(?:\n\s*|(?=[-*•] ))"  # a paragraph or an item of a list ends
)
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
LONGEST = 4000  # characters of a sentence; the longest of 245,000 in PubMed has 1,608
_PIECE = re.compile(rf"\S.{{0,{LONGEST - 1}}}(?!\S)|\S.{{0,{LONGEST - 1}}}", re.DOTALL)
_LINE_END = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
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
    """Split a passage into sentences; each stands in the passage as it is. One longer than `LONGEST` is cut."""
    whole = (sentence for sentence in _SENTENCE_END.split(text.strip()) if sentence)
    return [piece.rstrip() for sentence in whole for piece in _PIECE.findall(sentence)]


def sentence_starts(text: str) -> list[int]:
    """Return the positions where the second and the later sentences of a passage begin."""
    gaps = [gap.end() for gap in _SENTENCE_END.finditer(text)]
    spans = list(itertools.pairwise([0, *gaps, len(text)]))
    if all(end - start <= LONGEST for start, end in spans):
        return gaps
    pieces = (piece.start() for span in spans for piece in _PIECE.finditer(text, *span))
    return sorted({*gaps, *itertools.islice(pieces, 1, None)})


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return the spans (start, end) of a passage's sentences, without the white space around them; none is empty."""
    starts = [0, *sentence_starts(text), len(text)]
    spans = [
        (end - len(text[start:end].lstrip()), start + len(text[start:end].rstrip()))
        for start, end in itertools.pairwise(starts)
    ]
    return [(start, end) for start, end in spans if start < end]


def first_sentences(text: str, most: int) -> str:
    """Return the first `most` sentences of a text; the end of a line ends one too."""
    ends = sorted({*sentence_starts(text), *(end.end() for end in _LINE_END.finditer(text))})
    return text[: ends[most - 1]].rstrip() if len(ends) >= most else text


def best_sentence(text: str, target: set[str]) -> str:
    """Return the sentence of `text` that shares most words with `target`; the first of equals."""
    return max(sentences(text) or [""], key=lambda sentence: len(terms(sentence) & target))


def matches(text: str, target: set[str]) -> list[tuple[int, int]]:
    """Return the spans (start, end) of the words of `text` that are in `target`, for highlighting."""
    words = _WORD.finditer(text)
    return [word.span() for word in words if word[0].lower() not in STOP_WORDS and _stem(word[0].lower()) in target]
