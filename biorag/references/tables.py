"""Hits as Markdown, CSV and TSV, one row each."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

from biorag.references.reference import one_line, reference_of
from biorag.references.vancouver import authors
from biorag.types import Hit

COLUMNS = (
    *("rank", "score", "id", "pmid", "title", "authors", "year", "journal", "type", "doi", "pmcid", "url"),
    *("retracted", "concern", "content"),
)
_MARKUP = re.compile(r"([\\`*_{}\[\]<>|#~&])")
_FORMULA = ("=", "+", "-", "@")  # begin a formula of a spreadsheet


def markdown(hits: Sequence[Hit]) -> str:
    """Return hits as a table in Markdown."""
    rows = ["| # | Source | Title | Authors | Year | Journal | Type |", "|--:|---|---|---|---|---|---|"]
    return "\n".join([*rows, *map(_markdown_row, hits)]) + "\n"


def comma_separated(hits: Sequence[Hit]) -> str:
    """Return hits as CSV, with a header."""
    return separated(COLUMNS, map(_cells, hits))


def tab_separated(hits: Sequence[Hit]) -> str:
    """Return hits as TSV, with a header."""
    return separated(COLUMNS, map(_cells, hits), "\t")


def plain(text: str) -> str:
    """Return text that Markdown shows as it stands."""
    return _MARKUP.sub(r"\\\1", one_line(text))


def _markdown_row(hit: Hit) -> str:
    reference = reference_of(hit.snippet)
    known = f"PMID {reference.pmid}" if reference.pmid else reference.doi and f"doi:{reference.doi}"
    source = f"[{plain(known)}](<{reference.url}>)" if known else plain(reference.id)
    notes = "".join(f"**{note}.** " for note in reference.notes)
    cells = (notes + plain(reference.title), plain(authors(reference.authors)), reference.year)
    others = (plain(reference.journal), plain(", ".join(reference.types)))
    return f"| {' | '.join([str(hit.rank), source, *cells, *others])} |"


def separated(columns: Sequence[str], rows: Iterable[Sequence[object]], delimiter: str = ",") -> str:
    """Return rows under their columns as CSV, or with another delimiter."""
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter, lineterminator="\n").writerows([columns, *rows])
    return stream.getvalue()


def _cells(hit: Hit) -> list[str | int | float]:
    reference = reference_of(hit.snippet)
    names = "; ".join(", ".join(filter(None, author[:3])) for author in reference.authors)
    types = "; ".join(reference.types)
    described = (reference.title, names, reference.year, reference.journal, types, reference.doi, reference.pmcid)
    return [
        *(hit.rank, round(hit.score, 6), cell(reference.id), reference.pmid or ""),
        *map(cell, (*described, reference.url)),
        *("yes" if fact else "" for fact in (reference.retracted, reference.concern)),
        cell(hit.snippet.content),
    ]


def cell(text: str) -> str:
    """Return a text on one line; a quote before a text that a spreadsheet would take for a formula."""
    line = one_line(text)
    return f"'{line}" if line.startswith(_FORMULA) else line
