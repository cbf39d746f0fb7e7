"""`biorag bench show`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from biorag.commands import options, show
from biorag.commands.groups import expanded
from biorag.utils.files import check_replaceable, write_text
from biorag.utils.text import showable

if TYPE_CHECKING:
    from biorag.benchmarks.mirage.records import QuestionRow

BEGINNING = 80  # characters of a passage without a title


@expanded
def show_run(
    run: Annotated[Path, typer.Argument(help="Output folder of 'biorag bench mirage', or its questions.jsonl.")],
    task: Annotated[list[str] | None, typer.Option(help="Only this task. Repeatable.")] = None,
    wrong: Annotated[bool, typer.Option("--wrong", help="Only questions that were answered wrong.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write one page with filters and search, to open offline.")] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Page through the questions of a run: options, answer, evidence, verdicts.

    Examples:

      biorag bench show runs/hybrid --wrong

      biorag bench show runs/hybrid --task bioasq --json

      biorag bench show runs/hybrid --html hybrid.html
    """
    from biorag.benchmarks.mirage.page import html_page, is_page
    from biorag.benchmarks.mirage.records import chosen_rows, counts, questions_file, read_questions

    rows = chosen_rows(read_questions(run), task or (), wrong)
    if html:
        check_replaceable(html, "page", is_page, [questions_file(run)], force)
        write_text(html, html_page(f"Questions of {run}", rows))
    if as_json:
        show.print_json({"run": str(run), "tasks": counts(rows), "questions": rows})
    elif html:
        show.err.print(f"{len(rows)} questions are in {html}", soft_wrap=True)
    else:
        with _pager():
            _print(rows)


def _pager() -> AbstractContextManager[object]:
    """Return a pager on a terminal, and nothing elsewhere."""
    return show.out.pager(styles=True) if show.out.is_terminal else nullcontext()


def _print(rows: Sequence[QuestionRow]) -> None:
    from biorag.benchmarks.mirage.page import gold_note

    for row in rows:
        result = Text(
            " right " if row["right"] else " wrong ", style="reverse green" if row["right"] else "reverse red"
        )
        show.out.print(Text.assemble(result, f" {showable(row['task'])} {showable(row['id'])}"), soft_wrap=True)
        show.out.print(Text(showable(row["question"]), style="bold"))
        for letter, text in row["options"].items():
            marks = ("=" if letter == row["gold"] else " ") + (">" if letter == row["choice"] else " ")
            show.out.print(f"{marks} {letter}: {text}")
        if row["choice"] is None:
            show.out.print("   no choice can be read in the reply, which scores as A")
        for hit in row["evidence"] or ():
            pmid = "" if hit["pmid"] is None else f"PMID {hit['pmid']}, "
            title = hit["title"] or hit.get("text", "")[:BEGINNING]
            show.out.print(f"   {hit['rank']}. {title} ({pmid}{hit['id']}, {hit['score']:.3f})")
        for sentence in row["verdicts"]:
            show.out.print(f"   {sentence['verdict']}: {sentence['text']}")
        if note := gold_note(row):
            show.out.print(f"   {note}")
        show.out.print()
    show.out.print(f"{sum(row['right'] for row in rows)} of {len(rows)} right; = is the right option, > the answer")
