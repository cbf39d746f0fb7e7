"""Replies that trickle, swell or never end; and requests sent again: which, how often, how long after one another."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

from biorag.corpus.eutils import EUtils
from biorag.errors import ServiceError
from biorag.generators.server import ServerGenerator
from biorag.indexes.connection import connect, server_errors
from biorag.utils import http
from biorag.utils.http import (
    LONGEST,
    BoundedTransport,
    GivenUpError,
    ReplyRefusedError,
    Retries,
    asking_threads,
    given_up,
)
from biorag.utils.network import Server

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
    "header": trickling(HEAD + b"X: ", b"x"),
    "body": trickling(HEAD + b"Content-Length: 100000\r\n\r\n", b" "),
    "chunks": trickling(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", chunk(b" ")),
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


LARGE = {
    "with a length": whole(bytes(1001)),
    "without an end": trickling(HEAD + b"\r\n", bytes(1 << 16)),
    "compressed": whole(b"x", b"Content-Encoding: gzip"),
}


@pytest.mark.parametrize("case", LARGE)
def test_a_larger_reply_is_refused(serve, case):
    url = serve(LARGE[case])
    with pytest.raises(ReplyRefusedError):
        client(url, 1000).get(url)


@pytest.mark.parametrize(
    ("url", "environment", "proxy"),
    [
        ("https://models.example/v1", {"https_proxy": "http://proxy:3128"}, "http://proxy:3128"),
        ("https://models.example/v1", {"https_proxy": "proxy:3128"}, "http://proxy:3128"),
        ("http://models.example/v1", {"https_proxy": "http://proxy:3128"}, None),
        ("https://models.example/v1", {"https_proxy": "http://proxy:1", "no_proxy": "models.example"}, None),
        ("http://localhost:8080", {"http_proxy": "http://proxy:3128"}, None),
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


@pytest.mark.parametrize("kind", REACHED)
def test_every_server_is_read_so(serve, kind):
    url = serve(TRICKLES["body"], SECONDS / 10)
    with pytest.raises(ServiceError, match="did not answer in time"), server_errors():
        REACHED[kind](url)


REQUEST = httpx.Request("POST", "http://server/x", json={"a": 1})


class Answers:
    """Answers with the given things in turn, the last of them for good; keeps the bodies it was sent."""

    def __init__(self, *answers) -> None:
        self.answers = list(answers)
        self.bodies: list[bytes] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(request.read())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def answered(status: int = 200, content: bytes = b"{}", **headers: str) -> httpx.Response:
    return httpx.Response(status, content=content, headers={name.replace("_", "-"): v for name, v in headers.items()})


@pytest.fixture
def waits(monkeypatch) -> list[float]:
    """The seconds waited, without waiting them."""
    found: list[float] = []
    monkeypatch.setattr(http, "BACKOFF", 0.5)
    monkeypatch.setattr(http.time, "sleep", found.append)
    return found


def sending(limit: int = 5) -> Retries:
    return Retries("the server at http://server", "check --x", limit)


PASSING = [
    httpx.ConnectError("refused"),
    httpx.ReadTimeout("timed out"),
    httpx.ReadError("reset"),
    httpx.RemoteProtocolError("peer closed connection"),
    *(answered(status) for status in (408, 429, 503)),
    answered(200, b'{"half": '),
]


@pytest.mark.parametrize("fault", PASSING, ids=repr)
def test_the_same_request_is_sent_again_after_what_may_pass(waits, fault):
    server = Answers(fault, fault, answered(content=b'{"b": 2}'))
    assert sending()(REQUEST, server).json() == {"b": 2}
    assert server.bodies == [b'{"a":1}'] * 3
    assert len(waits) == 2


@pytest.mark.parametrize("status", [200, 301, 404, 501])
def test_an_answer_that_stays_is_returned_at_once(waits, status):
    server = Answers(answered(status))
    assert sending()(REQUEST, server).status_code == status
    assert (len(server.bodies), waits) == (1, [])


@pytest.mark.parametrize(
    "fault",
    [
        httpx.LocalProtocolError("illegal header"),
        httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"),
        ReplyRefusedError("its reply has more than 3 bytes"),
    ],
    ids=repr,
)
def test_a_fault_that_stays_is_told_at_once(waits, fault):
    server = Answers(fault)
    with pytest.raises(ServiceError) as caught:
        sending()(REQUEST, server)
    assert str(caught.value) == f"the server at http://server cannot be asked ({fault}): check --x"
    assert (len(server.bodies), waits) == (1, [])


def test_the_waits_double_with_some_chance_and_end_at_the_limit(waits):
    with pytest.raises(ServiceError) as caught:
        sending(12)(REQUEST, Answers(answered(503, b"over\nloaded")))
    most = [0.5, 1, 2, 4, 8, 16, 32, *[LONGEST] * 5]
    assert all(top / 2 <= seconds <= top for seconds, top in zip(waits, most, strict=True))
    assert len(set(waits)) == 12, "two clients do not knock in step"
    assert str(caught.value) == "the server at http://server answered 503: 'over loaded', 13 times: check --x"
    assert caught.value.exit_code == 6


def test_the_server_says_how_long_or_until_when_to_wait(waits):
    then = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    sending()(REQUEST, Answers(answered(503, Retry_After="7"), answered(429, Retry_After=then), answered()))
    assert waits[0] == 7 and 27 <= waits[1] <= 30


def test_a_server_that_wants_to_be_left_alone_for_long_is(waits):
    server = Answers(answered(429, b"quota", Retry_After="3600"))
    with pytest.raises(ServiceError, match=r"answered 429: 'quota', and asks to wait 3600 s: try again then"):
        sending()(REQUEST, server)
    assert (len(server.bodies), waits) == (1, [])


def test_an_interruption_ends_the_wait_of_a_pools_thread_at_once(monkeypatch):
    monkeypatch.setattr(http, "BACKOFF", 60.0)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt), asking_threads(1) as (pool, _):
        future = pool.submit(lambda: sending()(REQUEST, Answers(answered(503))))
        time.sleep(0.1)
        assert not future.done()
        raise KeyboardInterrupt
    assert time.monotonic() - begun < 10
    assert "stopped" in str(future.exception())


@pytest.mark.parametrize("ending", ["stopped", "given up"])
def test_a_silent_server_keeps_no_pool_waiting(monkeypatch, ending):
    monkeypatch.setattr(http, "GRACE", 0.2)
    gone = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as silent, given_up(gone):
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        client = httpx.Client(transport=BoundedTransport(url, 600))
        begun = time.monotonic()
        with suppress(KeyboardInterrupt), asking_threads(3) as (pool, _):
            futures = [pool.submit(lambda: sending()(httpx.Request("GET", url), client.send)) for _ in range(6)]
            time.sleep(0.3)
            if ending == "stopped":
                raise KeyboardInterrupt
            gone.set()
    assert time.monotonic() - begun < 60
    assert {type(future.exception()) for future in futures} <= {ServiceError, GivenUpError}


@pytest.mark.parametrize("line", [b"HTTP/1.1 \xff /srv/app.py\r\n\r\n", b"HTTP/1.1 200 OK\r\nFile /srv\r\n\r\n"])
def test_what_is_not_http_is_not_quoted(serve, line):
    url = serve(lambda: iter([line]))
    with pytest.raises(ServiceError, match="no valid HTTP") as raised:
        sending()(httpx.Request("GET", url), httpx.Client(transport=BoundedTransport(url, 20)).send)
    assert "/srv" not in str(raised.value)


@pytest.mark.parametrize(("status", "quoted"), [(401, False), (403, False), (404, True), (500, True)])
def test_what_refuses_a_key_is_not_quoted(status, quoted):
    """It may repeat the key in a spelling that nobody foresees: here reversed."""
    retries = Retries("the server", "check it", 0)
    said = str(retries.refusal(httpx.Response(status, text="yek-terces-a is wrong")))
    assert said.startswith(f"the server answered {status}")
    assert ("yek-terces-a" in said) is quoted
