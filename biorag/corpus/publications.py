"""A publication's record, from the texts that an export has of each field: one rule for all formats.

Field names are those of `fields.toml`; names of persons stay as the source writes them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from biorag.corpus.fields import TYPES
from biorag.corpus.pubmed import RETRACTED, date_in, unescaped
from biorag.corpus.readers import ENDING, NO_TEXT, Record, entry_of, unstyled, with_values
from biorag.types import Snippet

Texts = Mapping[str, Sequence[str]]  # of each field, in the order of a file
LONGEST_LIST = 100_000  # characters of a list as Python writes it
_NO_TYPE = re.compile(r"[\[\]&0-9/]")  # a classification or an identifier in the place of a type
_PUBMED_URL = re.compile(r"pubmed(?:\.ncbi\.nlm\.nih\.gov|/|\.gov/)\D{0,20}?([0-9]{1,9})\b")
_PMID_NOTE = re.compile(
    r"\b(?:PMID:?\s*(?=[0-9])|(?:PUBMED|MEDLINE):?\s*(?=[0-9]{6}))([0-9]{1,9})\b|\b([0-9]{1,9})\s?\[pmid\]",
    re.IGNORECASE,
)
_PUBMED = re.compile(r"\b(?:pubmed|medline|nlm)\b|\Amed\Z", re.IGNORECASE)  # a database whose numbers are PMIDs
_PMCID = re.compile(r"\b(PMC[0-9]{1,9})\b")
_DOI = re.compile(r"\b(10\.[0-9]{4,9}/[^\s\"]+)")
_ISSN = re.compile(r"\b([0-9]{4})-?([0-9]{3}[0-9Xx])\b")
_PAGES = re.compile(r".*\d.*|[ivxlc]+(?:-[ivxlc]+)?", re.IGNORECASE)
_ABSENT = re.compile(
    r"\W*(?:n\W?a|nan|null|none|(?:no|not)\W+(?:abstract|available)\b.{0,40}|abstract\W+(?:not\W+)?(?:un)?available)\W*",
    re.IGNORECASE,
)
# Where a publication stands in one text, as PubMed, Ovid, Embase write it.
_SOURCES = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?P<journal>(?:\d{1,3} )?[^;:\d]{2,200}?)\.? "
        r"(?P<date>(?:[A-Z][a-z]{2,8}(?:/[A-Z][a-z]{2,8})? )?[12]\d{3}[^;:.]{0,20})"
        r"(?:;(?P<volume>[^:(.]{0,20})(?:\((?P<issue>[^)]{0,30})\))?(?::(?P<pages>[^.\s]{1,40}))?)?(?:\.|\Z)(?:\s.*)?",
        r"(?P<journal>.{2,200}?)\.\s*(?:(?P<volume>\d{1,5})?(?:\((?P<issue>[^)]{0,30})\))?(?::\s?(?P<pages>[\w.-]{1,30}))?"
        r"(?:[,.]\s*(?P<date>[^;]{4,40}?)\.?)?)?\s*",
        r"(?P<journal>.{2,200}?) \((?P<date>[12]\d{3})\)(?: (?P<volume>\w{1,9})(?::(?P<issue>[^\s()]{1,20}))?)?"
        r"(?: \((?P<pages>[^()]{1,30})\))?\.?(?: Article Number: (?P<article_number>\w{1,20})\.?)?(?:\s.*)?",
    )
)
_HEADING = re.compile(r"<jats:title>\s?([^<>]{0,200}?)[\s:.]{0,4}</jats:title>", re.IGNORECASE)
_BLOCK = re.compile(r"</?(?:jats:)?(?:p|br|div|li|list|list-item|sec|title|[uo]l|h[1-6]|tr|td)" + ENDING, re.IGNORECASE)
_INITIALS = r"[A-Z]\.?(?:[\s-]?[A-Z]\.?){0,3}"
_SHORT_NAME = re.compile(rf"[^\s,].{{0,60}}\s{_INITIALS}(?:\s(?:Jr|Sr|I{{2,3}})\.?)?")
_GIVEN = re.compile(rf"{_INITIALS}(?:\s(?:Jr|Sr)\.?)?|[^\W\d_]\w*(?:\s{_INITIALS})?")
_SUFFIX = re.compile(r"(?:Jr|Sr)\.?|I{2,3}")
_NOBODY = re.compile(r"\W{0,9}(?:others|et\W{0,3}al|null|anonymous|no authors?\b.{0,40})?\W{0,9}", re.IGNORECASE)
_ID = re.compile(r"\s?\((?:[0-9]{5,}|[^()\s]{1,100}@[^()\s]{1,100})\)")  # Scopus's of an author, or an address
# What notes of reference managers say of a paper, and the fields of their notices.
_NOTED = {
    "retraction": re.compile(r"\W?(?:retracted(?: article)?\W?\Z|retract(?:ion|ed) in\b)", re.IGNORECASE),
    "concern": re.compile(r"\W?expression of concern(?:\W?\Z| in\b)", re.IGNORECASE),
    "errata": re.compile(r"\W?(?:erratum|correction) in\b", re.IGNORECASE),
}
_NO_GIVEN = re.compile(r"(?:,\s*|\s)null\Z")


def publication(record: Record, texts: Texts) -> Snippet:
    """Return the snippet of a record by its texts: under its PMID, else its DOI, else its place in a file.

    Raises `ValueError` if it has neither title nor abstract.
    """
    title, content = plain(_first(texts, "title")), abstract_in(texts.get("abstract", ()))
    if not title and not content:
        raise ValueError(NO_TEXT)
    fields = described(texts)
    pmid = fields.pop("pmid", "")
    id = pmid or fields.get("doi") or record.place
    return entry_of({**fields, "abstract": bool(content), "id": id, "PMID": pmid}, title, content)


def described(texts: Texts) -> dict[str, Any]:
    """Return the fields of a publication as a snippet has them, without empty ones; a PMID as text."""
    texts = _with_source(texts)
    date = _date(texts)
    types, retraction = _types(texts), _notices(texts, "retraction")
    journals = list(dict.fromkeys(map(plain, _all(texts, "journal", "journal_abbreviation"))))
    abbreviations = map(plain, _all(texts, "journal_abbreviation"))
    groups = list(dict.fromkeys(filter(None, map(plain, texts.get("group_authors", ())))))
    persons = next(
        (names for name in ("authors", "short_authors") if set(names := names_of(texts.get(name, ()))) - {*groups}), []
    )
    return with_values(
        {
            "authors": list(dict.fromkeys([*persons, *groups])),
            "group_authors": groups,
            "journal": journals[0] if journals else "",
            "journal_abbreviation": next((name for name in abbreviations if name != journals[0]), ""),
            "year": int(date[:4] or 0) or None,
            "date": date,
            "volume": re.sub(r"\A(?:(?:v|vol)\.\s*){1,2}", "", _first(texts, "volume"), flags=re.IGNORECASE),
            "issue": _first(texts, "issue"),
            "pages": _pages(texts),
            "doi": doi_in(*_all(texts, "doi", "urls")),
            "pmid": _pmid(texts),
            "pmcid": _matched(_PMCID, " ".join(_all(texts, "pmcid", "urls"))),
            "issn": "-".join(match.groups()) if (match := _ISSN.search(_first(texts, "issn"))) else "",
            "language": _all(texts, "language"),
            "mesh": list(dict.fromkeys(heading.split("/")[0].lstrip("*") for heading in texts.get("mesh", ()))),
            "keywords": list(dict.fromkeys(word for text in texts.get("keywords", ()) for word in listed(text, ";"))),
            "type": types,
            "retraction": retraction,
            "errata": _notices(texts, "errata"),
            "concern": _notices(texts, "concern"),
            "retracted": True if RETRACTED in types or retraction else None,
        }
    )


def plain(text: str) -> str:
    """Return a text in one line without markup of HTML and JATS; an exponent keeps its sign: `10^6`."""
    text = " ".join(unescaped(text).split())
    if "<" in text:
        text = _HEADING.sub(lambda match: "" if match[1].lower() == "abstract" else f"{match[1]}: ", text)
        text = unstyled(_BLOCK.sub(" ", text))
    return " ".join(text.split())


def abstract_in(texts: Sequence[str]) -> str:
    """Return the first text that is an abstract, not a remark that there is none."""
    return next((text for text in map(plain, texts) if text and not _ABSENT.fullmatch(text[:100])), "")


def publication_types(name: str) -> list[str]:
    """Return PubMed's publication type for a type of reference of any reference manager, in a list; [] if unknown."""
    return list(filter(None, [TYPES.get(re.sub("[^a-z]", "", name.lower()))]))


