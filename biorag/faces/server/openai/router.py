"""`/v1`: models, chat completions and responses, as OpenAI's clients ask for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from biorag.api.results import AnswerResult
from biorag.errors import BioragError
from biorag.faces.server.asking import Asking, Grow, WorkQueue, answered, question
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
        asked, earlier = body.question()
        index = await searching.run(lambda: index_of(pool, body.model))
        reply, call = body.reply(index), question(partial(pool.lend, index), asked, earlier)
        if body.stream:
            return StreamingResponse(_events(reply, answering, call), media_type="text/event-stream")
        return JSONResponse(reply.document(await answered(request, answering, call)))

    return router


async def _events(
    reply: Completion | Written, answering: WorkQueue, call: Callable[[Grow], AnswerResult]
) -> AsyncIterator[str]:
    """Yield the events of a stream: signs of life while the answer is made and checked, then its text."""
    for event in reply.begun():
        yield event
    try:
        with Asking(answering, call) as asking:
            async for _ in asking.replies(ALIVE_SECONDS):
                yield ALIVE
            events = reply.ended(asking.answer())
    except BioragError as error:
        events = reply.failed(error)
    for event in events:
        yield event
