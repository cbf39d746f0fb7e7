"""Keys of hosts: in variables that name the host, and in the system's keyring if the package `keyring` is installed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from urllib.parse import urlsplit

from platformdirs import user_config_path

from biorag.errors import MissingError, ServiceError, UsageError
from biorag.utils.files import write_text
from biorag.utils.network import host_of, is_server, origin_of, without_credentials

PREFIX = "BIORAG_KEY_"
SERVICE = "biorag"  # the name of our keys in the keyring
_HOST = re.compile(r"([a-z0-9]+(\.|-+))*[a-z0-9]+(:\d{1,5})?")


def variable_of(host: str) -> str:
    """Return the variable that holds the key of `host` or `host:port`; empty for an IPv6 address, which has none.

    No two hosts share one: a dot or a colon becomes `_`, a hyphen `__`.
    """
    if not _HOST.fullmatch(host):
        return ""
    return PREFIX + host.replace("-", "__").replace(".", "_").replace(":", "_").upper()


def key_of(url: str) -> str | None:
    """Return the key for the host of a URL, for this port or for all its ports; None for none."""
    hosts = (origin_of(url), host_of(url))
    for host in hosts:
        if key := os.environ.get(variable_of(host)):
            return key
    kept = hosts_in_keyring()
    for host in hosts:
        if host in kept:
            with _keyring(host) as ring:
                key = ring.get_password(SERVICE, host)
            return str(key) if key else None
    return None


def hosts_in_keyring() -> list[str]:
    """Return the hosts whose keys are in the keyring, which cannot list them itself."""
    path = _hosts_file()
    return path.read_text(encoding="utf-8").split() if path.is_file() else []


def keep_key(host: str, ask: Callable[[], str]) -> None:
    """Store the key that `ask` returns in the keyring; without one nothing is asked.

    Raises `MissingError` if there is no keyring, naming the variable to set instead; `ServiceError` if the keyring
    fails or does not store it.
    """
    with _keyring(host):
        pass
    key = ask()
    with _keyring(host) as ring:
        ring.set_password(SERVICE, host, key)
        stored = ring.get_password(SERVICE, host)
    if stored != key:
        raise ServiceError(f"the keyring did not store the key of {host}: {_instead(host)}")
    _write_hosts({*hosts_in_keyring(), host})


def forget_key(host: str) -> None:
    """Delete a key from the keyring.

    Raises `MissingError` if there is none for the host.
    """
    hosts = hosts_in_keyring()
    if host not in hosts:
        raise MissingError(f"the keyring has no key for {host}: it has keys for {', '.join(hosts) or 'no host'}")
    with _keyring(host) as ring:
        ring.delete_password(SERVICE, host)
    _write_hosts({*hosts} - {host})


def checked_host(text: str) -> str:
    """Return a host, or a host and port, as keys are stored under it; of a URL its host and port.

    Raises `UsageError` if it is neither.
    """
    is_url = is_server(text)
    host = host_of(text if is_url else f"//{text}")
    if not host or "@" in text:
        raise UsageError(f"{without_credentials(text)!r} is not a host: write e.g. api.example.org, or localhost:8080")
    port = urlsplit(f"//{text}").port
    return origin_of(text) if is_url else f"{host}:{port}" if port else host


def _hosts_file() -> Path:
    return user_config_path("biorag") / "hosts"


def _write_hosts(hosts: Iterable[str]) -> None:
    write_text(_hosts_file(), "".join(f"{host}\n" for host in sorted(hosts)))


@contextmanager
def _keyring(host: str) -> Iterator[ModuleType]:
    """Give the keyring; whatever its backend raises becomes one sentence that says what to do instead."""
    try:
        import keyring
    except ImportError:
        raise MissingError(f"no keyring is installed: pip install 'biorag[keyring]', or {_instead(host)}") from None
    try:
        yield keyring
    except Exception as error:  # each backend raises its own
        raise ServiceError(f"the keyring failed for {host} ({error}): {_instead(host)}") from None


def _instead(host: str) -> str:
    variable = variable_of(host)
    return f"set {variable}" if variable else "call the server by its name, not its address"
