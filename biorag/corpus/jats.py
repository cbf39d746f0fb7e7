"""PMC's full text in JATS XML (ANSI/NISO Z39.96): a snippet for the abstract, and one for each block of the body."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from biorag.corpus.hardened_xml import XmlFormat, check_entities, flat_text, read_elements, source_text
from biorag.corpus.pubmed import date_of
from biorag.corpus.readers import FileReader, as_id, notices_in, with_values
from biorag.corpus.sources import DamagedSourceError, Source
from biorag.types import Snippet

ARTICLE = "article"
JATS = XmlFormat("PMC", (ARTICLE, "pmc-articleset"), (ARTICLE,))
# Elements of a body: containers of blocks, blocks, and floats, whose captions are blocks.
SECTIONS = ("sec", "boxed-text")
BLOCKS = ("p", "list", "def-list", "disp-quote", "statement", "verse-group")
FLOATS = ("fig", "table-wrap")
GROUPS = ("fig-group", "table-wrap-group")
# Dropped from a paragraph: formulas as TeX, marks of references and footnotes, and floats, which are blocks themselves.
LEFT_OUT = frozenset(
    {"tex-math", "fn", "table", "graphic", "inline-graphic", "media", "alt-text", "object-id", *FLOATS}
)
SPACED = frozenset({"p", "list-item", "title", "label", "def", "term", "disp-formula", "break", "td", "th"})
# Limit of characters of title, metadata and headings, which each block of an article repeats.
MOST_REPEATED = 2**28
DATES = ("ppub", "collection", "epub", "pub")  # the types of a date, that of the issue first
RETRACTED_BY = "retraction-forward"  # a link from a retracted article to its notice
_EMPTY_MARK = re.compile(r"\s*[(\[][\s,;\u2010-\u2015-]*[)\]]")
_PUNCTUATION = re.compile(r"[\s,;\u2010-\u2015-]*")


class Block(NamedTuple):
    """A block of an article."""

    article: Article  # to which it belongs
    position: str  # "abstract", or `s2p4`: the fourth block of the body's second section, 0 before all sections
    headings: tuple[str, ...]  # those of its sections, the outer ones first
    anchor: str  # the id in the XML of the block, else of its section
    element: Any  # the block; None of an article without any


class Article:
    """An article's id, title and metadata, read once for all its parts."""

    def __init__(self, element: Any, file: str) -> None:
        meta = element.find("front/article-meta")
        ids = {id.get("pub-id-type", ""): plain_text(id) for id in element.iterfind("front/article-meta/article-id")}
        number = (ids.get("pmc") or ids.get("pmcid") or "").upper().removeprefix("PMC")
        self.pmcid = f"PMC{number}" if number else ""
        self.pmid = int(ids["pmid"]) if re.fullmatch("[1-9][0-9]{0,8}", ids.get("pmid", ""), re.ASCII) else None
        self.id = self.pmcid or ids.get("doi") or file
        self.title = plain_text(element.find("front/article-meta/title-group/article-title"))
        fields = _metadata(element, meta, ids) if meta is not None else {}
        self.metadata = with_values({**fields, **notices_in(self.title), "pmcid": self.pmcid})
        self.repeated = len(self.title) + len(json.dumps(self.metadata))


def read_blocks(source: Source) -> Iterator[tuple[int, Block]]:
    """Yield line and block of each article, the abstract first.

    Raises `DamagedSourceError` as `read_elements` does, and at a small article that would be a huge corpus.
    """
    for element in read_elements(source, JATS):
        article, repeated = Article(element, source.label), 0
        parts = _parts(article, element)
        first = next(parts, Block(article, "", (), "", None))
        for part in chain([first], parts):
            line = (element if part.element is None else part.element).sourceline
            repeated += article.repeated + sum(map(len, part.headings))
            if repeated > MOST_REPEATED:
                reason = f"an article whose blocks repeat {MOST_REPEATED >> 20} MiB of title and headings, as of a bomb"
                raise DamagedSourceError(source.name, line, reason)
            yield line, part


def _parts(article: Article, element: Any) -> Iterator[Block]:
    abstracts = element.findall("front/article-meta/abstract")
    abstract = next((one for one in abstracts if not one.get("abstract-type")), next(iter(abstracts), None))
    if abstract is not None:
        yield Block(article, "abstract", ("Abstract",), abstract.get("id", ""), abstract)
    body = element.find("body")
    section = number = 0
    for child in body if body is not None else ():
        is_section = child.tag in SECTIONS
        if is_section:
            section, number = section + 1, 0
        for headings, anchor, block in _blocks(child, (), "") if is_section else _block(child, (), ""):
            number += 1
            yield Block(article, f"s{section if is_section else 0}p{number}", headings, anchor, block)


def _blocks(section: Any, headings: tuple[str, ...], anchor: str) -> Iterator[tuple[tuple[str, ...], str, Any]]:
    """Yield headings, anchor and element of each block of a section and of those in it."""
    heading = plain_text(section.find("title"))
    headings = (*headings, heading) if heading else headings
    anchor = section.get("id", anchor)
    for child in section:
        yield from _blocks(child, headings, anchor) if child.tag in SECTIONS else _block(child, headings, anchor)


