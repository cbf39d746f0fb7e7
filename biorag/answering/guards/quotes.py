"""Quotes: where one stands verbatim in a text, at the boundaries of words and numbers."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache

from biorag.utils.text import comparable

LONGEST = 4000  # characters of a quote
_WORD = r"[^\W_]"
_HYPHEN = "[-\N{HYPHEN}\N{NON-BREAKING HYPHEN}\N{EN DASH}]"
# Neither within a word or a compound ("IL-6", "non-effective") nor within a number ("2.5", "1,000", "-3").
_BEFORE = rf"(?<!{_WORD})(?<!{_WORD}{_HYPHEN})(?<!\d[.,·])"
_BEGIN = re.compile(rf"{_BEFORE}\S")
_END = re.compile(rf"(?!{_WORD})(?!{_HYPHEN}{_WORD})(?![.,·]\d)")


def find_quote(quote: str, text: str) -> tuple[int, int] | None:
    """Return where `text` has the quote, up to case, white space and spelling; None where it does not have it.

    What spelling is, `comparable` says. A quote stands in one place: what an ellipsis joins is not found, and neither
    is what begins or ends within a word or a number. Marks of quotation around it and a full stop at its end are left
    out.
    """
    bare = quote.strip().strip("\"'“”‘’«»").strip().rstrip(".")
    wanted = _plain(bare) if len(bare) <= LONGEST else ""
    plain = _plain_text(text)
    start = plain.find(wanted) if wanted else -1
    while start >= 0:
        if _BEGIN.match(plain, start) and _END.match(plain, start + len(wanted)):
            return _span(text, start, start + len(wanted))
        begin = _BEGIN.search(plain, start + 1)
        start = plain.find(wanted, begin.start()) if begin else -1
    return None


def _plain(text: str) -> str:
    return " ".join(comparable(text).split())


_plain_text = lru_cache(maxsize=1 << 7)(_plain)  # a snippet is searched for several quotes


def _span(text: str, start: int, end: int) -> tuple[int, int]:
    """Return where in a text a part of its plain form stands."""
    begin, position = 0, 0
    for word in re.finditer(r"\S+", text):
        length = len(_plain(word[0]))
        if position <= start < position + length:
            begin = word.start() + _offset(word[0], start - position)
        if end <= position + length:
            return begin, word.start() + _offset(word[0], end - position)
        position += length + (length > 0)
    return begin, len(text)


def _offset(word: str, plain: int) -> int:
    """Return how many characters of a word make so many of its plain form, with what is written over the last one."""
    if word.isascii():
        return plain
    return bisect_right(range(len(word) + 1), plain, key=lambda length: len(_plain(word[:length]))) - 1
