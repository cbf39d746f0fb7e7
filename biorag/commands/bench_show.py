"""`biorag bench show`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from biorag.commands import options, show
from biorag.commands.groups import expanded
from biorag.utils.files import check_replaceable, write_text


@expanded
def show_run(
    run: Annotated[Path, typer.Argument(help="Output folder of 'biorag bench mirage', or its questions.jsonl.")],
    task: Annotated[list[str] | None, typer.Option(help="Only this task. Repeatable.")] = None,
    wrong: Annotated[bool, typer.Option("--wrong", help="Only questions answered wrong.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write one page with filters and search, to open offline.")] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """List the questions of a run, or write them with options, evidence, replies and verdicts as one page.

    Examples:

      biorag bench show runs/hybrid --wrong
      biorag bench show runs/hybrid --html hybrid.html
      biorag bench show runs/hybrid --task bioasq --json
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
        shown = [(row["task"], row["id"], row["choice"] or "none", row["gold"], row["question"]) for row in rows]
        right = sum(row["right"] for row in rows)
        show.table(f"{right} of {len(rows)} right", ["task", "id", "answered", "right is", "question"], shown)
        show.err.print("evidence, replies and verdicts: --html FILE, or --json")