def _block(element: Any, headings: tuple[str, ...], anchor: str) -> Iterator[tuple[tuple[str, ...], str, Any]]:
    """Yield a block, if the element is one, and the floats in it."""
    if element.tag in BLOCKS and plain_text(element):
        yield headings, element.get("id", anchor), element
    for item in element.iter(*FLOATS) if element.tag in (*BLOCKS, *FLOATS, *GROUPS) else ():
        if plain_text(item.find("caption")):
            label = plain_text(item.find("label"))
            yield (*headings, label) if label else headings, item.get("id", anchor), item


def parse_block(part: Block) -> Snippet:
    """Return the snippet of a block; raises `ValueError` if it has no text, or an undeclared entity."""
    article, element, id, content = part.article, part.element, part.article.id, ""
    position: dict[str, Any] = {"abstract": False}
    if element is not None:
        check_entities(element)
        id, content = f"{id}#{part.position}", _caption(element) if element.tag in FLOATS else _sections(element)
        if not content:
            raise ValueError(f"{part.position} of article {article.id!r:.100} has no text")
        position = {"part": part.position, "section": " > ".join(part.headings), "anchor": part.anchor}
    elif not article.title:
        raise ValueError(f"article {id!r:.100} has neither title nor abstract nor body")
    metadata = {**article.metadata, **with_values(position)}
    return Snippet(as_id(id, "id"), article.title, content, article.pmid, metadata)


def _caption(element: Any) -> str:
    texts = (plain_text(element.find(name)) for name in ("label", "caption"))
    return " ".join(text if text.endswith((".", ":", "?", "!")) else f"{text}." for text in texts if text)


def _sections(element: Any) -> str:
    """Return the text of a block; of an abstract with sections each after its title, as in PubMed."""
    sections = element.findall("sec")
    if not sections:
        return plain_text(element, without_title=element.tag == "abstract")
    pieces = [plain_text(paragraph) for paragraph in element.findall("p")]
    for section in sections:
        title, text = plain_text(section.find("title")).rstrip(": "), plain_text(section, without_title=True)
        pieces.append(f"{title}: {text}" if title and text else text)
    return " ".join(filter(None, pieces))


def _metadata(element: Any, meta: Any, ids: Mapping[str, str]) -> dict[str, Any]:
    date, journal = _date(meta), element.find("front/journal-meta")
    first, last = plain_text(meta.find("fpage")), plain_text(meta.find("lpage"))
    links = {link.get("related-article-type") for link in meta.iterfind("related-article")}
    return {
        "authors": _authors(meta),
        "journal": plain_text(journal.find(".//journal-title")) if journal is not None else "",
        "issn": plain_text(journal.find("issn")) if journal is not None else "",
        "year": int(date[:4]) if date else None,
        "date": date,
        "volume": plain_text(meta.find("volume")),
        "issue": plain_text(meta.find("issue")),
        "pages": f"{first}-{last}" if last and last != first else first or plain_text(meta.find("elocation-id")),
        "doi": ids.get("doi"),
        "keywords": list(filter(None, map(plain_text, meta.iterfind("kwd-group/kwd")))),
        "article_type": element.get("article-type"),
        "retracted": True if RETRACTED_BY in links else None,
    }


def _authors(meta: Any) -> list[str]:
    """Return the authors, "Family, Given" each; a group by its name."""
    authors = []
    for author in meta.iterfind("contrib-group/contrib[@contrib-type='author']"):
        parts = [plain_text(author.find(f".//name/{part}")) for part in ("surname", "given-names", "suffix")]
        group = plain_text(author.find("collab")) or plain_text(author.find(".//string-name"))
        authors.append(", ".join(filter(None, parts)) if parts[0] else group)
    return list(filter(None, authors))


def _date(meta: Any) -> str:
    """Return the date of publication as far as it is given, that of the issue before that of the web."""
    dates = {date.get("pub-type") or date.get("date-type") or "": date for date in meta.iterfind("pub-date")}
    chosen = next((dates[kind] for kind in DATES if kind in dates), next(iter(dates.values()), None))
    if chosen is None:
        return ""
    return date_of(*(plain_text(chosen.find(name)) for name in ("year", "month", "day")))


def plain_text(element: Any, without_title: bool = False) -> str:
    """Return an element's text without markup, marks of references, floats and TeX, white space collapsed."""
    skipped = element.find("title") if without_title and element is not None else None
    text = flat_text(element, lambda child: child.tag in LEFT_OUT or child is skipped or _is_mark(child), SPACED)
    return _EMPTY_MARK.sub("", text)


def _is_mark(element: Any) -> bool:
    """Return whether an element is a mark of a reference, or raised and holds nothing but such marks."""
    if element.tag == "xref":
        return element.get("ref-type") in ("bibr", "fn", "table-fn")
    if element.tag != "sup" or element.find("xref") is None:
        return False
    rest = [element.text or "", *(child.tail or "" for child in element)]
    return all(map(_is_mark, element)) and _PUNCTUATION.fullmatch("".join(rest)) is not None


def shown(part: Block) -> str:
    """Return a block's XML."""
    return "" if part.element is None else source_text(part.element)


READER = FileReader(read_blocks, parse_block, shown)
