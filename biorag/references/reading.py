"""What the text of a reference says of a publication: its authors, title, journal, year, volume, pages and identifiers.

Styles differ (Vancouver, AMA, APA, Harvard, Nature …), so each part is looked for by itself, and none is guessed: what
could not be read stays empty.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from biorag.references.authors import cited_authors
from biorag.references.reference import Genre, Reference

LONGEST = 3000  # characters of an item that are read
_DOI = re.compile(r"\b10\.[0-9]{4,9}/[^\s\"<>{}|\\^`]+")
_DOI_LINK = re.compile(
    r"(?:https?://(?:dx\.|www\.)?doi\.org/|\bdoi:?\s*)?\b10\.[0-9]{4,9}/[^\s\"<>{}|\\^`]+", re.IGNORECASE
)
_PMID = re.compile(r"\bPMID\s*:?\s*([0-9]{1,9})\b|pubmed\.ncbi\.nlm\.nih\.gov/([0-9]{1,9})\b", re.IGNORECASE)
_URL = re.compile(r"\bhttps?://\S+|\bPMCID\s*:?|\bEpub\b[^.;]{0,40}[.;]?")
_DATE_AFTER = re.compile(r"[\s.,;:]*\(?((?:19|20)\d\d)[a-z]?(?:,\s[A-Za-z]+(?:\s\d{1,2})?)?\)?[\s.,;:]+")
_QUOTED = re.compile(r"[“\"]([^“”\"]{15,500})[”\"]")
_END = re.compile(r"[.?!](?=[\s”\"]|\Z)")
_NO_END = re.compile(r"(?:\b(?:vs|al|spp?|var|St|Dr|no|approx|cf|ca)|\b[A-Z])\Z")
_JOURNAL = re.compile(
    r"[\s.,;:–”\"'»)-]*(?:In:?\s)?([^\d;:]{2,150}?)[\s.,;(]*(?=\d|;|:|\bvol(?:ume)?\b|\bpp?\b[.\s]|\Z)", re.IGNORECASE
)
_YEARS = tuple(
    re.compile(pattern)
    for pattern in (
        r"\(((?:19|20)\d\d)[a-z]?(?:,\s[A-Za-z]+(?:\s\d{1,2})?)?\)",
        r"\b((?:19|20)\d\d)(?:[\s,]+[A-Z][a-z]{2,8}(?:[-–/\s]*[A-Za-z0-9]{1,9}){0,2})?\s*[;:]",
        r"\b((?:19|20)\d\d)[a-z]?\b(?!\s*[-–]\s*\d{4})",
    )
)
_DASH = r"\s*[-–—‐‑]{1,2}\s*"
# Numbers of volumes and pages, which may look like years.
_NO_YEAR = re.compile(
    rf"\b(?:vol(?:ume)?|no|pp?)\b\.?\s*\d{{1,8}}(?:{_DASH}\d{{1,8}})?|(?<=[\d)]):\s?\d{{1,8}}\b(?:{_DASH}\d{{1,8}})?|\b\d{{1,8}}{_DASH}\d{{3,8}}\b",
    re.IGNORECASE,
)
_PAGE = r"[A-Za-z]{0,2}\d{1,8}"
_RANGE = rf"(?:p(?:p|ages?)?\.?\s*)?(?P<pages>{_PAGE}(?:{_DASH}{_PAGE})?)"
_VOLUME = r"(?<![\d.-])(?P<volume>(?!(?:19|20)\d\d\b)\d{1,4})"
_DATED = r"\b(?:19|20)\d\d\b(?:\s[A-Z][a-z]{2,8}(?:[-–/\s][A-Za-z0-9]{1,9}){0,2})?"
_PLACES = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_DATED}\s*;\s*(?P<volume>\d{{1,4}})(?![\d–-])\s*(?:Suppl\S{{0,4}}\s?\w{{0,4}}\s*)?(?:\([^()]{{1,30}}\))?(?:\s*[:,]\s*{_RANGE})?",
        rf"{_DATED}\s*(?:;\s*)?(?:\([^()]{{1,20}}\))?[;:]\s*{_RANGE}(?=[.,;\s]|\Z)",
        rf"(?i:\bvol(?:ume)?)\.?\s*{_VOLUME}",
        rf"\bpp?\.\s*{_RANGE}",
        rf"{_VOLUME},?\s*(?:no\.?|number|issue)\s*\d{{1,4}}[^:,]{{0,20}}[:,]\s*{_RANGE}",
        rf"{_VOLUME}\s*(?:\([^()]{{1,20}}\))?\s*[:,]\s*{_RANGE}(?![\d(])",
        rf"[,.;]\s(?P<pages>{_PAGE}{_DASH}{_PAGE})(?=[.,;]|\Z)",
        rf"{_VOLUME}(?:\s*\(\d[^()]{{0,20}}\)|,\sno\.?\s?\d)",
    )
)


class Place(NamedTuple):
    """Where a publication stands, as the end of a reference says: what could not be read is empty."""

    years: tuple[int, ...]
    journal: str
    volume: str
    pages: str


def read_reference(text: str) -> Reference:
    """Return what an item of a list says of a publication; fields that cannot be read are empty."""
    text = text[:LONGEST]
    doi, pmid = _DOI.search(text), _PMID.search(text)
    plain = without_numbers(text)
    authors, end = cited_authors(plain)
    dated = _DATE_AFTER.match(plain, end)
    title, after = _title(plain, dated.end() if dated else end)
    place = place_in(plain[after:]) if title else place_in(plain[end:])
    return Reference(
        id="",
        title=title,
        abstract="",
        genre=Genre.ARTICLE,
        pmid=int(pmid[1] or pmid[2]) if pmid else None,
        authors=tuple(authors),
        date=(int(dated[1]),) if dated else place.years[:1],
        journal=place.journal if title else "",
        volume=place.volume,
        pages=place.pages,
        doi=doi[0].rstrip(".,;)]'").lower() if doi else "",
    )


def without_numbers(text: str) -> str:
    """Return an item's text without identifiers, addresses and emphasis."""
    plain = _URL.sub(" ", _PMID.sub(" ", _DOI_LINK.sub(" ", text[:LONGEST])))
    return " ".join(re.sub(r"[*_]{1,3}|</?\w{1,9}>", "", plain).split())


def place_in(tail: str) -> Place:
    """Return the journal, year, volume and pages in what follows the title of a reference."""
    dated = _NO_YEAR.sub(" ", tail)
    years = (int(match[1]) for form in _YEARS if (match := form.search(dated)))
    journal = _JOURNAL.match(tail)
    numbers: dict[str, str] = {}
    for form in _PLACES:
        if match := form.search(tail):
            numbers = {name: value for name, value in match.groupdict().items() if value} | numbers
    return Place(
        tuple(years),
        journal[1].strip(" .,;:(") if journal else "",
        numbers.get("volume", ""),
        re.sub(_DASH, "-", numbers.get("pages", "")),
    )


def _title(text: str, start: int) -> tuple[str, int]:
    """Return the title that begins at a place in a reference, and where it ends."""
    if quoted := _QUOTED.search(text, start):
        return quoted[1].rstrip(".,"), quoted.end()
    while start < len(text) and text[start] in " .,;:–-":
        start += 1
    for match in _END.finditer(text, start):
        title = text[start : match.start()]
        if len(title.split()) >= 3 and not _NO_END.search(title):
            return title + match[0].strip("."), match.end()
    return text[start:].rstrip("."), len(text)
