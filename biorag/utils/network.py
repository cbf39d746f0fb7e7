"""Servers: how they are reached, their URLs without credentials, and which hosts offline mode lets through."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import chain
from typing import Any
from urllib.parse import unquote, urlsplit

from biorag.errors import OfflineError
from biorag.utils.secrets import remember

_CREDENTIALS = re.compile(r"(?:^|(?<=//))[^/?#\s]*@")
_AUTHORITY_END = re.compile(r"[/?#]")  # after user, password, host and port
_NEXT = re.compile(r",\s*(?=https?://)")  # before a further address of a server
_QUERY = re.compile(r"\?\S*")
# For child processes, which the guard does not reach, and for the libraries' own offline modes.
_OFFLINE = {"BIORAG_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_SENT_TO = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_LOOKED_UP = frozenset({"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo"})

_PORTS = {"http": {80, 6333}, "https": {443, 6333}}  # if a URL names none; Qdrant's client takes its own
_named: Mapping[str, frozenset[int]] | None = None  # the hosts let through, with their ports; None: all
_addresses: dict[str, set[int]] = {}  # those that named hosts were resolved to, with the hosts' ports
_former: dict[str, str | None] = {}  # earlier values of the variables of `_OFFLINE`
_resolve = socket.getaddrinfo
_guarded = False


@dataclass(frozen=True, slots=True)
class Server:
    """How a server is reached: seconds for one reply, retries, concurrent requests."""

    url: str
    timeout: float
    retries: int
    api_key: str | None = field(default=None, repr=False)
    login: str | None = field(default=None, repr=False)
    at_a_time: int = 1

    def __post_init__(self) -> None:
        for secret in filter(None, (self.api_key, self.login)):
            remember(secret)

    @property
    def auth(self) -> tuple[str, str] | None:
        """User and password of HTTP's Basic authentication."""
        if self.login is None:
            return None
        user, _, password = self.login.partition(":")
        return user, password


def without_credentials(text: str) -> str:
    """Return a URL, or an option that holds one, without `user:password@` and without the values of a query."""
    return _QUERY.sub("?…", _CREDENTIALS.sub("", text))


def command_line() -> list[str]:
    """Return the words of this command, URLs without credentials, as manifests keep them."""
    return ["biorag", *(without_credentials(word) if "://" in word else word for word in sys.argv[1:])]


def addresses(url: str) -> list[str]:
    """Return the URLs of a server's addresses, which a setting writes with commas between."""
    return _NEXT.split(url)


def is_server(text: str) -> bool:
    """Return whether a setting names a server."""
    return text.startswith(("http://", "https://"))


def host_of(url: str) -> str:
    """Return the host of a URL's first address in the guard's spelling; empty if host or port cannot be read."""
    try:
        parts = urlsplit(addresses(url)[0])
        return _spelled(parts.hostname or "") if parts.port != 0 else ""
    except ValueError:
        return ""


def origin_of(url: str) -> str:
    """Return the host and the port of each address of a URL, `host:port`; empty if they cannot be read."""
    return ",".join(sorted(map(_origin, addresses(url))))


def _origin(address: str) -> str:
    host = host_of(address)
    parts = urlsplit(address) if host else None
    return f"{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}" if parts else ""


def proxy_of(url: str) -> str:
    """Return the URL of the proxy that the environment names for a server, with its login; empty for none."""
    from urllib.request import getproxies, proxy_bypass  # it imports much

    proxies, host = getproxies(), host_of(url)
    proxy = proxies.get(urlsplit(url).scheme.lower()) or proxies.get("all", "")
    if not proxy or not host or is_loopback(url) or proxy_bypass(host):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def remember_credentials() -> None:
    """Keep the environment's other secrets out of texts: logins of proxies, tokens of the Hugging Face hub."""
    proxies = [url for name, url in os.environ.items() if name.lower().endswith("_proxy")]
    logins = (login_apart(proxy if "://" in proxy else f"http://{proxy}")[1] for proxy in proxies)
    for secret in (*logins, *map(os.environ.get, _TOKENS)):
        remember(secret or "")


def is_loopback(url: str) -> bool:
    """Return whether all addresses of a URL are this machine's, which no proxy is asked for."""
    return all(host.endswith(".localhost") or is_loopback_name(host) for host in map(host_of, addresses(url)))


