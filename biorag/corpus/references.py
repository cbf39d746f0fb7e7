"""References with their abstracts, as reference managers and PubMed export them: RIS, BibTeX, CSL-JSON, `.nbib`."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator, Mapping
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
_PMCID = re.compile(r"\b(PMC[0-9]{1,9})\b")
_DOI = re.compile(r"\b(10\.[0-9]{4,9}/\S+)")
_MARKUP = re.compile(r"<[^<>]{0,200}>")
_ISSN = re.compile(r"\b([0-9]{4}-[0-9]{3}[0-9Xx])\b")


class Record(NamedTuple):
    """A record of a file: where it stands, what it holds and, for a reject, its source; or why it cannot be read."""

    place: str
    content: Any
    source: str
    key: str = ""  # by which texts cite it, if the format has one
    fault: str = ""


def publication_types(name: str) -> list[str]:
    """Return PubMed's publication type for a type of reference of any reference manager, in a list; [] if unknown."""
    return list(filter(None, [_TYPES.get(re.sub("[^a-z]", "", name.lower()))]))


def noted_pmid(text: str) -> str:
    """Return the PMID of a note such as `PMID: 123`; "" if there is none."""
    return _first_match(_PMID_NOTE, text)


def _described(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a publication as a snippet has them, without empty ones."""
    described = {**fields, "year": fields.get("year") or int(fields["date"][:4] or 0) or None}
    described["doi"] = _first_match(_DOI, fields["doi"]).rstrip(".,;)")
    described["pages"] = re.sub("[-–]+", "-", fields["pages"])
    described["pmcid"] = _first_match(_PMCID, fields["pmcid"])
    described["issn"] = _first_match(_ISSN, fields["issn"])
    if isinstance(keywords := fields.get("keywords"), str):
        described["keywords"] = [word.strip() for word in re.split("[,;]", keywords) if word.strip()]
    return with_values(described)


def _snippet(record: Record, pmid: str, fields: Mapping[str, Any], title: str, content: str) -> Snippet:
    """Return the snippet of a reference, by its PMID, else its DOI, else its place in a file."""
    if not title and not content:
        raise ValueError("a record with neither title nor abstract")
    described = _described(fields)
    id = pmid or described.get("doi") or record.place
    return entry_of({**described, "abstract": bool(content), "id": id, "PMID": pmid}, title, content)


def _first_match(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""


def _split(source: Source, beginning: bytes, end: re.Pattern[bytes], what: str) -> Iterator[tuple[int, Record]]:
    """Yield the records of a file with their first lines; lines between them are skipped."""
    start = number = size = 0
    lines: list[bytes] = []

    def record(fault: str = "") -> Record:
        content = b"\n".join(lines)
        lines.clear()
        return Record(f"{source.label}#record={number}", content, shown_bytes(content), fault=fault)

    cut = "a record without its last line, 'ER  -'" if what == "RIS" else ""
    for line_number, line in read_lines(source, blank=True):
        if line.startswith(beginning):
            if lines:
                yield start, record(cut)
            start, size, number = line_number, 0, number + 1
        elif not lines:
            continue
        lines.append(line)
        size += len(line)
        if size > MAX_LINE:
            raise DamagedSourceError(source.name, start, f"a record of more than {MAX_LINE >> 20} MiB")
        if end.match(line):
            yield start, record()
    if lines:
        yield start, record(cut)
    if not number:
        raise DamagedSourceError(source.name, 1, f"no {what} record in it")


# --- RIS


def parse_ris(record: Record) -> Snippet:
    """Return the snippet of a RIS record, read by rispy; raises `ValueError` if it cannot be read, or has no text."""
    import rispy

    text = text_of(record.content)
    if record.fault:
        raise ValueError(record.fault)
    try:
        (entry,) = rispy.loads(text)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"a record that rispy cannot read ({error})") from None
    title = _first(entry, "title", "primary_title", "short_title")
    content = _first(entry, "abstract", "notes_abstract")
    return _snippet(record, _ris_pmid(entry), _ris_fields(entry), title, content)


def _ris_fields(entry: Mapping[str, Any]) -> dict[str, Any]:
    date = DATE.search(_first(entry, "publication_year", "year", "date"))
    full = DATE.search(_first(entry, "date"))
    start, end = _first(entry, "start_page"), _first(entry, "end_page")
    journal, urls = _first(entry, *_JOURNAL), " ".join(_list(entry, "urls"))
    return {
        "authors": _list(entry, "authors", "first_authors"),
        "journal": journal,
        "journal_abbreviation": next((name for name in _list(entry, *_ABBREVIATION) if name != journal), ""),
        "year": int(date[1]) if date else None,
        "date": next((date_of(*match.groups()) for match in (full, date) if match), ""),
        "volume": _first(entry, "volume"),
        "issue": _first(entry, "number"),
        "pages": f"{start}-{end}" if start and end and "-" not in start and start != end else start,
        "doi": f"{_first(entry, 'doi')} {urls}",
        "pmcid": " ".join([*_list(entry, "custom2", "custom7"), urls]),
        "issn": _first(entry, "issn"),
        "language": _list(entry, "language"),
        "keywords": _list(entry, "keywords"),
        "type": _list(entry, "type_of_work") or publication_types(_first(entry, "type_of_reference")),
    }


def _ris_pmid(entry: Mapping[str, Any]) -> str:
    """Return the PMID where a record says that it is one: PubMed's accession number, its address, or a note."""
    number = _first(entry, "accession_number")
    database = " ".join(_list(entry, "name_of_database", "database_provider")).lower()
    if number.isdecimal() and any(name in database for name in ("pubmed", "medline", "nlm")):
        return number
    notes = " ".join([number, *_list(entry, "notes", "custom2", "note")])
    return _first_match(_PUBMED_URL, " ".join(_list(entry, "urls"))) or noted_pmid(notes)


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


def _bibtex(source: Source) -> Iterator[tuple[int, Record]]:
    """Yield the entries of a file with their first lines, as bibtexparser reads them."""
    import bibtexparser

    library = bibtexparser.parse_string(read_text(source))
    for entry in library.entries:
        fields = {field.key.lower(): str(field.value) for field in entry.fields}
        content = {**fields, "ENTRYTYPE": entry.entry_type.lower()}
        yield (entry.start_line or 0) + 1, Record(f"{source.label}#{entry.key}", content, entry.raw or "", entry.key)
    for block in library.failed_blocks:
        fault = "an entry that is not BibTeX: a brace or a quotation mark is missing"
        yield (block.start_line or 0) + 1, Record(source.label, {}, block.raw or "", fault=fault)
    if not library.blocks:
        raise DamagedSourceError(source.name, 1, "no BibTeX entry in it")


def parse_bibtex(record: Record) -> Snippet:
    """Return the snippet of an entry; raises `ValueError` if it cannot be read, or has no text."""
    from pylatexenc.latex2text import LatexNodes2Text

    if record.fault:
        raise ValueError(record.fault)
    decode = LatexNodes2Text(keep_braced_groups=False).latex_to_text
    author = " ".join(record.content.get("author", "").split())
    try:
        entry = {name: " ".join(decode(value).split()) for name, value in record.content.items() if name != "author"}
        authors = [_bibtex_name(name, decode) for name in author.split(" and ")]
    except RecursionError:
        raise ValueError("an entry whose braces or commands are nested too deeply") from None

    def first(*names: str) -> str:
        return next((entry[name] for name in names if entry.get(name)), "")

    date = DATE.search(first("date", "year"))
    fields = {
        "authors": list(filter(None, authors)),
        "journal": first("journal", "journaltitle", "booktitle"),
        "journal_abbreviation": first(*_SHORT_JOURNAL),
        "date": date_of(date[1], date[2] or first("month"), date[3] or first("day")) if date else "",
        "volume": first("volume"),
        "issue": first("number", "issue"),
        "pages": first("pages"),
        "doi": f"{first('doi')} {first('url')}",
        "pmcid": first("pmcid"),
        "issn": first("issn"),
        "keywords": first("keywords"),
        "type": publication_types(first("ENTRYTYPE")),
    }
    pmid = first("pmid") or noted_pmid(first("note"))
    return _snippet(record, pmid if pmid.isdecimal() else "", fields, first("title"), first("abstract"))


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


def _csl(source: Source) -> Iterator[tuple[int, Record]]:
    """Yield the references of a file with their numbers."""
    try:
        items = parse_json(read_text(source))
    except ValueError as error:
        raise DamagedSourceError(source.name, 1, f"not JSON ({error})") from None
    if not isinstance(items, list) or not items:
        raise DamagedSourceError(source.name, 1, "no list of references in it")
    for number, item in enumerate(items, 1):
        key = str(item.get("id") or "") if isinstance(item, dict) else ""
        yield number, Record(f"{source.label}#record={number}", item, json.dumps(item), key)


def parse_csl(record: Record) -> Snippet:
    """Return the snippet of a reference in CSL-JSON; raises `ValueError` if it is not one, or has no text."""
    item = record.content
    if not isinstance(item, dict):
        raise ValueError(f"not a reference but {type(item).__name__}")
    number = csl_text(item, "PMID")
    pmid = number if number.isdecimal() else noted_pmid(csl_text(item, "note"))
    return _snippet(record, pmid, _csl_fields(item), csl_title(item), csl_text(item, "abstract", longest=LARGEST_TEXT))


def csl_title(item: Mapping[str, Any]) -> str:
    """Return the title of a reference in CSL-JSON, or of a work as Crossref describes it, with its subtitle."""
    title, subtitle = csl_text(item, "title"), csl_text(item, "subtitle")
    return f"{title.rstrip(':')}: {subtitle}" if title and subtitle and subtitle not in title else title


def csl_fields(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a reference in CSL-JSON, or of a work as Crossref describes it, without empty ones."""
    return _described(_csl_fields(item))


def _csl_fields(item: Mapping[str, Any]) -> dict[str, Any]:
    journal = csl_text(item, "container-title")
    short = csl_text(item, "container-title-short", "short-container-title", "journalAbbreviation")
    return {
        "authors": _csl_authors(item.get("author")),
        "journal": journal or short,
        "journal_abbreviation": short if journal not in ("", short) else "",
        "date": _csl_date(item.get("issued")),
        "volume": csl_text(item, "volume"),
        "issue": csl_text(item, "issue"),
        "pages": csl_text(item, "page"),
        "doi": str(item.get("DOI") or "")[:LONGEST],  # old ones have what looks like markup
        "pmcid": csl_text(item, "PMCID"),
        "issn": csl_text(item, "ISSN"),
        "language": list(filter(None, [csl_text(item, "language")])),
        "keywords": csl_text(item, "keyword"),
        "type": publication_types(csl_text(item, "type")),
    }


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


# --- MEDLINE


def parse_nbib(record: Record) -> Snippet:
    """Return the snippet of a MEDLINE record, with the fields of PubMed's XML; raises `ValueError` as `parse_ris`."""
    fields = _tagged(text_of(record.content))

    def first(*tags: str) -> str:
        return next((fields[tag][0] for tag in tags if fields.get(tag)), "")

    def notices(*tags: str) -> list[int | str]:
        """Return the notices of a kind: each one's PMID, else where it was published."""
        texts = dict.fromkeys(text for tag in tags for text in fields.get(tag, ()))
        return [int(pmid) if (pmid := noted_pmid(text)) else text for text in texts]

    pmid, revised, retraction, types = first("PMID"), first("LR"), notices("RIN"), list(fields.get("PT", ()))
    if not (pmid.isascii() and pmid.isdigit() and int(pmid)):
        raise ValueError(f"PMID {pmid!r:.60} is not a positive whole number")
    values = {
        "version": 1,
        "revised": date_of(revised[:4], revised[4:6], revised[6:8]),
        "authors": list(fields.get("FAU") or fields.get("AU") or ()),
        "group_authors": list(fields.get("CN", ())),
        "journal": first("JT", "TA"),
        "journal_abbreviation": first("TA") if first("JT") else "",
        "date": medline_date(first("DP")),
        "volume": first("VI"),
        "issue": first("IP"),
        "pages": first("PG"),
        "doi": next((id for tag in ("AID", "LID") for id in fields.get(tag, ()) if id.endswith("[doi]")), ""),
        "pmcid": first("PMC"),
        "issn": first("IS"),
        "language": list(fields.get("LA", ())),
        "mesh": list(dict.fromkeys(heading.split("/")[0].lstrip("*") for heading in fields.get("MH", ()))),
        "type": types,
        "retraction": retraction,
        "errata": notices("EIN", "CRI"),
        "concern": notices("ECI"),
        "retracted": RETRACTED in types or bool(retraction),
    }
    return _snippet(record, str(int(pmid)), values, first("TI", "TT", "BTI"), first("AB", "OAB"))


def _tagged(text: str) -> dict[str, list[str]]:
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


def _reader(
    records: Callable[[Source], Iterator[tuple[int, Record]]], parse: Callable[[Record], Snippet]
) -> FileReader:
    return FileReader(records, parse, lambda record: record.source)


RIS = _reader(lambda source: _split(source, b"TY  -", re.compile(rb"ER  -"), "RIS"), parse_ris)
BIBTEX = _reader(_bibtex, parse_bibtex)
CSL = _reader(_csl, parse_csl)
MEDLINE = _reader(lambda source: _split(source, b"PMID- ", re.compile(rb"\s*\Z"), "MEDLINE"), parse_nbib)