def doi_in(*texts: str) -> str:
    """Return the first DOI in texts or addresses, without the punctuation behind it; "" if there is none."""
    forms = (form for text in texts for form in ([text, unquote(text)] if "%2f" in text.lower() else [text]))
    doi = next((match[1] for form in forms if (match := _DOI.search(form))), "").rstrip(".,;")
    for opening, closing in ("()", "<>"):
        doi = doi.rstrip(closing) if doi.count(closing) > doi.count(opening) else doi
    return doi


def names_of(texts: Sequence[str]) -> list[str]:
    """Return the names of authors, each a text or parted from others by semicolons; "others" and marks are none."""
    parts = (name for text in texts for name in re.split(r"\s*;\s*", _ID.sub("", plain(text))))
    names = (_NO_GIVEN.sub("", name.removeprefix("and ")) for name in parts)
    return list(dict.fromkeys(name for name in names if not _NOBODY.fullmatch(name)))


def names_in(cell: str) -> list[str]:
    """Return the names in one text, parted by semicolons, bars, lines, "and", or commas where these part names."""
    if len(parts := listed(cell, ";|\n")) > 1:
        return names_of(parts)
    cell = " ".join(cell.split())
    cell = cell.rstrip(". ") if cell.count(".") == 1 else cell  # "Smith J, Doe A."
    parts = re.split(r",? (?:and|&) ", cell)
    if not all(" " in part for part in parts):  # a group, as the Food and Drug Administration
        parts = [cell]
    if not all(part.count(",") == 1 for part in parts) or len(parts) == 1:
        parts = [name for part in parts for name in _comma_parted(part)]
    return names_of(parts)


