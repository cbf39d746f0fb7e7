"""`biorag ask`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from biorag.commands import options, show
from biorag.commands.groups import Flags, expanded
from biorag.engine import OpenIndex, load_generator, open_index
from biorag.errors import UsageError
from biorag.generators.source import generator_source
from biorag.settings.settings import Settings
from biorag.types import Generator, Question
from biorag.utils.text import is_whole


@expanded
def ask(
    question: Annotated[str, typer.Argument(help="The question.")],
    settings: Annotated[
        Settings, options.INDEX, options.RANKING, options.GENERATOR, Flags("include_retracted", "max_tokens", "prompt")
    ],
    filters: options.RecordFilters,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", help="An option of a multiple-choice question: A=text. Repeatable."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Answer a question from the evidence, with verified citations.

    Retracted articles are not used as evidence unless --include-retracted is given.

    Examples:

      biorag ask "Why is pyridoxine given together with isoniazid?"

      biorag ask "Which vitamin is given with isoniazid?" -o A=thiamine -o B=pyridoxine -o C=folate

      biorag ask "..." --llm http://localhost:8080 --json
    """
    asked = Question("ask", question, parse_options(option or []))
    generator_source(settings.generation.llm).check()  # before the index and the encoder are loaded
    from biorag.answering.answerer import Answerer

    with open_index(settings) as ready:
        generator = load_generator(settings)
        answerer = Answerer(ready.retriever, generator, settings)
        if as_json:
            answer = answerer.answer(asked, filters.conditions)
            show.print_json(show.answer_json(answer, models_used(settings, ready, generator)))
        else:
            show.answer(answerer.answer(asked, filters.conditions, on_text=_streaming()))


def parse_options(texts: list[str]) -> dict[str, str]:
    """Return the options of a multiple-choice question from `A=text` strings.

    Raises
    ------
    UsageError
        If an option lacks a capital letter before `=` or a text, a letter is repeated, or there is only one option.
    """
    found: dict[str, str] = {}
    for text in texts:
        letter, equals, option = text.partition("=")
        if not equals or len(letter) != 1 or not letter.isascii() or not letter.isupper() or not option.strip():
            raise UsageError(
                f"option {text!r} cannot be read: write a capital letter, '=' and the text, e.g. A=thiamine"
            )
        if not is_whole(text):
            raise UsageError(f"option {letter} is not UTF-8: type it again")
        if letter in found:
            raise UsageError(f"option {letter} is given twice")
        found[letter] = option.strip()
    if len(found) == 1:
        raise UsageError("a multiple-choice question needs at least two options; leave --option out for an open one")
    return found


def models_used(settings: Settings, ready: OpenIndex, generator: Generator | None) -> dict[str, Any]:
    """Return the names of the models of a run."""
    return {
        "encoder": ready.manifest.encoder.id,
        "reranker": settings.retrieval.reranker if settings.retrieval.rerank else None,
        "generator": generator.name if generator else None,
    }


def _streaming() -> Callable[[str], None]:
    """Return a function that prints the new part of the model's text each time the reply grows."""
    from biorag.prompts.grammar import growing_text

    printed = 0

    def on_text(reply: str) -> None:
        nonlocal printed
        text = growing_text(reply)
        show.out.print(text[printed:], end="", soft_wrap=True)
        printed = len(text)

    return on_text
