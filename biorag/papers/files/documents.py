"""Word documents, web pages and EPUB books as passages of some 300 words, each under its section."""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import unquote

from biorag.corpus.budget import LIMITS, draw
from biorag.corpus.fields import WEB_PAGE
from biorag.corpus.joining import joined
from biorag.corpus.publications import described
from biorag.corpus.readers import text_of, with_values
from biorag.corpus.sources import DamagedSourceError, Source, faults_named, is_utf16, opened, utf8_of
from biorag.errors import BadInputError
from biorag.papers.files.facts import own_authors, printable, without_citation
from biorag.papers.files.headings import heads_list
from biorag.papers.files.texts import PaperPart, passages_of, reader
from biorag.references.authors import inverted

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
DUBLIN_CORE = "{http://purl.org/dc/elements/1.1/}"
T = TypeVar("T")
_LEVEL = re.compile(r"heading\s*([1-6])")
_ATTRIBUTE = re.compile(
    rb"[\s/]*+[^\s/>][^\s/>=]{0,200}+(?:\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+'|[^\s>\"'][^\s>]{0,200}+))?+"
)
_CROWDED = re.compile(rb"<[A-Za-z](?=((?:%s){50,}+))" % _ATTRIBUTE.pattern)  # a tag of many attributes
# An encoding of bytes of which those below 128 are ASCII, as the bounds of a page count them.
_DECLARED = re.compile(
    rb"(?i:charset|encoding)\s*=\s*[\"']?((?i:iso-8859|windows|koi8|gb|big5|shift_jis|euc)[\w-]{0,12})"
)
_ASIDE = ("script", "style", "nav", "header", "footer", "aside", "form", "noscript", "template", "svg", "button")
_PIECES = [f"{WORD}{name}" for name in ("br", "cr", "noBreakHyphen", "ptab", "t", "tab")]  # of a run's text
_BLOCKS = ("h1", "h2", "h3", "h4", "h5", "h6", "p", "li", "td", "th", "blockquote", "pre", "dt", "dd", "figcaption")


def _passages(
    source: Source, lines: Iterable[tuple[int, str]], title: str, facts: Mapping[str, Any], is_title: bool = False
) -> Iterator[tuple[int, PaperPart]]:
    """Yield the passages of a document with the facts of its record, else those that it states of itself."""
    lines, cited = without_citation(lines, title)
    title, known, is_joined = joined(source, title, {**cited, **with_values(facts)})
    yield from passages_of(source, lines, title, facts=known, is_title=is_joined or is_title)


@contextmanager
def _damage_named(source: Source, what: str) -> Iterator[None]:
    """Turn whatever zipfile, zlib, lxml and python-docx raise at a damaged file into the error that names it."""
    try:
        yield
    except BadInputError:
        raise
    except Exception as error:
        is_cut = isinstance(error, zipfile.BadZipFile) and "CRC" not in str(error)
        fault = (
            "its end is missing, or it is of another format" if is_cut else "a part is missing, damaged or encrypted"
        )
        raise DamagedSourceError(source.name, 1, f"{what} that cannot be read ({fault})") from None


def _content(source: Source) -> bytes:
    with faults_named(source, lambda: 1), opened(source) as stream:
        content = bytes(stream.read(LIMITS["bytes"] + 1))
    draw(bytes=len(content))
    return content


def _archive(content: bytes) -> zipfile.ZipFile:
    """Return a zip archive, what its files say to unpack to drawn: zipfile reads no more than they say."""
    archive = zipfile.ZipFile(io.BytesIO(content))
    draw(unpacked_bytes=sum(member.file_size for member in archive.infolist()))
    return archive


def _tagged(part: bytes) -> bytes:
    """Return a part of a document that a parser may build, its tags and attributes drawn."""
    draw(tags=part.count(b"<") + part.count(b"="))
    return part


# --- Word


def read_docx(source: Source) -> Iterator[tuple[int, PaperPart]]:
    """Yield the passages of a Word document, by python-docx; raises `DamagedSourceError` if it cannot be read."""

    def read(document: Any) -> tuple[list[tuple[int, str]], str, str]:
        properties = document.core_properties
        title = _docx_title(document) or printable(properties.title or "")
        return list(enumerate(_docx_lines(document), 1)), title, properties.author or ""

    lines, title, author = of_word(source, read)
    # Its own dates are the file's, or the template's, not a publication's.
    authors = own_authors(author) or [author] * (len(author.split()) > 1)
    yield from _passages(source, lines, title, {"authors": authors}, is_title=bool(title))


