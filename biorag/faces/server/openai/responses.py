"""Responses: a text or items in, the last message answered."""

from __future__ import annotations

import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any
from uuid import uuid4

from pydantic import BaseModel, Field

from biorag.api.results import AnswerResult
from biorag.errors import BioragError
from biorag.faces.outside import without_folders
from biorag.faces.server.faults import RefusedError, openai_error
from biorag.faces.server.openai.messages import Asked, Json, Message, ModelName, event, question_of, text_of

# What a client sees of settings that have no effect.
SETTINGS: Json = {
    **{"error": None, "incomplete_details": None, "metadata": {}, "previous_response_id": None, "store": False},
    **{"parallel_tool_calls": False, "tool_choice": "none", "tools": [], "temperature": None, "top_p": None},
}
USAGE: Json = {  # nothing counts tokens
    **{"input_tokens": 0, "input_tokens_details": {"cached_tokens": 0}},
    **{"output_tokens": 0, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 0},
}
IN_PROGRESS, COMPLETED = "in_progress", "completed"


class ResponsesBody(BaseModel):
    """A question with what was said before it; instructions and settings of sampling have no effect."""

    input: str | list[Message] = Field(min_length=1, max_length=1_000_000)
    model: ModelName = ""
    instructions: str | None = None
    stream: bool | None = False
    previous_response_id: str | None = None
    conversation: Any = None
    background: bool | None = False

    def question(self) -> Asked:
        """Return the question, as `question_of` does; raise `RefusedError` if it follows what is not kept."""
        for field in ("previous_response_id", "conversation", "background"):
            if getattr(self, field):
                sentence = f"{field}: no response is kept, so leave it out and send the earlier messages in 'input'"
                raise RefusedError(HTTPStatus.BAD_REQUEST, sentence, param=field, code="unsupported_parameter")
        if isinstance(self.input, str):
            return question_of([Message(role="user", content=self.input)])
        return question_of(self.input)

    def reply(self, model: str) -> Written:
        """Return how a model's answer is written."""
        return Written(model, self.instructions)


class Written:
    """A response of a model, whole or as events."""

    def __init__(self, model: str, instructions: str | None) -> None:
        made = {"id": f"resp_{uuid4().hex}", "object": "response", "created_at": int(time.time())}
        self._head = {**made, "model": model, "instructions": instructions, **SETTINGS}
        self._item, self._number = f"msg_{uuid4().hex}", -1

    def document(self, answer: AnswerResult) -> Json:
        """Return the response."""
        output = [self._message(COMPLETED, [_part(text_of(answer))])]
        return {**self._response(COMPLETED, output), "usage": USAGE, "biorag": without_folders(answer.to_json())}

    def begun(self) -> Iterator[str]:
        """Yield the events of a message without text."""
        for name in ("created", IN_PROGRESS):
            yield self._event(f"response.{name}", response=self._response(IN_PROGRESS, []))
        item = self._message(IN_PROGRESS, [])
        yield self._event("response.output_item.added", output_index=0, item=item)
        yield self._of_text("content_part.added", part=_part(""))

    def ended(self, answer: AnswerResult) -> Iterator[str]:
        """Yield the events of the text and of all ends."""
        document, text = self.document(answer), text_of(answer)
        yield self._of_text("output_text.delta", delta=text, logprobs=[])
        yield self._of_text("output_text.done", text=text, logprobs=[])
        yield self._of_text("content_part.done", part=_part(text))
        yield self._event("response.output_item.done", output_index=0, item=document["output"][0])
        yield self._event("response.completed", response=document)

    def failed(self, error: BioragError) -> Iterator[str]:
        """Yield the error, which clients raise."""
        values = openai_error(error)
        yield self._event("error", **values, **{name: values["error"][name] for name in ("message", "param", "code")})

    def _response(self, status: str, output: list[Json]) -> Json:
        return {**self._head, "status": status, "output": output}

    def _message(self, status: str, content: list[Json]) -> Json:
        return {"id": self._item, "type": "message", "role": "assistant", "status": status, "content": content}

    def _of_text(self, kind: str, **values: Any) -> str:
        return self._event(f"response.{kind}", item_id=self._item, output_index=0, content_index=0, **values)

    def _event(self, kind: str, **values: Any) -> str:
        self._number += 1
        return event({"type": kind, "sequence_number": self._number, **values}, kind)


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
