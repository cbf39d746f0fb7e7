"""Reference lists: where one stands in a manuscript, its items, and what an item says of a publication.

Styles differ (Vancouver, AMA, APA, Harvard, Nature …), so each part is looked for by itself, and none is guessed: what
could not be read stays empty, and is not compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from biorag.corpus.budget import draw
from biorag.papers.files.headings import heads_list
from biorag.papers.manuscripts.manuscript import ListedReference, Paragraph, bare
from biorag.references.authors import cited_authors
from biorag.references.reference import Genre, Reference

LONGEST_ITEM, MOST_LEFT_OUT = 6, 2  # lines of the items of a list, on average; numbers left out between two
LONGEST = 3000  # characters of an item that are read
_AFTER = re.compile(
    r"\W*(?:acknowledge?ments?|appendix|appendices|supplement\w*|supporting information|figures?|tables?|"
    r"(?:figure|table) legends?|funding|author contributions?|conflicts? of interest|competing interests?|"
    r"data availability|abbreviations)\b[^.]{0,60}",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"\s*(?:\[\^([\w.-]{1,60})\]:|\[(\d{1,5})\]|\(?(\d{1,5})[.)](?=\s|[^\W\d_])|(\d{1,5})\t|(\d{1,5})\s+(?=[^\W\d_]))\s*"
)
_ENDED = re.compile(r"(?:[.\d)\]]|\S/\S{1,200})\s*\Z")  # of a reference: by a stop, a number, an identifier
_WORDS = re.compile(r"[^\W_]{2}.{0,99}?\W[^\W_]{2}|\d{4}")
_BULLET = re.compile(r"\s*[-*+•]\s+")
_HAS_YEAR = re.compile(r"\b(?:(?:19|20)\d\d[a-z]?|in press)\b|\bn\.\s?d\.", re.IGNORECASE)
DOI = re.compile(r"\b10\.[0-9]{4,9}/[^\s\"<>{}|\\^`]+")
_DOI_LINK = re.compile(
    r"(?:https?://(?:dx\.|www\.)?doi\.org/|\bdoi:?\s*)?\b10\.[0-9]{4,9}/[^\s\"<>{}|\\^`]+", re.IGNORECASE
)
PMID = re.compile(r"\bPMID\s*:?\s*([0-9]{1,9})\b|pubmed\.ncbi\.nlm\.nih\.gov/([0-9]{1,9})\b", re.IGNORECASE)
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
_RANGE = rf"(?:pp?\.?\s*)?(?P<pages>{_PAGE}(?:{_DASH}{_PAGE})?)"
_VOLUME = r"(?<![\d.-])(?P<volume>(?!(?:19|20)\d\d\b)\d{1,4})"
_DATED = r"\b(?:19|20)\d\d\b(?:\s[A-Z][a-z]{2,8}(?:[-–/\s][A-Za-z0-9]{1,9}){0,2})?"
_PLACES = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_DATED}\s*;\s*(?P<volume>\d{{1,4}})(?![\d–-])\s*(?:Suppl\S{{0,4}}\s?\w{{0,4}}\s*)?(?:\([^()]{{1,30}}\))?(?:\s*:\s*{_RANGE})?",
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


def parted(paragraphs: Sequence[Paragraph]) -> tuple[list[Paragraph], list[Paragraph]]:
    """Return a manuscript's text and its list of references: what follows its last heading of that name, if any.

    Without a heading it is the paragraphs at the end that are numbered from 1.
    """
    headings = [n for n, one in enumerate(paragraphs) if heads_list(one.text)]
    if headings:
        start = headings[-1]
        rest = range(start + 1, len(paragraphs))
        end = next(
            (n for n in rest if paragraphs[n].is_heading or _AFTER.fullmatch(paragraphs[n].text)), len(paragraphs)
        )
        return [*paragraphs[:start], *paragraphs[end:]], list(paragraphs[start + 1 : end])
    start = next((n for n in range(len(paragraphs) - 1, -1, -1) if _number(paragraphs[n].text) == "1"), len(paragraphs))
    start = start if _are_numbered(paragraphs[start:]) else len(paragraphs)
    return list(paragraphs[:start]), list(paragraphs[start:])


def _are_numbered(paragraphs: Sequence[Paragraph]) -> bool:
    """Return whether paragraphs, up to what follows a list, are items numbered from 1, with a year in most."""
    texts = [line for one in paragraphs for line in one.text.splitlines() if line.strip()]
    numbers = [_number(text) for text in texts]
    dated = sum(bool(_HAS_YEAR.search(text)) for text in texts)
    return numbers == [str(n) for n in range(1, len(texts) + 1)] and 2 * dated > len(texts)


def _number(text: str) -> str:
    draw()
    match = _NUMBER.match(text)
    return next(filter(None, match.groups()), "") if match else ""


def items(paragraphs: Sequence[Paragraph]) -> list[ListedReference]:
    """Return the references of a list: an item a number or a bullet, else a paragraph, or lines from authors on.

    The key of one without a number is its place in the list.
    """
    lines = [line for paragraph in paragraphs for line in _lines(paragraph)]
    starts = beginnings([text for text, _, _ in lines], [is_first for _, _, is_first in lines])
    references: list[ListedReference] = []
    for start, end in pairwise([*starts, len(lines)]):
        text, paragraph, _ = lines[start]
        number = starts[start]
        opening = _NUMBER.match(text) if number else _BULLET.match(text)
        whole = " ".join([text[opening.end() if opening else 0 :], *(text for text, _, _ in lines[start + 1 : end])])
        key, plain = number or str(len(references) + 1), bare(whole)
        references.append(ListedReference(key, plain, read_reference(plain), paragraph.number, paragraph.place))
    return references


def beginnings(lines: Sequence[str], are_first: Sequence[bool]) -> dict[int, str]:
    """Return which lines of a list begin its items, with their numbers, "" where there are none."""
    numbers = {n: number for n, line in enumerate(lines) if (number := _number(line))}
    if numbers and all(lines[n].lstrip().startswith("[^") for n in numbers):  # footnotes, whatever their keys
        return numbers
    ordered: dict[int, str] = {}
    last = 0
    for n, number in numbers.items():
        if number.isdecimal() and last < int(number) <= last + MOST_LEFT_OUT + 1:
            ordered[n], last = number, int(number)
    if 2 * len(numbers) > len(lines) and 2 * len(ordered) < len(numbers):
        return numbers
    if ordered and min(ordered) < 2 and LONGEST_ITEM * len(ordered) > len(lines):  # a numbering begins with its list
        return ordered
    bullets = {n: "" for n, line in enumerate(lines) if _BULLET.match(line)}
    if LONGEST_ITEM * len(bullets) > len(lines):
        return bullets
    is_a_line = all(_ENDED.search(line) and _HAS_YEAR.search(line) for line in lines)
    starts, is_dated = {}, False
    for n, line in enumerate(lines):
        is_ended = is_dated and _ENDED.search(lines[n - 1]) and not line[0].isspace()
        if are_first[n] or is_a_line or (is_ended and _begins_with_authors(line)):
            starts[n], is_dated = "", False
        is_dated = is_dated or bool(_HAS_YEAR.search(line))
    return starts


def _lines(paragraph: Paragraph) -> Iterator[tuple[str, Paragraph, bool]]:
    """Yield the lines of a paragraph of a list, at their places, and whether each is its first."""
    is_first = True
    for offset, line in enumerate(paragraph.text.splitlines()):
        if _WORDS.search(line) or (not is_first and re.search(r"[^\W_]", line)):
            number = paragraph.line + offset
            at_line = replace(paragraph, line=number, place=f"line {number}") if paragraph.line else paragraph
            yield line, at_line, is_first
            is_first = False


def _begins_with_authors(line: str) -> bool:
    """Return whether a line begins with authors: a group, several, or one with initials, which no journal has."""
    authors, _ = cited_authors(line)
    return len(authors) > 1 or any(one.group or re.match(r"\w\.|\W*\w{1,3}\Z", one.given) for one in authors)


def read_reference(text: str) -> Reference:
    """Return what an item of a list says of a publication; fields that cannot be read are empty."""
    draw()
    text = text[:LONGEST]
    doi, pmid = DOI.search(text), PMID.search(text)
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
    plain = _URL.sub(" ", PMID.sub(" ", _DOI_LINK.sub(" ", text[:LONGEST])))
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
