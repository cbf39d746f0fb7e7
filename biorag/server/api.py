"""`/api`: JSON in, and out the documents that the command line prints with `--json`, byte for byte."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from biorag.api.documents import answer_json, search_json, snippets_json, verdict_json
from biorag.api.session import Session
from biorag.corpus.sentences import terms
from biorag.server.asking import answered
from biorag.server.requests import AskBody, HeatMapBody, SearchBody, VerifyBody
from biorag.server.work import WorkQueue
from biorag.utils.files import json_text
from biorag.utils.text import showable_json

Document = dict[str, Any]


def document(values: Mapping[str, Any]) -> Response:
    """Return a document as `--json` prints it."""
    return Response(showable_json(json_text(values, indent=2)) + "\n", media_type="application/json")


def api_router(session: Session, answering: WorkQueue, searching: WorkQueue) -> APIRouter:
    """Return the routes of the JSON API.

    Parameters
    ----------
    answering, searching : where questions are worked on, and what takes no generator
    """
    router = APIRouter(prefix="/api", tags=["biorag"])

    @router.post("/search", response_model=Document)
    async def search(body: SearchBody) -> Response:
        """Find the snippets that are relevant to a query, as `biorag search --json` prints them."""
        ranking = await searching.run(lambda: body.run(session))
        return document(search_json(ranking, body.mode or session.settings.retrieval.mode))

    @router.post("/ask", response_model=Document)
    async def ask(body: AskBody, request: Request) -> Response:
        """Answer a question from the evidence, each sentence checked, as `biorag ask --json` prints it."""
        answer = await answered(request, session, answering, body)
        return document(answer_json(answer, session.models))

    @router.post("/verify", response_model=Document)
    async def verify(body: VerifyBody) -> Response:
        """Judge a claim by the evidence, as `biorag verify --json` prints it."""
        return document(verdict_json(await searching.run(lambda: body.run(session))))

    @router.post("/heatmap", response_model=Document)
    async def heat_map(body: HeatMapBody) -> Response:
        """Divide the reranker's score of a snippet among the words of a question."""
        return document((await searching.run(lambda: body.run(session))).to_json())

    @router.get("/show", response_model=Document)
    async def show(
        id: Annotated[str, Query(min_length=1, max_length=512, description="Id or PMID of a snippet.")],
        mark: Annotated[str, Query(max_length=1000, description="Words whose places are given.")] = "",
    ) -> Response:
        """Return a whole snippet, its reference and its study, as `biorag show --json` prints it."""
        named = await searching.run(lambda: session.show(id))
        return document(snippets_json(named.index, named.snippets, named.facts, terms(mark)))

    @router.get("/info", response_model=Document)
    async def info() -> Response:
        """Return what the index holds and was made with, as `biorag info NAME --json` prints it."""
        return document(await searching.run(session.info))

    return router