def of_word(source: Source, read: Callable[[Any], T]) -> T:
    """Return what `read` reads of a Word document within bounds; raises `DamagedSourceError` if it cannot be read."""
    from docx import Document

    with _damage_named(source, "a Word document"):
        content = _content(source)
        with _archive(content) as archive:
            for part in map(_tagged, map(archive.read, archive.namelist())):  # a body may have any name
                if b"<!ENTITY" in part:  # text would be lost with them
                    raise DamagedSourceError(source.name, 1, "declares entities, which Word never does: save it again")
        return read(Document(io.BytesIO(content)))


def _docx_title(document: Any) -> str:
    """Return the first paragraph in the style "Title", among the first ten; "" if there is none."""
    names = style_names(document)
    first = islice((block for block in document.iter_inner_content() if not hasattr(block, "rows")), 10)
    titles = (" ".join(block.text.split()) for block in first if style_of(block._p, names) == "title")
    return next(filter(None, titles), "")


def style_names(document: Any) -> dict[str, str]:
    """Return the names of a Word document's styles, in small letters, by their ids."""
    return {style.style_id: (style.name or "").lower() for style in document.styles}


def style_of(element: Any, names: Mapping[str, str]) -> str:
    """Return the name of the style of a paragraph's element; "" if it says none."""
    from docx.oxml.ns import qn

    style = element.find(f"{qn('w:pPr')}/{qn('w:pStyle')}")
    return names.get(style.get(qn("w:val")), "") if style is not None else ""


def _docx_lines(document: Any) -> Iterator[str]:
    """Yield a document's paragraphs and the rows of its tables as Markdown."""
    names = style_names(document)
    for block in document.iter_inner_content():
        if hasattr(block, "rows"):
            for row in _docx_rows(block):
                yield from (row, "")
            continue
        draw(characters=len(content := _text(block._p)))
        text = " ".join(content.split())
        style = style_of(block._p, names)
        heading = _LEVEL.match(style)
        text = "" if style == "title" else f"- {text}" if style.startswith("list") and text else text
        yield f"{'#' * int(heading[1])} {text}" if heading and text else text
        yield ""


def _text(paragraph: Any) -> str:
    """Return a paragraph's text as python-docx does, whose own search by XPath takes several times as long."""
    inner = paragraph.iterchildren(f"{WORD}r", f"{WORD}hyperlink")
    runs = (run for part in inner for run in ((part,) if part.tag == f"{WORD}r" else part.iterchildren(f"{WORD}r")))
    return "".join(str(piece) for run in runs for piece in run.iterchildren(*_PIECES))


def _docx_rows(table: Any) -> Iterator[str]:
    """Yield the rows of a table; a cell that continues one above has its text.

    python-docx's own `cells` take as long as the columns that a cell says it spans, and the square of the rows.
    """
    above: dict[int, str] = {}
    for row in table._tbl.tr_lst:
        column, texts = 0, {}
        for cell in row.tc_lst:
            is_continued = cell.vMerge == "continue" and column in above
            draw(characters=len(content := above[column] if is_continued else "\n".join(map(_text, cell.p_lst))))
            texts[column] = " ".join(content.split())
            column += cell.grid_span
        above = texts
        yield " | ".join(dict.fromkeys(texts.values()))


# --- web pages


def read_html(source: Source) -> Iterator[tuple[int, PaperPart]]:
    """Yield the passages of a web page; its facts are those of its `meta` fields."""
    page = web_page(source)
    fields: dict[str, list[str]] = {}
    for meta in page.iter("meta"):
        name = (meta.get("name") or meta.get("property") or "").lower().replace("dcterms.", "dc.")
        if content := " ".join((meta.get("content") or "").split()):
            fields.setdefault(name, []).append(content)
    texts = {name: next(filter(None, map(fields.get, keys.split())), []) for name, keys in WEB_PAGE.items()}
    facts = described(texts)
    facts["authors"] = inverted(facts.get("authors", [])) or own_authors("; ".join(fields.get("author", [])))
    title = next(iter(texts["title"]), page.findtext(".//title") or "")
    yield from _passages(source, html_lines(page), " ".join(title.split()), facts)


def web_page(source: Source) -> Any:
    """Return the tree of a web page; raises `DamagedSourceError` if it cannot be read."""
    with _damage_named(source, "a web page"):
        return _page(source, _as_utf8(source, _content(source)))


