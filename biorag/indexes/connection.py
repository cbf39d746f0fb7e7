"""The connection to a Qdrant server: requests that are retried, and faults as one sentence."""

from __future__ import annotations

import logging
import math
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import httpx
from pydantic import ValidationError
from qdrant_client import QdrantClient
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from biorag.errors import ServiceError
from biorag.indexes.points import StoredError
from biorag.models.finding import first_line
from biorag.settings.section import ONCE
from biorag.utils.http import EXCERPT, BoundedTransport, Retries, Send, excerpt, may_pass
from biorag.utils.network import Server, addresses, is_loopback
from biorag.utils.parsing import fault_of, parse_json
from biorag.utils.secrets import redacted

logger = logging.getLogger(__name__)

LARGEST_REPLY = 256 << 20  # bytes: many long snippets
CONNECTING = 2.0  # seconds in which one of several nodes takes a connection
LONGEST_REASON = 300  # characters
TOO_LARGE = ("split your request", "is larger than allowed", "Payload Too Large")
_KINDS = re.compile(r"^(?:Bad request|Service internal error|Rate limiting exceeded|Forbidden): ")
_NODES = re.compile(r"(?:Failed to connect to (?:https?://)?|ConnectError\(\"tcp connect error\", )([\w.\[\]-]+:\d+)")
_NEEDED = re.compile(
    r'Index required but not found for "(?P<key>.*?)" of one of the following types: \[(?P<kinds>[^\]]*)\]'
)
_RIGHT = re.compile(r"(?:Global )?(?:manage|write|read) access is required")
_LIMIT = re.compile(r"Limit exceeded \d+ > (?P<most>\d{1,9}) for")
_TAGS = re.compile(r"<[^<>]{0,1000}>")
LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=4)  # seconds; servers: 5


def connect(server: Server) -> QdrantClient:
    """Return a client of a server that retries transient failures; nothing is sent yet.

    All that biorag sends may be sent twice: points and collections have the same names each time. Each request is
    retried alone, so that points which were acknowledged are not sent again.
    """
    urls = addresses(server.url)
    for url in urls:
        if server.api_key and url.startswith("http:") and not is_loopback(url):
            logger.warning("the key goes to %s unencrypted: name an https address with --qdrant", url, extra=ONCE)
    transports = {url: BoundedTransport(url, server.timeout, LARGEST_REPLY, limits=LIMITS) for url in urls}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a key that goes unencrypted, with the place in the program
        client = QdrantClient(
            url=urls[0],
            api_key=server.api_key,
            timeout=math.ceil(server.timeout),
            check_compatibility=False,
            auth=server.auth,
            transport=NodesTransport(transports),
        )
    advice = "check --qdrant and that it runs, then give the same command again"
    name = f"the Qdrant server at {' and '.join(urls)}"
    retries = Retries(name, advice, server.retries, _may_pass, reason=lambda reply: reason_of(reply.content))

    def again(request: httpx.Request, call_next: Send) -> httpx.Response:
        def send(request: httpx.Request) -> httpx.Response:
            try:
                return call_next(request)
            except ResponseHandlingException as error:  # around what httpx raised
                raise error.source from None

        response = retries(request, send)
        response.headers.pop("Retry-After", None)  # for which the client would raise another error, without the reason
        return response

    client.http.client.add_middleware(again)
    send_and_parse = client.http.client.send

    def parsed(request: httpx.Request, kind: Any) -> Any:
        try:
            reply = send_and_parse(request, kind)
            fault = "result: Field required" if getattr(reply, "result", "") is None else ""
        except ResponseHandlingException as error:
            if not isinstance(error.source, ValidationError):
                raise
            fault = fault_of(error.source).removeprefix("obj").removeprefix(".").removeprefix(": ")
        if fault:
            raise ServiceError(f"{name} does not answer as Qdrant does ({fault}): check --qdrant")
        return reply

    client.http.client.send = parsed  # type: ignore[method-assign, assignment]  # no middleware sees how a reply is parsed
    return client


