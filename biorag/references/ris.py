"""RIS, the tagged lines that reference managers exchange, written by rispy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rispy

from biorag.references.reference import Author, Genre, Reference, references_of
from biorag.types import Hit

TYPES = {
    Genre.ARTICLE: "JOUR",
    Genre.PREPRINT: "UNPB",
    Genre.BOOK: "BOOK",
    Genre.CHAPTER: "CHAP",
    Genre.THESIS: "THES",
    Genre.DATASET: "DATA",
    Genre.OTHER: "GEN",
}


class _Unnumbered(rispy.RisWriter):  # type: ignore[misc]
    """Writes no number before each record."""

    def set_header(self, count: int) -> str:
        return ""


def ris(hits: Sequence[Hit]) -> str:
    """Return the references of hits as RIS."""
    text: str = rispy.dumps([record(reference) for reference in references_of(hits)], implementation=_Unnumbered)
    return f"{text}\n" if text else ""


def record(reference: Reference) -> dict[str, Any]:
    """Return a record under rispy's names of the tags; a value is one line, so none can pose as another tag."""
    first, last = reference.page_range
    values = {
        "type_of_reference": TYPES[reference.genre],
        "id": reference.key,
        "authors": [name(author) for author in reference.authors],
        "title": reference.title,
        "secondary_title": reference.journal,
        "alternate_title1": reference.abbreviation,
        "year": reference.year,
        "date": _date(reference.date),
        "volume": reference.volume,
        "number": reference.issue,
        "start_page": first,
        "end_page": last,
        "issn": reference.issn,
        "doi": reference.doi,
        "accession_number": str(reference.pmid) if reference.pmid else "",
        "name_of_database": "PubMed" if reference.pmid else "",
        "custom2": reference.pmcid,
        "urls": [reference.url] if reference.url else [],
        "type_of_work": next(iter(reference.types), ""),
        "keywords": list(reference.keywords),
        "language": next(iter(reference.language), ""),
        "notes": list(reference.notes),
        "abstract": reference.abstract,
    }
    return {label: value for label, value in values.items() if value}


def name(author: Author) -> str:
    """Return "Family, Given, Suffix"; a group without its commas, at which readers would part a person's name."""
    if author.group:
        return " ".join(author.family.replace(",", " ").split())
    return ", ".join(filter(None, (author.family, author.given, author.suffix)))


def _date(date: tuple[int, ...]) -> str:
    """Return a date as RIS writes it, YYYY/MM/DD/, with an unknown day left empty; a year alone is in its own field."""
    if len(date) < 2:
        return ""
    return "/".join([str(date[0]), *(f"{part:02}" for part in date[1:]), *[""] * (4 - len(date))])
