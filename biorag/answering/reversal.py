"""A statement turned round, direction or negation, so that a search sees the other side's words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from biorag.utils.parsing import packaged_toml

LONGEST = 4000  # characters of a statement that are turned round
LISTS = packaged_toml(__file__, "reversal.toml")
_AUXILIARY = re.compile(
    r"\b(?:is|are|was|were|has been|have been|can|may|could|might|will|would|should|must|does|do|did|"
    r"(?:has|have|had)(?= \w+(?:ed|en)\b))\b(?! not\b)"
)
_DENIALS: list[tuple[re.Pattern[str], str]] = [
    (re.compile(pattern, re.IGNORECASE), plain) for pattern, plain in LISTS["denials"]["dropped"]
]


def any_of(words: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern of whole words or phrases, the longest first."""
    longest_first = sorted(map(re.escape, words), key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(longest_first)})(?![\w-])", re.IGNORECASE)


def exclusive(groups: Iterable[str]) -> dict[str, list[str]]:
    """Return the words that exclude each word: the others of its groups."""
    others: dict[str, list[str]] = {}
    for words in map(str.split, groups):
        for word in words:
            others.setdefault(word, []).extend(other for other in words if other != word)
    return others


def replaced(text: str, words: Mapping[str, str]) -> str:
    """Return a text with whole words exchanged at once; a capital stays one."""
    if not words:
        return text
    exchanges = {old.lower(): (old, new) for old, new in words.items()}

    def exchanged(match: re.Match[str]) -> str:
        old, new = exchanges[match[0].lower()]
        return new[0].upper() + new[1:] if match[0][0].isupper() and old[0].islower() else new

    return any_of(words).sub(exchanged, text)


_RANKS = [exclusive(LISTS["opposites"][rank]) for rank in ("verbs", "comparatives", "predicates")]
_TURNED = [(any_of(words), words) for words in _RANKS]
_DENIED = [
    (any_of(LISTS["denied"]), LISTS["denied"], ("does not", "fails to")),
    (any_of(LISTS["denied_past"]), LISTS["denied_past"], ("did not", "failed to")),
    (any_of(LISTS["denied_plural"]["words"]), {}, ("do not", "fail to")),
]


def reversed_claim(claim: str) -> str | None:
    """Return a claim turned round: without its denial, else in the other direction, else denied; None if it has none.

    "A does not reduce B" is "A does reduce B"; "A reduces B", "A increases B"; "A causes B", "A does not cause B".
    """
    claim = claim[:LONGEST]
    return undenied(claim) or _other_direction(claim) or denied(claim)


def undenied(sentence: str) -> str | None:
    """Return a sentence without its first denial; None if it has none that can be dropped."""
    for pattern, plain in _DENIALS:
        if (changed := pattern.sub(plain, sentence, count=1)) != sentence:
            return changed[0].upper() + changed[1:] if sentence[0].isupper() and changed else changed
    return None


def denied(sentence: str, adverb: str = "not", form: int = 0) -> str | None:
    """Return a sentence with its first auxiliary denied, else the first of its verbs that are listed; None without one.

    `adverb` follows an auxiliary; `form` 0 is "does not", 1 "fails to".
    """
    if match := _AUXILIARY.search(sentence):
        first, _, rest = match[0].partition(" ")
        changed = f"{first} {adverb} {rest}".rstrip()
        return sentence[: match.start()] + changed + sentence[match.end() :]
    for pattern, bases, auxiliaries in _DENIED:
        for match in pattern.finditer(sentence, 1):
            if match[0].islower() and not sentence[: match.start()].endswith("to "):
                changed = f"{auxiliaries[form]} {bases.get(match[0], match[0])}"
                return sentence[: match.start()] + changed + sentence[match.end() :]
    return None


def _other_direction(claim: str) -> str | None:
    """Return a claim with its first word of the first kind that has an opposite exchanged for that."""
    for pattern, words in _TURNED:
        if match := pattern.search(claim):
            other = replaced(match[0], {match[0].lower(): words[match[0].lower()][0]})
            return claim[: match.start()] + other + claim[match.end() :]
    return None
