"""Printing: JSON and tables on stdout, everything else on stderr."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from biorag.errors import BadInputError
from biorag.types import OnProgress
from biorag.utils.files import json_text
from biorag.utils.progress import duration
from biorag.utils.text import showable, showable_json

if TYPE_CHECKING:
    from rich.console import JustifyMethod

    from biorag.corpus.rejects import RejectsFile

QUIET_SECONDS = 30.0
SHORT_CELL, LEAST_WRAPPED = 14, 10  # characters: of a cell that is not wrapped, and of a column that is
SHOWN_FILES = 10  # with bad lines
HASH, HASH_SHOWN = re.compile("[0-9a-f]{64}"), 12  # characters


class ShowingConsole(Console):
    """A console that prints texts literally: no markup, no emoji names, no escape sequences."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a text as it may be shown."""
        return super().render_str(showable(text), **{**options, "markup": False, "emoji": False})

    def on_broken_pipe(self) -> None:
        """End the command where nobody reads stdout; without a reader of stderr it goes on."""
        if not self.stderr:
            raise BrokenPipeError
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


if os.environ.get("NO_COLOR"):
    os.environ.pop("FORCE_COLOR", None)  # with both, which rich takes for a terminal, nothing is coloured
out = ShowingConsole(highlight=False)
err = ShowingConsole(stderr=True, highlight=False)


def print_json(values: Any) -> None:
    """Print one JSON document on stdout; characters that a terminal could act on as escapes."""
    out.file.write(showable_json(json_text(values, indent=2)) + "\n")


class ConsoleHandler(logging.Handler):
    """Writes log lines, tracebacks included, above the progress; those logged with `extra=ONCE` once."""

    def __init__(self) -> None:
        super().__init__()
        self._once: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print the line of a record."""
        line = self.format(record)
        if hasattr(record, "once"):
            if line in self._once:
                return
            self._once.add(line)
        err.print(line, soft_wrap=True)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; where there is no terminal, with tabs between its cells.

    Nothing is cut. Numbers and other short cells stay on one line, long ones wrap; a table that is too wide even so
    is shown row by row, as headings and their values.
    """
    texts = [[value.plain if isinstance(value, Text) else showable(str(value)) for value in row] for row in rows]
    if not out.is_terminal:
        for line in tab_separated(showable(title), [showable(column) for column in columns], texts):
            out.file.write(f"{line}\n")
        out.file.flush()
        return
    shown = Table(title=title, title_justify="left", header_style="bold", show_header=any(columns))
    widths = [max(map(len, cells)) for cells in zip(columns, *texts, strict=True)]
    for number, (column, width) in enumerate(zip(columns, widths, strict=True)):
        numeric = bool(rows) and all(isinstance(row[number], int | float) for row in rows)
        justify: JustifyMethod = "right" if numeric else "left"
        shown.add_column(column, justify=justify, overflow="fold", no_wrap=width <= SHORT_CELL)
    for row, cells in zip(rows, texts, strict=True):
        shown.add_row(
            *(value if isinstance(value, Text) else Text(cell) for value, cell in zip(row, cells, strict=True))
        )
    least = sum(width if width <= SHORT_CELL else LEAST_WRAPPED for width in widths) + 3 * len(columns) + 1  # borders
    if len(columns) > 2 and least > out.width:
        for number, row in enumerate(rows):
            table("" if number else title, ["", ""], list(zip(columns, row, strict=True)))
        return
    out.print(shown)


