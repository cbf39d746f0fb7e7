"""The guard before every request: its origin, token, rate and size; and the headers of every response."""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import urlencode

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from biorag.errors import BioragError, ServiceError
from biorag.faces.server.faults import API, MCP, OPENAI, RefusedError, error_response
from biorag.faces.server.options import ServeOptions

logger = logging.getLogger(__name__)

COOKIE = "biorag"
CLIENTS = 10_000  # whose rates are known
LOGIN, HEALTH = "/login", "/healthz"
STATIC = "/static/"
TAKE_FILES = ("/papers", "/check")
READING = ("GET", "HEAD")
JSON = "application/json"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Doorkeeper:
    """Knows the token, and the cookie that replaces it in a browser until this process ends."""

    def __init__(self, token: str | None) -> None:
        self._token = token
        self.cookie = secrets.token_urlsafe(32)

    @property
    def asks(self) -> bool:
        """Whether a token is asked for."""
        return self._token is not None

    def knows(self, token: str) -> bool:
        """Return whether this is the token; the time it takes does not tell how much of it is right."""
        return self._token is not None and hmac.compare_digest(token.encode(), self._token.encode())

    def admits(self, headers: Headers) -> bool:
        """Return whether a request shows the token or the cookie, if a token is asked for."""
        if self._token is None:
            return True
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.knows(token.strip()):
            return True
        cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
        return hmac.compare_digest(cookie.encode(), self.cookie.encode())


class RateLimiter:
    """Lets each client make `rate` requests a minute, all at once or over time; 0 for no limit."""

    def __init__(self, rate: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        # requests left, and when they were counted
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str) -> float:
        """Count a request; return 0, or the seconds after which the client may ask again."""
        if not self._rate:
            return 0.0
        now = self._clock()
        left, since = self._buckets.pop(client, (float(self._rate), now))
        left = min(float(self._rate), left + (now - since) * self._rate / 60)
        granted = left >= 1
        self._buckets[client] = (left - granted, now)
        if len(self._buckets) > CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if granted else (1 - left) * 60 / self._rate


class Guard:
    """Refuses requests, bounds the bodies of the others, and adds the security headers."""

    def __init__(self, app: ASGIApp, options: ServeOptions, doorkeeper: Doorkeeper) -> None:
        self._app, self._options, self._doorkeeper = app, options, doorkeeper
        self._requests, self._logins = RateLimiter(options.rate), RateLimiter(options.logins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it; there are no web sockets."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = _Reply(send, self._options.write_seconds, cached=scope["path"].startswith(STATIC))
        try:
            self._check(scope, Headers(scope=scope))
            await self._app(scope, self._limited(scope, receive, reply), reply)
        except TimeoutError:  # the client does not take its response, so it gets no other
            return
        except asyncio.CancelledError:  # the server ends, and this is not answered yet
            if not reply.begun:
                ending = ServiceError("the server is being stopped: ask again once it is back")
                await error_response(scope["path"], ending)(scope, receive, reply)
            raise
        except BioragError as error:
            if not reply.begun:
                reply.closes = True
                await error_response(scope["path"], error)(scope, receive, reply)
        except Exception:  # which the application has answered
            logger.exception("a request for %s failed", scope["path"])

    def _check(self, scope: Scope, headers: Headers) -> None:
        """Raise `RefusedError` for a request that may not be answered."""
        path, method = scope["path"], scope["method"]
        _check_origin(scope, headers)
        client = (scope.get("client") or ("",))[0]
        limiter = self._logins if path == LOGIN and method == "POST" else self._requests
        if seconds := limiter.wait(client):
            retry = {"Retry-After": str(math.ceil(seconds))}
            raise RefusedError(HTTPStatus.TOO_MANY_REQUESTS, "too many requests: wait and ask again", retry)
        if path not in (LOGIN, HEALTH) and not path.startswith(STATIC) and not self._doorkeeper.admits(headers):
            if method in READING and is_page(path) and "text/html" in headers.get("accept", ""):
                raise RefusedError(HTTPStatus.SEE_OTHER, "log in first", {"Location": _login_for(scope)})
            sentence = "this server asks for its token: send it as 'Authorization: Bearer TOKEN'"
            raise RefusedError(HTTPStatus.UNAUTHORIZED, sentence, {"WWW-Authenticate": "Bearer"})
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if method == "POST" and not is_page(path) and kind != JSON:
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send JSON, with 'Content-Type: {JSON}'")

    def _limited(self, scope: Scope, receive: Receive, reply: _Reply) -> Receive:
        """Return a `receive` that yields a body of bounded size, which arrives in time; the app answers its errors.

        Raises `RefusedError` at once where a larger body is announced.
        """
        options, most, seconds = self._options, self._options.body, self._options.body_seconds
        if options.uploads and scope["method"] == "POST" and scope["path"] in TAKE_FILES:
            most, seconds = options.upload_bytes, options.upload_seconds
        too_long = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the request is longer than {most:,} bytes"
        announced = Headers(scope=scope).get("content-length", "0")
        if announced.isascii() and announced.isdigit() and int(announced[:20]) > most:
            raise RefusedError(*too_long)
        left, is_whole, end = most, False, anyio.current_time() + seconds

        async def limited() -> Message:
            nonlocal left, is_whole
            if is_whole:
                return await receive()
            reply.closes = True  # what is left of a refused body is no next request
            with anyio.move_on_after(end - anyio.current_time()) as clock:
                message = await receive()
            if clock.cancelled_caught:
                raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, "the request came too slowly")
            if message["type"] == "http.disconnect":
                raise HTTPException(HTTPStatus.BAD_REQUEST, "the request ended early")
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(*too_long)
            is_whole = not message.get("more_body", False)
            reply.closes = not is_whole
            return message

        return limited


class _Reply:
    """Sends a response with the security headers, to a client that takes it in time."""

    def __init__(self, send: Send, seconds: float, cached: bool) -> None:
        self._send, self._seconds, self._cached = send, seconds, cached
        self.begun = self.closes = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            if self._cached:
                headers["Cache-Control"] = "no-cache"
            if self.closes:
                headers["Connection"] = "close"
        with anyio.fail_after(self._seconds):
            await self._send(message)


def _login_for(scope: Scope) -> str:
    """Return the address of the log-in, which leads on to the address that was asked for."""
    query = scope["query_string"].decode("latin-1")
    onward = scope["path"] + (f"?{query}" if query else "")
    return LOGIN if onward == "/" else f"{LOGIN}?{urlencode({'next': onward})}"


def is_page(path: str) -> bool:
    """Return whether a path is the page's, not an API's."""
    return not path.startswith((API, OPENAI, MCP)) and path != "/openapi.json"


def _check_origin(scope: Scope, headers: Headers) -> None:
    """Refuse what another origin's page sends ("null" is ours where the browser says so); any page may link to ours."""
    ours = (headers.get("host"), *(["null"] if headers.get("sec-fetch-site") == "same-origin" else []))
    foreign = any((origin.partition("://")[2] or origin) not in ours for origin in headers.getlist("origin"))
    followed = (
        scope["method"] in READING
        and is_page(scope["path"])
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )
    if foreign or not (is_own(headers) or followed):
        raise RefusedError(HTTPStatus.FORBIDDEN, "this comes from another site's page, which may not ask here")


def is_own(headers: Headers) -> bool:
    """Return whether a person, or a page of this origin, asks: another port of the host is the same site, not ours."""
    return headers.get("sec-fetch-site", "none").lower() in ("same-origin", "none")
