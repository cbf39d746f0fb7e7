"""Replies that trickle, swell or never end, from a server that writes raw bytes to its socket."""

from __future__ import annotations

import gzip
import itertools
import os
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator

import httpx
import pytest

from biorag.citation_graph.eutils import EUtils
from biorag.errors import ServiceError
from biorag.generators.server import ServerGenerator
from biorag.indexes.connection import connect, server_errors
from biorag.utils.network import Server
from biorag.utils.transport import BoundedTransport, ReplyRefusedError
from tests.loopback import Script

SECONDS = 0.4
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
Pieces = Callable[[], Iterator[bytes]]


class RawServer:
    """Answers each connection with pieces of bytes, until they end or nobody listens."""

    def __init__(self, pieces: Pieces, pause: float) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pieces, self._pause, self._closed = pieces, pause, threading.Event()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(1 << 16)
                for piece in self._pieces():
                    connection.sendall(piece)
                    if self._closed.wait(self._pause):
                        return
            except OSError:
                pass

    def close(self) -> None:
        self._closed.set()
        self._listener.close()


@pytest.fixture
def serve():
    servers: list[RawServer] = []

    def start(pieces: Pieces, pause: float = 0.0) -> str:
        servers.append(RawServer(pieces, pause))
        return servers[-1].url

    yield start
    for server in servers:
        server.close()


def client(url: str, largest: int = 1 << 20) -> httpx.Client:
    return httpx.Client(timeout=SECONDS, transport=BoundedTransport(url, SECONDS, largest))


def whole(body: bytes, *headers: bytes) -> Pieces:
    return lambda: iter([HEAD + b"".join(line + b"\r\n" for line in headers) + b"Connection: close\r\n\r\n" + body])


def chunk(body: bytes) -> bytes:
    return f"{len(body):x}\r\n".encode() + body + b"\r\n"


def trickling(start: bytes, drip: bytes) -> Pieces:
    return lambda: itertools.chain([start], itertools.repeat(drip))


