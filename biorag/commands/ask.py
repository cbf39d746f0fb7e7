"""`biorag ask`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from biorag.commands import options, show, show_answer
from biorag.commands.groups import Flags, expanded
from biorag.engine import OpenIndex, named_generator, open_index
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
    if settings.generation.llm:
        generator_source(settings.generation.llm).check()  # before the index and the encoder are loaded
    with show_answer.waiting() as stage:
        stage("Opening the index")
        with open_index(settings) as ready:
            if settings.generation.llm:
                stage("Loading the generator")
            generator = named_generator(settings)
            answerer = ready.answerer(generator)
            stage("Searching")
            (ranking,) = answerer.retrieve([asked], [filters.conditions])
            stage("Writing, not checked yet" if generator else "Answering")
            answer = answerer.answer_from(asked, ranking, on_text=stage.provisional)
    if as_json:
        show.print_json(show_answer.answer_json(answer, models_used(settings, ready, generator)))
    else:
        show_answer.answer(answer)


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
