"""Requests to a server: one deadline and a bounded size for each reply, transient failures sent again."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

import httpcore
import httpx

from biorag.errors import ServiceError
from biorag.utils.network import proxy_of
from biorag.utils.parsing import parse_json
from biorag.utils.secrets import redacted

logger = logging.getLogger(__name__)

LARGEST = 16 << 20  # bytes of a reply, unless its reader says otherwise
PIECE = 1 << 16  # bytes sent at once
LOOK = 1.0  # seconds between two looks at whether somebody still waits for a reply
GRACE = 5.0  # seconds that a reply may still take once the run was stopped
BACKOFF = 0.5  # seconds at most before the first retry, doubled before each further one
LONGEST = 60.0  # seconds at most between two tries
SHOWN = 200  # characters of a server's answer
EXCERPT = 1 << 16  # bytes of an answer that is not JSON which are looked at
NOT_NOW = frozenset({408, 429})
NEVER = frozenset({501, 505})  # the server errors that are permanent

Send = Callable[[httpx.Request], httpx.Response]

_thread = threading.local()


class ReplyRefusedError(httpx.TransportError):
    """A reply that is not read to its end: it is too large, or compressed, which nobody asked for."""


class BoundedTransport(httpx.HTTPTransport):
    """Sends requests to the server at `url`, or through the proxy that the environment names for it.

    A reply must be complete `seconds` after the start of its request, else it times out. It may have `largest` bytes,
    uncompressed; raises `ReplyRefusedError` otherwise.
    """

    def __init__(self, url: str, seconds: float, largest: int = LARGEST, **options: Any) -> None:
        super().__init__(proxy=proxy_of(url) or None, **options)
        self._seconds, self._largest = seconds, largest
        self._deadline = _Deadline()
        # A network backend is public in httpcore; httpx has no way to pass one on.
        self._pool._network_backend = _Backend(self._deadline)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; the same thread reads the bytes of its reply."""
        self._deadline.start(self._seconds)
        request.headers["Accept-Encoding"] = "identity"
        response = super().handle_request(request)
        coding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if coding not in ("identity", ""):
            response.close()
            raise ReplyRefusedError("its reply is compressed, which was not asked for")
        assert isinstance(response.stream, httpx.SyncByteStream)
        response.stream = _BoundedStream(response.stream, self._largest)
        return response


class _BoundedStream(httpx.SyncByteStream):
    """A reply's bytes up to a limit."""

    def __init__(self, stream: httpx.SyncByteStream, largest: int) -> None:
        self._stream, self._largest = stream, largest

    def __iter__(self) -> Iterator[bytes]:
        total = 0
        for piece in self._stream:
            total += len(piece)
            if total > self._largest:
                raise ReplyRefusedError(f"its reply has more than {self._largest:,} bytes")
            yield piece

    def close(self) -> None:
        self._stream.close()