TRICKLES = {
    "status line": trickling(b"HTTP/1.1 200 ", b"O"),
    "header": trickling(HEAD + b"X: ", b"x"),
    "headers": trickling(HEAD, b"X: x\r\n"),
    "body": trickling(HEAD + b"Content-Length: 100000\r\n\r\n", b" "),
    "body without a length": trickling(HEAD + b"\r\n", b" "),
    "chunks": trickling(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", chunk(b" ")),
    "size of a chunk": trickling(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"0"),
    "name in a gzip": trickling(HEAD + b"Content-Encoding: gzip\r\n\r\n\x1f\x8b\x08\x08" + bytes(6), b"x"),
    "continuations": trickling(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "nothing": trickling(b"", b""),
}


@pytest.mark.parametrize("case", TRICKLES)
def test_a_reply_has_one_deadline_whatever_trickles(serve, case):
    """Each byte comes well within the time-out; the reply would take minutes or have no end."""
    url = serve(TRICKLES[case], SECONDS / 10)
    started = time.monotonic()
    with pytest.raises(httpx.TimeoutException):
        client(url).get(url)
    assert time.monotonic() - started < 20 * SECONDS


def test_the_deadline_is_that_of_each_request_not_of_the_connection(serve):
    server = Script()
    try:
        server.rule = lambda body: (time.sleep(1.5), (200, {}))[1]
        with httpx.Client(transport=BoundedTransport(server.url, 4.0), timeout=4.0) as http:
            assert [http.get(server.url).json() for _ in range(3)] == [{}] * 3
    finally:
        server.close()


@pytest.mark.parametrize("size", [0, 1, 999, 1000])
@pytest.mark.parametrize("packed", [False, True])
def test_a_reply_within_the_bound_comes_as_it_is(serve, size, packed):
    body = os.urandom(size // 2) * 2
    sent = gzip.compress(body) if packed else body
    url = serve(whole(sent, *([b"Content-Encoding: gzip"] if packed else [])))
    response = client(url, max(len(body), len(sent))).get(url)
    assert response.content == body
    assert "Content-Encoding" not in response.headers


BOMB = gzip.compress(bytes(30 << 20))
LARGE = {
    "with a length": whole(bytes(1001)),
    "without an end": trickling(HEAD + b"\r\n", bytes(1 << 16)),
    "in chunks": trickling(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", chunk(b" " * 100)),
    "unpacked": whole(gzip.compress(bytes(1001)), b"Content-Encoding: gzip"),
    "a bomb": whole(BOMB, b"Content-Encoding: gzip"),
    "before it is unpacked": whole(gzip.compress(os.urandom(2000)), b"Content-Encoding: gzip"),
    "packed in a way not asked for": whole(b"x", b"Content-Encoding: br"),
    "packed twice": whole(gzip.compress(BOMB), b"Content-Encoding: gzip, gzip"),
    "deflated": whole(zlib.compress(bytes(10)), b"Content-Encoding: deflate"),
}


@pytest.mark.parametrize("case", LARGE)
def test_a_larger_reply_is_refused(serve, case):
    url = serve(LARGE[case])
    with pytest.raises(ReplyRefusedError):
        client(url, 1000).get(url)


def test_a_reply_to_one_path_may_be_larger_than_others(serve):
    url = serve(LARGE["with a length"])
    http = httpx.Client(timeout=SECONDS, transport=BoundedTransport(url, SECONDS, 1000, {"/points": 1001}))
    assert len(http.get(f"{url}/collections/a/points").content) == 1001
    with pytest.raises(ReplyRefusedError):
        http.get(f"{url}/collections/a/points/query")


def test_no_more_of_a_bomb_is_unpacked_than_the_bound(serve):
    url = serve(LARGE["a bomb"])
    read = 0
    with pytest.raises(ReplyRefusedError), client(url, 1 << 20).stream("GET", url) as response:
        for piece in response.iter_bytes():
            read += len(piece)
    assert read <= 1 << 20


@pytest.mark.parametrize("body", [b"no gzip", BOMB[:100] + b"\xff" * 100])
def test_a_damaged_package_is_a_fault_that_may_pass(serve, body):
    url = serve(whole(body, b"Content-Encoding: gzip"))
    with pytest.raises(httpx.RemoteProtocolError):
        client(url, 1 << 26).get(url)


@pytest.mark.parametrize(
    ("url", "environment", "proxy"),
    [
        ("https://models.example/v1", {"https_proxy": "http://proxy:3128"}, "http://proxy:3128"),
        ("https://models.example/v1", {"https_proxy": "proxy:3128"}, "http://proxy:3128"),
        ("http://models.example/v1", {"https_proxy": "http://proxy:3128"}, None),
        ("http://models.example/v1", {"all_proxy": "http://proxy:3128"}, "http://proxy:3128"),
        ("https://models.example/v1", {"https_proxy": "http://proxy:1", "no_proxy": "models.example"}, None),
        ("http://localhost:8080", {"http_proxy": "http://proxy:3128"}, None),
        ("https://models.example/v1", {}, None),
    ],
)
def test_a_proxy_of_the_environment_stands_before_other_machines(monkeypatch, url, environment, proxy):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        for spelled in (name, name.upper()):
            monkeypatch.delenv(spelled, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    pool = BoundedTransport(url, 1.0)._pool
    named = getattr(pool, "_proxy_url", None)
    assert (f"{named.scheme.decode()}://{named.host.decode()}:{named.port}" if named else None) == proxy


REACHED = {
    "a generator": lambda url: ServerGenerator(Server(url, SECONDS, 0), None, 4096),
    "the E-utilities": lambda url: EUtils(Server(url, SECONDS, 0)).cited([1]),
    "Qdrant": lambda url: connect(Server(url, SECONDS, 0)).collection_exists("x"),
}


@pytest.mark.parametrize("case", TRICKLES)
@pytest.mark.parametrize("kind", REACHED)
def test_every_server_is_read_so(serve, kind, case):
    url = serve(TRICKLES[case], SECONDS / 10)
    with pytest.raises(ServiceError, match="did not answer in time"), server_errors():
        REACHED[kind](url)


@pytest.mark.parametrize("kind", REACHED)
def test_a_reply_without_an_end_is_one_sentence(serve, kind):
    url = serve(LARGE["without an end"])
    with pytest.raises(ServiceError, match=r"its reply has more than [0-9,]+ bytes|did not answer in time"):
        REACHED[kind](url)
