"""Follow-up questions rewritten to stand alone: by the packaged Llama, which has learnt it, or by a generator."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from threading import Lock

from biorag.answering.certainty import missing_words
from biorag.answering.guards.words import names
from biorag.generators.source import on_starter
from biorag.models.finding import REWRITER
from biorag.prompts.fence import defused
from biorag.prompts.parse import parse_reply
from biorag.prompts.template import load_template, object_schema
from biorag.types import MAY, GenerationRequest, Generator, Prompt
from biorag.utils.text import comparable

FIELDS = ("question", "previous", "answer")
SCHEMA = object_schema({"question": {"type": "string"}})
WINDOW = 768  # tokens of a prompt and its reply
MOST_TOKENS = 96
MOST_QUOTED = 400  # characters of the earlier question, and of its answer
LONGEST_REWRITE = 400  # characters
KEPT = 256  # rewrites
Rewriter = Callable[[str, str, str], str]  # of a follow-up, the question before it, and the answer to that
_CITATION = re.compile(r" ?\[\d+\]")


def rewriting_prompt(question: str, previous: str, answer: str, controls: Sequence[str] = ()) -> Prompt:
    """Return the prompt that asks for a follow-up as a question that stands alone.

    `previous` is the question before it, which stands alone, and `answer` what was said to that; of an answer that
    quotes documents the strings `controls` of a chat are defused.
    """
    said = _CITATION.sub("", answer.removeprefix(MAY))
    quoted = (defused(" ".join(text.split())[:MOST_QUOTED], tuple(controls)) for text in (previous, said))
    earlier_question, earlier_answer = quoted
    template = load_template("standalone", known=FIELDS)
    return template.fill(question=question, previous=earlier_question, answer=earlier_answer or "(none)")


def rewritten(generator: Generator, question: str, previous: str, answer: str, *, learnt: bool = False) -> str:
    """Return a follow-up as a generator rewrites it; empty if that is cut off, blank, or the question `previous`.

    It is empty, too, if it or the prompt is too long, if it lost a name of the follow-up, or has one that nobody named.
    Where it is `previous`, it is asked for again without the answer. One that has learnt to rewrite is asked without
    instructions, and replies with the question alone. Raises `ServiceError` if the generator fails.
    """
    prompt = rewriting_prompt(question, previous, answer, generator.controls)
    if learnt:
        request = GenerationRequest(Prompt("", prompt.user), {}, MOST_TOKENS, constrained=False)
    else:
        request = GenerationRequest(prompt, SCHEMA, MOST_TOKENS)
    if generator.count_tokens(request.prompt) + MOST_TOKENS > generator.context_window:
        return ""
    reply = generator.generate(request)
    rewrite = " ".join((reply.text if learnt else parse_reply(reply.text).text("question")).split())
    if reply.capped or len(rewrite) > LONGEST_REWRITE:
        return ""
    if comparable(rewrite) == comparable(previous):
        return rewritten(generator, question, previous, "", learnt=learnt) if answer else ""
    named = (question, [rewrite]), (rewrite, [question, previous, answer])
    if any(names(text) & set(missing_words(text, others)) for text, others in named):
        return ""
    return question if comparable(rewrite).strip("?. ") == comparable(question).strip("?. ") else rewrite


@cache
def open_rewriter(threads: int | None, cache: Path) -> Rewriter | None:
    """Open the packaged Llama that has learnt to rewrite; None where llama.cpp, the starter or a file is missing.

    It keeps what it wrote, for clients that send a conversation again with each question.
    """

    def load(model: Path) -> Rewriter:
        from biorag.generators.llama import LlamaGenerator

        generator = LlamaGenerator(model, WINDOW, threads, REWRITER.path(), repeat_penalty=1.0)  # it repeats names
        lock = Lock()  # sessions share it

        @lru_cache(KEPT)
        def rewrite(question: str, previous: str, answer: str) -> str:
            with lock:
                return rewritten(generator, question, previous, answer, learnt=True)

        return rewrite

    return on_starter(load, cache)
