"""A follow-up question made to stand alone: by the generator where one is named, else by rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from biorag.api.session import Session
from biorag.chat.followups import is_follow_up, with_words_of
from biorag.prompts.fence import defused
from biorag.prompts.parse import parse_reply
from biorag.prompts.template import load_template
from biorag.types import GenerationRequest, Prompt
from biorag.utils.text import comparable

FIELDS = ("question", "previous", "answer")
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"question": {"type": "string"}},
    "required": ["question"],
    "additionalProperties": False,
}
MOST_TOKENS = 96
MOST_QUOTED = 600  # characters of the earlier question, and of its answer
LONGEST_REWRITE = 400  # characters


def standalone(session: Session, question: str, previous: str, answer: str) -> str:
    """Return a question as it can be searched alone; one that is no follow-up stays as it is.

    Parameters
    ----------
    previous : the last question, as it was searched
    answer : what was answered to it

    Raises
    ------
    ServiceError
        If the generator fails.
    """
    if not is_follow_up(question):
        return question
    request = GenerationRequest(_prompt(question, previous, answer, session.controls), SCHEMA, MOST_TOKENS)
    generation = session.generate(request)
    if generation is None or generation.capped:
        return with_words_of(previous, question)
    return usable(generation.text, previous) or with_words_of(previous, question)


def usable(reply: str, previous: str) -> str:
    """Return the question of a reply; empty where it is blank, absurdly long, or the last question again."""
    rewrite = " ".join(parse_reply(reply).text("question").split())
    if len(rewrite) > LONGEST_REWRITE or comparable(rewrite) == comparable(previous):
        return ""
    return rewrite


def _prompt(question: str, previous: str, answer: str, controls: Sequence[str]) -> Prompt:
    """Return the prompt; what was answered comes from documents, so it may not write the chat's own marks."""
    template = load_template("standalone", known=FIELDS)
    quoted = (defused(" ".join(text[:MOST_QUOTED].split()), tuple(controls)) for text in (previous, answer))
    earlier_question, earlier_answer = quoted
    return template.fill(question=question, previous=earlier_question, answer=earlier_answer or "(none)")
