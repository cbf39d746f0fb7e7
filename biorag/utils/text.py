"""Text that can be written: as UTF-8, on one line, to a terminal, without secrets; and text that is compared."""

from __future__ import annotations

import json
import re
import unicodedata
from functools import lru_cache

from biorag.utils.secrets import DATA, redacted

# C0 and C1 control characters, some of which begin terminal commands, and line separators.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# Those but for tab and line feed, and what else a terminal may act on: marks that reorder text, invisible tags, and
# half surrogate pairs, which cannot be written at all.
UNSHOWABLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)
# Characters without a width: soft hyphens, joiners, marks of direction, variation selectors, tags.
INVISIBLE = re.compile(
    r"[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    r"\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_HYPHEN = re.compile("[\u2010\u2011]")
# Raised figures, fractions and figures in circles: NFKC would join them to the number before, and make 10⁹ 109.
_FIGURES = (
    "\u00b2\u00b3\u00b9\u00bc-\u00be\u2070\u2074-\u2079\u2150-\u215f\u2189\u2460-\u249b\u24ea-\u24ff\u2776-\u2793"
)
_OTHERS = re.compile(f"[^{_FIGURES}]+")

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


def escaped(text: str, backslash: str = "\\") -> str:
    r"""Return the text as UTF-8 can write it: a byte of a name that is not UTF-8 as `\xff`, other halves as `?`."""
    return whole(_with_bytes(text, backslash))


def _with_bytes(text: str, backslash: str = "\\") -> str:
    return _BYTE.sub(lambda match: f"{backslash}x{ord(match[0]) - 0xDC00:02x}", text)


def showable(text: str) -> str:
    """Return text that a terminal only shows, without secrets: whatever it could act on becomes a visible mark."""
    return UNSHOWABLE.sub("\N{REPLACEMENT CHARACTER}", _with_bytes(redacted(text)))


def showable_json(text: str) -> str:
    """Return JSON that a terminal only shows, without secrets: whatever it could act on is escaped."""
    return UNSHOWABLE.sub(lambda match: json.dumps(match[0])[1:-1], redacted(text, DATA))


def cut(text: str, most: int) -> str:
    """Return a text, or so many of its characters and an ellipsis."""
    return text if len(text) <= most else f"{text[:most]}…"


@lru_cache(4096)
def squeezed(text: str) -> str:
    """Return a text's letters and digits, in small letters without accents, by which titles and names are compared."""
    plain = unicodedata.normalize("NFKD", text.replace("ß", "ss").replace("ø", "o").replace("Ø", "o"))
    return re.sub(r"[\W_]", "", plain.lower())


def plain_form(text: str) -> str:
    """Return text in NFKC, without characters of no width; raised figures and the like, and case, stay.

    "Sjögren" is the same composed or not, `µg` with either mu, "IL-6" with any hyphen; so are "ﬀ" and "ff".
    """
    if text.isascii():
        return text
    visible = _HYPHEN.sub("-", INVISIBLE.sub("", text))
    return _OTHERS.sub(lambda others: unicodedata.normalize("NFKC", others[0]), visible)


BLANK = "\N{BRAILLE PATTERN BLANK}\N{MUSICAL SYMBOL NULL NOTEHEAD}"  # which count as printable


def first_visible(text: str) -> str:
    """Return the first character of a text's plain form that one sees; empty for a blank text."""
    return next((mark for mark in plain_form(text) if mark.isprintable() and not (mark.isspace() or mark in BLANK)), "")


def comparable(text: str) -> str:
    """Return text as it is compared: its plain form, case-folded; "ＣＲＰ" is "crp"."""
    return text.lower() if text.isascii() else plain_form(plain_form(text).casefold())
