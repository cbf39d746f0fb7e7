"""Text that can be written as UTF-8: JSON escapes can spell half a surrogate pair, which cannot."""

from __future__ import annotations


def is_whole(text: str) -> bool:
    """Return whether the text can be written as UTF-8."""
    return text == whole(text)


def whole(text: str) -> str:
    """Return the text with every half surrogate pair replaced by a question mark."""
    return text.encode("utf-8", "replace").decode()
