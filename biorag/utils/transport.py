"""What servers reply: within one deadline, whatever trickles, and of bounded size before and after decompression."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from biorag.utils.network import host_of, is_loopback

LARGEST = 16 << 20  # bytes of a reply, before and after decompression, unless its reader says otherwise
CODING = "gzip"  # the one that servers are asked for
PIECE = 1 << 16  # bytes sent or unpacked at once
_GZIP = 16 + zlib.MAX_WBITS


class ReplyRefusedError(httpx.TransportError):
    """A reply that is not read to its end: it is too large, or packed in another way than was asked for."""


class BoundedTransport(httpx.HTTPTransport):
    """Sends requests to one server; a reply that is not complete in time is a time-out.

    Parameters
    ----------
    url : of the server, for which the environment may name a proxy
    seconds : from the begin of a request to the last byte of its reply
    largest : bytes of a reply
    larger : bytes of the reply to a request whose path ends so, where it may have more
    options : see `httpx.HTTPTransport`

    Raises
    ------
    ReplyRefusedError
        When a reply has more bytes.
    """

    def __init__(
        self,
        url: str,
        seconds: float,
        largest: int = LARGEST,
        larger: Mapping[str, int] = MappingProxyType({}),
        **options: Any,
    ) -> None:
        super().__init__(proxy=_proxy_of(url), **options)
        self._seconds = seconds
        self._largest = largest
        self._larger = larger
        self._deadline = _Deadline()
        # A network backend is public in httpcore; httpx has no way to pass one on.
        self._pool._network_backend = _Backend(self._deadline)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; the reply's bytes are read, by the same thread, as they are asked for."""
        self._deadline.start(self._seconds)
        request.headers["Accept-Encoding"] = CODING
        response = super().handle_request(request)
        coding = response.headers.pop("Content-Encoding", "identity").strip().lower()
        if coding not in ("identity", "", CODING, f"x-{CODING}"):
            response.close()
            raise ReplyRefusedError(f"its reply is packed as {coding[:40]!r}, and {CODING!r} was asked for")
        assert isinstance(response.stream, httpx.SyncByteStream)
        ends = (size for end, size in self._larger.items() if request.url.path.endswith(end))
        stream = _BoundedStream(response.stream, max(self._largest, *ends, 0), CODING in coding)
        return httpx.Response(
            response.status_code, headers=response.headers, stream=stream, extensions=response.extensions
        )


class _BoundedStream(httpx.SyncByteStream):
    """A reply's bytes, unpacked, up to a limit before and after."""

    def __init__(self, stream: httpx.SyncByteStream, largest: int, packed: bool) -> None:
        self._stream = stream
        self._largest = largest
        self._packed = packed

    def __iter__(self) -> Iterator[bytes]:
        received = self._counted(self._stream)
        yield from self._counted(_unpacked(received)) if self._packed else received

    def _counted(self, pieces: Iterator[bytes] | httpx.SyncByteStream) -> Iterator[bytes]:
        total = 0
        for piece in pieces:
            total += len(piece)
            if total > self._largest:
                raise ReplyRefusedError(f"its reply has more than {self._largest:,} bytes")
            yield piece

    def close(self) -> None:
        self._stream.close()


def _unpacked(pieces: Iterator[bytes]) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(_GZIP)
    try:
        for packed in pieces:
            rest = packed
            while rest and not unpacker.eof:
                yield unpacker.decompress(rest, PIECE)
                rest = unpacker.unconsumed_tail
        yield unpacker.flush()
    except zlib.error as error:
        raise httpx.RemoteProtocolError(f"its reply cannot be unpacked ({error})") from None


class _Deadline(threading.local):
    """When the reply that this thread waits for must be complete."""

    _end = float("inf")

    def start(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self, seconds: float | None) -> float:
        """Return the seconds that one operation may take, of those it is given; not 0, which would not wait at all."""
        left = self._end - time.monotonic()
        return max(min(left, float("inf") if seconds is None else seconds), 1e-3)

    def check(self, error: type[httpcore.TimeoutException]) -> None:
        if time.monotonic() > self._end:
            raise error("the deadline is over")


class _Backend(httpcore.SyncBackend):
    """Connections under the deadline of the request that they are used for."""

    def __init__(self, deadline: _Deadline) -> None:
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        stream = super().connect_tcp(host, port, self._deadline.left(timeout), local_address, socket_options)
        return _TimedStream(stream, self._deadline)


class _TimedStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, deadline: _Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._deadline.check(httpcore.ReadTimeout)
        return self._stream.read(max_bytes, self._deadline.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), PIECE):
            self._deadline.check(httpcore.WriteTimeout)
            self._stream.write(buffer[start : start + PIECE], self._deadline.left(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, self._deadline.left(timeout))
        return _TimedStream(stream, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _proxy_of(url: str) -> str | None:
    """Return the proxy that the environment names for a URL; none stands before this machine's own servers."""
    host = host_of(url)
    if is_loopback(url) or not host or proxy_bypass(host):
        return None
    proxies = getproxies()
    proxy = proxies.get(url.partition("://")[0].lower()) or proxies.get("all")
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy or None
