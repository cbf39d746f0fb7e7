"""Exports of tagged lines: RIS, MEDLINE, Web of Science, EndNote's Refer, Ovid; and PubMed's records as plain text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from biorag.corpus import fields
from biorag.corpus.publications import Record, publication
from biorag.corpus.pubmed import date_of
from biorag.corpus.readers import FileReader, shown_bytes, text_of
from biorag.corpus.sources import MAX_LINE, DamagedSourceError, Source, read_lines
from biorag.types import Snippet

NEVER = re.compile(rb"(?!)")
AUTHORS = ("authors", "short_authors")


@dataclass(frozen=True)
class Tagged:
    """A format of tagged lines.

    A line that matches `tag` begins a value, (tag, value); one that matches `more` goes on with it, as a value of its
    own where `apart` has the tag.
    """

    name: str
    begins: re.Pattern[bytes]
    ends: re.Pattern[bytes]
    tag: re.Pattern[str]
    more: re.Pattern[str]
    fields: fields.Fields
    apart: frozenset[str] = frozenset()
    first: str = ""  # how a record begins, for messages
    last: str = ""  # the line without which a file is cut off
    spaced: bool = False  # whether a record begins after a blank line alone

    def values(self, text: str) -> list[tuple[str, str]]:
        """Return the tags of a record with their values, in order."""
        values: list[tuple[str, list[str]]] = []  # of each value its lines
        for line in text.split("\n"):
            if match := self.tag.match(line):
                values.append((match[1].strip(), [line[match.end() :]]))
            elif values and (more := self.more.match(line)):
                if values[-1][0] in self.apart:
                    values.append((values[-1][0], []))
                values[-1][1].append(line[more.end() :])
        return [(tag, value) for tag, lines in values if (value := " ".join(" ".join(lines).split()))]

    def texts(self, text: str) -> dict[str, list[str]]:
        """Return the texts of each field of a record, those of its best tag first; authors in their order."""
        ranked: dict[str, list[tuple[int, str]]] = {field: [] for field in self.fields}
        for tag, value in self.values(text):
            for field, rank in self._places.get(tag, ()):
                ranked[field].append((rank, value))
        return {
            field: [value for _, value in (pairs if field in AUTHORS else sorted(pairs, key=lambda pair: pair[0]))]
            for field, pairs in ranked.items()
        }

    @cached_property
    def _places(self) -> dict[str, list[tuple[str, int]]]:
        """The fields that a tag gives, and how good it is for each, 0 the best."""
        separator = "|" if "|" in "".join(self.fields.values()) else None
        places: dict[str, list[tuple[str, int]]] = {}
        for field, tags in self.fields.items():
            for rank, tag in enumerate(tags.split(separator)):
                places.setdefault(tag, []).append((field, rank))
        return places


RIS_FORMAT = Tagged(
    "RIS",
    re.compile(rb"TY\s{1,3}-", re.IGNORECASE),
    re.compile(rb"ER\s{1,3}-", re.IGNORECASE),
    re.compile(r"\s{0,3}(PMID|[A-Z][A-Z0-9])\s{1,3}-(?:\s|\Z)"),
    re.compile(""),
    fields.RIS,
    frozenset({"KW", "AU", "A1", "UR"}),
    "TY  -",
    "ER  -",
)
MEDLINE_FORMAT = Tagged(
    "MEDLINE",
    re.compile(rb"PMID- "),
    re.compile(rb"\s*\Z"),
    re.compile(r"([A-Z][A-Z0-9 ]{3})- "),
    re.compile(r" {6}"),
    fields.MEDLINE,
    first="PMID- ",
)
WOS_FORMAT = Tagged(
    "Web of Science",
    re.compile(rb"PT "),
    re.compile(rb"ER\b"),
    re.compile(r"([A-Z][A-Z0-9])(?: |\Z)"),
    re.compile(""),
    fields.WEB_OF_SCIENCE,
    frozenset({"AF", "AU", "CA"}),
    "PT ",
    "ER",
)
ENDNOTE_FORMAT = Tagged(
    "EndNote",
    re.compile(rb"%[0AT] "),
    NEVER,
    re.compile(r"(%\S)(?: |\Z)"),
    re.compile(r"(?!%)"),
    fields.ENDNOTE,
    frozenset({"%K", "%U"}),
    "%0 ",
    spaced=True,
)
OVID_FORMAT = Tagged(
    "Ovid",
    re.compile(rb"<[0-9]{1,6}\s?\.?\s?>|RECORD [0-9]{1,6}\s*\Z"),
    NEVER,
    re.compile(r"([A-Z][A-Z0-9](?=\s{1,2}-\s)|[A-Z][A-Za-z()/ -]{2,50}(?=\Z))(?:\s{1,2}-\s)?"),
    re.compile(r"\s{1,6}(?=\S)"),
    fields.OVID,
    frozenset({"AUTHOR NAMES"}),
    "<1>",
)
PUBMED_TEXT_FORMAT = Tagged(  # its records are paragraphs, of which the last has the PMID
    "PubMed text",
    re.compile(rb"[0-9]{1,6}\. \S"),
    re.compile(rb"PMID: "),
    re.compile("(?!)"),
    re.compile(""),
    {},
    first="1. ",
    spaced=True,
)
_APART = re.compile(  # paragraphs of a record of PubMed's text that are not of the abstract
    r"(?:Author information|Collaborators|Comment (?:in|on)|Erratum (?:in|for)|Update (?:in|of)|Conflict of|Retract|"
    r"Republished|Expression of|Copyright|©|DOI:|PMC?ID:|\([0-9]{1,3}\))"
)
_MARKS = re.compile(r"\s*(?:\([0-9]{1,3}\)|\s[0-9][0-9,+*]{0,20}|\s[*+])+\s*\Z")  # of affiliations, behind a name
_SMALL_TAG = re.compile(r"^[a-z][a-z0-9](?=\s{1,3}-(?:\s|\Z))", re.MULTILINE)
_KIND = re.compile(r"(?<=\.)\s?\[[^\[\]]{3,60}\]\.?\Z")  # behind Ovid's titles


def _lines(source: Source) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers; a carriage return alone ends one too, as in old files."""
    return ((number, line) for number, lines in read_lines(source, blank=True) for line in lines.split(b"\r"))


