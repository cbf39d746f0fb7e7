"""Hits in the formats of reference managers and as tables, and the reference of a publication in one line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from biorag.references.escaping import in_latex, in_markdown, markdown_link, separated
from biorag.references.reference import Author, Genre, Reference, reference_of, references_of
from biorag.types import Hit
from biorag.utils.files import json_text


class _Type(NamedTuple):
    """What formats call a genre."""

    ris: str
    bibtex: str
    csl: str


TYPES = {
    Genre.ARTICLE: _Type("JOUR", "article", "article-journal"),
    Genre.PREPRINT: _Type("UNPB", "misc", "article"),
    Genre.BOOK: _Type("BOOK", "book", "book"),
    Genre.CHAPTER: _Type("CHAP", "incollection", "chapter"),
    Genre.THESIS: _Type("THES", "phdthesis", "thesis"),
    Genre.DATASET: _Type("DATA", "misc", "dataset"),
    Genre.OTHER: _Type("GEN", "misc", "document"),
}

# --- tables: Markdown, CSV and TSV, one row a hit

COLUMNS = (
    *("rank", "score", "id", "pmid", "title", "authors", "year", "journal", "type", "doi", "pmcid", "url"),
    *("retracted", "concern", "content"),
)


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


def _markdown_row(hit: Hit) -> str:
    reference = reference_of(hit.snippet)
    known = f"PMID {reference.pmid}" if reference.pmid else reference.doi and f"doi:{reference.doi}"
    source = markdown_link(known or reference.id, reference.url)
    notes = "".join(f"**{note}.** " for note in reference.notes)
    cells = (notes + in_markdown(reference.noted_heading), in_markdown(authors(reference.authors)), reference.year)
    others = (in_markdown(reference.journal), in_markdown(", ".join(reference.types)))
    return f"| {' | '.join([str(hit.rank), source, *cells, *others])} |"


def _cells(hit: Hit) -> list[str | int | float]:
    reference = reference_of(hit.snippet)
    names = "; ".join(", ".join(filter(None, author[:3])) for author in reference.authors)
    types = "; ".join(reference.types)
    described = (reference.title, names, reference.year, reference.journal, types, reference.doi, reference.pmcid)
    return [
        *(hit.rank, round(hit.score, 6), reference.id, reference.pmid or "", *described, reference.url),
        *("yes" if fact else "" for fact in (reference.retracted, reference.concern)),
        hit.snippet.content,
    ]


# --- RIS, the tagged lines that reference managers exchange, written by rispy


def ris(hits: Sequence[Hit]) -> str:
    """Return the references of hits as RIS."""
    return ris_text([_ris_record(reference) for reference in references_of(hits)])


def ris_text(records: Sequence[Mapping[str, Any]]) -> str:
    """Return records under rispy's names of the tags as RIS, without a number before each."""
    import rispy

    class Unnumbered(rispy.RisWriter):  # type: ignore[misc]
        def set_header(self, count: int) -> str:
            return ""

    text: str = rispy.dumps(list(map(dict, records)), implementation=Unnumbered)
    return f"{text}\n" if text else ""


def _ris_record(reference: Reference) -> dict[str, Any]:
    """Return a record under rispy's names of the tags; a value is one line, so none can pose as another tag."""
    first, last = reference.page_range
    values = {
        "type_of_reference": TYPES[reference.genre].ris,
        "id": reference.key,
        "authors": [_ris_name(author) for author in reference.authors],
        "title": reference.title,
        "secondary_title": reference.journal,
        "alternate_title1": reference.abbreviation,
        "year": reference.year,
        "date": _ris_date(reference.date),
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
        "notes": _remarks(reference),
        "abstract": reference.abstract,
    }
    return {label: value for label, value in values.items() if value}


def _remarks(reference: Reference) -> list[str]:
    return [*reference.notes, *([f"File: {reference.file}"] if reference.file else [])]


def _ris_name(author: Author) -> str:
    """Return "Family, Given, Suffix"; a group without its commas, at which readers would part a person's name."""
    if author.group:
        return " ".join(author.family.replace(",", " ").split())
    return ", ".join(filter(None, (author.family, author.given, author.suffix)))


def _ris_date(date: tuple[int, ...]) -> str:
    """Return a date as RIS writes it, YYYY/MM/DD/, with an unknown day left empty; a year alone is in its own field."""
    if len(date) < 2:
        return ""
    return "/".join([str(date[0]), *(f"{part:02}" for part in date[1:]), *[""] * (4 - len(date))])


# --- BibTeX in UTF-8: braces balanced, LaTeX's characters escaped, names of groups in braces

_AND = re.compile(r"\band\b", re.IGNORECASE)


def bibtex(hits: Sequence[Hit]) -> str:
    """Return the references of hits as BibTeX."""
    return "\n".join(map(_bibtex_entry, references_of(hits)))


def _bibtex_entry(reference: Reference) -> str:
    lines = (f"  {name} = {{{value}}},\n" for name, value in _bibtex_fields(reference) if value)
    return f"@{TYPES[reference.genre].bibtex}{{{reference.key},\n{''.join(lines)}}}\n"


