"""`biorag mcp`."""

from __future__ import annotations

import os
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
    settings: Annotated[
        Settings,
        options.INDEX,
        options.RANKING,
        options.GENERATOR,
        options.ANSWER,
    ],
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
    from biorag.model_context.server import build_server
    from biorag.model_context.standard_input import ended_by_signals

    with stdout_to_stderr():
        session = Session(settings, verifier)
        server = build_server(session)
    with session, ended_by_signals():
        server.run("stdio")  # which keeps all but the protocol from standard output, as above


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send what is written to standard output to standard error, be it by a library in C or a process it starts."""
    sys.stdout.flush()
    kept = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, STDOUT)
        os.close(kept)
