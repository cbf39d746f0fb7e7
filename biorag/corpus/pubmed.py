"""PubMed's own XML: baseline and update files as a stream of snippets and deletions."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from typing import Any

from biorag.corpus.hardened_xml import XmlFormat, check_entities, flat_text, read_elements, source_text
from biorag.corpus.readers import FileReader, notices_in, unstyled, with_values
from biorag.corpus.sources import Source
from biorag.types import Deletion, Snippet

ARTICLE, BOOK, DELETIONS = "PubmedArticle", "PubmedBookArticle", "DeleteCitation"
CITATION = "MedlineCitation"  # of itself a record in sets of before 2006
NOT_AVAILABLE = "[Not Available]."  # NLM's title of a paper without one in English
NO_LABELS = ("", "UNLABELLED", "UNASSIGNED")
RETRACTED = "Retracted Publication"
# Notices about a record: the type of the reference, and the metadata field of the notices' PMIDs.
NOTICES = {
    "RetractionIn": "retraction",
    "RetractedandRepublishedIn": "retraction",
    "ErratumIn": "errata",
    "CorrectedandRepublishedIn": "errata",
    "ExpressionOfConcernIn": "concern",
}
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DOI = re.compile(r"10\.[0-9.]{4,}/\S+")
_PMCID = re.compile(r"PMC[0-9]+(?=\.[0-9]+\Z|\Z)")
PUBMED = XmlFormat("PubMed", ("PubmedArticleSet", ARTICLE, "PubmedBookArticleSet", BOOK), (ARTICLE, BOOK, DELETIONS))
MEDLINE = XmlFormat("MEDLINE", ("MedlineCitationSet", CITATION), (CITATION,))
_ESCAPE = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
# A date as far as it is given, the year first or last: "2014/07/03", "2019 May-Jun", "14 July 2014", "July 14, 2014".
_DATES = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?<!\d)(?P<year>[12]\d{3})(?!\d)"
        r"(?:[\s/-]{1,2}(?P<month>\d{1,2}\b|[A-Za-z]{3,9})(?:[-/][A-Za-z]{3,9})?(?:[\s/.,-]{1,2}(?P<day>\d{1,2})(?!\d))?)?",
        r"(?:\b(?P<day>\d{1,2})\s)?\b(?P<month>[A-Za-z]{3,9})\.?(?:\s(?P<after>\d{1,2}),)?\s(?P<year>[12]\d{3})(?!\d)",
    )
)


def read_records(source: Source) -> Iterator[tuple[int, Any]]:
    """Yield line and element of each article, and of each PMID to delete; raises as `elements_of` does."""
    for element in read_elements(source, PUBMED):
        for record in element.iterfind("PMID") if element.tag == DELETIONS else [element]:
            yield record.sourceline, record


def parse_record(element: Any) -> Snippet | Deletion:
    """Return the snippet of an article, or the deletion of a PMID of `DeleteCitation`; raises `ValueError`."""
    check_entities(element)
    if element.tag == "PMID":
        return Deletion(str(_pmid(element)))
    citation = element if element.tag == CITATION else element.find("BookDocument" if element.tag == BOOK else CITATION)
    article = citation.find("Article") if citation is not None and element.tag != BOOK else citation
    if citation is None or article is None:
        raise ValueError(f"{element.tag} has no MedlineCitation with an Article")
    pmid, title, abstract = _pmid(citation.find("PMID")), _title(article), _abstract(article, citation)
    if not title and not abstract:
        raise ValueError(f"PMID {pmid} has neither title nor abstract")
    metadata = _metadata(element, citation, article)
    return Snippet(str(pmid), title, abstract, pmid, {**metadata, **notices_in(title), "abstract": bool(abstract)})


def read_references(element: Any) -> tuple[int, list[int]]:
    """Return the PMID of an article and those that it cites; raises `ValueError` if there is no PMID."""
    citation = element.find("MedlineCitation")
    if citation is None:
        raise ValueError(f"{element.tag} has no MedlineCitation")
    return _pmid(citation.find("PMID")), _references(element, citation)


def _references(element: Any, citation: Any) -> list[int]:
    cited = citation.iterfind("CommentsCorrectionsList/CommentsCorrections[@RefType='Cites']/PMID")
    listed = element.iterfind("PubmedData//Reference/ArticleIdList/ArticleId[@IdType='pubmed']")
    return _pmids([*listed, *cited])


def _metadata(element: Any, citation: Any, article: Any) -> dict[str, Any]:
    """Return the fields that can be filtered on; those that the record does not have are left out."""
    types = _texts([*article.iterfind("PublicationTypeList/PublicationType"), *article.iterfind("PublicationType")])
    if element.tag == BOOK:
        types.append("Book Chapter" if _text(article.find("ArticleTitle")) else "Book")
    notices = _notices(citation)
    dates = map(article.find, ("Journal/JournalIssue/PubDate", "ArticleDate", "ContributionDate", "Book/PubDate"))
    date = next(filter(None, map(_date, dates)), "")
    short_name = _text(citation.find("MedlineJournalInfo/MedlineTA"))
    fields = {
        "version": _positive(citation.find("PMID").get("Version", "1"), "PMID version"),
        "revised": _date(citation.find("DateRevised")),
        "journal": _text(article.find("Journal/Title")) or short_name or _text(article.find("Book/BookTitle")),
        **_printed(article, short_name),
        **_authors(article),
        "doi": _doi(element, article),
        "pmcid": _pmcid(element),
        "year": int(date[:4]) if date else None,
        "date": date,
        "language": _texts(article.iterfind("Language")),
        "type": types,
        "mesh": _texts(citation.iterfind("MeshHeadingList/MeshHeading/DescriptorName")),
        "references": _references(element, citation),
        **notices,
        "retracted": RETRACTED in types or "retraction" in notices,
    }
    return with_values(fields)


def _printed(article: Any, short_name: str) -> dict[str, str]:
    """Return the journal's abbreviation and ISSN, volume, issue, and pages as MEDLINE has them ("284-7")."""
    journal = article.find("Journal")
    if journal is None:
        return {}
    pages, first, last = (_text(article.find(f"Pagination/{name}")) for name in ("MedlinePgn", "StartPage", "EndPage"))
    return {
        "journal_abbreviation": _text(journal.find("ISOAbbreviation")) or short_name,
        "issn": _text(journal.find("ISSN")),
        "volume": _text(journal.find("JournalIssue/Volume")),
        "issue": _text(journal.find("JournalIssue/Issue")),
        "pages": pages or "-".join(filter(None, (first, last))),
    }


