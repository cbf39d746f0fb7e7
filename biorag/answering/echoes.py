"""Replies that are no answers: empty ones, and echoes of a key, of the prompt, of the question or of a title."""

from __future__ import annotations

import re
from collections.abc import Sequence

from biorag.prompts.template import Template
from biorag.types import Question

_WORD = re.compile(r"[^\W_]+(?:[-'’_][^\W_]+)*")
# What a JSON prompt speaks of: its keys and its own words.
KEYS = frozenset(
    _WORD.findall(
        """
    a an answer answer_choice answers as below by choice citation citations cited context document documents field
    follows following for here is json key keys my n number numbers object of one option options output provided
    question quote relevant relevant_context reply response step step_by_step_thinking string summary task text the
    thinking value your
        """
    )
)
LONGEST_ECHO = 8  # words of a reply that holds nothing but keys
SHORTEST_TITLE = 3  # words of a title that names a topic; a shorter one may be the name that was asked for
RUN = 6  # words in a row that a text and the prompt share by more than chance
MOST_SHARED = 0.6  # of a text's runs that may stand in the prompt's instructions
MOST_ASKED = 0.8  # of the question's words that a text made of nothing else may have


def fault_of(text: str, question: Question, template: Template, titles: Sequence[str] = ()) -> str:
    """Return why a generated text is no answer, the words of a note; "" if it may be one.

    Parameters
    ----------
    template : of the prompt that the text replies to; the documents that the prompt holds may be repeated
    titles : of these documents
    """
    words = _words(text)
    if not words:
        return "is empty"
    if len(words) <= LONGEST_ECHO and KEYS.issuperset(words):
        return f"only names the reply's parts ({text.strip()!r})"
    asked = _words(question.text)
    if set(words) <= set(asked) and len(words) >= MOST_ASKED * len(asked):
        return "repeats the question"
    if len(words) >= SHORTEST_TITLE and words in map(_words, titles):
        return "only names the title of a snippet"
    instructions = _words(f"{template.system} {template.user}")
    runs = _runs(words, RUN)
    if len(words) >= RUN and len(runs & _runs(instructions, RUN)) > MOST_SHARED * len(runs):
        return "repeats the prompt"
    return ""


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _runs(words: list[str], length: int) -> set[tuple[str, ...]]:
    return {tuple(words[start : start + length]) for start in range(len(words) - length + 1)}
