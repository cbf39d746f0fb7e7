"""Exports of tagged lines: RIS, MEDLINE, Web of Science, EndNote's Refer, Ovid; and PubMed's records as plain text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from biorag.corpus import fields
from biorag.corpus.publications import Texts, publication
from biorag.corpus.pubmed import date_of
from biorag.corpus.readers import EMPTY, FileReader, Record, shown_bytes, text_of
from biorag.corpus.sources import DamagedSourceError, Source, read_lines
from biorag.registries import library_of
from biorag.types import Snippet

NEVER = "(?!)"
LARGEST_RECORD = 4 << 20  # bytes
AUTHORS = ("authors", "short_authors")


@dataclass(frozen=True)
class Tagged:
    """A format of tagged lines: how one of its records begins and ends, and which patterns its lines match.

    A line that matches `tag` begins a value, (tag, value); one that matches `more` goes on with it, as a value of its
    own where `apart` has the tag.
    """

    name: str
    fields: fields.Fields
    tag: str
    first: str  # how a record begins, for messages
    begins: str
    last: str = ""  # the line without which a file is cut off
    ends: str = NEVER
    more: str = ""
    apart: str = ""  # tags, separated as those of the fields
    titled: str = NEVER  # a first line that may be all of a record
    spaced: bool = False  # whether a record begins after a blank line alone

    def values(self, text: str) -> list[tuple[str, str]]:
        """Return the tags of a record with their values, in order."""
        values: list[tuple[str, list[str]]] = []  # of each value its lines
        tag, continued, apart = re.compile(self.tag), re.compile(self.more), self._tags(self.apart)
        for line in text.split("\n"):
            if match := tag.match(line):
                values.append((match[1].strip(), [line[match.end() :]]))
            elif values and (more := continued.match(line)):
                if values[-1][0] in apart:
                    values.append((values[-1][0], []))
                values[-1][1].append(line[more.end() :])
        return [(tag, value) for tag, lines in values if (value := " ".join(" ".join(lines).split()))]

    def texts(self, text: str) -> Texts:
        """Return the texts of each field of a record, those of its best tag first; authors in their order."""
        ranked: dict[str, list[tuple[int, str]]] = {}
        for tag, value in self.values(text):
            for field, rank in self._places.get(tag, ()):
                ranked.setdefault(field, []).append((rank, value))
        return {
            field: [value for _, value in (pairs if field in AUTHORS else sorted(pairs, key=lambda pair: pair[0]))]
            for field, pairs in ranked.items()
        }

    @cached_property
    def _places(self) -> dict[str, list[tuple[str, int]]]:
        """The fields that a tag gives, and how good it is for each, 0 the best."""
        places: dict[str, list[tuple[str, int]]] = {}
        for field, tags in self.fields.items():
            for rank, tag in enumerate(self._tags(tags)):
                places.setdefault(tag, []).append((field, rank))
        return places

    def _tags(self, text: str) -> list[str]:
        """Return the tags in one text; Ovid's are names of several words."""
        return text.split("|" if self.fields is fields.OVID else None)


