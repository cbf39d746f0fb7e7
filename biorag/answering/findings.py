"""What a study's sentence states of its finding, in its own words: the effect, and how many people took part."""

from __future__ import annotations

import re

from biorag.references.facts import Participants, number_of, participants

LONGEST = 4000  # characters of a sentence that are read
_NUMBER = r"[-−–+]?\d{1,6}(?:[.·,]\d{1,6})?\s?%?"
_SHARE = r"\d{1,3}(?:\.\d{1,3})?\s?%"
_P = r"[pP]\s?(?:-?\s?values?\s?)?[<=>≤≥]\s?0?[.·]\d{1,8}"
_GAP = r"[\s,;:=()\[\]]{0,5}"
_INTERVAL = (
    rf"(?:{_GAP}9[059]\s?%\s?(?:CI|C\.I\.|(?i:confidence intervals?|credible intervals?|CrI))s?{_GAP}(?:CI)?{_GAP}"
    rf"{_NUMBER}\s?(?:to|and|[-–—−,;])\s?{_NUMBER})"
)
_MEASURE = (
    r"(?<![A-Za-z])(?:(?i:(?:adjusted|pooled|summary|crude)\s)?(?i:(?:odds|hazards?|risk|rate|prevalence) ratios?"
    r"|relative risks?|(?:weighted\s|standardi[sz]ed\s)?mean differences?|risk differences?|(?:absolute|relative) risk "
    r"reductions?|number needed to (?:treat|harm))|a?(?:OR|HR|RR|IRR|MD|WMD|SMD|RD|ARR|NNT))s?\b"
)
_EFFECTS = [
    re.compile(pattern)
    for pattern in (
        rf"{_MEASURE}{_GAP}(?:[A-Za-z]{{2,5}}{_GAP})?(?:(?:of|was|were|is){_GAP})?{_NUMBER}{_INTERVAL}?(?:{_GAP}{_P})?",
        rf"(?<![\w.]){_NUMBER}{_INTERVAL}(?:{_GAP}{_P})?",
        rf"(?<![\w.]){_SHARE}\s(?:vs\.?|versus|compared (?:with|to)|and)\s{_SHARE}"
        rf"(?:{_GAP}{_P})?",
        rf"\b{_P}",
    )
]
_SIZE = re.compile(r"\b[nN]\s?=\s?(\d{1,3}(?:,\d{3}){1,3}|\d{1,9})\b")


def effect_of(sentence: str) -> str | None:
    """Return the measure that a sentence states first, with its interval and p-value; else a share or a p-value."""
    match = next(filter(None, (pattern.search(sentence[:LONGEST]) for pattern in _EFFECTS)), None)
    return match[0].strip() if match else None


def sample_size(sentence: str, abstract: str) -> Participants | None:
    """Return the number of participants as an abstract states it, else the deciding sentence's "n = 52"."""
    if stated := participants(abstract):
        return stated
    sizes = _SIZE.findall(sentence[:LONGEST])
    if len(sizes) != 1:  # one of two is not the number of participants
        return None
    match = _SIZE.search(sentence)
    return Participants(number_of(sizes[0]), match[0]) if match else None
