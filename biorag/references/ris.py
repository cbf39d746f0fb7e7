"""RIS, the tagged lines that reference managers exchange."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from biorag.references.names import Author
from biorag.references.reference import Genre, Reference, references_of
from biorag.types import Hit

TYPES = {
    Genre.ARTICLE: "JOUR",
    Genre.PREPRINT: "UNPB",
    Genre.BOOK: "BOOK",
    Genre.THESIS: "THES",
    Genre.DATASET: "DATA",
    Genre.OTHER: "GEN",
}


def ris(hits: Sequence[Hit]) -> str:
    """Return the references of hits as RIS."""
    return "".join(map(record, references_of(hits)))


def record(reference: Reference) -> str:
    """Return one RIS record; a value is one line, so none can pose as another tag."""
    lines = (f"{tag}  - {value}\n" for tag, value in _lines(reference) if value)
    return f"TY  - {TYPES[reference.genre]}\n{''.join(lines)}ER  - \n\n"


def _lines(reference: Reference) -> Iterator[tuple[str, str]]:
    first, last = reference.page_range
    yield "ID", reference.key
    yield from (("AU", name(author)) for author in reference.authors)
    yield "TI", reference.title
    yield "T2", reference.journal
    yield "J2", reference.abbreviation
    yield "PY", str(reference.date[0]) if reference.date else ""
    yield "DA", _date(reference.date)
    yield "VL", reference.volume
    yield "IS", reference.issue
    yield "SP", first
    yield "EP", last
    yield "SN", reference.issn
    yield "DO", reference.doi
    yield "AN", str(reference.pmid) if reference.pmid else ""
    yield "DB", "PubMed" if reference.pmid else ""
    yield "C2", reference.pmcid
    yield "UR", reference.url
    yield from (("M3", kind) for kind in reference.types[:1])
    yield from (("KW", keyword) for keyword in reference.keywords)
    yield from (("LA", language) for language in reference.language[:1])
    yield from (("N1", note) for note in reference.notes)
    yield "AB", reference.abstract


def name(author: Author) -> str:
    """Return "Family, Given, Suffix"; a group without its commas, at which readers would part a person's name."""
    if author.group:
        return " ".join(author.family.replace(",", " ").split())
    return ", ".join(filter(None, (author.family, author.given, author.suffix)))


def _date(date: tuple[int, ...]) -> str:
    """Return a date as RIS writes it, YYYY/MM/DD/, with what is not known left empty."""
    if not date:
        return ""
    return "/".join([str(date[0]), *(f"{part:02}" for part in date[1:]), *[""] * (4 - len(date))])
