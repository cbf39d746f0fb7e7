"""The server: its socket, connections with deadlines, and a clean end."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from biorag.api.session import Session
from biorag.errors import ServiceError
from biorag.faces.server.app import create_app
from biorag.faces.server.options import ServeOptions

BACKLOG = 2048
GRACE_SECONDS = 3


class PatientConnection(H11Protocol):
    """HTTP/1.1 with a deadline for each request; uvicorn waits for ever for a first one, or the rest of a header."""

    header_seconds: ClassVar[float] = 10.0
    most: ClassVar[int] = 512

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the deadline; of too many connections drop the one that waits longest."""
        super().connection_made(transport)
        self._expect()
        if len(self.connections) > self.most:
            waiting = [one for one in self.connections if isinstance(one, PatientConnection) and one.is_waiting]
            if waiting:
                min(waiting, key=lambda one: one.order).drop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadline."""
        self._settle()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; once a request's headers are whole, its deadline is cancelled."""
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
        """The order of dropping: the oldest unfinished request first, connections idle between requests last."""
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


def serve(session: Session, options: ServeOptions, listener: socket.socket, ready: Callable[[str], None]) -> None:
    """Answer requests until Ctrl-C or SIGTERM, which has its usual effect once connections are closed.

    `ready` receives the address once they are answered. `listener` is the socket of `listening`.
    """
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # that a client has left in mid-answer is no fault
    settings = {"header_seconds": options.header_seconds, "most": options.connections}
    config = uvicorn.Config(
        create_app(session, options, lambda: ready(address(options, listener.getsockname()[1]))),
        http=type("BoundedConnection", (PatientConnection,), settings),
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="critical",  # a client's mistakes fill no log; ours are logged by the guard
        access_log=False,
        proxy_headers=False,  # a client does not say itself who it is
        server_header=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    uvicorn.Server(config).run([listener])


def address(options: ServeOptions, port: int) -> str:
    """Return the address at which a browser on this machine reaches the server."""
    host = "127.0.0.1" if options.is_wildcard else options.host
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


@contextmanager
def listening(options: ServeOptions) -> Iterator[socket.socket]:
    """Give a socket bound to the address; requests wait there until `serve` answers them.

    Raises `ServiceError` if the address is taken, or not this machine's.
    """
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((options.host, options.port))
        except OSError as error:
            raise ServiceError(
                f"cannot listen at {options.host} port {options.port} ({error.strerror or error}): give another "
                "--port, or --host"
            ) from None
        listener.listen(BACKLOG)
        yield listener
