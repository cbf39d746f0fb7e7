"""Requests sent again: which, how often, how long after one another, and what is said of it."""

from __future__ import annotations

import logging
import ssl
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

from biorag.errors import ServiceError
from biorag.utils import retries
from biorag.utils.retries import LONGEST, Retries, heed
from biorag.utils.secrets import remember
from biorag.utils.transport import ReplyRefusedError

REQUEST = httpx.Request("POST", "http://server/x", json={"a": 1})


class Server:
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
    monkeypatch.setattr(retries, "BACKOFF", 0.5)
    monkeypatch.setattr(retries.time, "sleep", found.append)
    return found


def sending(limit: int = 5) -> Retries:
    return Retries("the server at http://server", "check --x", limit)


PASSING = [
    httpx.ConnectError("refused"),
    httpx.ConnectTimeout("timed out"),
    httpx.ReadTimeout("timed out"),
    httpx.ReadError("reset"),
    httpx.WriteError("broken pipe"),
    httpx.RemoteProtocolError("peer closed connection"),
    *(answered(status) for status in (408, 429, 500, 502, 503, 504, 507, 529)),
    answered(200, b'{"half": '),
    answered(200, b""),
]


@pytest.mark.parametrize("fault", PASSING, ids=repr)
def test_the_same_request_is_sent_again_after_what_may_pass(waits, fault):
    server = Server(fault, fault, answered(content=b'{"b": 2}'))
    assert sending()(REQUEST, server).json() == {"b": 2}
    assert server.bodies == [b'{"a":1}'] * 3
    assert len(waits) == 2


@pytest.mark.parametrize("status", [200, 201, 301, 400, 401, 403, 404, 409, 413, 422, 425, 501, 505])
def test_an_answer_that_stays_is_returned_at_once(waits, status):
    server = Server(answered(status))
    assert sending()(REQUEST, server).status_code == status
    assert (len(server.bodies), waits) == (1, [])


@pytest.mark.parametrize(
    "fault",
    [
        httpx.UnsupportedProtocol("no http"),
        httpx.LocalProtocolError("illegal header"),
        httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"),
        httpx.DecodingError("not gzip"),
        ReplyRefusedError("its reply has more than 3 bytes"),
    ],
    ids=repr,
)
def test_a_fault_that_stays_is_told_at_once(waits, fault):
    server = Server(fault)
    with pytest.raises(ServiceError) as caught:
        sending()(REQUEST, server)
    assert str(caught.value) == f"the server at http://server cannot be asked ({fault}): check --x"
    assert (len(server.bodies), waits) == (1, [])


def test_what_is_no_fault_of_the_request_is_raised_as_it_is(waits):
    with pytest.raises(ssl.SSLError):
        sending()(REQUEST, Server(ssl.SSLError("other")))
    assert waits == []


def test_the_waits_double_with_some_chance_and_end_at_the_limit(waits):
    with pytest.raises(ServiceError) as caught:
        sending(12)(REQUEST, Server(answered(503, b"over\nloaded")))
    most = [0.5, 1, 2, 4, 8, 16, 32, *[LONGEST] * 5]
    assert all(top / 2 <= seconds <= top for seconds, top in zip(waits, most, strict=True))
    assert len(set(waits)) == 12, "two clients do not knock in step"
    assert str(caught.value) == "the server at http://server answered 503: 'over loaded', 13 times: check --x"
    assert caught.value.exit_code == 6


def test_without_retries_a_request_is_sent_once(waits):
    server = Server(httpx.ReadTimeout(""))
    with pytest.raises(ServiceError, match=r"in time \(BIORAG_TIMEOUT sets the seconds\), once: check --x"):
        sending(0)(REQUEST, server)
    assert (len(server.bodies), waits) == (1, [])


def test_each_wait_is_told_with_its_place(waits, caplog):
    with caplog.at_level(logging.WARNING):
        sending(3)(REQUEST, Server(answered(429, b"slow", Retry_After="2"), answered(503), answered()))
    assert caplog.messages[0] == "the server at http://server answered 429; retrying in 2 s (1 of 3)"
    assert caplog.messages[1].endswith("s (2 of 3)")
    assert len(caplog.messages) == 2


@pytest.mark.parametrize(("asked", "seconds"), [("7", 7), (" 7 ", 7), ("60", 60)])
def test_the_server_says_how_long_to_wait(waits, asked, seconds):
    sending()(REQUEST, Server(answered(503, Retry_After=asked), answered()))
    assert waits == [seconds]


def test_the_server_says_until_when_to_wait(waits):
    then = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    sending()(REQUEST, Server(answered(429, Retry_After=then), answered()))
    assert 27 <= waits[0] <= 30


@pytest.mark.parametrize("asked", ["0", "-5", "soon", "1e9", "Wed, 21 Oct 2015 07:28:00 GMT", "Thu, 99 Foo"])
def test_a_time_that_is_none_or_past_leaves_our_own_wait(waits, asked):
    sending()(REQUEST, Server(answered(429, Retry_After=asked), answered()))
    assert 0.25 <= waits[0] <= 0.5


def test_a_server_that_wants_to_be_left_alone_for_long_is(waits):
    server = Server(answered(429, b"quota", Retry_After="3600"))
    with pytest.raises(ServiceError, match=r"answered 429: 'quota', and asks to wait 3600 s: try again then"):
        sending()(REQUEST, server)
    assert (len(server.bodies), waits) == (1, [])


def test_a_server_that_repeats_the_key_does_not_make_us_repeat_it(waits, caplog):
    remember("s3cret")
    with pytest.raises(ServiceError) as caught:
        sending(1)(REQUEST, Server(answered(500, b"bad key s3cret\x1b[31m")))
    assert "s3cret" not in str(caught.value) + caplog.text
    assert "bad key …" in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_server_that_repeats_the_question_is_quoted_in_the_last_error_alone(waits, caplog):
    echoing = Server(answered(500, b'{"detail": "bad request: does it lower fever?"}'))
    with caplog.at_level(logging.DEBUG), pytest.raises(ServiceError, match="does it lower fever"):
        sending(2)(REQUEST, echoing)
    assert len(caplog.messages) == 2
    assert "fever" not in caplog.text


def test_an_interruption_ends_the_wait_of_a_pools_thread_at_once(monkeypatch):
    monkeypatch.setattr(retries, "BACKOFF", 60.0)
    stop, ended, errors = threading.Event(), threading.Event(), []

    def work() -> None:
        heed(stop)
        try:
            sending()(REQUEST, Server(answered(503)))
        except ServiceError as error:
            errors.append(error)
        ended.set()

    threading.Thread(target=work, daemon=True).start()
    time.sleep(0.1)
    assert not ended.is_set()
    stop.set()
    assert ended.wait(2)
    assert "stopped" in str(errors[0])


@pytest.mark.parametrize("charset", ["hex", "zlib", "punycode", "idna", "unicode_escape", "no-such-codec", "utf-16"])
def test_an_answer_is_shown_whatever_it_says_it_is_written_in(waits, charset):
    answer = answered(403, b"no access for y\xf6u", Content_Type=f"text/html; charset={charset}")
    assert sending().said(answer) == "answered 403: 'no access for y\N{REPLACEMENT CHARACTER}u'"
