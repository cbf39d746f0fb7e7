"""Quotes: where one stands verbatim in a text, at the boundaries of words and numbers."""

from __future__ import annotations

import re

_WORD = r"[^\W_]"
_HYPHEN = "[-\N{HYPHEN}\N{NON-BREAKING HYPHEN}\N{EN DASH}]"
# Neither within a word or a compound ("IL-6", "non-effective") nor within a number ("2.5", "1,000", "-3").
_BEFORE = rf"(?<!{_WORD})(?<!{_WORD}{_HYPHEN})(?<!\d[.,·])"
_AFTER = rf"(?!{_WORD})(?!{_HYPHEN}{_WORD})(?![.,·]\d)"


def find_quote(quote: str, text: str) -> tuple[int, int] | None:
    """Return where `text` has the quote, up to case and white space; None where it does not have it.

    A quote stands in one place: what an ellipsis joins is not found, and neither is what begins or ends within a word
    or a number. Marks of quotation around it and a full stop at its end are left out.
    """
    words = quote.strip().strip("\"'“”‘’«»").strip().rstrip(".").split()
    if not words:
        return None
    match = re.search(_BEFORE + r"\s+".join(map(re.escape, words)) + _AFTER, text, re.IGNORECASE)
    return match.span() if match else None
