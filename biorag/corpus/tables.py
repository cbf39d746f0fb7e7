"""CSV and TSV, a snippet a row; the user names the column of each field, or the header does."""

from __future__ import annotations

import csv
import io
import logging
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from biorag.corpus.pubmed import DATE, date_of
from biorag.corpus.readers import (
    LONGEST_TEXT,
    PMID_KEYS,
    RECORD_KEYS,
    SHOWN,
    FileReader,
    entry_of,
    text_of,
    with_values,
)
from biorag.corpus.references import noted_pmid, publication_types
from biorag.corpus.sources import Columns, DamagedSourceError, Source, read_lines
from biorag.errors import UsageError
from biorag.settings.section import ONCE
from biorag.types import Snippet

logger = logging.getLogger(__name__)

SEPARATORS = ",;\t"
ID, TITLE, CONTENT, PMID = "id", "title", "content", "PMID"
LISTS = ("authors", "mesh", "type", "keywords")  # fields whose values are separated by semicolons
# Headers by which a column is known, in small letters and digits alone, best first.
KNOWN = {
    ID: ("id", "docid", "documentid", "snippetid", "recordid", "pmid", "pubmedid", "doi"),
    TITLE: ("title", "articletitle", "documenttitle", "papertitle"),
    CONTENT: ("content", "contents", "abstract", "abstracttext", "text", "body", "passage", "abstractnote", "summary"),
    PMID: ("pmid", "pubmedid", "pubmed"),
    "authors": ("authors", "author", "authorfullnames"),
    "journal": ("journal", "journalbook", "journaltitle", "publicationtitle", "sourcetitle"),
    "journal_abbreviation": ("journalabbreviation", "abbreviatedsourcetitle", "shortjournal"),
    "year": ("year", "publicationyear", "pubyear"),
    "date": ("date", "publicationdate"),
    "keywords": ("keywords", "authorkeywords", "manualtags"),
    "doi": ("doi",),
    "pmcid": ("pmcid",),
    "volume": ("volume",),
    "issue": ("issue",),
    "pages": ("pages",),
    "issn": ("issn",),
    "language": ("language",),
    "type": ("publicationtype", "itemtype", "documenttype", "type"),
}
# Zotero's columns that tell of its library and not of the paper, and one whose values join those of a field.
ZOTERO: dict[str, list[str]] = {
    **{name: [] for name in ("key", "dateadded", "datemodified", "accessdate", "librarycatalog")},
    **{name: [] for name in ("fileattachments", "linkattachments")},
    "automatictags": ["keywords"],
}
NOTES = ("Extra", "Notes", "Note")  # columns that may have a note "PMID: 123"
_YEAR = re.compile(r"([12][0-9]{3})(?:\.0)?")  # pandas writes a column of years with a gap as floats
_FACTS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class CsvRow(NamedTuple):
    """A row, or its fault; `names` are the fields of each column, `number` counts rows from 1."""

    file: str
    number: int
    names: Sequence[Sequence[str]]
    values: Sequence[str]
    fault: str = ""


def parse_columns(text: str) -> Columns:
    """Return `--columns`, as in `id=PMID,title=Title`, as pairs of field and column; raises `UsageError`."""
    pairs = [part.partition("=") for part in text.split(",")]
    columns = tuple((field.strip(), column.strip()) for field, _, column in pairs)
    if not all(field and column for field, column in columns):
        raise UsageError(f"--columns {text!r} cannot be read: write field=column, as in id=PMID,content=Abstract")
    fields = [field for field, _ in columns]
    if len(set(fields)) < len(fields):
        raise UsageError(f"--columns {text!r} names a field twice: give each field one column")
    return columns


def read_rows(source: Source) -> Iterator[tuple[int, CsvRow]]:
    """Yield the rows of a table with a header, each with its first line.

    The separator is a tab in TSV, else whichever of `, ;` and tab the header has most of. Raises `DamagedSourceError`
    if the header lacks a column that the user named, or one that is known to hold text.
    """
    csv.field_size_limit(LONGEST_TEXT)
    lines = (content.decode("utf-8", "surrogateescape") + "\n" for _, content in read_lines(source, blank=True))
    header = next(lines, "")
    is_tsv = source.path.name.lower().endswith((".tsv", ".tsv.gz"))
    separator = "\t" if is_tsv else max(SEPARATORS, key=header.count)
    rows = csv.reader(chain([header], lines), delimiter=separator, strict=True)
    try:
        columns = [_checked(name.strip()) for name in next(rows, [])]
    except (csv.Error, ValueError) as error:
        raise DamagedSourceError(source.name, 1, f"a header that cannot be read ({error})") from None
    names = _fields(source, columns)
    number = 0
    while True:
        line, fault, values = rows.line_num + 1, "", list[str]()
        try:
            values = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            fault = f"a row that cannot be read ({error})"
        if values or fault:
            number += 1
            yield line, CsvRow(source.label, number, names, values, fault)


