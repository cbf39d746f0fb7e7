"""Requests to a server, sent again after faults that may pass: a few times, waiting longer each time."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

from biorag.errors import ServiceError

logger = logging.getLogger(__name__)

BACKOFF = 0.5  # seconds before the second try at most; doubled before each further one
LONGEST = 60.0  # seconds between two tries at most
SHOWN = 200  # characters of what a server said
NOT_NOW = frozenset({408, 429})
NEVER = frozenset({501, 505})  # of the server's own faults, those that stay

Send = Callable[[httpx.Request], httpx.Response]

_thread = threading.local()


def heed(stop: threading.Event) -> None:
    """Let this thread's waits for another try end when `stop` is set; the `initializer` of a pool of threads."""
    _thread.stop = stop


def may_pass(response: httpx.Response) -> bool:
    """Return whether the same request may be answered otherwise a little later."""
    status = response.status_code
    return status in NOT_NOW or (status >= 500 and status not in NEVER)


class _PassingError(Exception):
    """A fault that may pass: what the server said, and the seconds it asks to wait."""

    def __init__(self, fault: str, answer: str = "", seconds: float = 0.0) -> None:
        super().__init__(fault)
        self.answer = answer
        self.seconds = seconds


class Retries:
    """Sends requests that may safely be sent twice; each whole answer in JSON, or one that stays, is returned.

    Parameters
    ----------
    server : what the server is called in messages, without credentials
    advice : what to do if it goes on failing
    limit : how often a request is sent again
    secrets : what must not be repeated from a server's answer
    passing : which answers to send the request again for

    Raises
    ------
    ServiceError
        If the last try fails too, or the server asks to be left alone for more than `LONGEST` seconds.
    """

    def __init__(
        self,
        server: str,
        advice: str,
        limit: int,
        secrets: Sequence[str] = (),
        passing: Callable[[httpx.Response], bool] = may_pass,
    ) -> None:
        self._server = server
        self._advice = advice
        self._limit = limit
        self._secrets = secrets
        self._passing = passing

    def __call__(self, request: httpx.Request, send: Send) -> httpx.Response:
        """Send one request until it is answered; `send` reads the whole answer."""
        retrying = Retrying(
            retry=retry_if_exception_type(_PassingError),
            stop=stop_after_attempt(self._limit + 1),
            wait=_pause,
            before_sleep=self._wait,
            sleep=lambda _: None,  # `_wait` did: it knows the fault
            reraise=True,
        )
        try:
            return retrying(self._try, request, send)
        except _PassingError as fault:
            tries = f"{self._limit + 1} times" if self._limit else "once"
            raise ServiceError(f"{self._server} {fault}{fault.answer}, {tries}: {self._advice}") from None

    def _try(self, request: httpx.Request, send: Send) -> httpx.Response:
        """Send a request once; raise what may pass as a `_PassingError`."""
        try:
            response = send(request)
        except httpx.TimeoutException:
            raise _PassingError("did not answer in time (BIORAG_TIMEOUT sets the seconds)") from None
        except httpx.TransportError as error:
            if _stays(error):
                raise
            raise _PassingError(f"failed: {str(error) or type(error).__name__}") from None
        passing = self._passing(response)
        if not passing and _is_whole(response):
            return response
        fault, answer = (_status(response), self._answer(response)) if passing else ("sent no whole JSON", "")
        seconds = _retry_after(response)
        if seconds > LONGEST:
            raise ServiceError(f"{self._server} {fault}{answer}, and asks to wait {seconds:.0f} s: try again then")
        raise _PassingError(fault, answer, seconds)

    def said(self, response: httpx.Response) -> str:
        """Return what an answer says, as one short line without the secrets, for the error that ends a command."""
        return f"{_status(response)}{self._answer(response)}"

    def _answer(self, response: httpx.Response) -> str:
        text = " ".join(response.text.split())
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return f": {text[:SHOWN]!r}"

    def _wait(self, state: RetryCallState) -> None:
        """Wait for another try and log why, without the answer: it may repeat the question."""
        fault, seconds = _fault_of(state), state.upcoming_sleep
        place = f"({state.attempt_number} of {self._limit})"
        logger.warning("%s %s; retrying in %.2g s %s", self._server, fault, seconds, place)
        stop: threading.Event | None = getattr(_thread, "stop", None)
        if stop is None:
            time.sleep(seconds)
        elif stop.wait(seconds):
            raise ServiceError(f"{self._server} {fault}: not tried again, since the run was stopped")


def _fault_of(state: RetryCallState) -> _PassingError:
    fault = state.outcome and state.outcome.exception()
    assert isinstance(fault, _PassingError), "only faults are tried again"
    return fault


def _pause(state: RetryCallState) -> float:
    """Return the seconds before another try: at least what the server asks, else more each time, with some chance."""
    backoff: float = min(BACKOFF * 2 ** (state.attempt_number - 1), LONGEST)
    return max(_fault_of(state).seconds, backoff * random.uniform(0.5, 1.0))


def _status(response: httpx.Response) -> str:
    return f"answered {response.status_code}"


def _is_whole(response: httpx.Response) -> bool:
    """Return whether an answer is JSON, which one that is no success need not be."""
    if response.is_success:
        try:
            response.json()
        except ValueError:
            return False
    return True


def _stays(error: httpx.TransportError) -> bool:
    """Return whether a fault lies in the request, or in the server's certificate."""
    of_request = isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError)
    return of_request or "CERTIFICATE_VERIFY_FAILED" in str(error)


def _retry_after(response: httpx.Response) -> float:
    """Return the seconds that an answer asks to wait, given as a number or a date; 0 if it does not."""
    value = response.headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdecimal():
        return float(value[:9])
    try:
        return max(0.0, (parsedate_to_datetime(value).astimezone(UTC) - datetime.now(UTC)).total_seconds())
    except (ValueError, OverflowError):
        return 0.0
