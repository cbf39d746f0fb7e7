"""Names of authors: "Family, Given", "Family, Given, Suffix", or a group's name as it stands."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

MOST_INITIALS = 2  # as NLM's Citing Medicine has it
_PART = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_INITIALS = re.compile(r"[A-Z]{1,4}")  # given names that are initials already


class Author(NamedTuple):
    """A person, or a group, whose name is all `family`."""

    family: str
    given: str = ""
    suffix: str = ""
    group: bool = False

    @property
    def initials(self) -> str:
        """The first letters of the given names, at most two, particles in lower case left out: "JP" of Jean-Paul."""
        if _INITIALS.fullmatch(self.given):
            return self.given[:MOST_INITIALS]
        parts: list[str] = _PART.findall(self.given)
        names = [part for part in parts if not part[0].islower()] or parts
        return "".join(part[0].upper() for part in names[:MOST_INITIALS])


def author_of(name: str, groups: Collection[str] = ()) -> Author:
    """Return the author of a name as metadata has it; one without a comma, or among `groups`, is a group's."""
    text = " ".join(name.split())
    parts = [part.strip() for part in text.split(",")]
    if name in groups or len(parts) not in (2, 3) or not all(parts):
        return Author(text, group=True)
    family, given, *suffix = parts
    return Author(family, given, "".join(suffix))