def _bibtex_fields(reference: Reference) -> Iterator[tuple[str, str]]:
    first, last = reference.page_range
    yield "author", " and ".join(map(_bibtex_name, reference.authors))
    yield "title", " ".join(map(_protected, range(len(words := reference.title.split())), words))
    yield "booktitle" if reference.genre is Genre.CHAPTER else "journal", in_latex(reference.journal)
    yield "shortjournal", in_latex(reference.abbreviation)
    yield "year", reference.year
    yield "month", str(reference.date[1]) if len(reference.date) > 1 else ""
    yield "volume", in_latex(reference.volume)
    yield "number", in_latex(reference.issue)
    yield "pages", in_latex(first) + (f"--{in_latex(last)}" if last else "")
    yield "issn", in_latex(reference.issn)
    yield "doi", in_latex(reference.doi)
    yield "pmid", str(reference.pmid) if reference.pmid else ""
    yield "pmcid", in_latex(reference.pmcid)
    yield "url", in_latex(reference.url)
    yield "language", in_latex(reference.language[0]) if reference.language else ""
    yield "keywords", in_latex("; ".join(reference.keywords))
    yield "note", in_latex("; ".join(_remarks(reference)))
    yield "abstract", in_latex(reference.abstract)


def _bibtex_name(author: Author) -> str:
    """Return "Family, Suffix, Given"; groups, and parts with an "and", are in braces, or BibTeX would split them."""
    if author.group:
        return f"{{{in_latex(author.family)}}}"
    return ", ".join(map(_part, filter(None, (author.family, author.suffix, author.given))))


def _protected(number: int, word: str) -> str:
    """Return a word of a title, in braces if a style that writes titles in small letters would harm it."""
    return f"{{{in_latex(word)}}}" if any(map(str.isupper, word[not number :])) else in_latex(word)


def _part(part: str) -> str:
    return f"{{{in_latex(part)}}}" if _AND.search(part) else in_latex(part)


# --- CSL-JSON, which pandoc and Zotero read: names are taken apart, and groups are literal


def csl_json(hits: Sequence[Hit]) -> str:
    """Return the references of hits as CSL-JSON."""
    items = [_csl_item(reference) for reference in references_of(hits)]
    return json_text(items, indent=2) + "\n"


def _csl_item(reference: Reference) -> dict[str, Any]:
    values = {
        "id": reference.key,
        "type": TYPES[reference.genre].csl,
        "title": reference.title,
        "author": [_csl_name(author) for author in reference.authors],
        "container-title": reference.journal,
        "container-title-short": reference.abbreviation,
        "issued": {"date-parts": [list(reference.date)]} if reference.date else None,
        "volume": reference.volume,
        "issue": reference.issue,
        "page": "-".join(filter(None, reference.page_range)),
        "DOI": reference.doi,
        "PMID": str(reference.pmid) if reference.pmid else "",
        "PMCID": reference.pmcid,
        "ISSN": reference.issn,
        "URL": reference.url,
        "language": next(iter(reference.language), ""),
        "keyword": ", ".join(reference.keywords),
        "note": ". ".join(_remarks(reference)),
        "abstract": reference.abstract,
    }
    return {label: value for label, value in values.items() if value}


def _csl_name(author: Author) -> dict[str, str]:
    """Return a name in its parts; a group's is literal."""
    if author.group or not author.given:
        return {"literal": author.family}
    parts = {"family": author.family, "given": author.given, "suffix": author.suffix}
    return {part: value for part, value in parts.items() if value}


# --- Vancouver, as NLM's Citing Medicine and the ICMJE's sample references have it

MOST_AUTHORS = 6
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def vancouver(hits: Sequence[Hit]) -> str:
    """Return the references of hits, each once, with the ranks of its hits, which an answer's citations name."""
    ranks: dict[str, list[int]] = {}
    for hit in hits:
        ranks.setdefault(citation(reference_of(hit.snippet)), []).append(hit.rank)
    return "".join(f"{', '.join(map(str, numbers))}. {text}\n" for text, numbers in ranks.items())


def citation(reference: Reference) -> str:
    """Return one reference: "Rose ME, … Schiding JK, et al. Title. Brain Res. 2002;935(1-2):40-6. PMID: …"."""
    # One without a title has its first words in brackets, as Citing Medicine has it.
    title = reference.title or (f"[{reference.opening}]" if reference.opening else reference.id)
    journal = reference.abbreviation or reference.journal
    within = f"In: {journal}" if reference.genre is Genre.CHAPTER and journal else journal
    doi = reference.doi and f"doi: {reference.doi}"
    pmid = f"PMID: {reference.pmid}" if reference.pmid else ""
    numbers = filter(None, (pmid, reference.pmcid and f"PMCID: {reference.pmcid}"))
    parts = [authors(reference.authors), title, within, _published(reference), doi, "; ".join(numbers)]
    return " ".join(map(_sentence, filter(None, [*parts, *reference.notes])))


def authors(authors: Sequence[Author]) -> str:
    """Return the first six authors, then "et al."; groups stand after a semicolon where persons stand before them."""
    text = ""
    for before, author in zip([None, *authors], authors[:MOST_AUTHORS], strict=False):
        mark = "; " if before and author.group != before.group else ", "
        text += (mark if before else "") + author.name
    return f"{text}, et al" if len(authors) > MOST_AUTHORS else text


def _published(reference: Reference) -> str:
    """Return "2002 Jul 25;347(4):284-7", as far as it is known."""
    date = reference.date
    dated = " ".join([*map(str, date[:1]), *(MONTHS[month - 1] for month in date[1:2]), *map(str, date[2:])])
    volume = reference.volume + (f"({reference.issue})" if reference.issue else "")
    where = volume + (f":{shortened(*reference.page_range)}" if reference.pages else "")
    return ";".join(filter(None, (dated, where)))


def shortened(first: str, last: str) -> str:
    """Return a range of pages, the last without the digits that it shares with the first: "284-7"."""
    if not last or first == last:
        return first
    same = 0
    if first.isdigit() and last.isdigit() and len(first) == len(last):
        same = len(list(takewhile(lambda digits: digits[0] == digits[1], zip(first, last, strict=True))))
    return f"{first}-{last[same:]}"


def _sentence(text: str) -> str:
    return text if re.search(r"[.?!]\Z", text) else f"{text}."
