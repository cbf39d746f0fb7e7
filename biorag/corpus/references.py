"""References with their abstracts, as reference managers and PubMed export them: RIS, BibTeX, CSL-JSON, `.nbib`."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from biorag.corpus.pubmed import DATE, RETRACTED, date_of, medline_date
from biorag.corpus.readers import LARGEST_TEXT, FileReader, entry_of, read_text, shown_bytes, text_of, with_values
from biorag.corpus.sources import MAX_LINE, DamagedSourceError, Source, read_lines
from biorag.types import Snippet
from biorag.utils.parsing import parse_json

LONGEST = 2000  # characters of a field of CSL-JSON but for the abstract
# PubMed's publication types, and the types of reference of RIS, CSL, Crossref, BibTeX and Zotero in small letters.
_TYPES = {
    name: kind
    for kind, names in {
        "Journal Article": "jour jfull ejour mgzn news article articlejournal articlemagazine journalarticle",
        "Book": "book ebook edbook monograph editedbook",
        "Book Chapter": "chap echap chapter bookchapter incollection inbook booksection",
        "Congress": "conf cpaper inproceedings proceedings paperconference proceedingsarticle conferencepaper",
        "Academic Dissertation": "thes thesis phdthesis mastersthesis dissertation",
        "Dataset": "data dataset",
        "Technical Report": "rprt report techreport",
        "Preprint": "unpb preprint postedcontent",
    }.items()
    for name in names.split()
}
# What rispy calls JA and J2, which are abbreviations, and JO, which may be one; and all fields that may name a journal.
_ABBREVIATION = ("alternate_title2", "alternate_title1", "journal_name")
_JOURNAL = ("alternate_title3", "secondary_title", *_ABBREVIATION[::-1])
_SHORT_JOURNAL = ("shortjournal", "journal-abbreviation", "journal_abbreviation", "journalabbreviation")  # in BibTeX
_PUBMED_URL = re.compile(r"pubmed(?:\.ncbi\.nlm\.nih\.gov|/|\.gov/)\D{0,20}?([0-9]{1,9})\b")
_PMID_NOTE = re.compile(r"\bPMID:?\s*([0-9]{1,9})\b")
_PMCID = re.compile(r"\bPMC[0-9]{1,9}\b")
_DOI = re.compile(r"\b10\.[0-9]{4,9}/\S+")
_MARKUP = re.compile(r"<[^<>]{0,200}>")
_ISSN = re.compile(r"\b[0-9]{4}-[0-9]{3}[0-9Xx]\b")


class ReferenceRecord(NamedTuple):
    """The lines of a record, and its number in the file, from 1; `ended` says whether its last line is there."""

    file: str
    number: int
    content: bytes
    ended: bool = True

    @property
    def place(self) -> str:
        """Its file and number."""
        return f"{self.file}#record={self.number}"


def _split(
    source: Source, beginning: bytes, ends: Callable[[bytes], bool], what: str
) -> Iterator[tuple[int, ReferenceRecord]]:
    """Yield the records of a file with their first lines; lines between them are skipped."""
    start = number = size = 0
    lines: list[bytes] = []
    for line_number, line in read_lines(source, blank=True):
        if line.startswith(beginning):
            if lines:
                number += 1
                yield start, ReferenceRecord(source.label, number, b"\n".join(lines), ended=False)
            start, lines, size = line_number, [], 0
        elif not lines:
            continue
        elif ends(line):
            number += 1
            yield start, ReferenceRecord(source.label, number, b"\n".join([*lines, line]))
            lines = []
            continue
        lines.append(line)
        size += len(line)
        if size > MAX_LINE:
            raise DamagedSourceError(source.name, start, f"a record of more than {MAX_LINE >> 20} MiB")
    if lines:
        number += 1
        yield start, ReferenceRecord(source.label, number, b"\n".join(lines), ended=False)
    if not number:
        raise DamagedSourceError(source.name, 1, f"no {what} record in it")


def _snippet(place: str, pmid: str, fields: Mapping[str, Any], title: str, content: str) -> Snippet:
    """Return the snippet of a reference, by its PMID, else its DOI, else its place in a file."""
    if not title and not content:
        raise ValueError("a record with neither title nor abstract")
    id = pmid or fields.get("doi") or place
    return entry_of({**with_values(fields), "abstract": bool(content), "id": id, "PMID": pmid}, title, content)


# --- RIS


def parse_ris(reference: ReferenceRecord) -> Snippet:
    """Return the snippet of a RIS record, read by rispy; raises `ValueError` if it cannot be read, or has no text."""
    import rispy

    text = text_of(reference.content)
    if not reference.ended:
        raise ValueError("a record without its last line, 'ER  -'")
    try:
        (entry,) = rispy.loads(text)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"a record that rispy cannot read ({error})") from None
    title = _first(entry, "title", "primary_title", "short_title")
    content = _first(entry, "abstract", "notes_abstract")
    return _snippet(reference.place, _ris_pmid(entry), _ris_fields(entry), title, content)


def _ris_fields(entry: Mapping[str, Any]) -> dict[str, Any]:
    date = DATE.search(_first(entry, "publication_year", "year", "date"))
    full = DATE.search(_first(entry, "date"))
    written = next((date_of(*match.groups()) for match in (full, date) if match), "")
    start, end = _first(entry, "start_page"), _first(entry, "end_page")
    journal = _first(entry, *_JOURNAL)
    return {
        "authors": _list(entry, "authors", "first_authors"),
        "journal": journal,
        "journal_abbreviation": next((name for name in _list(entry, *_ABBREVIATION) if name != journal), ""),
        "year": int(date[1]) if date else None,
        "date": written,
        "volume": _first(entry, "volume"),
        "issue": _first(entry, "number"),
        "pages": f"{start}-{end}" if start and end and "-" not in start and start != end else start,
        "doi": _doi(_first(entry, "doi")) or _doi(" ".join(_list(entry, "urls"))),
        "pmcid": _match(_PMCID, " ".join([*_list(entry, "custom2", "custom7"), *_list(entry, "urls")])),
        "issn": _match(_ISSN, _first(entry, "issn")),
        "language": _list(entry, "language"),
        "keywords": _list(entry, "keywords"),
        "type": _list(entry, "type_of_work") or publication_types(_first(entry, "type_of_reference")),
    }


def publication_types(name: str) -> list[str]:
    """Return PubMed's publication type for a type of reference of any reference manager, in a list; [] if unknown."""
    return list(filter(None, [_TYPES.get(re.sub("[^a-z]", "", name.lower()))]))