class NodesTransport(httpx.BaseTransport):
    """Sends requests to the node that took the last one, or to the next that takes a connection.

    Of several nodes one is given `CONNECTING` seconds to take it; one that does not answer in time is not asked again.
    `nodes` are the transports by URL.
    """

    def __init__(self, nodes: Mapping[str, httpx.BaseTransport]) -> None:
        self._nodes = [(httpx.URL(url), transport) for url, transport in nodes.items()]
        self._place = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; raises what the last node to be tried does."""
        for tried in range(1, len(self._nodes) + 1):
            place = self._place
            url, transport = self._nodes[place]
            if len(self._nodes) > 1:
                request.url = request.url.copy_with(scheme=url.scheme, host=url.host, port=url.port)
                request.headers["Host"] = url.netloc.decode("ascii")
                request.extensions = {**request.extensions, "timeout": _hurried(request)}
            try:
                return transport.handle_request(request)
            except httpx.TransportError as error:
                if self._place == place:  # another thread may have left it already
                    self._place = (place + 1) % len(self._nodes)
                if tried == len(self._nodes) or not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                    raise
        raise AssertionError("the last node returns or raises")

    def close(self) -> None:
        """Close all connections."""
        for _, transport in self._nodes:
            transport.close()


def _hurried(request: httpx.Request) -> dict[str, float | None]:
    timeout = dict(request.extensions.get("timeout", {}))
    return {**timeout, "connect": min(timeout.get("connect") or CONNECTING, CONNECTING)}


@contextmanager
def server_errors() -> Iterator[None]:
    """Turn what the client raises into one sentence with the next step."""
    try:
        yield
    except StoredError as error:
        raise ServiceError(
            f"the Qdrant server answers with {error}, which biorag does not write: check --qdrant, or index again"
        ) from None
    except UnexpectedResponse as error:
        raise ServiceError(_refused(error.status_code or 0, reason_of(error.content))) from error
    except (ResponseHandlingException, ApiException, httpx.HTTPError, OSError, ValueError, AssertionError) as error:
        raise ServiceError(
            f"the Qdrant server does not answer ({first_line(error)}): check --qdrant and that the server runs"
        ) from error


def _refused(status: int, reason: str) -> str:
    """Return the sentence for a reply that refuses a request."""
    if status == HTTPStatus.UNAUTHORIZED:
        lacks = reason.startswith("Must provide")
        step = "set QDRANT_API_KEY, or BIORAG_QDRANT_LOGIN" if lacks else "check QDRANT_API_KEY, which it does not take"
        return f"the Qdrant server asks for a key: {step}"
    if status == HTTPStatus.FORBIDDEN:
        right = _RIGHT.search(reason)  # nothing else is quoted: what refuses a key may repeat it
        named = f" ({right[0]})" if right else ""
        return (
            f"the key of QDRANT_API_KEY may not do this{named}: take one that may, to read for searches, to write for "
            "the first search with a new filter, to manage for 'biorag index'"
        )
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return "a request is too large for the Qdrant server, or a proxy before it: let it take 1 MB or more"
    return f"the Qdrant server refused: {reason or status}"


def reason_of(content: bytes) -> str:
    """Return why a server refuses a request, in its own words and in one line; "" if it does not say.

    Of nodes that it did not reach their addresses.
    """
    try:
        reply = parse_json(content)
    except ValueError:
        reply = content[:EXCERPT].decode("utf-8", "replace")
    status = reply.get("status") if isinstance(reply, dict) else reply
    text = str(status.get("error", "")) if isinstance(status, dict) else status if isinstance(status, str) else ""
    if text.lstrip().startswith("<"):  # a page of a proxy
        text = " ".join(_TAGS.sub(" ", text).split())
    if nodes := sorted(set(_NODES.findall(text))):
        return f"it does not reach its node{'s' if len(nodes) > 1 else ''} at {', '.join(nodes)}"
    return redacted(" ".join(_KINDS.sub("", text).split())[:LONGEST_REASON])


def needed_index(error: UnexpectedResponse) -> tuple[str, tuple[str, ...]] | None:
    """Return the key of the payload that a server wants an index of, and the kinds that would do; None if it does not.

    In strict mode, which managed servers switch on, it filters by nothing else.
    """
    match = _NEEDED.search(reason_of(error.content))
    return (match["key"], tuple(kind.strip() for kind in match["kinds"].split(", "))) if match else None


def fewer(error: UnexpectedResponse, count: int) -> int | None:
    """Return how many of `count` things a request may have, where a server or a proxy says that it was too large."""
    reason = reason_of(error.content)
    if match := _LIMIT.search(reason):
        return max(1, min(int(match["most"]), count - 1))
    too_large = error.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or any(text in reason for text in TOO_LARGE)
    return max(1, count // 2) if too_large and count > 1 else None


def _may_pass(response: httpx.Response) -> bool:
    """Return whether a failure is transient; a request that is larger than what may be asked at once never passes."""
    return may_pass(response) and not any(text in excerpt(response) for text in TOO_LARGE)
