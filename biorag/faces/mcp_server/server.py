"""The MCP server: tools over open indexes, read-only, with errors of one line."""

from __future__ import annotations

import io
import json
import logging
import re
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
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
    from mcp.shared.message import SessionMessage
    from mcp.types import (
        INVALID_PARAMS,
        CallToolResult,
        ErrorData,
        InputRequiredResult,
        JSONRPCError,
        ToolAnnotations,
    )
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
        async with stdio_server(lines) as (incoming, outgoing), anyio.create_task_group() as tasks:
            options = self._lowlevel_server.create_initialization_options()
            taken, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
            tasks.start_soon(_take, incoming, taken, outgoing)
            try:
                await self._lowlevel_server.run(messages, outgoing, options)
            finally:  # also where standard output is closed, while a thread waits for input
                signal.setitimer(signal.ITIMER_REAL, 0.5)

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


async def _take(incoming: Any, taken: Any, outgoing: Any) -> None:
    """Hand on a client's messages, and refuse those with an id that the SDK cannot read, and would not answer."""
    async with taken:
        async for message in incoming:
            if not isinstance(message, ValidationError):
                await taken.send(message)
            elif type(id := _id_of(message)) in (int, str):
                fault = ErrorData(code=INVALID_PARAMS, message="Invalid request parameters")
                await outgoing.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=id, error=fault)))


def _id_of(error: ValidationError) -> Any:
    """Return the id of a message that is none of the protocol's; None if it has none."""
    wholes = [fault["input"] for fault in error.errors() if fault["type"] in ("missing", "json_invalid")]
    with suppress(ValueError, RecursionError):  # what is nested too deeply for the SDK is still text
        whole = json.loads(wholes[0]) if wholes and isinstance(wholes[0], str) else wholes and wholes[0]
        return whole.get("id") if isinstance(whole, dict) else None


def faults(error: ValidationError) -> str:
    """Return the faults of arguments, each by its name, without its value."""
    texts = [f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {advice_of(fault)}" for fault in error.errors()]
    return "; ".join(dict.fromkeys(texts))


def one_line(message: str) -> str:
    """Return an error in one line that a terminal only shows, cut where it is long."""
    return cut(" ".join(showable(message).split()), LONGEST_ERROR)