def noted_pmid(text: str) -> str:
    """Return the PMID of a note such as `PMID: 123`; "" if there is none."""
    return _match(_PMID_NOTE, text, 1)


def _ris_pmid(entry: Mapping[str, Any]) -> str:
    """Return the PMID where a record says that it is one: PubMed's accession number, its address, or a note."""
    number = _first(entry, "accession_number")
    database = " ".join(_list(entry, "name_of_database", "database_provider")).lower()
    if number.isdecimal() and any(name in database for name in ("pubmed", "medline", "nlm")):
        return number
    urls = _PUBMED_URL.search(" ".join(_list(entry, "urls")))
    note = _PMID_NOTE.search(" ".join([number, *_list(entry, "notes", "custom2", "note")]))
    return next((match[1] for match in (urls, note) if match), "")


def _first(entry: Mapping[str, Any], *names: str) -> str:
    """Return the first text that one of the fields has."""
    return next(iter(_list(entry, *names)), "")


def _list(entry: Mapping[str, Any], *names: str) -> list[str]:
    """Return the distinct texts of the fields, in order, white space collapsed."""
    values: list[Any] = []
    for name in names:
        value = entry.get(name)
        values.extend(value if isinstance(value, list) else [value])
    return list(dict.fromkeys(" ".join(value.split()) for value in values if isinstance(value, str) and value.strip()))


# --- BibTeX


class BibtexEntry(NamedTuple):
    """An entry, as bibtexparser reads it, or why it could not; `fields` have names in lower case and LaTeX values."""

    file: str
    key: str
    kind: str
    fields: Mapping[str, str]
    source: str
    fault: str = ""


