"""`/v1`: models, chat completions and responses, as OpenAI's clients ask for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from biorag.errors import BioragError
from biorag.faces.server.asking import Asking, Lend, WorkQueue, answered, question
from biorag.faces.server.bodies import AskBody
from biorag.faces.server.openai.chat import ChatBody, Completion
from biorag.faces.server.openai.messages import Json, index_of, models_of
from biorag.faces.server.openai.responses import ResponsesBody, Written
from biorag.faces.session_pool import SessionPool

ALIVE_SECONDS = 2.0  # between signs of life while an answer is written
ALIVE = ": working\n\n"  # a comment, which clients of server-sent events pass over


def openai_router(pool: SessionPool, answering: WorkQueue, searching: WorkQueue) -> APIRouter:
    """Return the routes that OpenAI's clients use, whose models are the indexes of the pool."""
    router = APIRouter(prefix="/v1", tags=["OpenAI"])

    @router.get("/models", response_model=Json)
    async def models() -> Response:
        """List the models: the indexes that can be asked."""
        return JSONResponse({"object": "list", "data": await searching.run(lambda: models_of(pool))})

    @router.get("/models/{model:path}", response_model=Json)
    async def model(model: str) -> Response:
        """Describe a model."""
        name = await searching.run(lambda: index_of(pool, model))
        described = await searching.run(lambda: models_of(pool))
        return JSONResponse(next(one for one in described if one["id"] == name))

    @router.post("/chat/completions", response_model=Json)
    async def chat(body: ChatBody, request: Request) -> Response:
        """Answer the last message from the evidence."""
        return await _reply(body, request)

    @router.post("/responses", response_model=Json)
    async def responses(body: ResponsesBody, request: Request) -> Response:
        """Answer the last message from the evidence."""
        return await _reply(body, request)

    async def _reply(body: ChatBody | ResponsesBody, request: Request) -> Response:
        asked = body.question()
        index = await searching.run(lambda: index_of(pool, body.model))
        reply, lend = body.reply(index), partial(pool.lend, index)
        if body.stream:
            return StreamingResponse(_events(reply, answering, lend, asked), media_type="text/event-stream")
        return JSONResponse(reply.document(await answered(request, answering, question(lend, asked))))

    return router


async def _events(reply: Completion | Written, answering: WorkQueue, lend: Lend, asked: AskBody) -> AsyncIterator[str]:
    """Yield the events of a stream: signs of life while the answer is made and checked, then its text."""
    for event in reply.begun():
        yield event
    try:
        with Asking(answering, question(lend, asked)) as asking:
            async for _ in asking.replies(ALIVE_SECONDS):
                yield ALIVE
            events = reply.ended(asking.answer())
    except BioragError as error:
        events = reply.failed(error)
    for event in events:
        yield event
