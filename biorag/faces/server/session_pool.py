"""The indexes of the page: one stays open; others of its home are opened when they are asked, and closed again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

from biorag.api.session import Session
from biorag.errors import MissingError
from biorag.indexes.catalogue import DAMAGED, IndexSummary, summaries
from biorag.indexes.store import reachable_indexes

IDLE_SECONDS = 600.0  # after which an index that nobody asks is closed, and can be written to
MOST_OPEN = 3  # besides the one that stays open


@dataclass(slots=True)
class _Opened:
    session: Session
    users: int
    used: float


class SessionPool:
    """Lends open indexes: the first, and with `others` those of its home too, which share its models."""

    def __init__(self, first: Session, others: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.first = first
        self._others, self._clock = others, clock
        self._opened: dict[str, _Opened] = {}
        self._lock = Lock()

    def names(self) -> list[str]:
        """Return the names of the indexes, without those that are empty."""
        if not self._others:
            return [self.first.name]
        empty = {each.name for each in summaries(self.first.settings) if each.snippets == 0} - {self.first.name}
        return [name for name in reachable_indexes(self.first.settings) if name not in empty]

    def listed(self) -> list[IndexSummary]:
        """Return the indexes that can be asked, by name; nothing is opened."""
        names = self.names()
        return [each for each in summaries(self.first.settings) if each.name in names and each.state != DAMAGED]

    @contextmanager
    def lend(self, name: str = "") -> Iterator[Session]:
        """Lend an open index, by default the first.

        Raises `MissingError` if there is none of this name; else as `Session` does.
        """
        if name in ("", self.first.name):
            yield self.first
            return
        with self._lock:
            opened = self._opened.get(name) or self._open(name)
            opened.users += 1
        try:
            yield opened.session
        finally:
            with self._lock:
                opened.users, opened.used = opened.users - 1, self._clock()
                self._close(MOST_OPEN)

    def close_idle(self, seconds: float = IDLE_SECONDS) -> None:
        """Close the indexes that nobody has asked for so long."""
        with self._lock:
            self._close(len([opened for opened in self._opened.values() if opened.used > self._clock() - seconds]))

    def _open(self, name: str) -> _Opened:
        names = self.names()
        if name not in names:
            raise MissingError(f"there is no index {name!r} here: choose one of {', '.join(names)}")
        session = Session(self.first.settings.replace(name=name), beside=self.first)
        opened = self._opened[name] = _Opened(session, 0, self._clock())
        return opened

    def _close(self, most: int) -> None:
        """Close the indexes that were asked longest ago, so that so many stay; one that is being asked stays."""
        by_use = sorted(self._opened.items(), key=lambda item: item[1].used)
        for name, opened in by_use[: max(0, len(by_use) - most)]:
            if not opened.users:
                opened.session.close()
                del self._opened[name]
