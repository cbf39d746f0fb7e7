"""Word documents and web pages as passages of some 300 words, each under its section."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

from biorag.corpus.joining import joined
from biorag.corpus.pdf_facts import inverted, year_in
from biorag.corpus.readers import Reader, with_values
from biorag.corpus.sources import DamagedSourceError, Source, faults_named, opened
from biorag.corpus.texts import TextPassage, parse_passage, passages_of

LARGEST = 64 << 20  # bytes of a file, and unpacked four times as many
_SUFFIX = re.compile(r"\.(?:docx|x?html?)(?:\.gz)?\Z", re.IGNORECASE)
_LEVEL = re.compile(r"(?:heading|title)\s*([1-6])?", re.IGNORECASE)
_ASIDE = ("script", "style", "nav", "header", "footer", "aside", "form", "noscript", "template", "svg", "button")
_BLOCKS = ("h1", "h2", "h3", "h4", "h5", "h6", "p", "li", "td", "th", "blockquote", "pre", "dt", "dd", "figcaption")


def read_docx(source: Source) -> Iterator[tuple[int, TextPassage]]:
    """Yield the passages of a Word document, by python-docx; raises `DamagedSourceError` if it cannot be read."""
    from docx import Document

    content = _content(source)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(member.file_size for member in archive.infolist()) > 4 * LARGEST:
                raise DamagedSourceError(source.name, 1, f"unpacks to more than {4 * LARGEST >> 20} MiB: split it")
        document = Document(io.BytesIO(content))
        lines = list(enumerate(_docx_lines(document), 1))
        own = document.core_properties
        title, author, year = own.title or "", own.author or "", own.created.year if own.created else None
    except DamagedSourceError:
        raise
    except Exception as error:  # whatever zipfile, lxml and python-docx raise at a damaged file
        reason = f"a Word document that cannot be read ({type(error).__name__})"
        raise DamagedSourceError(source.name, 1, reason) from None
    names = [name for name in re.split(r"\s*[;,]\s*", author) if len(name.split()) > 1]
    facts = with_values({"authors": inverted(names), "year": year})
    title, facts, is_joined = joined(source, title, facts, _stem(source))
    yield from passages_of(source, lines, title, facts=facts, is_title=is_joined)


def _docx_lines(document: Any) -> Iterator[str]:
    """Yield a document's paragraphs and the rows of its tables as Markdown."""
    for block in document.iter_inner_content():
        if hasattr(block, "rows"):
            for row in block.rows:
                yield " | ".join(dict.fromkeys(" ".join(cell.text.split()) for cell in row.cells))
            yield ""
            continue
        text = " ".join(block.text.split())
        style = _LEVEL.match(block.style.name if block.style is not None else "")
        yield f"{'#' * int(style[1] or 1)} {text}" if style and text else text
        yield ""


def read_html(source: Source) -> Iterator[tuple[int, TextPassage]]:
    """Yield the passages of a web page; its facts are the `citation_*` fields that publishers put there."""
    from lxml import etree, html

    try:
        parser = html.HTMLParser(encoding="utf-8", no_network=True, remove_comments=True)
        page = html.document_fromstring(_content(source), parser=parser)
    except (etree.LxmlError, ValueError) as error:
        raise DamagedSourceError(source.name, 1, f"a web page that cannot be read ({type(error).__name__})") from None
    fields: dict[str, list[str]] = {}
    for meta in page.iter("meta"):
        fields.setdefault((meta.get("name") or "").lower(), []).append(" ".join((meta.get("content") or "").split()))
    title = fields.get("citation_title") or [" ".join((page.findtext(".//title") or "").split())]
    named, facts, is_joined = joined(source, title[0], _cited(fields), _stem(source))
    yield from passages_of(source, list(_html_lines(page)), named, facts=facts, is_title=is_joined)


def _cited(fields: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return the metadata of a page's citation fields, as Google Scholar asks publishers for them."""

    def first(*names: str) -> str:
        return next((fields[name][0] for name in names if fields.get(name)), "")

    published = first("citation_publication_date", "citation_date", "citation_online_date", "dc.date")
    values = {
        "authors": inverted(fields.get("citation_author", [])),
        "journal": first("citation_journal_title"),
        "journal_abbreviation": first("citation_journal_abbrev"),
        "year": year_in(published),
        "volume": first("citation_volume"),
        "issue": first("citation_issue"),
        "pages": "-".join(filter(None, [first("citation_firstpage"), first("citation_lastpage")])),
        "doi": first("citation_doi").removeprefix("https://doi.org/").removeprefix("doi:"),
    }
    return with_values(values)


def _html_lines(page: Any) -> Iterator[tuple[int, str]]:
    """Yield the blocks of a page with their lines, as Markdown; a block within another stands by itself."""
    for element in list(page.iter(*_ASIDE)):
        element.drop_tree()
    body = page.find("body")
    for element in (body if body is not None else page).iter(*_BLOCKS):
        inner = [part for part in element.iterdescendants(*_BLOCKS)]
        text = " ".join(("" if inner else element.text_content()).split() or (element.text or "").split())
        if text:
            level = int(element.tag[1]) if element.tag[0] == "h" else 0
            yield element.sourceline or 1, f"{'#' * level} {text}" if level else text
            yield element.sourceline or 1, ""


def _content(source: Source) -> bytes:
    with faults_named(source, lambda: 1), opened(source) as stream:
        content = bytes(stream.read(LARGEST + 1))
    if len(content) > LARGEST:
        raise DamagedSourceError(source.name, 1, f"more than {LARGEST >> 20} MiB: split it")
    return content


def _stem(source: Source) -> str:
    return _SUFFIX.sub("", source.label.rpartition("/")[2])


DOCX = Reader(read_docx, parse_passage, lambda passage: passage.text)
HTML = Reader(read_html, parse_passage, lambda passage: passage.text)
