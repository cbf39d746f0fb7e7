"""The indexes of a server: one stays open; others of its home are opened when they are asked, and closed again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Condition

from biorag.api.session import WRITTEN, Session
from biorag.engine import fault_of
from biorag.errors import BioragError, MismatchError, MissingError, ServiceError
from biorag.indexes.catalogue import IndexSummary, summaries
from biorag.indexes.store import by_size, reachable_indexes
from biorag.settings.settings import Settings

logger = logging.getLogger(__name__)

IDLE_SECONDS = 600.0  # after which an index that nobody asks is closed, and can be written to
MOST_OPEN = 3  # besides the one that stays open


def first_of(settings: Settings) -> str | None:
    """Return the index that is asked where none is named: the largest that can be opened; None if there is none."""
    names = by_size(settings)
    return next((name for name in names if fault_of(settings, name) is None), next(iter(names), None))


def _closed(name: str, error: BioragError) -> str:
    """Return why an index is not open, for those who ask it: of a server what it is, of files no path."""
    in_files = "its files are missing, damaged or of another model, and the server's log says which"
    reason = error.public if isinstance(error, ServiceError) else in_files
    return f"index {name!r} cannot be opened now: {reason}"


@dataclass(slots=True)
class _Opened:
    session: Session
    users: int
    used: float


class SessionPool:
    """Lends open indexes: the first, and with `others` those of its home too, which share its models.

    The others are opened once to see whether they can be; of one that cannot the log says why, and it is left out:
    `left_out` has what those who ask for it are told.
    """

    def __init__(self, first: Session, others: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.first = first
        self._others, self._clock = others, clock
        self._opened: dict[str, _Opened] = {}
        self._written: set[str] = set()
        self._lock = Condition()
        self.left_out: dict[str, str] = {}
        if others:
            self._check(set(reachable_indexes(first.settings)) - {first.name})

    def names(self) -> list[str]:
        """Return the names of the indexes that can be asked, without those that are empty."""
        return [each.name for each in self.listed()]

    def listed(self) -> list[IndexSummary]:
        """Return the indexes that can be asked, by name; nothing is opened."""
        settings, first = self.first.settings, self.first.name
        names = set(reachable_indexes(settings)) - self.left_out.keys() if self._others else set()
        return [each for each in summaries(settings) if each.name == first or (each.name in names and each.snippets)]

    def why_closed(self, name: str) -> str:
        """Return why an index that is there cannot be asked; "" if it can, or is empty, or is not there."""
        settings = self.first.settings
        if name in self.left_out or not self._others or name not in set(reachable_indexes(settings)) - {*self.names()}:
            return self.left_out.get(name, "")
        if error := fault_of(settings, name):  # it is damaged since it was listed
            logger.warning("index %r cannot be opened: %s", name, error)
        return _closed(name, error) if error else ""

    def check_again(self) -> None:
        """Take in what was left out and can be opened now: its server is back, or its writer has finished."""
        self._check(set(self.left_out))

    def _check(self, names: set[str]) -> None:
        for name in sorted(names):
            error = fault_of(self.first.settings, name)
            if error is None:
                self.left_out.pop(name, None)
            elif name not in self.left_out:
                self.left_out[name] = _closed(name, error)
                logger.warning("index %r is left out: %s", name, error)

    @contextmanager
    def lend(self, name: str = "") -> Iterator[Session]:
        """Lend an open index, by default the first.

        Raises `MissingError` naming the others if there is none of this name; `ServiceError` if it cannot be opened.
        """
        if name in ("", self.first.name):
            yield self.first
            return
        with self._lock:
            if name in self._written:
                raise ServiceError(WRITTEN.format(name))
            opened = self._opened.get(name) or self._open(name)
            opened.users += 1
        try:
            yield opened.session
        finally:
            with self._lock:
                opened.users, opened.used = opened.users - 1, self._clock()
                self._close(MOST_OPEN)
                self._lock.notify_all()

    @contextmanager
    def written(self, name: str) -> Iterator[None]:
        """Keep an index, which may be a new one, closed while a block writes to it, once questions to it have ended.

        Until it is open again, it is not lent.
        """
        with ExitStack() as closed:
            if name == self.first.name:
                closed.enter_context(self.first.written())
            with self._lock:
                self._written.add(name)
                closed.callback(self._written.discard, name)
                self._lock.wait_for(lambda: name not in self._opened or not self._opened[name].users)
                if opened := self._opened.pop(name, None):
                    opened.session.close()
            yield

    def close_idle(self, seconds: float = IDLE_SECONDS) -> None:
        """Close the indexes that nobody has asked for so long."""
        with self._lock:
            self._close(len([opened for opened in self._opened.values() if opened.used > self._clock() - seconds]))

    def _open(self, name: str) -> _Opened:
        names = self.names()
        if name not in names:
            if reason := self.why_closed(name):
                raise ServiceError(reason)
            raise MissingError(f"there is no index {name!r} here: choose one of {', '.join(names)}")
        try:
            session = Session(self.first.settings.replace(name=name), beside=self.first)
        except (MissingError, MismatchError) as error:
            logger.warning("index %r cannot be opened: %s", name, error)
            raise ServiceError(_closed(name, error)) from None
        opened = self._opened[name] = _Opened(session, 0, self._clock())
        return opened

    def _close(self, most: int) -> None:
        """Close the indexes that were asked longest ago, so that so many stay; one that is being asked stays."""
        by_use = sorted(self._opened.items(), key=lambda item: item[1].used)
        for name, opened in by_use[: max(0, len(by_use) - most)]:
            if not opened.users:
                opened.session.close()
                del self._opened[name]
