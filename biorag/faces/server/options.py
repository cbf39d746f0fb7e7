"""Where a server listens, whom it answers, and its limits."""

from __future__ import annotations

from dataclasses import dataclass

from biorag.errors import UsageError
from biorag.utils.network import is_loopback_name

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
LEAST_TOKEN = 16  # characters


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Where to listen, for whom, and the limits for each client and for all.

    Raises `UsageError` if an address of other machines is to be served without a token, or a token is short.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    token: str | None = None  # clients must show it; None only where this machine alone is answered
    allowed_hosts: tuple[str, ...] = ()  # names by which browsers reach the server, besides its address
    rate: int = 600  # requests a minute of each client; 0 for no limit
    queue: int = 64  # questions answered or waiting, beyond which a further one is refused
    threads: int = 4  # questions worked on at a time
    body: int = 256 * 1024  # bytes of a request
    connections: int = 512  # beyond which the one that has kept its request back longest is dropped
    header_seconds: float = 10.0  # for a request's headers to arrive
    body_seconds: float = 20.0  # for its body to arrive
    write_seconds: float = 30.0  # for a client to take each part of a response
    logins: int = 10  # attempts a minute of each client
    others: bool = False  # whether the home's other indexes are served too
    uploads: bool = False  # whether the page takes papers into indexes, and manuscripts to check
    upload_bytes: int = 2**30  # of a request that brings files
    upload_seconds: float = 600.0  # for it to arrive

    def __post_init__(self) -> None:
        if not self.token and not is_loopback_name(self.host):
            raise UsageError(
                f"--host {self.host} can be reached from other machines: give --token, or set BIORAG_SERVE_TOKEN"
            )
        if self.token and (len(self.token) < LEAST_TOKEN or not self.token.isascii() or not self.token.isprintable()):
            raise UsageError(f"the token must have at least {LEAST_TOKEN} printable ASCII characters")
        if any("*" in host.removeprefix("*.") for host in self.allowed_hosts):
            raise UsageError("--allowed-host takes a name, or *. and a domain: lab.example.org, *.example.org")

    @property
    def is_wildcard(self) -> bool:
        """Whether it listens on every address of the machine."""
        return self.host in ("0.0.0.0", "::", "")

    @property
    def trusted_hosts(self) -> list[str]:
        """Hosts that requests may name, against DNS rebinding; any on a wildcard address, which needs the token."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return ["*"] if self.is_wildcard else [*LOOPBACK_NAMES, host, *self.allowed_hosts]
