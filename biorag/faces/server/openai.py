"""`/v1`: chat completions as OpenAI's clients ask for them, the last message being the question."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal
from uuid import uuid4

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response, StreamingResponse

from biorag.api.results import AnswerResult
from biorag.api.session import Session
from biorag.errors import BioragError, UsageError
from biorag.faces.chat.followups import is_follow_up, with_topic_of
from biorag.faces.server.asking import Asking, WorkQueue, answered, question
from biorag.faces.server.bodies import LONGEST_QUESTION, AskBody, validated
from biorag.faces.server.faults import OPENAI, error_response
from biorag.faces.server.session_pool import SessionPool
from biorag.utils.text import showable

PREFIX = "biorag/"
ALIVE_SECONDS = 2.0  # between signs of life while an answer is written
USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}  # nothing counts tokens
ALIVE = ": working\n\n"  # a comment, which clients of server-sent events pass over


class ContentPart(BaseModel):
    """A part of a message's content."""

    type: Annotated[str, Field(max_length=64)]
    text: str = ""


class ChatMessage(BaseModel):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None

    @property
    def text(self) -> str:
        """The texts of the message, joined."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if part.type == "text")
        return self.content or ""


class ChatBody(BaseModel):
    """A chat; settings of sampling have no effect, since the server's own hold."""

    messages: list[ChatMessage] = Field(min_length=1, max_length=1000)
    model: Annotated[str, Field(max_length=512)] = ""
    stream: bool = False
    n: int = Field(default=1, ge=1, le=1)

    def question(self) -> AskBody:
        """Return the last user's message as a question; raise `UsageError` if there is none, or it is too long."""
        text = next(iter(self._said("user")), "")
        if not text.strip():
            raise UsageError("no message of the role 'user' asks anything: send one that does")
        if len(text) > LONGEST_QUESTION:
            raise UsageError(f"the question is longer than {LONGEST_QUESTION:,} characters: shorten it")
        said = next(iter(self._said("assistant")), "")[:LONGEST_QUESTION]
        return validated(AskBody, {"question": text, "after": self._earlier(), "said": said})

    def _earlier(self) -> str:
        """Return the question before the last, as it was searched; "" for none."""
        searched = ""
        for text in reversed(self._said("user")[1:]):
            question = text[:LONGEST_QUESTION]
            searched = with_topic_of(searched, question) if searched and is_follow_up(question) else question
        return searched[:LONGEST_QUESTION]

    def _said(self, role: str) -> list[str]:
        """Return the messages of a role, the last first."""
        return [message.text for message in reversed(self.messages) if message.role == role]


def openai_router(pool: SessionPool, answering: WorkQueue) -> APIRouter:
    """Return the routes that OpenAI's clients use, which ask the first index."""
    session = pool.first
    router = APIRouter(prefix="/v1", tags=["OpenAI"])
    started = int(time.time())

    @router.get("/models", response_model=dict[str, Any])
    async def models() -> Response:
        """List one model: the index and its answerer."""
        model = {"id": PREFIX + session.name, "object": "model", "created": started, "owned_by": "biorag"}
        return JSONResponse({"object": "list", "data": [model]})

    @router.post("/chat/completions", response_model=dict[str, Any])
    async def chat(body: ChatBody, request: Request) -> Response:
        """Answer the last message from the evidence."""
        asked = body.question()
        if body.stream:
            return StreamingResponse(_events(pool, answering, asked), media_type="text/event-stream")
        return JSONResponse(completion(session, await answered(request, answering, question(pool.lend, asked))))

    return router


def text_of(answer: AnswerResult) -> str:
    """Return an answer's text with its marks, as `str()` gives it; without a text its notes."""
    return showable(str(answer)) or "\n".join(answer.notes) or "The evidence gives no answer."


def _head(session: Session) -> dict[str, Any]:
    return {"id": f"chatcmpl-{uuid4().hex}", "created": int(time.time()), "model": PREFIX + session.name}


def completion(session: Session, answer: AnswerResult) -> dict[str, Any]:
    """Return an answer as a completion; `biorag` in it is the document of `biorag ask --json`."""
    message = {"role": "assistant", "content": text_of(answer), "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    head = {**_head(session), "object": "chat.completion", "choices": [choice], "usage": USAGE}
    return {**head, "biorag": answer.to_json()}


async def _events(pool: SessionPool, answering: WorkQueue, asked: AskBody) -> AsyncIterator[str]:
    """Yield the events of a stream: signs of life while the answer is made and checked, then its text."""
    head = {**_head(pool.first), "object": "chat.completion.chunk"}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return f"data: {json.dumps({**head, 'choices': [choice]}, ensure_ascii=False)}\n\n"

    yield chunk({"role": "assistant", "content": ""})
    try:
        with Asking(answering, question(pool.lend, asked)) as asking:
            async for _ in asking.replies(ALIVE_SECONDS):
                yield ALIVE
            answer = asking.answer()
    except BioragError as error:
        yield f"data: {bytes(error_response(OPENAI, error).body).decode()}\n\n"
        return
    yield chunk({"content": text_of(answer)})
    yield chunk({}, "stop")
    yield "data: [DONE]\n\n"
