"""Chat completions: a chat in, its last message answered."""

from __future__ import annotations

import time
from collections.abc import Iterator
from uuid import uuid4

from pydantic import BaseModel, Field

from biorag.api.results import AnswerResult
from biorag.errors import BioragError
from biorag.faces.outside import without_folders
from biorag.faces.server.faults import openai_error
from biorag.faces.server.openai.messages import Asked, Json, Message, ModelName, event, question_of, text_of

USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}  # nothing counts tokens


class ChatBody(BaseModel):
    """A chat; settings of sampling have no effect, since the server's own hold."""

    messages: list[Message] = Field(min_length=1, max_length=1000)
    model: ModelName = ""
    stream: bool = False
    stream_options: Json | None = None
    n: int = Field(default=1, ge=1, le=1)

    def question(self) -> Asked:
        """Return the question, as `question_of` does."""
        return question_of(self.messages)

    def reply(self, model: str) -> Completion:
        """Return how a model's answer is written."""
        return Completion(model, bool((self.stream_options or {}).get("include_usage")))


class Completion:
    """A completion of a model, whole or in chunks."""

    def __init__(self, model: str, with_usage: bool) -> None:
        self._with_usage = with_usage
        self._head = {"id": f"chatcmpl-{uuid4().hex}", "created": int(time.time()), "model": model}

    def document(self, answer: AnswerResult) -> Json:
        """Return the completion."""
        message = {"role": "assistant", "content": text_of(answer), "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        head = {**self._head, "object": "chat.completion", "choices": [choice], "usage": USAGE}
        return {**head, "biorag": without_folders(answer.to_json())}

    def begun(self) -> Iterator[str]:
        """Yield a chunk with the role."""
        yield self._chunk({"role": "assistant", "content": ""})

    def ended(self, answer: AnswerResult) -> Iterator[str]:
        """Yield the text and the end."""
        yield self._chunk({"content": text_of(answer)})
        yield self._chunk({}, "stop")
        if self._with_usage:
            yield event({**self._head, "object": "chat.completion.chunk", "choices": [], "usage": USAGE})
        yield "data: [DONE]\n\n"

    def failed(self, error: BioragError) -> Iterator[str]:
        """Yield the error, which clients raise."""
        yield event(openai_error(error))

    def _chunk(self, delta: Json, finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return event({**self._head, "object": "chat.completion.chunk", "choices": [choice]})
