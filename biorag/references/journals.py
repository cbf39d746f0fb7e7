"""Names of journals, which references abbreviate."""

from __future__ import annotations

import re
from collections.abc import Sequence
from unicodedata import normalize

_OF_NAMES = frozenset(("volume", "edition", "ed", "series", "section", "online", "print", "international", "journal"))
SMALL_WORDS = frozenset(("the", "of", "and", "in", "for", "on", "to", "de", "la", "et", "der", "und"))


def same_journal(own: str, other: str) -> bool:
    """Return whether two names may be of one journal: alike, or one an abbreviation of the other.

    A name may be stated without its subtitle, or in one of its languages.
    """
    pairs = [(one, two) for one in _journal_names(own) for two in _journal_names(other)]
    return not pairs or any(_abbreviates(one, two) or _abbreviates(two, one) for one, two in pairs)


def _journal_names(name: str) -> list[list[str]]:
    """Return the words of a journal's name: all, without a subtitle, and in each of its languages."""
    plain = normalize(
        "NFKD", re.sub(r"\([^()]*\)|[.,]?\s*\b(?:published|epub|available) online\b.*", " ", name, flags=re.I)
    )
    plain = re.sub(r"(?<=\s)[A-Z]{2,4}\Z", lambda match: " ".join(match[0]), plain.rstrip(" ."))  # "… Sci USA"
    forms = dict.fromkeys([plain, *re.split(r"\s=\s", plain), re.split(r":|-(?=the\s)", plain, flags=re.IGNORECASE)[0]])
    words = (re.findall(r"[^\W_]+", form.lower().replace("&", " ")) for form in forms)
    return [found for found in words if found]


def _abbreviates(short: Sequence[str], long: Sequence[str]) -> bool:
    """Return whether the words of one name begin as those of the other, but for small ones and a last "volume"."""
    if "".join(short) == "".join(long) or (len(short) == 1 and _is_acronym(short[0], long)):
        return True
    position = 0
    for word in short:
        while position < len(long) and not (_shortens(word, long[position]) or _shortens(long[position], word)):
            if not _is_small(long[position]):
                return False
            position += 1
        if position == len(long):
            return False
        position += 1
    return all(_is_small(word) or word in _OF_NAMES for word in long[position:])


def _is_small(word: str) -> bool:
    return word in SMALL_WORDS or len(word) < 3


def _shortens(word: str, other: str) -> bool:
    letters = iter(other)
    return word[0] == other[0] and all(letter in letters for letter in word)


def _is_acronym(word: str, words: Sequence[str]) -> bool:
    return len(word) > 2 and "".join(one[0] for one in words if not _is_small(one)).startswith(word)