def _comma_parted(text: str) -> list[str]:
    """Return the names of "Smith J, Doe A", "Smith, J., Doe, A." or "Jane Doe, Pat Roe"; of "Smith, John" one."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    pairs = list(zip(parts[::2], parts[1::2], strict=False))
    if all(_SHORT_NAME.fullmatch(part) for part in parts):
        return parts
    if len(parts) == 3 and _SUFFIX.fullmatch(parts[2]):
        return [text.strip()]
    if (
        len(parts) % 2 == 0
        and not all(" " in family for family, _ in pairs)
        and all(_GIVEN.fullmatch(given) for _, given in pairs)
    ):
        return [f"{family}, {given}" for family, given in pairs]
    return parts if len(parts) > 2 or all(" " in part for part in parts) else [text.strip()]


def listed(text: str, separators: str = "") -> list[str]:
    """Return the items of a list in one text: between separators, else semicolons, else commas; or one of Python's."""
    if text.startswith("[") and text.endswith("]") and len(text) < LONGEST_LIST:
        try:
            return [str(item).strip() for item in ast.literal_eval(text)]
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            pass
    separators = separators or (";" if ";" in text else ",")
    return [item.strip() for item in re.split(f"[{separators}]", text) if item.strip()]


def _with_source(texts: Texts) -> Texts:
    """Return texts with what the one text says in which a publication stands; a text of no known form is a journal."""
    for source in texts.get("published_in", ()):
        line = " ".join(source.split())
        matches = (match for form in _SOURCES if (match := form.fullmatch(line)))
        stated = next((match.groupdict() for match in matches), {"journal": line})
        return {**texts, **{name: [text] for name, text in stated.items() if text and not any(texts.get(name, ()))}}
    return texts


def _types(texts: Texts) -> list[str]:
    """Return PubMed's types: those that the record names, else that of its kind of reference."""
    named = [name for text in texts.get("type", ()) for name in listed(text, ";") if not _NO_TYPE.search(name)]
    genre = publication_types(_first(texts, "genre"))
    known = [kind for name in named for kind in publication_types(name)]
    unknown = [name for name in named if not publication_types(name)]
    # What is no type of PubMed's may be a journal's own, but no degree of a thesis.
    return list(dict.fromkeys([*known, *(unknown if genre in ([], ["Journal Article"]) else [])])) or genre


def _date(texts: Texts) -> str:
    """Return the date of publication as far as it is known: of the year that is stated the fullest form."""
    written = [date_in(text) for text in _all(texts, "year", "date")]
    years = [date[:4] for date in written if date]
    return max((date for date in written if date[:4] == years[0]), key=len) if years else ""


def _pages(texts: Texts) -> str:
    pages, first, last = (_first(texts, name) for name in ("pages", "first_page", "last_page"))
    first = first or _first(texts, "article_number")
    span = pages or (f"{first}-{last}" if last and last != first and "-" not in first else first)
    span = re.sub(r"\s*[-–—−]+\s*", "-", re.sub(r"\App?\.?\s+", "", span))
    return span if _PAGES.fullmatch(span) else ""


def _pmid(texts: Texts) -> str:
    """Return the PMID where a record says that it is one: a field of its own, an address, a note, or a database."""
    stated = [text for text in _all(texts, "pmid") if re.fullmatch("[0-9]{1,9}", text)]
    stated += [text for text in _all(texts, "embase_pmid") if re.fullmatch("[0-9]{6,9}", text)]
    database = "; ".join(_all(texts, "database"))
    is_pubmed = _PUBMED.search(database) and "embase" not in database.lower()
    numbers = [text for text in _all(texts, "accession")[:1] if text.isdecimal() and is_pubmed]
    notes = " ".join(_all(texts, "accession", "notes"))
    pmid = next(iter([*stated, *numbers]), "") or _matched(_PUBMED_URL, " ".join(_all(texts, "urls")))
    return str(int(pmid or _matched(_PMID_NOTE, notes) or 0) or "")


def _notices(texts: Texts, name: str) -> list[int | str]:
    """Return the notices of a kind, also those that notes tell of: each one's PMID, else where it was published."""
    noted = [text for text in texts.get("notes", ()) if _NOTED[name].match(text)]
    notices = dict.fromkeys([*texts.get(name, ()), *noted])
    return [int(pmid) if (pmid := _matched(_PMID_NOTE, text)) else text for text in notices]


def _first(texts: Texts, *names: str) -> str:
    return next(iter(_all(texts, *names)), "")


def _all(texts: Texts, *names: str) -> list[str]:
    """Return the distinct texts of fields, in order, white space collapsed."""
    values = (" ".join(text.split()) for name in names for text in texts.get(name, ()))
    return list(dict.fromkeys(filter(None, values)))


def _matched(pattern: re.Pattern[str], text: str) -> str:
    """Return the group of a pattern that a text has, as `123` of `PMID: 123`; "" if there is none."""
    match = pattern.search(text)
    return match[match.lastindex or 0] if match else ""