def _as_utf8(source: Source, content: bytes) -> bytes:
    """Return a web page in UTF-8; raises `DamagedSourceError` if it is not that, and declares nothing else."""
    declared = _DECLARED.search(content[:1024])  # as far as browsers look
    try:
        return text_of(utf8_of(content)).encode()
    except ValueError as error:
        if declared is None or b"\0" in content or is_utf16(content):
            raise DamagedSourceError(source.name, 1, str(error)) from None
    return content.decode(declared[1].decode(), "replace").encode()


def _page(source: Source, content: bytes) -> Any:
    from lxml import html

    parser = html.HTMLParser(encoding="utf-8", no_network=True, remove_comments=True)
    for crowded in _CROWDED.finditer(_tagged(content)):
        draw(attributes=len(_ATTRIBUTE.findall(crowded[1])))
    page = html.document_fromstring(content, parser=parser)
    if any(error.type_name == "ERR_RESOURCE_LIMIT" for error in parser.error_log):  # what follows would be lost
        raise DamagedSourceError(source.name, 1, "tags 256 deep, or 10 MB of text without one: split it")
    return page


def html_lines(page: Any) -> Iterator[tuple[int, str]]:
    """Yield the blocks of a page with their lines, as Markdown; a block within another stands by itself."""
    for element in list(page.iter(*_ASIDE)):
        element.clear(keep_tail=True)  # dropping many of them joins their tails again and again
    body = page.find("body")
    for element in (body if body is not None else page).iter(*_BLOCKS):
        if not len(element) and not element.text:
            continue
        has_blocks = next(element.iterdescendants(*_BLOCKS), None) is not None
        content = "" if has_blocks else element.text_content()
        draw(characters=len(content), lines=2)
        text = " ".join(content.split() or (element.text or "").split())
        if text:
            level = int(element.tag[1]) if element.tag[0] == "h" else 0
            yield element.sourceline or 1, f"{'#' * level} {text}" if level else text
            yield element.sourceline or 1, ""


# --- EPUB


def read_epub(source: Source) -> Iterator[tuple[int, PaperPart]]:
    """Yield the passages of an EPUB book, chapter by chapter; raises `DamagedSourceError` if it cannot be read."""
    with _damage_named(source, "an EPUB"), _archive(_content(source)) as archive:
        fields, chapters = _package(archive)
        if _encrypted(archive) & set(chapters):
            raise DamagedSourceError(source.name, 1, "a book under copy protection: its text cannot be read")
        lines: list[tuple[int, str]] = []
        for chapter in chapters:
            read = list(html_lines(_page(source, archive.read(chapter))))
            last = next((text for _, text in reversed(read) if text.startswith("#")), "")
            lines += [*read, (1, "# ")] if heads_list(last) else read  # a list of references ends with its chapter
    names = {"authors": "creator", "date": "date", "doi": "identifier"}
    facts = described({name: fields.get(key, []) for name, key in names.items()})
    facts["authors"] = inverted(facts.get("authors", []))
    title = next(iter(fields.get("title", ())), "")
    yield from _passages(source, lines, title, facts, is_title=bool(title))


def _package(archive: zipfile.ZipFile) -> tuple[dict[str, list[str]], list[str]]:
    """Return a book's metadata by the names of Dublin Core, and the names of its chapters, in their order."""
    root = next(small_xml(archive.read("META-INF/container.xml")).iter("{*}rootfile")).get("full-path")
    package = small_xml(archive.read(root))
    fields: dict[str, list[str]] = {}
    for element in package.iter(f"{DUBLIN_CORE}*"):
        text = " ".join("".join(element.itertext()).split())
        fields.setdefault(element.tag.removeprefix(DUBLIN_CORE), []).extend([text] if text else [])
    items = {item.get("id"): item for item in package.iter("{*}item")}
    spine = (items[entry.get("idref")] for entry in package.iter("{*}itemref") if entry.get("idref") in items)
    hrefs = (unquote(item.get("href", "")) for item in spine if "html" in item.get("media-type", ""))
    return fields, [posixpath.normpath(posixpath.join(posixpath.dirname(root), href)) for href in dict.fromkeys(hrefs)]


def _encrypted(archive: zipfile.ZipFile) -> set[str]:
    """Return the files of a book that are encrypted; fonts may be."""
    name = "META-INF/encryption.xml"
    references = small_xml(archive.read(name)).iter("{*}CipherReference") if name in archive.namelist() else ()
    return {posixpath.normpath(unquote(reference.get("URI", ""))) for reference in references}


def small_xml(content: bytes) -> Any:
    """Return the root of a small XML file, without entities of its own."""
    from lxml import etree

    return etree.fromstring(_tagged(content), etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False))


DOCX, EPUB, HTML = reader(read_docx), reader(read_epub), reader(read_html)
