"""Text that can be written: as UTF-8, on one line, and to a terminal without controlling it or telling a secret."""

from __future__ import annotations

import json
import re

from biorag.utils.secrets import redacted, redacted_data

# C0 and C1 control characters, some of which begin terminal commands, and line separators.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# Those but for tab and line feed, and what else a terminal may act on: marks that reorder text, invisible tags, and
# half surrogate pairs, which cannot be written at all.
UNSHOWABLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)

_BYTE = re.compile("[\udc80-\udcff]")  # what Python makes of the bytes of names that are not UTF-8


def is_whole(text: str) -> bool:
    """Return whether the text can be written as UTF-8: JSON escapes can spell half a surrogate pair, which cannot."""
    return text == whole(text)


def whole(text: str) -> str:
    """Return the text with every half surrogate pair replaced by a question mark."""
    return text.encode("utf-8", "replace").decode()


def has_control(text: str) -> bool:
    """Return whether the text holds a control character, a line's end included."""
    return _CONTROL.search(text) is not None


def escaped(text: str) -> str:
    r"""Return the text as UTF-8 can write it: a byte of a name that is not UTF-8 as `\xff`, other halves as `?`."""
    return whole(_BYTE.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", text))


def showable(text: str) -> str:
    """Return text that a terminal only shows, without secrets: whatever it could act on becomes a visible mark."""
    return UNSHOWABLE.sub("\N{REPLACEMENT CHARACTER}", escaped(redacted(text)))


def showable_json(text: str) -> str:
    """Return JSON that a terminal only shows, without secrets: whatever it could act on is escaped."""
    return UNSHOWABLE.sub(lambda found: json.dumps(found[0])[1:-1], redacted_data(text))
