"""The MCP server: tools over open indexes, read-only, with errors of one line."""

from __future__ import annotations

import io
import logging
import re
import signal
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import anyio
from pydantic import ValidationError

from biorag.api.session import Session
from biorag.errors import BioragError, MissingError
from biorag.faces.mcp_server.tools import QUOTED, Tools
from biorag.faces.session_pool import SessionPool
from biorag.utils.parsing import advice_of
from biorag.utils.text import cut, showable

try:
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.server.stdio import stdio_server
    from mcp.types import CallToolResult, InputRequiredResult, ToolAnnotations
except ImportError as error:  # the package is missing, or of a version before 2
    raise MissingError("the Model Context Protocol needs mcp 2 or later: run pip install 'biorag[mcp]'") from error

INSTRUCTIONS = f"""Answers biomedical questions from the index {{name!r}}, or from another that list_indexes names, with
citations that were checked.
Search or ask first; then get_snippet shows a whole snippet and cite its reference. verify_claim says what the evidence
says of a sentence, not whether it is true; weigh shows the studies for and against one. {QUOTED} Nothing here is
medical advice."""
LONGEST_ERROR = 500  # characters
_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF = re.compile(rf"{_HIGH}(?!{_LOW})|(?<!\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]){_LOW}")


class _Lines(io.TextIOWrapper):
    """Standard input, half surrogate pairs in JSON's escapes as �: the SDK takes no such line, and gives no reply."""

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        """Return the next line; at the end, send SIGALRM in half a second."""
        if not (line := super().readline(size)):
            signal.setitimer(signal.ITIMER_REAL, 0.5)
        return _HALF.sub(r"\\ufffd", line)


class ToolServer(MCPServer[Any]):
    """A server whose tools fail in one line."""

    async def run_stdio_async(self) -> None:
        """Serve standard input and output; SIGALRM ends a process whose input has ended and which still answers."""
        lines = anyio.wrap_file(_Lines(sys.stdin.buffer, encoding="utf-8", errors="replace"))
        async with stdio_server(lines) as (incoming, outgoing):
            options = self._lowlevel_server.create_initialization_options()
            await self._lowlevel_server.run(incoming, outgoing, options)

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool.

        Raises `ToolError` in one line, if the tool is unknown, an argument is wrong, or the tool fails as it may.
        """
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, BioragError):
                raise ToolError(one_line(error.__cause__.public)) from error.__cause__
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(one_line(faults(error.__cause__))) from error.__cause__
            raise


def build_server(sessions: Session | SessionPool) -> MCPServer[Any]:
    """Return the server of a session, or of a pool of them.

    `run("stdio")`, or mount its `streamable_http_app()` and run `session_manager`, which runs once: build a server for
    each application.
    """
    pool = sessions if isinstance(sessions, SessionPool) else SessionPool(sessions, others=False)
    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # a client's mistakes fill no log
    server = ToolServer(
        "biorag",
        title="biorag",
        description="Biomedical questions answered from PubMed evidence",
        instructions=INSTRUCTIONS.format(name=pool.first.name),
        version=version("biorag"),
    )
    tools = Tools(pool)
    titles: dict[Callable[..., Any], str] = {
        tools.search: "Search the evidence",
        tools.get_snippet: "Show a snippet",
        tools.ask: "Answer a question",
        tools.verify_claim: "Judge a claim",
        tools.weigh: "Weigh a claim",
        tools.cite: "Cite snippets",
        tools.index_info: "Describe an index",
        tools.list_indexes: "List the indexes",
    }
    for tool, title in titles.items():
        hints = {"read_only_hint": True, "destructive_hint": False, "idempotent_hint": True, "open_world_hint": False}
        read_only = ToolAnnotations(title=title, **hints)
        described = f"{' '.join((tool.__doc__ or '').split())} {QUOTED}"
        server.add_tool(tool, title=title, description=described, annotations=read_only, structured_output=True)
    return server


def faults(error: ValidationError) -> str:
    """Return the faults of arguments, each by its name, without its value."""
    texts = [f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {advice_of(fault)}" for fault in error.errors()]
    return "; ".join(dict.fromkeys(texts))


def one_line(message: str) -> str:
    """Return an error in one line that a terminal only shows, cut where it is long."""
    return cut(" ".join(showable(message).split()), LONGEST_ERROR)
