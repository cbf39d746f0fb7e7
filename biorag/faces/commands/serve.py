"""`biorag serve` and `biorag mcp`."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import sys
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from threading import Timer
from typing import TYPE_CHECKING, Annotated

from typer import Option

from biorag.commands import options, show
from biorag.commands.groups import Flags, expanded, is_named, with_index
from biorag.settings.settings import Settings
from biorag.utils.versions import require

if TYPE_CHECKING:
    from biorag.faces.server.options import ServeOptions

TOKEN_VARIABLE = "BIORAG_SERVE_TOKEN"
NAMED = Flags("name", default="all indexes")
OPENED = Flags("encoder", "qdrant")


@dataclass(frozen=True, slots=True)
class Serving:
    """Where to listen, whom to answer, and how much to take on."""

    host: Annotated[str, Option(help="Address; one that other machines reach requires --token.")] = "127.0.0.1"
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8765
    token: Annotated[str | None, Option(help=f"Token that clients must show; better set as {TOKEN_VARIABLE}.")] = None
    allowed_host: Annotated[list[str] | None, Option(help="Name by which browsers reach it. Repeatable.")] = None
    rate: Annotated[int, Option(min=0, help="Requests a minute of each client; 0 for no limit.")] = 600
    queue: Annotated[int, Option(min=1, help="Questions answered or waiting, at most.")] = 64
    uploads: Annotated[
        bool, Option("--uploads", help="Let the page take papers into indexes, and manuscripts to check.")
    ] = False
    open_page: Annotated[bool, Option("--open", help="Open the page in the browser.")] = False

    def options(self, others: bool) -> ServeOptions:
        """Return the server's options; with `others` it has all indexes."""
        from biorag.faces.server.options import ServeOptions

        token = self.token or os.environ.get(TOKEN_VARIABLE) or None
        hosts = tuple(self.allowed_host or ())
        return ServeOptions(
            self.host, self.port, token, hosts, self.rate, self.queue, others=others, uploads=self.uploads
        )


@expanded
def serve(
    settings: Annotated[Settings, NAMED, OPENED, options.RANKING, options.GENERATOR, options.ANSWER],
    serving: Annotated[Serving, "Server"],
) -> None:
    """Serve a page, a JSON API and an OpenAI-compatible API over your indexes, until Ctrl-C.

    The page is at the address that is printed, the API under /api (described at /openapi.json), chat completions and
    responses under /v1, where a model is an index. With --name there is that index alone. Without --token only this
    machine is answered.

    Examples:

      biorag serve --open
      biorag serve --name pubmed --llm starter -k 10
      biorag serve --uploads
      BIORAG_SERVE_TOKEN=... biorag serve --host 0.0.0.0 --allowed-host lab.example.org
    """
    require("serve")
    from biorag.api.session import Session
    from biorag.faces.server.running import listening
    from biorag.faces.server.running import serve as answer_requests

    named = is_named(settings)
    served = serving.options(others=not named)

    def ready(address: str) -> None:
        if served.is_wildcard:
            name = next(iter(served.allowed_hosts), socket.gethostname())
            show.err.print(f"Other machines reach it at {address.replace('127.0.0.1', name)}", soft_wrap=True)
        show.err.print(f"biorag is ready at {address} (Ctrl-C ends it)", soft_wrap=True)
        if serving.open_page:
            show.open_page(address)

    with listening(served) as listener:  # a port that is taken is told before models are loaded
        settings = settings if named else _chosen(settings)
        show.err.print(f"Opening index {settings.index.name!r} …")
        with Session(settings, eager=True) as session, suppress(KeyboardInterrupt):  # a server's usual end
            answer_requests(session, served, listener, ready)
    show.err.print("stopped")


def _chosen(settings: Settings) -> Settings:
    """Return settings that name no index with the one that is asked where a request names none, and say which."""
    from biorag.faces.session_pool import first_of
    from biorag.indexes.store import reachable_indexes

    if len(reachable_indexes(settings)) < 2:
        return with_index(settings)
    settings = settings.replace(name=first_of(settings))
    show.err.print(f"Index {settings.index.name!r} is asked where a request names none", soft_wrap=True)
    return settings


@expanded
def mcp(settings: Annotated[Settings, NAMED, OPENED, options.RANKING, options.GENERATOR, options.ANSWER]) -> None:
    """Serve your indexes to assistants by the Model Context Protocol, on standard input and output.

    An assistant that speaks MCP starts this command itself: docs/mcp.md has the configuration for the usual ones. Its
    tools only read. They search, show snippets, answer questions, judge claims, cite, and describe the indexes. With
    --name they have that index alone.

    Examples:

      biorag mcp
      biorag mcp --name pubmed --llm starter
      biorag mcp --name pubmed --mode bm25 --no-rerank
    """
    from biorag.api.session import Session
    from biorag.faces.mcp_server.server import build_server
    from biorag.faces.session_pool import SessionPool

    with redirect_stdout(sys.stderr):  # standard output is the protocol's
        named = is_named(settings)
        session = Session(settings if named else _chosen(settings), eager=True)
        pool = SessionPool(session, others=not named)
        server = build_server(pool)

    def stop(number: int, frame: object) -> None:
        """End at once: threads of the SDK may wait for standard input, or for a model after its end (SIGALRM)."""
        code = 0 if number == signal.SIGALRM else 128 + number
        Timer(0.2, os._exit, [code]).start()  # what is to be closed may be in use
        pool.close_idle(0)
        session.close()
        os._exit(code)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, stop)
    atexit.register(signal.alarm, 0)  # no thread waits any more
    with session:
        server.run("stdio")
        pool.close_idle(0)
    signal.alarm(0)