def _records(source: Source, form: Tagged) -> Iterator[tuple[int, Record]]:
    """Yield the records of a file with their first lines; lines between them are skipped."""
    start = number = size = 0
    lines: list[bytes] = []

    def record(fault: str = "") -> Record:
        content = b"\n".join(lines)
        lines.clear()
        return Record(f"{source.label}#record={number}", content, shown_bytes(content), fault=fault)

    cut = f"a record without its last line, '{form.last}'" if form.last else ""
    ended = 0
    for line_number, line in _lines(source):
        if form.begins.match(line) and not (form.spaced and lines and lines[-1].strip()):
            if lines:
                yield start, record()
            start, size, number = line_number, 0, number + 1
        elif not lines:
            continue
        lines.append(line)
        size += len(line)
        if size > MAX_LINE:
            raise DamagedSourceError(source.name, start, f"a record of more than {MAX_LINE >> 20} MiB")
        if form.ends.match(line):
            ended += 1
            yield start, record()
    if lines:
        yield start, record(cut if ended or number == 1 else "")
    if not number:
        raise DamagedSourceError(source.name, 1, f"no {form.name} record in it: none begins with {form.first!r}")


Texts = dict[str, list[str]]


def _reader(
    form: Tagged,
    adapt: Callable[[Texts, str], Texts] = lambda texts, _: texts,
    plain: Callable[[str], str] = str,
) -> FileReader:
    """Return the reader of a format; `adapt` makes of a record's texts and its `plain` text the fields that it has."""

    def parse(record: Record) -> Snippet:
        text = plain(text_of(record.content))
        if record.fault:
            raise ValueError(record.fault)
        return publication(record.place, adapt(form.texts(text), text))

    return FileReader(lambda source: _records(source, form), parse, lambda record: record.source)


def _medline(record: Record) -> Snippet:
    """Return the snippet of a MEDLINE record, with the fields of PubMed's XML; raises `ValueError` without a PMID."""
    text = text_of(record.content)
    values, texts = dict(MEDLINE_FORMAT.values(text)), MEDLINE_FORMAT.texts(text)
    pmid = next(iter(texts["pmid"]), "")
    if not (pmid.isascii() and pmid.isdigit() and int(pmid)):
        raise ValueError(f"PMID {pmid!r:.60} is not a positive whole number")
    texts["doi"] = [id for id in texts["doi"] if id.endswith("[doi]")]
    snippet = publication(record.place, texts)
    revised = values.get("LR", "")
    dates = {"revised": date_of(revised[:4], revised[4:6], revised[6:8])} if revised else {}
    return replace(snippet, metadata={"version": 1, **dates, "retracted": False, **snippet.metadata})


def _ovid(texts: Texts, _: str) -> Texts:
    plain = {name: [text.rstrip(".") for text in texts[name]] for name in ("language", "type", "keywords")}
    names = [_MARKS.sub("", name) for text in texts["authors"] for name in text.split(";")]
    return {**texts, **plain, "authors": names, "title": [_KIND.sub("", title) for title in texts["title"]]}


def _pubmed_text(_: Texts, text: str) -> Texts:
    """Return the fields of a record of PubMed's "Abstract (text)": paragraphs of source, title, authors, …, ids."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip()]
    source, title, *others = [*paragraphs, "", ""][: max(2, len(paragraphs))]
    others = [paragraph for paragraph in others if not paragraph.startswith("[Article in")]
    has_authors = len(others) > 1 and not _APART.match(others[0])
    names = [_MARKS.sub("", name.rstrip(".")) for name in others[0].split(", ")] if has_authors else []
    ids = [paragraph for paragraph in others if paragraph.startswith(("DOI:", "PMID:", "PMCID:"))]
    return {
        "source": [source.partition(". ")[2]],
        "title": [title],
        "authors": names,
        "abstract": [" ".join(paragraph for paragraph in others[has_authors:] if not _APART.match(paragraph))],
        "notes": ids,
        "pmcid": ids,
        "doi": [*ids, source],
        "retraction": [one for one in others if one.startswith("Retraction in")],
        "concern": [one for one in others if one.startswith("Expression of concern in")],
    }


def _ris(text: str) -> str:
    """Return a record of RIS with its tags in capitals."""
    is_small = text[:1].islower()
    return _SMALL_TAG.sub(lambda match: match[0].upper(), text) if is_small else text


RIS = _reader(RIS_FORMAT, plain=_ris)
MEDLINE = FileReader(lambda source: _records(source, MEDLINE_FORMAT), _medline, lambda record: record.source)
WEB_OF_SCIENCE = _reader(WOS_FORMAT)
ENDNOTE = _reader(ENDNOTE_FORMAT)
OVID = _reader(OVID_FORMAT, _ovid)
PUBMED_TEXT = _reader(PUBMED_TEXT_FORMAT, _pubmed_text)