def _bibtex(source: Source) -> Iterator[tuple[int, BibtexEntry]]:
    """Yield the entries of a file with their first lines."""
    import bibtexparser

    library = bibtexparser.parse_string(read_text(source))
    for entry in library.entries:
        fields = {field.key.lower(): str(field.value) for field in entry.fields}
        line = (entry.start_line or 0) + 1
        yield line, BibtexEntry(source.label, entry.key, entry.entry_type.lower(), fields, entry.raw or "")
    for block in library.failed_blocks:
        fault = "an entry that is not BibTeX: a brace or a quotation mark is missing"
        yield (block.start_line or 0) + 1, BibtexEntry(source.label, "", "", {}, block.raw or "", fault)
    if not library.blocks:
        raise DamagedSourceError(source.name, 1, "no BibTeX entry in it")


def parse_bibtex(entry: BibtexEntry) -> Snippet:
    """Return the snippet of an entry; raises `ValueError` if it cannot be read, or has no text."""
    from pylatexenc.latex2text import LatexNodes2Text

    if entry.fault:
        raise ValueError(entry.fault)
    decode = LatexNodes2Text(keep_braced_groups=False).latex_to_text
    try:
        fields = {name: " ".join(decode(value).split()) for name, value in entry.fields.items() if name != "author"}
        authors = [
            _bibtex_name(name, decode) for name in " ".join(entry.fields.get("author", "").split()).split(" and ")
        ]
    except RecursionError:
        raise ValueError("an entry whose braces or commands are nested too deeply") from None
    date = DATE.search(fields.get("date") or fields.get("year", ""))
    values = {
        "authors": list(filter(None, authors)),
        "journal": fields.get("journal") or fields.get("journaltitle") or fields.get("booktitle", ""),
        "journal_abbreviation": next((fields[name] for name in _SHORT_JOURNAL if fields.get(name)), ""),
        "year": int(date[1]) if date else None,
        "date": date_of(date[1], date[2] or fields.get("month"), date[3] or fields.get("day")) if date else "",
        "volume": fields.get("volume", ""),
        "issue": fields.get("number") or fields.get("issue", ""),
        "pages": re.sub("[-–]+", "-", fields.get("pages", "")),
        "doi": _doi(fields.get("doi", "")) or _doi(fields.get("url", "")),
        "pmcid": _match(_PMCID, fields.get("pmcid", "")),
        "issn": _match(_ISSN, fields.get("issn", "")),
        "keywords": [word.strip() for word in re.split("[,;]", fields.get("keywords", "")) if word.strip()],
        "type": publication_types(entry.kind),
    }
    pmid = fields.get("pmid", "") or noted_pmid(fields.get("note", ""))
    place = f"{entry.file}#{entry.key}"
    return _snippet(
        place, pmid if pmid.isdecimal() else "", values, fields.get("title", ""), fields.get("abstract", "")
    )


def _bibtex_name(name: str, decode: Callable[[str], str]) -> str:
    """Return an author as "Family, Given"; a group in braces stays as it is."""
    from bibtexparser.middlewares.names import InvalidNameError, parse_single_name_into_parts

    name = name.strip()
    if name.startswith("{") and name.endswith("}"):
        return " ".join(decode(name).replace(",", " ").split())
    try:
        parts = parse_single_name_into_parts(name)
    except InvalidNameError:
        return " ".join(decode(name).split())
    family, given = " ".join([*parts.von, *parts.last]), " ".join(parts.first)
    return " ".join(decode(", ".join(filter(None, [family, given, " ".join(parts.jr)]))).split())


# --- CSL-JSON


class CslItem(NamedTuple):
    """A reference of a list in JSON, and its number in the file, from 1."""

    file: str
    number: int
    values: Any


def _csl(source: Source) -> Iterator[tuple[int, CslItem]]:
    """Yield the references of a file with their numbers."""
    try:
        items = parse_json(read_text(source))
    except ValueError as error:
        raise DamagedSourceError(source.name, 1, f"not JSON ({error})") from None
    if not isinstance(items, list) or not items:
        raise DamagedSourceError(source.name, 1, "no list of references in it")
    yield from ((number, CslItem(source.label, number, item)) for number, item in enumerate(items, 1))


