"""`/api`: JSON in, and the JSON documents of the command line out, byte for byte but for folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from biorag.api.session import Session
from biorag.faces.outside import without_folders
from biorag.faces.server.asking import WorkQueue, answered, question
from biorag.faces.server.bodies import AskBody, IndexName, SearchBody, VerifyBody, WeighBody
from biorag.faces.session_pool import SessionPool
from biorag.utils.files import json_text
from biorag.utils.text import showable_json

Document = dict[str, Any]


def document(values: Mapping[str, Any]) -> Response:
    """Return a document as `--json` prints it, without this machine's folders."""
    return Response(showable_json(json_text(without_folders(values), indent=2)) + "\n", media_type="application/json")


def api_router(pool: SessionPool, answering: WorkQueue, judging: WorkQueue, searching: WorkQueue) -> APIRouter:
    """Return the routes of the JSON API; `answering` alone waits for a generator."""
    router = APIRouter(prefix="/api", tags=["biorag"])

    def by(index: str, call: Callable[[Session], Mapping[str, Any]]) -> Callable[..., Response]:
        def called(_: object = None) -> Response:
            with pool.lend(index) as session:
                return document(call(session))

        return called

    @router.post("/search", response_model=Document)
    async def search(body: SearchBody) -> Response:
        """Find the snippets that are relevant to a query, as `biorag search --json` prints them."""
        return await searching.run(by(body.index, lambda session: session.search(**body.arguments()).to_json()))

    @router.post("/ask", response_model=Document)
    async def ask(body: AskBody, request: Request) -> Response:
        """Answer a question from the evidence, each sentence checked, as `biorag ask --json` prints it."""
        lend = partial(pool.lend, body.index)
        return document((await answered(request, answering, question(lend, body))).to_json())

    @router.post("/verify", response_model=Document)
    async def verify(body: VerifyBody, request: Request) -> Response:
        """Judge a claim by the evidence, as `biorag verify --json` prints it."""
        judged = by(body.index, lambda session: session.verify(**body.arguments()).to_json())
        return await answered(request, judging, judged)

    @router.post("/weigh", response_model=Document)
    async def weigh(body: WeighBody, request: Request) -> Response:
        """Show the studies for and against a claim, as `biorag weigh --json` prints them."""
        weighed = by(body.index, lambda session: session.weigh(**body.arguments()).to_json())
        return await answered(request, judging, weighed)

    @router.get("/show", response_model=Document)
    async def show(
        id: Annotated[str, Query(min_length=1, max_length=512, description="Id or PMID of a snippet.")],
        mark: Annotated[str, Query(max_length=1000, description="Words whose positions are returned.")] = "",
        index: IndexName = "",
    ) -> Response:
        """Return a whole snippet, its reference and its study, as `biorag show --json` prints it."""
        return await searching.run(by(index, lambda session: session.show(id).to_json(mark)))

    @router.get("/info", response_model=Document)
    async def info(index: IndexName = "") -> Response:
        """Return the facts of an index, as `biorag indexes show NAME --json` prints them."""
        return await searching.run(by(index, lambda session: session.info()))

    return router
