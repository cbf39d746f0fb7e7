"""The application: a page and APIs over an open index and those beside it, behind the guard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from biorag.api.session import Session
from biorag.errors import BioragError
from biorag.faces.server.api import api_router
from biorag.faces.server.asking import WorkQueue
from biorag.faces.server.faults import MCP, RefusedError, error_response
from biorag.faces.server.guards import HEALTH, Doorkeeper, Guard, is_page
from biorag.faces.server.openai.router import openai_router
from biorag.faces.server.options import ServeOptions
from biorag.faces.server.pages import Pages, page, page_routes
from biorag.faces.server.uploads import Uploads
from biorag.faces.session_pool import SessionPool
from biorag.utils.parsing import advice_of
from biorag.utils.versions import installed_versions

if TYPE_CHECKING:
    from mcp.server import MCPServer

STATIC_FILES = Path(__file__).parent / "static"
SWEEP_SECONDS = 30  # between two looks at which indexes nobody asks any more


def create_app(session: Session, options: ServeOptions, ready: Callable[[], None] = lambda: None) -> ASGIApp:
    """Return the application over an open index; with `/mcp`, if the extra `mcp` is installed.

    `ready` is called once requests can be answered.
    """
    # Questions may wait minutes for a generator; what needs none (claims, searches, pages) does not wait behind them.
    answering, judging, searching = (WorkQueue(options.threads, options.queue) for _ in range(3))
    doorkeeper = Doorkeeper(options.token)
    pool = SessionPool(session, options.others)
    tools = _tools(pool)
    uploads = Uploads(pool, options, judging)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as running:
            if tools is not None:
                await running.enter_async_context(tools.session_manager.run())
            running.callback(asyncio.create_task(_sweep(pool)).cancel)
            ready()
            yield
        uploads.close()
        pool.close_idle(0)

    app = FastAPI(
        lifespan=lifespan,
        title="biorag",
        version=installed_versions().get("biorag", ""),
        description="Answers biomedical questions from PubMed evidence. Nothing here is medical advice.",
        docs_url=None,  # these pages load their scripts from another host
        redoc_url=None,
        redirect_slashes=False,
    )
    app.include_router(api_router(pool, answering, judging, searching))
    app.include_router(openai_router(pool, answering, searching))
    shown = Pages(pool, answering, judging, searching, asks=doorkeeper.asks, uploads=options.uploads)
    app.router.routes.extend(page_routes(shown, doorkeeper, uploads.routes if options.uploads else ()))
    if tools is not None:
        from mcp.server.transport_security import TransportSecuritySettings

        checked_before = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        http = tools.streamable_http_app(
            streamable_http_path=MCP, stateless_http=True, transport_security=checked_before
        )
        app.router.routes.extend(http.routes)
    app.router.routes.append(Route(HEALTH, lambda request: PlainTextResponse("ok")))
    app.mount("/static", StaticFiles(directory=STATIC_FILES))
    app.add_exception_handler(BioragError, _fault)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_fault)
    app.add_exception_handler(Exception, _bug)
    trusting = TrustedHostMiddleware(app, options.trusted_hosts, www_redirect=False)
    return Guard(trusting, options, doorkeeper)


async def _sweep(pool: SessionPool) -> None:
    """Close indexes that nobody asks any more, and take in those that can be opened again, until cancelled."""
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        await asyncio.to_thread(pool.close_idle)
        await asyncio.to_thread(pool.check_again)


def _tools(pool: SessionPool) -> MCPServer[Any] | None:
    """Return the MCP server; None if its package is not installed."""
    if find_spec("mcp") is None:
        return None
    from biorag.faces.mcp_server.server import build_server

    return build_server(pool)


async def _fault(request: Request, error: Exception) -> Response:
    assert isinstance(error, BioragError)
    return error_response(request.url.path, error)


async def _bug(request: Request, error: Exception) -> Response:
    """Answer a bug, which the guard logs."""
    return error_response(request.url.path, BioragError("the server failed at this: its log says why"))


async def _invalid(request: Request, error: Exception) -> Response:
    """Answer a body that does not fit its model, naming its first fault."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"][1:]))  # after "body" or "query"
    sentence = f"{field}: {advice_of(first)}" if field else advice_of(first)
    return error_response(request.url.path, RefusedError(422, f"{sentence} (see /openapi.json)"))


async def _http_fault(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentences = {404: "there is no such page", 405: "this page takes another method"}
    sentence = sentences.get(error.status_code, str(error.detail))
    if is_page(request.url.path) and "text/html" in request.headers.get("accept", ""):
        return page("error.html", error.status_code, sentence=sentence)
    return error_response(request.url.path, RefusedError(error.status_code, sentence, dict(error.headers or {})))
