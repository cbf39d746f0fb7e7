"""The connection to a Qdrant server: requests that are retried, and faults as one sentence."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from qdrant_client import QdrantClient
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from biorag.errors import ServiceError
from biorag.indexes.points import StoredError
from biorag.models.finding import first_line
from biorag.utils.http import BoundedTransport, Retries, Send
from biorag.utils.network import Server, is_loopback

LARGEST_REPLY = 16 << 20  # bytes
LARGER_REPLIES = {"/points": 256 << 20}  # bytes: many long snippets
# On one machine a new connection costs nothing, and one that the server has closed meanwhile costs a retry.
LOCAL = httpx.Limits(max_keepalive_connections=0)
REMOTE = httpx.Limits(max_connections=100, max_keepalive_connections=20)


def connect(server: Server) -> QdrantClient:
    """Return a client of a server that retries transient failures; nothing is sent yet.

    All that biorag sends may be sent twice: points and collections have the same names each time. Each request is
    retried alone, so that points which were acknowledged are not sent again.
    """
    limits = LOCAL if is_loopback(server.url) else REMOTE
    client = QdrantClient(
        url=server.url,
        api_key=server.api_key,
        timeout=math.ceil(server.timeout),
        check_compatibility=False,
        auth=server.auth,
        transport=BoundedTransport(server.url, server.timeout, LARGEST_REPLY, LARGER_REPLIES, limits=limits),
    )
    advice = "check --qdrant and that it runs, then give the same command again"
    retries = Retries(f"the Qdrant server at {server.url}", advice, server.retries)

    def again(request: httpx.Request, call_next: Send) -> httpx.Response:
        def send(request: httpx.Request) -> httpx.Response:
            try:
                return call_next(request)
            except ResponseHandlingException as error:  # around what httpx raised
                raise error.source from None

        return retries(request, send)

    client.http.client.add_middleware(again)
    return client


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
        hint = ": set QDRANT_API_KEY, or BIORAG_QDRANT_LOGIN" if error.status_code in (401, 403) else ""
        raise ServiceError(f"the Qdrant server refused: {error.status_code} {error.reason_phrase}{hint}") from error
    except (ResponseHandlingException, ApiException, httpx.HTTPError, OSError, ValueError, AssertionError) as error:
        raise ServiceError(
            f"the Qdrant server does not answer ({first_line(error)}): check --qdrant and that the server runs"
        ) from error