def parse_csl(item: CslItem) -> Snippet:
    """Return the snippet of a reference in CSL-JSON; raises `ValueError` if it is not one, or has no text."""
    if not isinstance(item.values, dict):
        raise ValueError(f"not a reference but {type(item.values).__name__}")
    content = csl_text(item.values, "abstract", longest=LARGEST_TEXT)
    place = f"{item.file}#record={item.number}"
    return _snippet(place, _csl_pmid(item.values), csl_fields(item.values), csl_title(item.values), content)


def csl_title(item: Mapping[str, Any]) -> str:
    """Return the title of a reference in CSL-JSON, or of a work as Crossref describes it, with its subtitle."""
    title, subtitle = csl_text(item, "title"), csl_text(item, "subtitle")
    return f"{title.rstrip(':')}: {subtitle}" if title and subtitle and subtitle not in title else title


def csl_fields(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a reference in CSL-JSON, or of a work as Crossref describes it, without empty ones."""
    journal = csl_text(item, "container-title")
    short = csl_text(item, "container-title-short", "short-container-title", "journalAbbreviation")
    date = _csl_date(item.get("issued"))
    values = {
        "authors": _csl_authors(item.get("author")),
        "journal": journal or short,
        "journal_abbreviation": short if journal not in ("", short) else "",
        "year": int(date[:4]) if date else None,
        "date": date,
        "volume": csl_text(item, "volume"),
        "issue": csl_text(item, "issue"),
        "pages": re.sub("[-–]+", "-", csl_text(item, "page")),
        "doi": _doi(str(item.get("DOI") or "")[:LONGEST]),  # old ones have what looks like markup
        "pmcid": _match(_PMCID, csl_text(item, "PMCID")),
        "issn": _match(_ISSN, csl_text(item, "ISSN")),
        "language": [language] if (language := csl_text(item, "language")) else [],
        "keywords": [word.strip() for word in re.split("[,;]", csl_text(item, "keyword")) if word.strip()],
        "type": publication_types(csl_text(item, "type")),
    }
    return with_values(values)


def csl_text(item: Mapping[str, Any], *names: str, longest: int = LONGEST) -> str:
    """Return the first text of fields, a number too, of a list its first; without markup, in one line."""
    values = (value[0] if isinstance(value, list) and value else value for value in map(item.get, names))
    texts = (str(value) for value in values if isinstance(value, str | int) and not isinstance(value, bool))
    plain = (" ".join(html.unescape(_MARKUP.sub(" " if longest > LONGEST else "", text)).split()) for text in texts)
    return next(filter(None, plain), "")[:longest]


def _csl_authors(authors: Any) -> list[str]:
    """Return authors as "Family, Given, Suffix"; groups have a name alone."""
    names = []
    for author in authors if isinstance(authors, list) else []:
        if not isinstance(author, dict):
            continue
        particles = [csl_text(author, name) for name in ("dropping-particle", "non-dropping-particle")]
        family = " ".join(filter(None, [*particles, csl_text(author, "family")]))
        name = ", ".join(filter(None, [family, csl_text(author, "given"), csl_text(author, "suffix")]))
        names.append(name if family else csl_text(author, "literal", "name") or name)
    return list(dict.fromkeys(filter(None, names)))


def _csl_date(issued: Any) -> str:
    """Return a date by its parts, else as it was written; "" where there is none."""
    if not isinstance(issued, dict):
        return ""
    parts = issued.get("date-parts")
    first = parts[0] if isinstance(parts, list) and parts and isinstance(parts[0], list) else []
    if dated := date_of(*(str(part) for part in first[:3] if part)) if first else "":
        return dated
    written = DATE.search(csl_text(issued, "raw", "literal"))
    return date_of(*written.groups()) if written else ""


def _csl_pmid(item: Mapping[str, Any]) -> str:
    number = csl_text(item, "PMID")
    return number if number.isdecimal() else _match(_PMID_NOTE, csl_text(item, "note"), 1)


# --- MEDLINE


def nbib_fields(text: str) -> dict[str, list[str]]:
    """Return the values of each tag of a MEDLINE record, in order; a line that begins with spaces continues one.

    MEDLINE/PubMed Data Element (Field) Descriptions, NLM: a tag of up to four letters, a hyphen, a space.
    """
    fields: dict[str, list[str]] = {}
    values: list[str] = []
    for line in text.split("\n"):
        if line[4:6] == "- ":
            values = fields.setdefault(line[:4].strip(), [])
            values.append(line[6:].strip())
        elif values and line.startswith("      "):
            values[-1] = f"{values[-1]} {line.strip()}"
    return fields


def parse_nbib(reference: ReferenceRecord) -> Snippet:
    """Return the snippet of a MEDLINE record, with the fields of PubMed's XML; raises `ValueError` as `parse_ris`."""
    fields = nbib_fields(text_of(reference.content))
    pmid = _one(fields, "PMID")
    if not (pmid.isascii() and pmid.isdigit() and int(pmid)):
        raise ValueError(f"PMID {pmid!r:.60} is not a positive whole number")
    title = _one(fields, "TI") or _one(fields, "TT") or _one(fields, "BTI")
    content = _one(fields, "AB") or _one(fields, "OAB")
    return _snippet(reference.place, str(int(pmid)), _medline_fields(fields), title, content)


def _medline_fields(fields: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    date = medline_date(_one(fields, "DP"))
    revised = _one(fields, "LR")
    ids = [*fields.get("AID", ()), *fields.get("LID", ())]
    retraction = _notices(fields, "RIN")
    types = list(fields.get("PT", ()))
    return {
        "version": 1,
        "revised": date_of(revised[:4], revised[4:6], revised[6:8]),
        "authors": list(fields.get("FAU") or fields.get("AU") or ()),
        "group_authors": list(fields.get("CN", ())),
        "journal": _one(fields, "JT") or _one(fields, "TA"),
        "journal_abbreviation": _one(fields, "TA") if _one(fields, "JT") else "",
        "year": int(date[:4]) if date else None,
        "date": date,
        "volume": _one(fields, "VI"),
        "issue": _one(fields, "IP"),
        "pages": _one(fields, "PG"),
        "doi": next((_doi(id) for id in ids if id.endswith("[doi]")), ""),
        "pmcid": _match(_PMCID, _one(fields, "PMC")),
        "issn": _match(_ISSN, _one(fields, "IS")),
        "language": list(fields.get("LA", ())),
        "mesh": list(dict.fromkeys(heading.split("/")[0].lstrip("*") for heading in fields.get("MH", ()))),
        "type": types,
        "retraction": retraction,
        "errata": [*_notices(fields, "EIN"), *_notices(fields, "CRI")],
        "concern": _notices(fields, "ECI"),
        "retracted": RETRACTED in types or bool(retraction),
    }


def _notices(fields: Mapping[str, Sequence[str]], tag: str) -> list[int | str]:
    """Return the notices of a kind: each one's PMID, else where it was published."""
    return [
        int(match[1]) if (match := _PMID_NOTE.search(notice)) else notice
        for notice in dict.fromkeys(fields.get(tag, ()))
    ]


def _one(fields: Mapping[str, Sequence[str]], tag: str) -> str:
    return next(iter(fields.get(tag, ())), "")


def _doi(text: str) -> str:
    return _match(_DOI, text).rstrip(".,;)")


def _match(pattern: re.Pattern[str], text: str, group: int = 0) -> str:
    match = pattern.search(text)
    return match[group] if match else ""


RIS = FileReader(
    lambda source: _split(source, b"TY  -", lambda line: line.startswith(b"ER  -"), "RIS"),
    parse_ris,
    lambda record: shown_bytes(record.content),
)
BIBTEX = FileReader(_bibtex, parse_bibtex, lambda entry: entry.source)
CSL = FileReader(_csl, parse_csl, lambda item: json.dumps(item.values))
MEDLINE = FileReader(
    lambda source: _split(source, b"PMID- ", lambda line: not line.strip(), "MEDLINE"),
    parse_nbib,
    lambda record: shown_bytes(record.content),
)
