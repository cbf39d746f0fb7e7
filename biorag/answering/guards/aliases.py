"""Several words for one name: what a text abbreviates, and countries and the like by all their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache

from biorag.answering.guards.lexicon import lexicon
from biorag.answering.guards.words import Word, WordKind, words
from biorag.utils.abbreviations import abbreviations

SHORTEST_INITIALS = 3  # letters of an abbreviation that need not be defined beside the words that begin with them
Phrase = tuple[str, ...]
Aliases = tuple[tuple[Phrase, str], ...]  # the keys of some words, and the key that stands for them; the longest first


@lru_cache(maxsize=1 << 12)
def aliases_for(claim: str, text: str) -> Aliases:
    """Return the aliases for comparing a claim with a text: abbreviations that either defines, and that both have.

    Where the claim has both forms side by side, their words are compared. An abbreviation of one text that is the
    initials of neighbouring words of the other counts as defined.
    """
    ours = words(claim)
    defined = dict(abbreviations(claim)) | dict(abbreviations(text))
    if not defined and not any(map(_is_initials, ours)):
        return ()
    theirs = words(text)
    pairs: dict[Phrase, str] = {}
    for short, long in defined.items():
        key, phrase = " ".join(word.key for word in words(short)), _phrase(long)
        if (
            len(phrase) > 1
            and _has(theirs, key, phrase)
            and _has(ours, key, phrase)
            and not _defines(ours, key, phrase)
        ):
            pairs.setdefault(phrase, key)
    for word in ours:
        if _is_initials(word) and word.key not in pairs.values() and (phrase := _spelt_out(word, theirs)):
            pairs.setdefault(phrase, word.key)
    return tuple(sorted(pairs.items(), key=lambda pair: -len(pair[0])))


def merged(tokens: Sequence[Word], aliases: Aliases) -> list[Word]:
    """Return the words of a text with one for each name of several; "angioedema (HAE)" is one."""
    table = _by_first(aliases)
    keys = [word.key for word in tokens]
    result: list[Word] = []
    position = 0
    while position < len(tokens):
        phrases = table.get(keys[position], ())
        length, key = next(
            ((len(phrase), key) for phrase, key in phrases if tuple(keys[position : position + len(phrase)]) == phrase),
            (1, ""),
        )
        word = tokens[position]
        if key:
            text = " ".join(part.text for part in tokens[position : position + length])
            word = replace(word, text=text, end=tokens[position + length - 1].end, key=key, kind=WordKind.NAME)
        if _repeats(word, result):
            position += length + (keys[position + length : position + length + 1] == [")"])
            result.pop()
            continue
        result.append(word)
        position += length
    return result


@lru_cache(maxsize=1 << 10)
def _by_first(aliases: Aliases) -> Mapping[str, Aliases]:
    """Return the aliases and the names of the package by their first key."""
    table: dict[str, Aliases] = {}
    for phrase, key in aliases + _names():
        table[phrase[0]] = (*table.get(phrase[0], ()), (phrase, key))
    return table


def _repeats(word: Word, before: Sequence[Word]) -> bool:
    """Whether a name stands in brackets after itself."""
    return len(before) > 1 and before[-1].text == "(" and before[-2].key == word.key and word.kind is WordKind.NAME


@cache
def _names() -> Aliases:
    forms = lexicon().names
    pairs = ((_phrase(form), words(name)[0].key) for name, all_forms in forms.items() for form in all_forms)
    return tuple(sorted(pairs, key=lambda pair: -len(pair[0])))


def _phrase(text: str) -> Phrase:
    return tuple(word.key for word in words(text))


def _has(text: Sequence[Word], key: str, phrase: Phrase) -> bool:
    keys = [word.key for word in text]
    return key in keys or any(tuple(keys[n : n + len(phrase)]) == phrase for n in range(len(keys)))


def _defines(text: Sequence[Word], key: str, phrase: Phrase) -> bool:
    """Whether one form stands in brackets after another: whether it is the right one, word by word comparison tells."""
    keys = ["(", *(word.key for word in text)]
    starts = [n for n in range(1, len(keys)) if tuple(keys[n : n + len(phrase)]) == phrase]
    return any(keys[n - 1] == "(" for n in range(2, len(keys)) if keys[n] == key) or any(
        keys[n + len(phrase) : n + len(phrase) + 1] == ["("] for n in starts
    )


def _is_initials(word: Word) -> bool:
    return (
        word.kind is WordKind.NAME
        and len(word.text) >= SHORTEST_INITIALS
        and word.text.isalpha()
        and word.text.isupper()
    )


def _spelt_out(word: Word, text: Sequence[Word]) -> Phrase:
    """Return the first neighbouring words of a text whose initials make an abbreviation; none if it has that itself."""
    initials = "".join(other.text[0].lower() for other in text)
    position = initials.find(word.text.lower())
    if position < 0 or any(other.key == word.key for other in text):
        return ()
    return tuple(other.key for other in text[position : position + len(word.text)])
