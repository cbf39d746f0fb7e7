"""The reference of a snippet's publication, read from its metadata."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath
from typing import Any, NamedTuple

from biorag.references.escaping import in_url, one_line
from biorag.types import Hit, Snippet

PUBMED = "https://pubmed.ncbi.nlm.nih.gov"
RETRACTED, CONCERN = "Retracted article", "Expression of concern"
_RANGE = re.compile(r"(?P<first>\w+)\s*[-–]\s*(?P<last>\w+)")
_RESOLVER = re.compile(r"\A(?:https?://(?:dx\.|www\.)?doi\.org/|doi:)\s*", re.IGNORECASE)  # may precede a DOI
_DATE = re.compile(r"(?P<year>[0-9]{4})(?:-(?P<month>0[1-9]|1[0-2])(?:-(?P<day>0[1-9]|[12][0-9]|3[01]))?)?")
NO_INITIALS = ("UK", "US", "USA", "EU", "UN", "AG", "SA", "II", "III")  # behind a group's name
FIRST_WORDS, LONGEST_OPENING = 12, 400  # of a text without a title: words, and characters in which they stand
MOST_INITIALS = 2  # as NLM's Citing Medicine has it
_RETRACTED = re.compile(
    r"\A\W*(?:retracted|withdrawn)(?:\s(?:article|paper|chapter))?\s*[:.\])–—-]\s*|\s*[\[(](?:retracted|withdrawn)[^()\[\]]{0,80}[)\]]\W*\Z",
    re.IGNORECASE,
)
_PART = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_INITIALS = re.compile(r"[A-Z]{1,4}")  # given names that are initials already
# "Smith JA", "Eloubeidi M.A.", "de la Cruz J-P Jr": a person as MEDLINE, Embase and Scopus write one, without a comma.
_SHORT_NAME = re.compile(
    r"(?P<family>(?:[a-z'’][^\s,]{0,5}\s){0,3}(?:[A-Z][^\s,]+\s)?[^\W\d_][\w'’ʼ′-]+)\s"
    r"(?P<given>[A-Z]\.?(?:[\s-]?[A-Z]\.?){0,2})(?:\s(?P<suffix>Jr|Sr|I{2,3}|IV)\.?)?"
)


class Genre(StrEnum):
    """The kind of a publication; formats of references have a type for each."""

    ARTICLE = "article"
    PREPRINT = "preprint"
    BOOK = "book"
    CHAPTER = "chapter"
    THESIS = "thesis"
    DATASET = "dataset"
    OTHER = "other"


_GENRES = {
    "Preprint": Genre.PREPRINT,
    "Book": Genre.BOOK,
    "Book Chapter": Genre.CHAPTER,
    "Academic Dissertation": Genre.THESIS,
    "Dataset": Genre.DATASET,
}


class Author(NamedTuple):
    """A person, or a group, whose name is all `family`."""

    family: str
    given: str = ""
    suffix: str = ""
    group: bool = False

    @property
    def initials(self) -> str:
        """The first letters of the given names, at most two, particles in lower case left out: "JP" of Jean-Paul."""
        if _INITIALS.fullmatch(self.given):
            return self.given[:MOST_INITIALS]
        parts: list[str] = _PART.findall(self.given)
        names = [part for part in parts if not part[0].islower()] or parts
        return "".join(part[0].upper() for part in names[:MOST_INITIALS])

    @property
    def name(self) -> str:
        """The name as references have it: "Family GN Jr"; a group's own."""
        return " ".join(filter(None, (self.family, self.initials, self.suffix.rstrip("."))))


def author_of(name: str, groups: Collection[str] = ()) -> Author:
    """Return the author of a name as metadata has it; one without comma or initials, or of `groups`, is a group's."""
    text = " ".join(name.split())
    parts = [part.strip() for part in text.split(",")]
    person = _SHORT_NAME.fullmatch(text) if name not in groups else None
    if person and not (
        person["given"] in NO_INITIALS or (person["family"].isupper() and len(person["given"]) > MOST_INITIALS)
    ):
        return Author(person["family"], person["given"], person["suffix"] or "")
    if name in groups or len(parts) not in (2, 3) or not all(parts):
        return Author(text, group=True)
    family, given, *suffix = parts
    return Author(family, given, "".join(suffix))


