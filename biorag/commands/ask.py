"""`biorag ask`."""

from __future__ import annotations

from typing import Annotated

import typer

from biorag.api.documents import answer_json, is_supported
from biorag.commands import options, show, show_answer
from biorag.commands.groups import expanded
from biorag.engine import check_index, load_checker, named_generator, open_index
from biorag.errors import UnsupportedError, UsageError
from biorag.generators.source import generator_source
from biorag.registries import TERMINAL
from biorag.retrieval.last_hits import keep_last_hits
from biorag.settings.settings import Settings
from biorag.types import Question
from biorag.utils.background import in_background
from biorag.utils.text import is_whole


@expanded
def ask(
    question: Annotated[list[str], typer.Argument(help="The question, in quotes or not.")],
    settings: Annotated[
        Settings,
        options.INDEX,
        options.RANKING,
        options.GENERATOR,
        options.ANSWER,
    ],
    filters: options.RecordFilters,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", help="An option of a multiple-choice question: A=text. Repeatable."),
    ] = None,
    verifier: options.Verifier = None,
    fail_unsupported: Annotated[
        bool, typer.Option("--fail-unsupported", help="Exit with code 7 if no supported answer came.")
    ] = False,
    output: options.Output = TERMINAL,
    as_json: options.Json = False,
) -> None:
    """Answer a question from the evidence, each sentence checked against it.

    Where --llm names no generator, the answer is one to three sentences of the evidence, verbatim, or with --option the
    one that the evidence supports best. Retracted articles are no evidence unless --include-retracted is given.

    Examples:

      biorag ask "Why is pyridoxine given together with isoniazid?"

      biorag ask "Which vitamin is given with isoniazid?" -o A=thiamine -o B=pyridoxine -o C=folate

      biorag ask "Why is pyridoxine given together with isoniazid?" --llm starter

      biorag ask "Why is pyridoxine given together with isoniazid?" --format vancouver

      biorag ask "..." --llm http://localhost:8080 --json --fail-unsupported
    """
    kind = options.output_kind(output, as_json)
    asked = Question("ask", " ".join(question), parse_options(option or []))
    if settings.generation.llm:
        generator_source(settings.generation.llm).check()  # before the index and the encoder are loaded
        check_index(settings)  # before the generator is, beside them
    checker = load_checker(verifier, settings)
    with show_answer.waiting() as stage, in_background(lambda: named_generator(settings)) as loaded:
        stage("Opening the index")
        with open_index(settings) as ready:
            stage("Searching")
            ranking = ready.search(asked.text, filters.conditions)
            if settings.generation.llm:
                stage("Loading the generator")
            generator = loaded()
            answerer = ready.answerer(generator, checker)
            stage("Writing, not checked yet" if generator else "Answering")
            answer = answerer.answer_or_withhold(asked, ranking, on_text=stage.provisional)
    keep_last_hits(settings, answer.hits)
    if as_json:
        show.print_json(answer_json(answer, ready.models_used(generator)))
    elif kind:
        show_answer.document(kind, answer)
    else:
        show_answer.answer(answer)
    if fail_unsupported and not is_supported(answer):
        raise UnsupportedError("no answer that the evidence supports: rephrase the question, or read the hits")


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