_RIS_TAG = r"(PMID(?=\s{1,2}-)|[A-Z][A-Z0-9](?=  -))\s{1,2}-(?:\s|\Z)"
_RIS = Tagged(
    "RIS", fields.RIS, _RIS_TAG, "TY  -", r"(?i)TY\s{1,3}-", "ER  -", r"(?i)\s{0,3}ER\s{1,3}-\s*\Z", apart="KW AU A1 UR"
)
_MEDLINE = Tagged("MEDLINE", fields.MEDLINE, "([A-Z][A-Z0-9 ]{3})- ", "PMID- ", "PMID- ", ends=r"\s*\Z", more=" {6}")
_WOS_TAG = r"([A-Z][A-Z0-9])(?: |\Z)"
_WOS = Tagged("Web of Science", fields.WEB_OF_SCIENCE, _WOS_TAG, "PT ", "PT ", "ER", r"ER\b", apart="AF AU CA")
_ENDNOTE = Tagged(
    "EndNote", fields.ENDNOTE, r"(%\S)(?: |\Z)", "%0 ", "%[0AT] ", "", NEVER, "(?!%)", "%K %U", r"%T\s+\S", spaced=True
)
_OVID_TAG = r"([A-Z][A-Z0-9](?=\s{1,2}-\s)|[A-Z][A-Za-z()/ -]{2,50}(?=\Z))(?:\s{1,2}-\s)?"
_OVID_BEGINS = r"<[0-9]{1,6}\s?\.?\s?>|RECORD [0-9]{1,6}\s*\Z"
_OVID = Tagged("Ovid", fields.OVID, _OVID_TAG, "<1>", _OVID_BEGINS, more=r"\s{1,6}(?=\S)", apart="AUTHOR NAMES")
# Its records are paragraphs, of which the last has the PMID.
_PUBMED_TEXT = Tagged("PubMed text", {}, NEVER, "1. ", r"[0-9]{1,6}\. \S", ends="PMID: ", spaced=True)
_APART = re.compile(  # paragraphs of a record of PubMed's text that are not of the abstract
    r"(?:Author information|Collaborators|Comment (?:in|on)|Erratum (?:in|for)|Update (?:in|of)|Conflict of|Retract|"
    r"Republished|Expression of|Copyright|©|DOI:|PMC?ID:|\([0-9]{1,3}\))"
)
_ITEM = re.compile(rb"^ID  - ([\w.#=-]+)\s*$", re.MULTILINE | re.ASCII)  # of a library's references, as it writes them
LONGEST_NAME = 300
_MARKS = re.compile(r"\s*(?:\([0-9]{1,3}\)|\s[0-9][0-9,+*]{0,20}|\s[*+])+\s*\Z")  # of affiliations, behind a name
_LOOSE_TAG = re.compile(r"^\s{0,3}([A-Za-z][A-Za-z0-9])\s{1,3}-(?=\s|\Z)", re.MULTILINE)
_KIND = re.compile(r"(?<=\.)\s?\[[^\[\]]{3,60}\]\.?\Z")  # behind Ovid's titles


def _lines(source: Source) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers; a carriage return alone ends one too, as in old files."""
    return ((number, line) for number, lines in read_lines(source, blank=True) for line in lines.split(b"\r"))


def _records(source: Source, form: Tagged) -> Iterator[tuple[int, Record]]:
    """Yield the records of a file with their first lines; lines between them are skipped."""
    begins, ends = re.compile(form.begins.encode()), re.compile(form.ends.encode())
    titled = re.compile(form.titled.encode())
    tag, is_loose = re.compile(form.tag.encode()), False  # whether there are lines of a record that does not begin
    start = number = size = ended = 0
    lines: list[bytes] = []
    is_library = library_of(source.name) is not None

    def record(bare: int, fault: str = "") -> tuple[int, Record]:
        """Return the record that ends here; one of its `bare` lines alone, the first and the last, is empty."""
        content = b"\n".join(lines)
        lines.clear()
        item = _ITEM.search(content) if is_library else None
        is_kept = fault or content.strip().count(b"\n") >= bare + bool(item) or titled.match(content)
        place = item[1].decode() if item else f"{source.label}#record={number}"
        return start, Record(place, content, shown_bytes(content), fault=fault) if is_kept else EMPTY

    for line_number, line in _lines(source):
        if begins.match(line) and not (form.spaced and lines and lines[-1].strip()):
            yield from [record(1)] if lines else []
            start, size, number, is_loose = line_number, 0, number + 1, False
        elif not lines:
            is_end = ends.match(line) is not None
            if is_loose and is_end:
                number += 1
                fault = f"a record without its first line, {form.first!r}"
                yield line_number, Record(source.label, b"", "", fault=fault)
            is_loose = not is_end and (is_loose or tag.match(line) is not None)
            continue
        lines.append(line)
        size += len(line)
        if size > LARGEST_RECORD:
            raise DamagedSourceError(source.name, start, f"a record of more than {LARGEST_RECORD >> 20} MiB")
        if ends.match(line):
            ended += 1
            yield record(1 + bool(line.strip()))
    if lines:
        is_cut = form.last and (ended or number == 1)
        yield record(1, f"a record without its last line, '{form.last}'" if is_cut else "")
    if not number:
        raise DamagedSourceError(source.name, 1, f"no {form.name} record in it: none begins with {form.first!r}")


def _reader(
    form: Tagged,
    make: Callable[[Record, Texts, str], Snippet] = lambda record, texts, _: publication(record, texts),
    plain: Callable[[str], str] = str,
) -> FileReader:
    """Return the reader of a format; `make` makes the snippet of a record from its texts and its `plain` text."""

    def parse(record: Record) -> Snippet:
        text = plain(text_of(record.check().content))
        return make(record, form.texts(text), text)

    return FileReader(lambda source: _records(source, form), parse)


def _medline(record: Record, texts: Texts, _: str) -> Snippet:
    """Return the snippet of a MEDLINE record, with the fields of PubMed's XML; raises `ValueError` without a PMID."""
    pmid = next(iter(texts.get("pmid", ())), "")
    if not (pmid.isascii() and pmid.isdigit() and int(pmid)):
        raise ValueError(f"PMID {pmid!r:.60} is not a positive whole number")
    snippet = publication(record, {**texts, "doi": [id for id in texts.get("doi", ()) if id.endswith("[doi]")]})
    revised = "".join(texts.get("revised", ())[-1:])
    dates = {"revised": date_of(revised[:4], revised[4:6], revised[6:8])} if revised else {}
    types = {"type": list(dict.fromkeys(texts["type"]))} if "type" in texts else {}  # PubMed's own, whatever they are
    return replace(snippet, metadata={"version": 1, **dates, "retracted": False, **snippet.metadata, **types})


