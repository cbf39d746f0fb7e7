"""`biorag mcp`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from biorag.commands import options
from biorag.commands.groups import expanded
from biorag.settings.settings import Settings

STDOUT, STDERR = 1, 2  # file descriptors


@expanded
def mcp(
    settings: Annotated[Settings, options.INDEX, options.RANKING, options.GENERATOR, options.ANSWER],
    verifier: options.Verifier = None,
) -> None:
    """Serve an index to assistants by the Model Context Protocol, on standard input and output.

    An assistant that speaks MCP starts this command itself: docs/mcp.md has the configuration for the usual ones. Its
    tools only read. They search, show snippets, answer questions, judge claims, cite, and describe the index.

    Examples:

      biorag mcp
      biorag mcp --name pubmed --llm starter
      biorag mcp --name pubmed --mode bm25 --no-rerank
    """
    from biorag.api.session import Session
    from biorag.mcp_server.server import build_server

    with stdout_to_stderr():
        session = Session(settings, verifier, eager=True)
        server = build_server(session)

    def stop(number: int, frame: object) -> None:
        """End at once: the SDK reads standard input in a thread, which waits until its other end is closed."""
        session.close()
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    with session:
        server.run("stdio")  # which keeps all but the protocol from standard output, as above


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Redirect standard output to standard error, for libraries in C and child processes too."""
    sys.stdout.flush()
    saved = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, STDOUT)
        os.close(saved)
