"""The secrets of a command: no log, message or report repeats one, in any spelling."""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from functools import partial
from html import escape
from urllib.parse import quote, quote_plus

# Characters of a secret that is taken out of messages, of data for programs, and of files. A shorter one would take
# words with it, or a name that is spelled alike, without which data are no use and an index is damaged.
MESSAGES, DATA, FILES = 4, 8, 16
PART_OF_WORDS = 8  # characters of letters alone that are taken out of the middle of words too
MARK = "…"
_PERCENT = re.compile(r"%[0-9A-F]{2}")

_spellings: dict[int, set[str]] = {shortest: set() for shortest in (MESSAGES, DATA, FILES)}
_patterns: dict[int, re.Pattern[str] | None] = dict.fromkeys(_spellings)


def remember(secret: str) -> None:
    """From now on keep a key, a token or a login (`user:password`) out of texts; a login's password too."""
    plain, coded = set(_plain(secret)), set(_coded(secret))
    for shortest, spellings in _spellings.items():
        new = {text for text in plain if len(text) >= shortest} | coded
        if not new <= spellings:
            spellings |= new
            longest_first = sorted(spellings, key=len, reverse=True)
            _patterns[shortest] = re.compile("|".join(map(_matched, longest_first)))


def _matched(text: str) -> str:
    pattern, may_be_word = re.escape(text), text.isalpha() or text.isdigit()
    return rf"(?<![^\W_]){pattern}(?![^\W_])" if may_be_word and len(text) < PART_OF_WORDS else pattern


def forget() -> None:
    """Forget all secrets: a command begins."""
    for shortest, spellings in _spellings.items():
        spellings.clear()
        _patterns[shortest] = None


def redacted(text: str, shortest: int = MESSAGES) -> str:
    """Return a text without secrets, but for plain ones of less than `shortest` characters."""
    pattern = _patterns[shortest]
    if pattern is None or not any(spelling in text for spelling in _spellings[shortest]):  # the search is slower
        return text
    return pattern.sub(MARK, text)


def _plain(secret: str) -> Iterator[str]:
    """Yield a secret, and the password of a login, as they are and as URLs, JSON, Python and HTML have them."""
    for text in {secret, secret.partition(":")[2]} - {""}:
        yield text
        yield from _quoted(text)
        for ascii_only in (True, False):
            inner = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
            yield from (inner, inner.replace("/", "\\/"))
        yield from (repr(text)[1:-1], repr(text.encode())[2:-1], escape(text))
    yield from _quoted(*secret.partition(":"))


def _coded(secret: str) -> Iterator[str]:
    """Yield a secret and a login's password reversed, in hex and in Base64; HTTP's Basic sends `user:password`."""
    for text in (secret, secret.partition(":")[2]):
        if len(text) >= MESSAGES:
            yield from (text[::-1], text.encode().hex(), text.encode().hex().upper())
            for whole in (text, f"{text}:", f":{text}"):
                yield from _base64(whole)


def _quoted(user: str, colon: str = "", password: str = "") -> Iterator[str]:
    """Yield a text, or a login whose colon is left, as URLs have it: with and without spaces as +, / as it is, hex."""
    for quoted in (quote, quote_plus, partial(quote, safe="")):
        text = f"{quoted(user)}{colon}{quoted(password)}"
        yield from (text, _PERCENT.sub(lambda match: match[0].lower(), text))


def _base64(text: str) -> Iterator[str]:
    """Yield a text in Base64, with and without its padding, and as URLs have it."""
    for encode in (b64encode, urlsafe_b64encode):
        exact = encode(text.encode()).decode()
        yield from (exact, exact.rstrip("="), quote(exact, safe=""))