@dataclass(frozen=True, slots=True)
class Reference:
    """A publication; fields that its record lacks are empty.

    `date` is (year,), (year, month) or (year, month, day). `id` is the snippet's. A title that is the name of a record
    or a file, such as "pubmed_34534708", is none; `opening` are the first words of the text.
    """

    id: str
    title: str
    abstract: str
    genre: Genre
    pmid: int | None = None
    authors: tuple[Author, ...] = ()
    date: tuple[int, ...] = ()
    journal: str = ""
    abbreviation: str = ""
    volume: str = ""
    issue: str = ""
    pages: str = ""
    issn: str = ""
    doi: str = ""
    pmcid: str = ""
    language: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    retracted: bool = False
    concern: bool = False
    file: str = ""
    opening: str = ""

    @property
    def heading(self) -> str:
        """What the publication is shown by: its title, else the first words of the text, else the snippet's id."""
        return self.title or self.opening or self.id

    @property
    def noted_heading(self) -> str:
        """The heading beside a note that the publication was retracted, which it does not repeat."""
        return unmarked(self.heading) if self.retracted else self.heading

    @property
    def key(self) -> str:
        """A key that no other reference has, in ASCII letters, digits and `_`; it stays as the record grows.

        "OByrne2018_29768149": first author, year and PMID, or, without a PMID, a hash of the DOI, of the file of
        which the snippet is a part, or of the snippet's id.
        """
        family = self.authors[0].family if self.authors else ""
        plain = unicodedata.normalize("NFKD", family).encode("ascii", "ignore").decode()
        name = re.sub("[^A-Za-z0-9]", "", plain)[:40] or "Anonymous"
        number = (
            str(self.pmid)
            if self.pmid
            else hashlib.sha256((self.doi.lower() or self.file or self.id).encode()).hexdigest()[:12]
        )
        return f"{name}{self.year}_{number}"

    @property
    def year(self) -> str:
        """The year; empty where it is not known."""
        return str(self.date[0]) if self.date else ""

    @property
    def url(self) -> str:
        """Its address at PubMed, else by its DOI, which has a slash; empty without either."""
        if self.pmid:
            return f"{PUBMED}/{self.pmid}/"
        return f"https://doi.org/{in_url(self.doi, slashes=True)}" if "/" in self.doi else ""

    @property
    def page_range(self) -> tuple[str, str]:
        """First and last page, the last in full ("284-7" is 284 to 287); empty without pages."""
        pages = _RANGE.fullmatch(self.pages)
        if not pages:
            return self.pages, ""
        first, last = pages["first"], pages["last"]
        if first.isdigit() and last.isdigit() and len(last) < len(first):
            last = first[: len(first) - len(last)] + last
        return first, last

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings to a reader: that it was retracted, or has an expression of concern."""
        return (RETRACTED,) * self.retracted + (CONCERN,) * self.concern


def reference_of(snippet: Snippet) -> Reference:
    """Return the reference of a snippet; metadata of an unexpected type counts as not there."""
    fields = snippet.metadata
    types, journal = texts(fields, "type"), text(fields, "journal")
    groups = frozenset(texts(fields, "group_authors"))
    genre = next((_GENRES[name] for name in types if name in _GENRES), None)
    return Reference(
        id=snippet.id,
        title="" if _is_name(snippet, text(fields, "file")) else one_line(snippet.title),
        abstract=one_line(snippet.content) if fields.get("abstract") is not False else "",
        genre=genre or (Genre.ARTICLE if journal or snippet.pmid or ARTICLE in types else Genre.OTHER),
        pmid=snippet.pmid,
        authors=tuple(author_of(name, groups) for name in texts(fields, "authors")),
        date=_date(fields),
        journal=journal,
        abbreviation=text(fields, "journal_abbreviation"),
        volume=text(fields, "volume"),
        issue=text(fields, "issue"),
        pages=text(fields, "pages"),
        issn=text(fields, "issn"),
        doi=bare_doi(text(fields, "doi")),
        pmcid=text(fields, "pmcid"),
        language=texts(fields, "language"),
        types=types,
        keywords=texts(fields, "mesh", "keywords"),
        retracted=snippet.retracted,
        concern=has_concern(snippet),
        file=text(fields, "file"),
        opening=_opening(snippet.content),
    )


def _is_name(snippet: Snippet, file: str) -> bool:
    """Return whether a title is the name of its record or file: one word, with an underscore or with digits."""
    title = snippet.title.strip()
    names = (snippet.id, snippet.document, str(snippet.pmid), PurePath(file).stem)
    return len(title.split()) == 1 and ("_" in title or (title in names and any(map(str.isdigit, title))))


def _opening(content: str) -> str:
    words = one_line(content[:LONGEST_OPENING]).split()
    return " ".join(words[:FIRST_WORDS]) + (" …" if len(words) > FIRST_WORDS else "")


def references_of(hits: Iterable[Hit]) -> list[Reference]:
    """Return the references of hits in the order of the best hit of each."""
    references: dict[str, Reference] = {}
    for hit in hits:
        reference = reference_of(hit.snippet)
        references.setdefault(reference.key, reference)
    return list(references.values())


def bare_doi(text: str) -> str:
    """Return a DOI without the address, or the "doi:", before it."""
    return _RESOLVER.sub("", text.strip())


def unmarked(title: str) -> str:
    """Return a title without tags, and without what says that its paper was retracted: few references repeat them."""
    return _RETRACTED.sub("", re.sub(r"</?\w{1,9}>", "", title)) or title


def has_concern(snippet: Snippet) -> bool:
    """Return whether the record names an expression of concern."""
    return bool(snippet.metadata.get("concern"))


def reference_line(snippet: Snippet) -> str:
    """Return "Smith J, et al. Title. Lancet 2019; p. 4. PMID 123", as far as it is known, of a source of an answer.

    Without a PMID its DOI stands at the end, else its file, else its id.
    """
    reference = reference_of(snippet)
    issued = " ".join(filter(None, (reference.abbreviation or reference.journal, reference.year)))
    where = "; ".join(filter(None, (issued, one_line(snippet.location))))
    parts = [part.rstrip(".") for part in (_first_author(reference), reference.heading, where) if part]
    number = f"PMID {reference.pmid}" if reference.pmid else reference.doi and f"doi:{reference.doi}"
    last = number or reference.file or (reference.id if reference.heading != reference.id else "")
    sentences = [part if part.endswith(("?", "!", "…")) else f"{part}." for part in parts]
    return " ".join(filter(None, (*sentences, last)))


def _first_author(reference: Reference) -> str:
    return ", ".join([author.name for author in reference.authors[:1]] + ["et al."] * (len(reference.authors) > 1))


def source_line(reference: Reference) -> str:
    """Return "Smith J, et al. · 2019 · Lancet · RCT", as far as it is known."""
    journal = reference.abbreviation or reference.journal
    return " · ".join(
        filter(None, (_first_author(reference), reference.year, journal, ", ".join(study_types(reference.types))))
    )


# Publication types that do not tell the kind of study.
ARTICLE = "Journal Article"
GENERAL = (ARTICLE, "Research Support", "English Abstract")


def telling_types(types: Sequence[str]) -> list[str]:
    """Return the publication types without those of all kinds of studies, unless it has no others."""
    return [name for name in types if not name.startswith(GENERAL)] or list(types)[:1]


DESIGNS = {
    "Meta-Analysis": "Meta-analysis",
    "Systematic Review": "Systematic review",
    "Practice Guideline": "Guideline",
    "Randomized Controlled Trial": "RCT",
    "Observational Study": "Observational study",
    "Case Reports": "Case report",
}  # as a line names them, those that weigh most first
MOST_TYPES = 2


def study_types(types: Sequence[str]) -> list[str]:
    """Return the publication types that tell most of a study, two at most, briefly."""
    designs = [short for name, short in DESIGNS.items() if name in types]
    return (designs or telling_types(types))[:MOST_TYPES]


def text(fields: Mapping[str, Any], name: str) -> str:
    """Return a field of metadata as text: a number too, of a list the first; empty for anything else."""
    return next(iter(texts(fields, name)), "")


def texts(fields: Mapping[str, Any], *names: str) -> tuple[str, ...]:
    """Return the texts of the first of these fields that is there."""
    value = next((fields[name] for name in names if fields.get(name)), None)
    values = value if isinstance(value, list | tuple) else [value]
    plain = (one_line(str(item)) for item in values if isinstance(item, str | int) and not isinstance(item, bool))
    return tuple(filter(None, plain))


def _date(fields: Mapping[str, Any]) -> tuple[int, ...]:
    date = _DATE.fullmatch(text(fields, "date")) or _DATE.fullmatch(text(fields, "year"))
    return tuple(int(part) for part in date.groups() if part) if date else ()
