"""Connections that do not wait for ever: whoever keeps a request back is dropped, so that others are answered."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol


class PatientConnection(H11Protocol):
    """HTTP/1.1 whose requests must come in time.

    Uvicorn itself waits for ever for the first request of a connection, and for the rest of a header.
    """

    header_seconds: ClassVar[float] = 10.0
    most: ClassVar[int] = 512

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; where there are too many connections, the one that waits longest is dropped."""
        super().connection_made(transport)
        self._expect()
        if len(self.connections) > self.most:
            waiting = [one for one in self.connections if isinstance(one, PatientConnection) and one.is_waiting]
            if waiting:
                min(waiting, key=lambda one: one.order).drop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._settle()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; a request whose headers are whole is no longer waited for."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._settle()
        elif self.cycle is not None and self.cycle.response_complete and self._deadline is None:
            self._expect()  # the next request of the connection has begun

    @property
    def is_waiting(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def order(self) -> tuple[bool, float]:
        """What is dropped first: a request that was kept back for longest, and last what idles between two requests."""
        return self._deadline is None, self._deadline.when() if self._deadline else 0.0

    def drop(self) -> None:
        """Close the connection without a word."""
        self.connections.discard(self)
        self.transport.abort()

    def _expect(self) -> None:
        self._deadline = self.loop.call_later(self.header_seconds, self.drop)

    def _settle(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