def _ovid(record: Record, texts: Texts, _: str) -> Snippet:
    plain = {name: [text.rstrip(".") for text in texts.get(name, ())] for name in ("language", "type", "keywords")}
    names = [_MARKS.sub("", name[:LONGEST_NAME]) for text in texts.get("authors", ()) for name in text.split(";")]
    titles = [_KIND.sub("", title) for title in texts.get("title", ())]
    return publication(record, {**texts, **plain, "authors": names, "title": titles})


def _pubmed_text(record: Record, _: Texts, text: str) -> Snippet:
    """Return the snippet of a record of PubMed's "Abstract (text)": paragraphs of source, title, authors, …, ids."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip()]
    source, title, *others = [*paragraphs, "", ""][: max(2, len(paragraphs))]
    others = [paragraph for paragraph in others if not paragraph.startswith("[Article in")]
    has_authors = len(others) > 1 and not _APART.match(others[0])
    names = [_MARKS.sub("", name[:LONGEST_NAME].rstrip(".")) for name in others[0].split(", ")] if has_authors else []
    ids = [paragraph for paragraph in others if paragraph.startswith(("DOI:", "PMID:", "PMCID:"))]
    texts = {
        "published_in": [source.partition(". ")[2]],
        "title": [title],
        "authors": names,
        "abstract": [" ".join(paragraph for paragraph in others[has_authors:] if not _APART.match(paragraph))],
        "notes": ids,
        "pmcid": ids,
        "doi": [*ids, source],
        "retraction": [one for one in others if one.startswith("Retraction in")],
        "concern": [one for one in others if one.startswith("Expression of concern in")],
    }
    return publication(record, texts)


def _ris(text: str) -> str:
    """Return a record of RIS with its tags as the format has them; one that begins so is left as it is."""
    return text if text.startswith("TY  -") else _LOOSE_TAG.sub(lambda match: f"{match[1].upper()}  -", text)


RIS = _reader(_RIS, plain=_ris)
MEDLINE = _reader(_MEDLINE, _medline)
WEB_OF_SCIENCE = _reader(_WOS)
ENDNOTE = _reader(_ENDNOTE)
OVID = _reader(_OVID, _ovid)
PUBMED_TEXT = _reader(_PUBMED_TEXT, _pubmed_text)