def is_loopback_name(host: str) -> bool:
    """Return whether an address is reached from this machine alone."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _ports_of(url: str) -> set[int]:
    """Return the ports that a URL may mean: its own, or by default its scheme's and Qdrant's."""
    parts = urlsplit(url)
    return {parts.port} if parts.port else _PORTS.get(parts.scheme, set())


def login_apart(url: str) -> tuple[str, str | None]:
    """Return a URL without its `user:password@`, and that decoded, or None.

    An `@` stays in the URL if the password has a bare `/`, `?` or `#`: nobody can tell where the host begins.
    """
    scheme, mark, remainder = url.partition("://")
    authority = _AUTHORITY_END.split(remainder, maxsplit=1)[0]
    login, at, host = authority.rpartition("@")
    return (f"{scheme}{mark}{host}{remainder[len(authority) :]}", unquote(login)) if at else (url, None)


def is_offline() -> bool:
    """Return whether connections are refused; see `restrict`."""
    return _named is not None


def leaves_for(url: str) -> bool:
    """Return whether data may leave this machine for a URL: it is not loopback, nor refused in offline mode."""
    return not is_loopback(url) and (_named is None or host_of(url) in _named)


def restrict(urls: Iterable[str] | None) -> None:
    """From now on refuse all connections but to the hosts and ports of `urls`, loopback too; None refuses none.

    Native code is not watched. Child processes find `BIORAG_OFFLINE` in their environment until `None` is given.
    """
    global _named, _guarded
    if urls is None:
        _named = None
        _give_back()
        return
    ports: dict[str, set[int]] = {}
    for url in chain.from_iterable(map(addresses, urls)):
        if host := host_of(url):
            ports.setdefault(host, set()).update(_ports_of(url))
    _named = {host: frozenset(numbers) for host, numbers in ports.items()}
    _addresses.clear()
    for name, value in _OFFLINE.items():
        _former.setdefault(name, os.environ.get(name))
        os.environ[name] = value
    if not _guarded:
        _guarded = True
        sys.addaudithook(_watch)
        socket.getaddrinfo = _recorded


def _give_back() -> None:
    """Set the variables of `_OFFLINE` as they were, but for those that someone else has set since."""
    for name, former in _former.items():
        if os.environ.get(name) == _OFFLINE[name]:
            del os.environ[name]
            os.environ.update({name: former} if former is not None else {})
    _former.clear()


def _watch(event: str, args: tuple[Any, ...]) -> None:
    """Audit Python's sockets: raise before a look-up of a name, or a connection, that is not allowed."""
    if _named is None:
        return
    if event in _LOOKED_UP:
        _check(args[0])
    elif event in _SENT_TO and args[0].family != getattr(socket, "AF_UNIX", None):
        _check(args[1])


def _check(address: Any) -> None:
    """Refuse a host that is not named, or, of an address to connect to, another port of one that is."""
    host, port = address[:2] if isinstance(address, tuple) else (address, None)
    if host is None:
        return
    known = [ports[_spelled(host)] for ports in (_named or {}, _addresses) if _spelled(host) in ports]
    if known and (port is None or any(port in ports for ports in known)):
        return
    address = _spelled(host) if port is None or not known else f"{_spelled(host)}:{port}"
    raise OfflineError(
        f"offline: {address} is not named on this command line, so nothing is sent to it: give its URL there "
        "(--qdrant, --llm, --eutils, --crossref), or turn --offline (BIORAG_OFFLINE) off"
    )


def _recorded(
    host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
) -> list[tuple[Any, ...]]:
    """Look a name up; if it is a named host's, its addresses may be connected to."""
    resolved = _resolve(host, port, family, type, proto, flags)
    if _named and host is not None and _spelled(host) in _named:
        for *_, address in resolved:
            _addresses.setdefault(_spelled(address[0]), set()).update(_named[_spelled(host)])
    return resolved


def _spelled(host: Any) -> str:
    """Return a host's name or address in one spelling: lower case, without a zone or the root's dot."""
    text = host.decode("ascii", "replace") if isinstance(host, bytes | bytearray) else str(host)
    return text.lower().partition("%")[0].rstrip(".")
