"""What OpenAI's two interfaces share: messages as a question, an answer as text, a model as an index."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from biorag.api.results import AnswerResult
from biorag.errors import UsageError
from biorag.faces.server.bodies import LONGEST_QUESTION, AskBody, validated
from biorag.faces.server.faults import RefusedError
from biorag.faces.session_pool import SessionPool
from biorag.references.reference import reference_line
from biorag.utils.text import first_visible, showable

Json = dict[str, Any]
ModelName = Annotated[str, Field(max_length=512, description="An index; empty or `biorag` for the default one.")]
OWNER = "biorag"
REFERENCES = "\n\nReferences:\n"
REMEMBERED = 6  # questions, of which each may follow the one before
Asked = tuple[AskBody, Sequence[tuple[str, str]]]


class ContentPart(BaseModel):
    """A part of a message's content."""

    type: Annotated[str, Field(max_length=64)]
    text: str = ""


class Message(BaseModel):
    """A message of a conversation; without a role an item that is none, such as a call of a tool."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function", ""] = ""
    content: str | list[ContentPart] | None = None

    @property
    def text(self) -> str:
        """The texts of the message, joined."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if part.type.endswith("text"))
        return self.content or ""


def event(values: Json, name: str = "") -> str:
    """Return a server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(values, ensure_ascii=False)}\n\n"


def question_of(messages: Sequence[Message]) -> Asked:
    """Return the last user's message as a question, and the `REMEMBERED` before it, each with its answer.

    Raises `UsageError` if there is none, or it is too long.
    """
    turns: list[tuple[str, str]] = []
    for message in messages:
        if message.role == "user":
            turns.append((message.text[: LONGEST_QUESTION + 1], ""))
        elif message.role == "assistant" and turns:
            said = message.text.partition(REFERENCES)[0]
            turns[-1] = (turns[-1][0], said[:LONGEST_QUESTION])
    text = turns.pop()[0] if turns else ""
    if not first_visible(text):
        raise UsageError("no message of the role 'user' asks anything: send one that does")
    if len(text) > LONGEST_QUESTION:
        raise UsageError(f"the question is longer than {LONGEST_QUESTION:,} characters: shorten it")
    return validated(AskBody, {"question": text}), turns[-REMEMBERED:]


def text_of(answer: AnswerResult) -> str:
    """Return an answer's text with its marks, as `str()` gives it, and the references that it cites.

    Without a text its notes.
    """
    text = showable(str(answer)) or "\n".join(answer.notes) or "The evidence gives no answer."
    cited = {one.n for one in answer.citations}
    lines = [f"[{hit.rank}] {reference_line(hit.snippet)}" for hit in answer.hits if hit.rank in cited]
    return text + REFERENCES + showable("\n".join(lines)) if lines else text


def models_of(pool: SessionPool) -> list[Json]:
    """Return the models: the indexes that can be asked, the default one first."""
    models = []
    for each in sorted(pool.listed(), key=lambda each: each.name != pool.first.name):
        created = int(datetime.fromisoformat(each.updated).timestamp()) if each.updated else 0
        models.append({"id": each.name, "object": "model", "created": created, "owned_by": OWNER})
    return models


def index_of(pool: SessionPool, model: str) -> str:
    """Return the index that a model names, with or without `biorag/` before it.

    Raises `RefusedError` saying why it is left out, or naming the others if there is none.
    """
    names = pool.names()
    for name in (model, model.removeprefix(f"{OWNER}/")):
        if name in names:
            return name
        if reason := pool.why_closed(name):
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, reason, param="model")
    if model in ("", OWNER):
        return pool.first.name
    sentence = f"there is no model {model!r} here, since each is an index: choose one of {', '.join(names)}"
    raise RefusedError(HTTPStatus.NOT_FOUND, sentence, param="model", code="model_not_found")