def _fields(source: Source, columns: Sequence[str]) -> list[list[str]]:
    """Return the fields that each column gives, and say so."""
    plain = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in columns]
    chosen = _chosen(source, columns, plain)
    if CONTENT not in chosen and TITLE not in chosen:
        named = ", ".join(map(repr, columns)) or "none"
        reason = f"no column that is known to hold text, of {named}: name them, as in "
        raise DamagedSourceError(source.name, 1, f"{reason}--columns id=PMID,title=Title,content=Abstract")
    named = ", ".join(f"{field}={columns[column]}" for field, column in chosen.items())
    numbered = "" if ID in chosen else ", ids by row"
    logger.info("%s: columns %s%s; --columns names others", source.name, named, numbered, extra=ONCE)
    is_zotero = {"key", "itemtype"} <= set(plain)
    taken = {"", *chosen, *RECORD_KEYS, *PMID_KEYS}
    fields: list[list[str]] = []
    for index, name in enumerate(columns):
        names = [field for field, column in chosen.items() if column == index]
        if not names and is_zotero and plain[index] in ZOTERO:
            names = ZOTERO[plain[index]]
        elif not names:
            names = [f"column {index + 1}" if name in taken else name]
        fields.append(names)
        taken.add(name)
    return fields


def _chosen(source: Source, columns: Sequence[str], plain: Sequence[str]) -> dict[str, int]:
    """Return the column of each field, as the user named it, else as the header does."""
    chosen = {field: columns.index(column) for field, column in source.columns if column in columns}
    if source.columns and not chosen:
        wanted = ", ".join(column for _, column in source.columns)
        logger.warning("%s: none of the columns of --columns (%s): read by its own header", source.name, wanted)
    elif lacking := [column for _, column in source.columns if column not in columns]:
        among = ", ".join(map(repr, columns))
        reason = f"no column {lacking[0]!r}, which --columns names, among {among}"
        raise DamagedSourceError(source.name, 1, reason)
    taken = set(chosen.values())
    for field, known in KNOWN.items():
        guess = next((plain.index(name) for name in known if name in plain), None)
        # A column that the user gave a field may be a PMID besides, and the id may be any other field.
        if field not in chosen and guess is not None and (guess not in taken or field in (ID, PMID)):
            chosen[field] = guess
    return chosen


def parse_row(row: CsvRow) -> Snippet:
    """Return the snippet of a row without its empty values; raises `ValueError` at a bad row."""
    if row.fault:
        raise ValueError(row.fault)
    if len(row.values) != len(row.names):
        raise ValueError(f"{len(row.values)} values, where the header has {len(row.names)} columns")
    record: dict[str, Any] = {}
    for fields, value in zip(row.names, row.values, strict=True):
        text = _checked(value.strip())
        for field in fields:
            kept = _value(field, text)
            record[field] = [*record[field], *kept] if field in LISTS and field in record else kept
    # A DOI or a PMID that numbers the rows may be lacking.
    is_guessed = not any(ID in fields and len(fields) == 1 for fields in row.names)
    if is_guessed and not record.get(ID):
        record[ID] = f"{row.file}#row={row.number}"
    if not any(record.get(key) for key in PMID_KEYS):
        record[PMID] = noted_pmid(" ".join(str(record.get(name, "")) for name in NOTES))
    record = with_values(record)
    title, content = record.pop(TITLE, ""), record.pop(CONTENT, "")
    return entry_of(record, title, content)


def _value(field: str, text: str) -> Any:
    if field == "year" and (year := _YEAR.fullmatch(text)):
        return int(year[1])
    if field == "date" and (parts := DATE.match(text)):
        return date_of(*parts.groups())
    if field == "retracted":
        return _FACTS.get(text.lower(), text)
    if field == "type" and (types := publication_types(text)):
        return types
    if field in LISTS:
        return [part.strip() for part in text.split(";") if part.strip()]
    return text


def _checked(text: str) -> str:
    """Return a text that was UTF-8; raises `ValueError` as `text_of` does."""
    return text_of(text.encode("utf-8", "surrogateescape"))


def shown(row: CsvRow) -> str:
    """Return the beginning of a row."""
    text = io.StringIO()
    csv.writer(text).writerow(value[:SHOWN] for value in row.values)
    return text.getvalue().encode("utf-8", "replace").decode()


READER = FileReader(read_rows, parse_row, shown)