def _authors(article: Any) -> dict[str, list[str]]:
    """Return the authors in their order, and which of them are groups; those that were corrected are left out."""
    lists = [*article.iterfind("AuthorList"), *article.iterfind("Book/AuthorList")]
    authors = [author for author in lists[0].iterfind("Author") if author.get("ValidYN") != "N"] if lists else []
    names = [_text(author.find("CollectiveName")) or _name(author) for author in authors]
    groups = _texts(author.find("CollectiveName") for author in authors)
    return {"authors": list(filter(None, names)), "group_authors": groups}


def _name(author: Any) -> str:
    """Return a person as "Family, Given" or "Family, Given, Suffix"; a comma within a part would look like another."""
    tags = ("LastName", "ForeName", "Initials", "Suffix")
    family, fore, initials, suffix = (" ".join(_text(author.find(tag)).replace(",", " ").split()) for tag in tags)
    given = fore or initials
    return (", " if family and given else " ").join(filter(None, (family, given, suffix)))


def _doi(element: Any, article: Any) -> str:
    """Return the first identifier that has a DOI's form."""
    located = (one for one in article.iterfind("ELocationID[@EIdType='doi']") if one.get("ValidYN") != "N")
    return next(filter(_DOI.fullmatch, [*_ids(element, "doi"), *map(_text, located)]), "")


def _pmcid(element: Any) -> str:
    """Return the PMCID without its version."""
    return next((match[0] for match in map(_PMCID.match, _ids(element, "pmc")) if match), "")


def _ids(element: Any, kind: str) -> list[str]:
    paths = (f"{parent}/ArticleIdList/ArticleId[@IdType='{kind}']" for parent in ("PubmedData", "BookDocument"))
    return [_text(id) for path in paths for id in element.iterfind(path)]


