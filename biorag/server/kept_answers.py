"""The last answers of the page, for their exports and streams: so many and no more, under names nobody guesses."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import Generic, TypeVar

from biorag.errors import MissingError

T = TypeVar("T")
KEPT = 64


class LastKept(Generic[T]):
    """The last things kept, by unguessable names."""

    def __init__(self, most: int = KEPT) -> None:
        self._values: OrderedDict[str, T] = OrderedDict()
        self._most = most

    def keep(self, value: T) -> str:
        """Keep a value, the oldest going where there are too many; return its name."""
        name = secrets.token_urlsafe(16)
        self._values[name] = value
        while len(self._values) > self._most:
            self._values.popitem(last=False)
        return name

    def get(self, name: str) -> T:
        """Return what has this name.

        Raises
        ------
        MissingError
            If it is no longer kept, or never was.
        """
        if name not in self._values:
            raise MissingError("this answer is no longer kept: ask the question again")
        return self._values[name]

    def take(self, name: str) -> T:
        """Return what has this name, and keep it no longer; raises as `get` does."""
        value = self.get(name)
        del self._values[name]
        return value
