"""XML as a stream of elements, by a parser that trusts nothing.

A file is parsed piece by piece and each element is freed when the next is asked for, so memory stays flat. Nothing
that a file names is loaded: its DOCTYPE line is ignored, and a file that declares entities is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from lxml import etree

from biorag.corpus.sources import MAX_LINE, DamagedSourceError, Source, read_chunks

MAX_RECORD = MAX_LINE


@dataclass(frozen=True, slots=True)
class XmlFormat:
    """A kind of XML file."""

    owner: str  # whose XML it is, for messages: "PubMed"
    roots: tuple[str, ...]  # the root elements that such files have
    # The elements that are read, each whole; a file is cut after those of the first, so that a fault loses none before
    tags: tuple[str, ...]


def read_elements(source: Source, kind: XmlFormat) -> Iterator[Any]:
    """Yield each element of the kind, in the file's order; raises as `elements_of` and `read_chunks` do."""
    return elements_of(read_chunks(source), source.name, kind)


def elements_of(chunks: Iterable[bytes], name: str, kind: XmlFormat) -> Iterator[Any]:
    """Yield each element of the kind, in order; it is freed when the next one is asked for.

    Raises `DamagedSourceError`, naming the source, if it is of another kind, is not well formed, declares entities, or
    has a record of more than 16 MiB. Elements before the fault have been yielded.
    """
    # Loads nothing, expands no entity and, as by default, keeps libxml2's limits of depth and size.
    parser: Any = etree.XMLPullParser(
        ("end",), tag=kind.tags, resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True
    )
    record_end = re.compile(b"(?<=</%s>)" % kind.tags[0].encode())
    line, size, checked = 1, 0, False
    try:
        for chunk in chunks:
            # An error loses the piece it is in, so no record before it may be in the same one.
            for piece in filter(None, record_end.split(chunk)):
                size += len(piece)
                parser.feed(piece)
                for _, element in parser.read_events():
                    if not checked:
                        _check_root(name, element, kind)
                        checked = True
                    line, size = element.sourceline, 0
                    yield element
                    _free(element)
                if size > MAX_RECORD:
                    raise DamagedSourceError(name, line, f"a record of more than {MAX_RECORD >> 20} MiB")
        _check_root(name, parser.close(), kind)
    except etree.XMLSyntaxError as error:
        reason = " ".join((error.msg or "").split()).rsplit(", line", 1)[0]
        fault = f"not well-formed XML ({reason}): fetch the file again"
        raise DamagedSourceError(name, error.lineno or line, fault) from None


def _check_root(name: str, element: Any, kind: XmlFormat) -> None:
    tree = element.getroottree()
    declared = tree.docinfo.internalDTD
    if declared is not None and next(iter(declared.iterentities()), None) is not None:
        raise DamagedSourceError(name, 1, f"declares entities, which no {kind.owner} file does: it is not read")
    if (root := tree.getroot()).tag not in kind.roots:
        raise DamagedSourceError(name, root.sourceline, f"XML, but not {kind.owner}'s: its root is {root.tag!r:.60}")


def _free(element: Any) -> None:
    """Drop a record that is done, and the white space before it."""
    parent = element.getparent()
    if parent is not None:
        del parent[: parent.index(element) + 1]


def check_entities(element: Any) -> None:
    """Refuse an element that refers to an entity which nothing declares; raises `ValueError`."""
    if (entity := next(element.iter(etree.Entity), None)) is not None:
        raise ValueError(f"the entity {entity.text!r:.60} is not declared")


def source_text(element: Any) -> str:
    """Return the XML of an element."""
    text: str = etree.tostring(element, encoding="unicode", with_tail=False)
    return text


def flat_text(
    element: Any, is_left_out: Callable[[Any], bool] = lambda child: False, spaced: Collection[str] = ()
) -> str:
    """Return an element's text without its markup, white space collapsed; an exponent keeps its sign: `10^6`.

    Elements of `spaced` tags stand apart from the text around them.
    """
    pieces: list[str] = []
    if element is not None:
        _collect(element, pieces, is_left_out, spaced)
    return " ".join("".join(pieces).split())


def _collect(element: Any, pieces: list[str], is_left_out: Callable[[Any], bool], spaced: Collection[str]) -> None:
    if element.text:
        pieces.append(element.text)
    for child in element:
        if not is_left_out(child):
            if pieces and child.tag in ("sub", "sup"):
                # A line break before these is a formatter's, since they belong to the word before them.
                before = pieces[-1].rstrip()
                pieces[-1] = before if pieces[-1].startswith("\n", len(before)) else pieces[-1]
            is_exponent = pieces and pieces[-1][-1:].isdigit() and _is_raised(child)
            pieces += ["^"] * bool(is_exponent and re.match(r"[-−–+]?\d", child.text or ""))
            pieces += [" "] * (child.tag in spaced)
            _collect(child, pieces, is_left_out, spaced)
            pieces += [" "] * (child.tag in spaced)
        if child.tail:
            pieces.append(child.tail)


def _is_raised(element: Any) -> bool:
    """Return whether an element is raised: in HTML and JATS, in EndNote's styles, in MathML the second of a pair."""
    parent = element.getparent()
    is_second = str(parent.tag).endswith("}msup") and element is not parent[0]
    return element.tag == "sup" or element.get("face") == "superscript" or is_second
