"""British and American spelling: one form of both, for comparing words, by the lists of `spelling.toml`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from biorag.utils.parsing import packaged_toml

_LISTS = packaged_toml(__file__, "spelling.toml")
# American too: "angioedema", "gastroesophageal".
_PART = re.compile(rf"(?<!angi)(?<!gastr)(?:{'|'.join(_LISTS['parts'])})")
_RULES: Sequence[tuple[re.Pattern[str], str]] = tuple(
    (re.compile(rule["written"]), rule["read"]) for rule in _LISTS["endings"]
)


@lru_cache(maxsize=1 << 16)
def one_spelling(word: str) -> str:
    """Return a lower-case word in the form that stands for its British and its American spelling."""
    word = _PART.sub(lambda match: _LISTS["parts"][match[0]], word)
    for pattern, plain in _RULES:
        changed = pattern.sub(plain, word)
        if changed != word:
            return changed
    return word