class _Deadline(threading.local):
    """When the reply that this thread waits for must be complete."""

    _end = float("inf")

    def start(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def cut(self, seconds: float) -> None:
        self._end = min(self._end, time.monotonic() + seconds)

    def left(self, seconds: float | None, error: type[httpcore.TimeoutException] = httpcore.ConnectTimeout) -> float:
        """Return the seconds that one operation may take, at most `seconds`; raise the error if none are left."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise error("the deadline is over")
        return left if seconds is None else min(left, seconds)


class _Backend(httpcore.SyncBackend):
    """Connections under the deadline of the request that they are used for."""

    def __init__(self, deadline: _Deadline) -> None:
        self._deadline = deadline

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *options: Any, **named: Any
    ) -> httpcore.NetworkStream:
        stream = super().connect_tcp(host, port, self._deadline.left(timeout), *options, **named)
        return _TimedStream(stream, self._deadline)


class _TimedStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, deadline: _Deadline) -> None:
        self._stream, self._deadline = stream, deadline
        self.close, self.get_extra_info = stream.close, stream.get_extra_info  # type: ignore[method-assign]

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        while True:
            if _is_set("gone"):
                raise GivenUpError("nobody waits for the reply any more")
            if _is_set("stop"):
                self._deadline.cut(GRACE)
            left = self._deadline.left(timeout, httpcore.ReadTimeout)
            with suppress(httpcore.ReadTimeout):
                return self._stream.read(max_bytes, min(left, LOOK))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), PIECE):
            self._stream.write(buffer[start : start + PIECE], self._deadline.left(timeout, httpcore.WriteTimeout))

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, self._deadline.left(timeout))
        return _TimedStream(stream, self._deadline)


class GivenUpError(ServiceError):
    """A reply that nobody waits for any more."""


@contextmanager
def given_up(gone: threading.Event) -> Iterator[None]:
    """Let `gone` end this thread's requests, at the latest `LOOK` seconds after it is set, by `GivenUpError`."""
    _thread.gone = gone
    try:
        yield
    finally:
        _thread.gone = None


@contextmanager
def asking_threads(count: int) -> Iterator[tuple[ThreadPoolExecutor, threading.Event]]:
    """Give threads for requests, and what stops them, which an error or an interruption in this context does too.

    Then no request is sent again, and a reply may take `GRACE` seconds. What gives this thread up gives them up.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(count, initializer=_heed, initargs=(stop, getattr(_thread, "gone", None))) as pool:
        try:
            yield pool, stop
        except BaseException:
            stop.set()
            raise


def _heed(stop: threading.Event, gone: threading.Event | None) -> None:
    _thread.stop, _thread.gone = stop, gone


def _is_set(name: str) -> bool:
    """Return whether this thread was given up ("gone") or stopped ("stop")."""
    event: threading.Event | None = getattr(_thread, name, None)
    return event is not None and event.is_set()


def may_pass(response: httpx.Response) -> bool:
    """Return whether a failure is transient."""
    status = response.status_code
    return status in NOT_NOW or (status >= 500 and status not in NEVER)


class _TransientError(Exception):
    """A transient failure: the server's answer, and the seconds it asks to wait."""

    def __init__(self, fault: str, answer: str = "", seconds: float = 0.0) -> None:
        super().__init__(fault)
        self.answer, self.seconds = answer, seconds


class Retries:
    """Sends idempotent requests; returns an answer that is valid JSON (or `is_complete`), or a permanent failure.

    Raises `ServiceError` if the last try fails too, or at once where another one cannot help: the certificate is
    refused, the reply too large, or the server asks to wait for more than `LONGEST` seconds. `server` is its name in
    messages, without credentials; `reason` tells why it refused, instead of a quotation.
    """

    def __init__(
        self,
        server: str,
        advice: str,
        limit: int,
        transient: Callable[[httpx.Response], bool] = may_pass,
        expected: str = "JSON",
        is_complete: Callable[[httpx.Response], bool] | None = None,
        reason: Callable[[httpx.Response], str] | None = None,
    ) -> None:
        self._server, self._advice, self._limit = server, advice, limit
        self._transient, self._expected = transient, expected
        self._is_complete = is_complete or _is_complete
        self._reason = reason

    def __call__(self, request: httpx.Request, send: Send) -> httpx.Response:
        """Send one request until it is answered; `send` reads the whole answer."""
        for attempt in range(1, self._limit + 2):
            try:
                return self._try(request, send)
            except httpx.HTTPError as error:
                raise ServiceError(f"{self._server} cannot be asked ({error}): {self._advice}") from error
            except _TransientError as fault:
                if attempt > self._limit:
                    tries = f"{attempt} times" if self._limit else "once"
                    sentence = f"{self._server} {fault}{fault.answer}, {tries}: {self._advice}"
                    raise ServiceError(sentence, fault.answer) from None
                self._wait(fault, attempt)
        raise AssertionError("the last attempt returns or raises")

    def _try(self, request: httpx.Request, send: Send) -> httpx.Response:
        """Send a request once; raise transient failures as `_TransientError`."""
        try:
            response = send(request)
        except httpx.TimeoutException:
            raise _TransientError("did not answer in time (BIORAG_TIMEOUT sets the seconds)") from None
        except httpx.TransportError as error:
            if _is_permanent(error):
                raise
            is_reply = isinstance(error, httpx.RemoteProtocolError)  # whose text quotes what the server sent
            fault = "no valid HTTP" if is_reply else str(error) or type(error).__name__
            raise _TransientError(f"failed: {fault}") from None
        transient = self._transient(response)
        if not transient and self._is_complete(response):
            return response
        fault = f"answered {response.status_code}" if transient else f"sent no valid {self._expected}"
        answer = self._answer(response) if transient else ""
        seconds = _retry_after(response)
        if seconds > LONGEST:
            asked = f"and asks to wait {seconds:.0f} s: try again then"
            raise ServiceError(f"{self._server} {fault}{answer}, {asked}", answer)
        raise _TransientError(fault, answer, seconds)

    def refusal(self, response: httpx.Response, hint: str = "") -> ServiceError:
        """Return the error for an answer that ends a command, which quotes it in one short line.

        What refuses a key may repeat it in a spelling that nobody foresees, so that it is not quoted.
        """
        if response.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            reason = "that the key is missing or not accepted"
            return ServiceError(f"{self._server} answered {response.status_code}, {reason}{hint}")
        answer = self._answer(response)
        return ServiceError(f"{self._server} answered {response.status_code}{answer}{hint}", answer)

    def _answer(self, response: httpx.Response) -> str:
        if self._reason:
            return f": {told}" if (told := self._reason(response)) else ""
        return f": {' '.join(excerpt(response).split())[:SHOWN]!r}"

    def _wait(self, fault: _TransientError, attempt: int) -> None:
        """Wait by exponential backoff with jitter, or as long as the server asks; log why, but not what it answered."""
        backoff = min(BACKOFF * 2 ** (attempt - 1), LONGEST)
        seconds = max(fault.seconds, backoff * random.uniform(0.5, 1.0))
        logger.warning("%s %s; retrying in %.2g s (%d of %d)", self._server, fault, seconds, attempt, self._limit)
        if not any(getattr(_thread, name, None) for name in ("gone", "stop")):
            time.sleep(seconds)
            return
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if _is_set("gone") or _is_set("stop"):
                raise ServiceError(f"{self._server} {fault}: not retried, since the run was stopped")
            time.sleep(min(left, LOOK / 10))


def excerpt(response: httpx.Response) -> str:
    """Return the start of an answer as text without secrets; UTF-8 whatever it says, since some codecs are slow."""
    return redacted(response.content[:EXCERPT].decode("utf-8", "replace"))


def _is_complete(response: httpx.Response) -> bool:
    """Return whether an answer is complete: valid JSON, unless it is a failure."""
    if response.is_success:
        try:
            parse_json(response.content)
        except ValueError:
            return False
    return True


def _is_permanent(error: httpx.TransportError) -> bool:
    """Return whether a failure lies in the request, in the server's certificate, or in a refused reply."""
    of_request = isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError | ReplyRefusedError)
    return of_request or "CERTIFICATE_VERIFY_FAILED" in str(error)


def _retry_after(response: httpx.Response) -> float:
    """Return the seconds that an answer asks to wait, by a number or a date; 0 if it does not ask."""
    value = response.headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdecimal():
        return float(value[:9])
    try:
        return max(0.0, (parsedate_to_datetime(value).astimezone(UTC) - datetime.now(UTC)).total_seconds())
    except (ValueError, OverflowError):
        return 0.0
