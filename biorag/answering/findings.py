"""What a study's sentence states of its finding, in its own words: the arms and the effect."""

from __future__ import annotations

import re
from dataclasses import dataclass

from biorag.references.facts import Participants, number_of, participants

LONGEST = 4000  # characters of a sentence that are read
WORDS = 6  # of an arm's name at most
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
_VERSUS = re.compile(r"\s(?:versus|vs\.?)\s", re.IGNORECASE)
_COMPARED = re.compile(
    r"\b(?:(?:as\s)?compared\s(?:with|to)|in\scomparison\s(?:with|to)|relative\sto|"
    r"(?<!more )(?<!less )(?<!rather )than\s(?:with|in|for|those\s(?:receiving|given|on)))\s",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r"\bbetween\s[^,.;()]{3,80}?\sand\s[^,.;()]{3,40}?\s(?:groups?|arms?)\b", re.IGNORECASE)
_WORD = re.compile(r"[^\s,.;:()\[\]]{1,60}")
_LINKED = frozenset(
    {("treated", "with"), ("those", "with"), ("those", "without"), ("patients", "with"), ("those", "in")}
)
_END = frozenset(  # words that no arm's name goes beyond
    _WORD.findall(
        """
    was were is are be been had has have in on at of for by to from with without during after before among between and
    but or than as that which who when while where because showed shows resulted did does do not no significantly
    received receiving randomized randomised p there reduced increased improved decreased led both the
        """
    )
)


@dataclass(frozen=True, slots=True)
class Findings:
    """What a sentence states of its finding, verbatim; None for what it does not state."""

    arms: str | None = None
    effect: str | None = None


def findings_of(sentence: str) -> Findings:
    """Return the arms that a sentence compares, and its effect with the interval."""
    text = sentence[:LONGEST]
    return Findings(_arms(text), _effect(text))


def sample_size(sentence: str, abstract: str) -> Participants | None:
    """Return the number of participants as an abstract states it, else the deciding sentence's "n = 52"."""
    if stated := participants(abstract):
        return stated
    sizes = _SIZE.findall(sentence[:LONGEST])
    if len(sizes) != 1:  # one of two is not the number of participants
        return None
    match = _SIZE.search(sentence)
    return Participants(number_of(sizes[0]), match[0]) if match else None


def _effect(text: str) -> str | None:
    """Return the measure that is stated first, with its interval and p-value; else a share or a p-value alone."""
    match = next(filter(None, (pattern.search(text) for pattern in _EFFECTS)), None)
    return match[0].strip() if match else None


def _arms(text: str) -> str | None:
    """Return "A versus B", "compared with B", "than with B" or "between the A and B groups"."""
    if match := _VERSUS.search(text):
        before, after = _words_before(text, match.start()), _words_after(text, match.end())
        if before < match.start() and after > match.end():
            return text[before:after]
    if match := _COMPARED.search(text):
        after = _words_after(text, match.end())
        return text[match.start() : after] if after > match.end() else None
    match = _BETWEEN.search(text)
    return match[0] if match else None


def _words_after(text: str, start: int) -> int:
    """Return where the name of an arm ends that begins at a position; the position itself where none does."""
    end, before = start, ""
    for number, word in enumerate(_WORD.finditer(text, start, start + WORDS * 60)):
        own = word[0].lower()
        ends = own in _END and not (number == 0 and own in ("the", "no")) and (before, own) not in _LINKED
        if number >= WORDS or text[end : word.start()].strip() or ends or not (number or own[0].isalpha()):
            break
        end, before = word.end(), own
    return end


def _words_before(text: str, end: int) -> int:
    """Return where the name of an arm begins that ends at a position; the position itself where none does."""
    start = end
    words = list(_WORD.finditer(text, max(0, end - 60 * WORDS), end))
    for word in reversed(words[-WORDS:]):
        if text[word.end() : start].strip() or word[0].lower() in _END:
            break
        start = word.start()
    return start if text[start].isalpha() else end
