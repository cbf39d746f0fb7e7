"""The paragraphs of a Word document with the places of their runs: text in fields, controls and links is text too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from docx.oxml.ns import qn

from biorag.corpus.budget import draw
from biorag.papers.files.documents import small_xml, style_names, style_of
from biorag.papers.manuscripts.manuscript import CLOSE, OPEN

Notes = Mapping[tuple[str, str], int]  # the numbers of notes, by kind and id
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_TEXTS = {qn("w:t"): None, qn("w:tab"): "\t", qn("w:br"): "\n", qn("w:cr"): "\n", qn("w:noBreakHyphen"): "-"}
_NOTES = {"endnotes": qn("w:endnoteReference"), "footnotes": qn("w:footnoteReference")}


@dataclass
class WordParagraph:
    """A paragraph's text and style, and its runs with their (start, end) in the text; raised letters are in signs."""

    element: Any
    style: str
    text: str = ""
    runs: list[tuple[Any, int, int]] = field(default_factory=list)


def word_paragraphs(document: Any, notes: Notes | None = None) -> Iterator[WordParagraph]:
    """Yield the paragraphs of a document's body, tables and text boxes too, in their order.

    A reference to one of `notes` is its number, raised; without them it is no text.
    """
    raised = {
        style.get(qn("w:styleId"))
        for style in document.styles.element.iter(qn("w:style"))
        if any(mark.get(qn("w:val")) == "superscript" for mark in style.iter(qn("w:vertAlign")))
    }
    names = style_names(document)
    runs: dict[Any, list[Any]] = {}  # in one walk: text boxes may be nested
    for run in document.element.body.iter(qn("w:r")):
        runs.setdefault(next(run.iterancestors(qn("w:p")), None), []).append(run)
    for element in document.element.body.iter(qn("w:p")):
        if next(element.iterancestors(_FALLBACK), None) is not None:
            continue  # the same text for older programs
        draw()
        paragraph = WordParagraph(element, style_of(element, names))
        _read_runs(paragraph, runs.get(element, ()), raised, notes or {})
        yield paragraph


def _read_runs(paragraph: WordParagraph, runs: Iterable[Any], raised: set[str], notes: Notes) -> None:
    pieces: list[str] = []
    length, is_open = 0, False
    for run in runs:
        text, is_note = _run_text(run, notes)
        draw(characters=len(text))
        if not text:
            continue
        is_raised = is_note or _is_raised(run, raised)
        sign = "" if is_raised == is_open else OPEN if is_raised else CLOSE
        pieces += [sign, text]
        paragraph.runs.append((run, length + len(sign), length + len(sign) + len(text)))
        length, is_open = length + len(sign) + len(text), is_raised
    paragraph.text = "".join([*pieces, CLOSE * is_open])


def _run_text(run: Any, notes: Notes) -> tuple[str, bool]:
    """Return a run's text, and whether it is the number of a note."""
    pieces = []
    for child in run:
        if child.tag in _TEXTS:
            pieces.append(_TEXTS[child.tag] or (child.text or "").replace(OPEN, "").replace(CLOSE, ""))
        for kind, tag in _NOTES.items():
            if child.tag == tag and (number := notes.get((kind, child.get(qn("w:id"))))):
                return str(number), True
    return "".join(pieces), False


def _is_raised(run: Any, styles: set[str]) -> bool:
    position = run.find(f"{qn('w:rPr')}/{qn('w:vertAlign')}")
    style = run.find(f"{qn('w:rPr')}/{qn('w:rStyle')}")
    if position is not None:
        return bool(position.get(qn("w:val")) == "superscript")
    return style is not None and style.get(qn("w:val")) in styles


def word_notes(document: Any) -> tuple[dict[tuple[str, str], int], list[str]]:
    """Return the numbers of a document's endnotes and footnotes in the order of their references, and their texts."""
    texts: dict[tuple[str, str], str] = {}
    for relation in document.part.rels.values():
        kind = relation.reltype.rpartition("/")[2]
        if kind in _NOTES and not relation.is_external:
            for note in small_xml(relation.target_part.blob):
                words = "".join(part.text or "" for part in note.iter(qn("w:t")))
                texts[kind, note.get(qn("w:id"))] = " ".join(words.split())
    kinds = {tag: kind for kind, tag in _NOTES.items()}
    marks = ((kinds[mark.tag], mark.get(qn("w:id"))) for mark in document.element.body.iter(*kinds))
    cited = [key for key in dict.fromkeys(marks) if texts.get(key)]
    return {key: number for number, key in enumerate(cited, 1)}, [texts[key] for key in cited]
