"""The server itself: a socket, an event loop, and a clean end."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from biorag.errors import ServiceError
from biorag.server.connections import PatientConnection
from biorag.server.options import ServeOptions

BACKLOG = 2048
FILES = 4096  # open at a time: a connection is one
GRACE_SECONDS = 3


class _Server(uvicorn.Server):
    """A server that leaves signals to be what they are elsewhere, and says when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        self._ready()


def serve(app: ASGIApp, options: ServeOptions, ready: Callable[[str], None]) -> None:
    """Answer requests until Ctrl-C or a termination, which has its usual effect once connections are closed.

    `ready` is given the address once it is listened at.

    Raises
    ------
    ServiceError
        If the address is taken, or is not of this machine.
    """
    limits = options.limits
    settings = {"header_seconds": limits.header_seconds, "most": limits.connections}
    config = uvicorn.Config(
        app,
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
    with _listening(options) as listener:
        _raise_file_limit()
        _Server(config, lambda: ready(address(options, listener.getsockname()[1]))).run([listener])


def address(options: ServeOptions, port: int) -> str:
    """Return the address at which a browser on this machine reaches the server."""
    host = "127.0.0.1" if options.is_wildcard else options.host
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


@contextmanager
def _listening(options: ServeOptions) -> Iterator[socket.socket]:
    """Give a socket that is bound to the address."""
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


def _raise_file_limit() -> None:
    """Let the process open as many files as its connections need, where the system lets it."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            logging.getLogger(__name__).debug("the limit of open files stays at %d", soft)