def _notices(citation: Any) -> dict[str, list[int | str]]:
    """Return the notices about an article by kind: each one's PMID, else where it was published."""
    notices: dict[str, list[int | str]] = {}
    for notice in citation.iterfind("CommentsCorrectionsList/CommentsCorrections"):
        if name := NOTICES.get(notice.get("RefType", "")):
            references = _pmids(notice.iterfind("PMID")) or _texts(notice.iterfind("RefSource"))
            notices.setdefault(name, []).extend(references)
    return notices


def _title(article: Any) -> str:
    title = _text(article.find("ArticleTitle")) or _text(article.find("Book/BookTitle"))
    return title if title not in ("", NOT_AVAILABLE) else _text(article.find("VernacularTitle")) or title


def _abstract(article: Any, citation: Any) -> str:
    """Return the abstract, else another one (`OtherAbstract`), English before other languages; of it the sections."""
    others = sorted(citation.iterfind("OtherAbstract"), key=lambda other: other.get("Language", "eng") != "eng")
    abstracts = (map(_section, one.iterfind("AbstractText")) for one in [*article.iterfind("Abstract"), *others])
    return next(filter(None, (" ".join(filter(None, sections)) for sections in abstracts)), "")


def _section(section: Any) -> str:
    """Return a section after its label as published; a copyright line is not one."""
    text = _text(section)
    labels = (" ".join(section.get(name, "").split()).rstrip(": ") for name in ("Label", "NlmCategory"))
    label = next((label for label in labels if label.upper() not in NO_LABELS), "")
    return f"{label}: {text}" if label and text else text


def _text(element: Any) -> str:
    """Return an element's text without its markup, escaped or not, white space collapsed, double escapes undone."""
    return " ".join(unstyled(unescaped(flat_text(element))).split())


def unescaped(text: str) -> str:
    """Return a text with its entities as characters; what lacks the semicolon of one, as "AKT&AMPK", is none."""
    return _ESCAPE.sub(lambda escape: html.unescape(escape[0]), text) if "&" in text else text


def _texts(elements: Iterable[Any]) -> list[str]:
    """Return the distinct texts, in order."""
    return list(dict.fromkeys(filter(None, map(_text, elements))))


def _pmids(elements: Iterable[Any]) -> list[int]:
    """Return the distinct PMIDs, in order; publishers' lists of references hold other things too."""
    return list(dict.fromkeys(int(text) for text in map(_text, elements) if _is_number(text)))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 12 and int(text) > 0


def _pmid(element: Any) -> int:
    return _positive(_text(element), "PMID")


def _positive(text: str, what: str) -> int:
    if not _is_number(text):
        raise ValueError(f"{what} {text!r:.60} is not a positive whole number")
    return int(text)


def _date(element: Any) -> str:
    """Return a date as far as it is given, YYYY, YYYY-MM or YYYY-MM-DD; of a span its beginning; "" for none."""
    if element is None:
        return ""
    year, month, day, span = (_text(element.find(name)) for name in ("Year", "Month", "Day", "MedlineDate"))
    return date_in(span) or date_of(year, month, day)


def date_in(text: str) -> str:
    """Return the first date of a text as `date_of` does, of a span the beginning: `1998 Dec-1999 Jan`."""
    dates = (
        date_of(match["year"], match["month"], match["day"] or match.groupdict().get("after"))
        for form in _DATES
        if (match := form.search(text[:200]))
    )
    return max(dates, key=len, default="")


def date_of(year: str, month: str | None = None, day: str | None = None) -> str:
    """Return a date as far as it is given: YYYY, YYYY-MM or YYYY-MM-DD; "" without a year."""
    if not re.fullmatch("[12][0-9]{3}", year):
        return ""
    number = _month(month or "")
    is_day = bool(number and day and _is_number(day) and int(day) <= 31)
    return year + (f"-{number:02}" if number else "") + (f"-{int(day or 0):02}" if is_day else "")


def _month(text: str) -> int:
    """Return the number of a month given by number or English name; 0 for anything else."""
    if _is_number(text):
        return int(text) if int(text) <= len(MONTHS) else 0
    return MONTHS.index(text[:3].lower()) + 1 if text[:3].lower() in MONTHS else 0


READER = FileReader(read_records, parse_record, source_text)
MEDLINE_READER = FileReader(
    lambda source: ((one.sourceline, one) for one in read_elements(source, MEDLINE)), parse_record, source_text
)