def listing(title: str, columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a table; each heading in `columns` maps to a key of the rows or a format, "{low:.4f} to {high:.4f}"."""
    cells = [[form.format(**row) if "{" in form else row[form] for form in columns.values()] for row in rows]
    table(title, list(columns), cells)


def result(values: Mapping[str, Any], as_json: bool, print_values: Callable[[Any], None]) -> None:
    """Print the report of a command, as JSON or by the command's own tables."""
    if as_json:
        print_json(values)
    else:
        print_values(values)


def pictures(bench: str, report: Mapping[str, Any], folder: Path | None) -> None:
    """Draw the report of a benchmark into a folder, if one is named."""
    if folder:
        from biorag.benchmarks.pictures import PICTURES
        from biorag.utils.plots import write_both

        for file in write_both(folder, bench, PICTURES[bench](report)):
            err.print(f"plot: {file}", soft_wrap=True)


def report(title: str, values: Mapping[str, Any], as_json: bool = False, hidden: Collection[str] = ()) -> None:
    """Print a report as JSON, or, without `hidden` keys, as a table of its values and one of each list of objects."""
    if as_json:
        print_json(dict(values))
        return
    shown = {name: value for name, value in values.items() if name not in hidden}
    tables = {name: rows for name, rows in shown.items() if rows and _has_objects(rows)}
    table(title, ["", ""], list(_flat({name: value for name, value in shown.items() if name not in tables})))
    for name, rows in tables.items():
        table(name.capitalize(), list(rows[0]), [[_cell(value) for value in row.values()] for row in rows])


def _has_objects(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(row, Mapping) for row in value)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield nested values by their names joined by dots."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", _cell(value)


def _cell(value: object) -> object:
    """Return a value as a table shows it: several joined, a hash by its beginning."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {inner}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, str) and HASH.fullmatch(value):
        return value[:HASH_SHOWN]
    return "" if value is None else value


def tab_separated(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table for other programs: its title after `#`, its columns if they have names, its rows."""
    yield f"# {' '.join(title.split())}"
    for row in [columns, *rows] if any(columns) else rows:
        yield "\t".join(" ".join(cell.split()) for cell in row)


@contextmanager
def progress(description: str, total: int | None) -> Iterator[OnProgress]:
    """Show count, rate and time left on stderr: a bar in a terminal, else a line every 30 seconds.

    The rate is that since the first step, before which models are loaded, and which may be what a run resumes from; in
    the end that of all.
    """
    shown = (SpinnerColumn(), "{task.description}", BarColumn(), MofNCompleteColumn(), "{task.fields[rate]}")
    bar = Progress(*shown, TimeRemainingColumn(), console=err, disable=not err.is_terminal, speed_estimate_period=3600)
    with bar:
        task = bar.add_task(description, total=total, rate="")
        begun = started = reported = time.monotonic()
        done, first = 0, -1

        def advance(count: int = 1) -> None:
            nonlocal started, reported, done, first
            now = time.monotonic()
            if first < 0:
                started, first = now, count
            done += count
            is_over = total is not None and done >= total
            rate = done / (now - begun) if is_over else (done - first) / max(now - started, 1e-9)
            shown_rate = f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s" if rate else ""
            bar.update(task, advance=count, rate=shown_rate)
            if not err.is_terminal and now - reported >= QUIET_SECONDS:
                reported = now
                count_shown = f"{done:,} of {total:,}" if total else f"{done:,}"
                left = duration((total - done) / rate) + " left" if total and rate else ""
                err.print(f"{description}: {', '.join(filter(None, (count_shown, left, shown_rate)))}")

        yield advance


def outcome(
    title: str, out: Path, work: Callable[[], Mapping[str, Any]], as_json: bool, hidden: Collection[str] = ()
) -> None:
    """Do the work of a command that writes `out`, and print the report it returns with `out` and its seconds."""
    started = time.perf_counter()
    values = work()
    values = {"out": str(out), **values, "seconds": round(time.perf_counter() - started, 3)}
    report(title, values, as_json, hidden)


def open_page(url: str) -> None:
    """Open a page in the browser, or say that there is none."""
    import webbrowser

    if not webbrowser.open(url):
        err.print("no browser was found: open the address yourself")


def rejected(rejects: RejectsFile | None, what: str, done: str) -> None:
    """Report `what` became of bad lines; raise `BadInputError` if files break off, whose earlier lines are `done`."""
    if rejects is None:
        return
    if rejects.count:
        where = f"; they are in {rejects.path} with their reasons" if rejects.path else ""
        bad = "bad line was" if rejects.count == 1 else "bad lines were"
        err.print(f"{rejects.count} {bad} {what}{where}")
        if rejects.lenient:
            for first in list(rejects.first.values())[:SHOWN_FILES]:
                err.print(f"  {first}", soft_wrap=True)
            if (rest := len(rejects.first) - SHOWN_FILES) > 0:
                err.print(f"  and {rest} more files")
    if rejects.damaged and not rejects.lenient:
        raise BadInputError(
            f"some files could not be read to the end; what came before is {done}: {'; '.join(rejects.damaged)}"
        )
