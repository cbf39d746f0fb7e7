"""CSV and TSV, a snippet a row; the user names the column of each field, or the header does."""

from __future__ import annotations

import csv
import io
import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from biorag.corpus import fields
from biorag.corpus.publications import abstract_in, described, listed, names_in, plain
from biorag.corpus.readers import LONGEST_TEXT, PMID_KEYS, RECORD_KEYS, SHOWN, FileReader, entry_of, text_of
from biorag.corpus.sources import Columns, DamagedSourceError, Source, read_lines
from biorag.errors import UsageError
from biorag.settings.section import ONCE
from biorag.types import Snippet

logger = logging.getLogger(__name__)

SEPARATORS = ",;\t"
ID, TITLE, CONTENT, PMID = "id", "title", "content", "PMID"
LISTS = ("mesh", "type", "keywords")  # fields of several values in a cell
DESCRIBED = {*fields.COLUMNS, "short_authors", "accession", "database", "published_in", ""} - {ID, PMID}
NOTES = ("Extra", "Notes", "Note")  # columns that may have a note "PMID: 123"
LEAST_FIELDS = 3  # that a header names which is not the first line
MOST_BEFORE = 12  # lines before a header, which tell of a search or an export
# A PMID as spreadsheets have one: pandas writes a column of numbers with a gap as floats; 0 and "NA" are none.
_PMID = re.compile(r"0+(?:\.0)?|\D{0,30}|(?:\D{0,40}\b)?([1-9][0-9]{0,8})(?:\.0)?/?")
_FORMULA = re.compile(r'="([^"]*)"')  # keeps a spreadsheet from reading a number
_MARKUP = re.compile(r"</?[A-Za-z]|&#?\w")
_FACTS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class CsvRow(NamedTuple):
    """A row, or its fault; `names` are the fields of each column, `number` counts rows from 1.

    Of the fields those `described` are a publication's; others stay as they are, whatever their names.
    """

    file: str
    number: int
    names: Sequence[Sequence[str]]
    described: Collection[str]
    values: Sequence[str]
    fault: str = ""


def parse_columns(text: str) -> Columns:
    """Return `--columns`, as in `id=PMID,title=Title`, as pairs of field and column; raises `UsageError`."""
    pairs = [part.partition("=") for part in text.split(",")]
    columns = tuple((field.strip(), column.strip()) for field, _, column in pairs)
    if not all(field and column for field, column in columns):
        raise UsageError(f"--columns {text!r} cannot be read: write field=column, as in id=PMID,content=Abstract")
    if len(dict(columns)) < len(columns):
        raise UsageError(f"--columns {text!r} names a field twice: give each field one column")
    return columns


def read_rows(source: Source) -> Iterator[tuple[int, CsvRow]]:
    """Yield the rows of a table with a header, each with its first line.

    The header is the first of the lines at the beginning that has a known column of text, else the first line. Raises
    `DamagedSourceError` if it lacks a column that the user named, or one that is known to hold text.
    """
    csv.field_size_limit(LONGEST_TEXT)
    lines = (content.decode("utf-8", "surrogateescape") + "\n" for _, content in read_lines(source, blank=True))
    first = list(islice(lines, MOST_BEFORE))
    before = next((n for n, line in enumerate(first) if _is_header(source, line, is_first=not n)), 0)
    header = first[before] if first else ""
    rows = csv.reader(chain(first[before:], lines), delimiter=_separator(source, header), strict=True)
    try:
        columns = [_checked(name.strip()) for name in next(rows, [])]
    except (csv.Error, ValueError) as error:
        raise DamagedSourceError(source.name, 1, f"a header that cannot be read ({error})") from None
    chosen = _chosen(source, columns)
    names, of_publication = _fields(source, columns, chosen), DESCRIBED & chosen.keys()
    number = 0
    while True:
        line, fault, values = before + rows.line_num + 1, "", list[str]()
        try:
            values = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            fault = f"a row that cannot be read ({error})"
        if values or fault:
            number += 1
            yield line, CsvRow(source.label, number, names, of_publication, values, fault)


def _separator(source: Source, header: str) -> str:
    """Return the separator of a table: a tab in TSV, else whichever of `, ;` and tab its header has most of."""
    is_tsv = source.path.name.lower().endswith((".tsv", ".tsv.gz"))
    return "\t" if is_tsv else max(SEPARATORS, key=header.count)


def _is_header(source: Source, line: str, is_first: bool) -> bool:
    """Return whether a line names a column that the user named, or one of text; a later line other fields as well."""
    names = [name.strip().strip('"') for name in line.split(_separator(source, line))]
    known = _known(names, {})
    has_text = not {TITLE, CONTENT}.isdisjoint(known) and (is_first or len(known) >= LEAST_FIELDS)
    return has_text or any(column in names for _, column in source.columns)


def _fields(source: Source, columns: Sequence[str], chosen: Mapping[str, Sequence[int]]) -> list[list[str]]:
    """Return the fields that each column gives, and say so."""
    if CONTENT not in chosen and TITLE not in chosen:
        named = ", ".join(map(repr, columns)) or "none"
        reason = f"no column that is known to hold text, of {named}: name them, as in "
        raise DamagedSourceError(source.name, 1, f"{reason}--columns id=PMID,title=Title,content=Abstract")
    named = ", ".join(f"{field}={columns[numbers[0]]}" for field, numbers in chosen.items() if field)
    numbered = "" if ID in chosen else ", ids by row"
    logger.info("%s: columns %s%s; --columns names others", source.name, named, numbered, extra=ONCE)
    taken = {"", *chosen, *RECORD_KEYS, *PMID_KEYS}
    names: list[list[str]] = []
    for number, name in enumerate(columns):
        of_column = [field for field, numbers in chosen.items() if number in numbers]
        names.append(of_column or [f"column {number + 1}" if name in taken else name])
        taken.add(name)
    return names


def _chosen(source: Source, columns: Sequence[str]) -> dict[str, list[int]]:
    """Return the columns of each field, as the user named them, else as the header of a known export or others do."""
    chosen = {field: [columns.index(column)] for field, column in source.columns if column in columns}
    if source.columns and not chosen:
        wanted = ", ".join(column for _, column in source.columns)
        logger.warning("%s: none of the columns of --columns (%s): read by its own header", source.name, wanted)
    elif lacking := [column for _, column in source.columns if column not in columns]:
        reason = f"no column {lacking[0]!r}, which --columns names, among {', '.join(map(repr, columns))}"
        raise DamagedSourceError(source.name, 1, reason)
    return _known(columns, chosen)


def _known(header: Sequence[str], chosen: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """Return the columns of each field, those chosen first, then as the header of a known export or others do."""
    columns, plain_names = dict(chosen), [re.sub(r"[^a-z0-9]", "", name.lower()) for name in header]
    exports = [export for told_by, export in fields.EXPORTS if set(told_by.split()) <= set(plain_names)]
    for known, most in [*((export, None) for export in exports), (fields.COLUMNS, 1)]:
        taken = {number for numbers in columns.values() for number in numbers}
        for field, names in known.items():
            numbers = [plain_names.index(name) for name in names.split() if name in plain_names][:most]
            # A column that the user gave a field may be a PMID besides, and the id may be any other field.
            free = [number for number in numbers if number not in taken or field in (ID, PMID)]
            if field not in columns and free:
                columns[field] = free
    return columns


def parse_row(row: CsvRow) -> Snippet:
    """Return the snippet of a row without its empty values; raises `ValueError` at a bad row."""
    if row.fault:
        raise ValueError(row.fault)
    if len(row.values) != len(row.names):
        raise ValueError(f"{len(row.values)} values, where the header has {len(row.names)} columns")
    texts: dict[str, list[str]] = {}
    for names, value in zip(row.names, row.values, strict=True):
        for name in names:
            texts.setdefault(name, []).append(_FORMULA.sub(r"\1", _checked(value.strip())))
    cells = {name: next(filter(None, values), "") for name, values in texts.items() if name}
    record = {name: cell for name, cell in cells.items() if name not in row.described}
    record |= _described({name: texts[name] for name in row.described}, cells)
    # A DOI or a PMID that numbers the rows may be lacking.
    if [ID] not in row.names and not record.get(ID):
        record[ID] = f"{row.file}#row={row.number}"
    return entry_of(record, record.get(TITLE, ""), record.get(CONTENT, ""))


def _described(texts: Mapping[str, Sequence[str]], cells: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a row that are a publication's; of those that cannot be read so the cell."""
    parted = {name: [item for cell in texts.get(name, ()) for item in listed(cell)] for name in LISTS}
    persons = texts.get("authors", ())
    stated = {
        **texts,
        **parted,
        "authors": names_in(persons[0]) if len(persons) == 1 else persons,
        "notes": [cells.get(name, "") for name in NOTES],
        "pmid": [pmid[1] or ""] if (pmid := _PMID.fullmatch(cells.get(PMID, ""))) else [],
    }
    values = described(stated)
    if values.get("date") == str(values.get("year")) and not cells.get("date"):
        del values["date"]
    values[PMID] = values.pop("pmid", "") or ("" if pmid else cells.get(PMID, ""))
    title, content = (plain(text) if _MARKUP.search(text := cells.get(name, "")) else text for name in (TITLE, CONTENT))
    readable = {TITLE: title, CONTENT: content if not title or abstract_in([content]) else ""}
    described_cells = {name: cells[name] for name in texts if name}
    unread = {
        name: described_cells[name]
        for name in ("year", "date", "doi", "type")
        if described_cells.get(name) and name not in values
    }
    retracted = described_cells.get("retracted", "")
    facts = {"retracted": _FACTS.get(retracted.lower(), retracted)} if retracted else {}
    return {**unread, **values, **readable, **facts}


def _checked(text: str) -> str:
    """Return a text that was UTF-8; raises `ValueError` as `text_of` does."""
    return text_of(text.encode("utf-8", "surrogateescape"))


def shown(row: CsvRow) -> str:
    """Return the beginning of a row."""
    text = io.StringIO()
    csv.writer(text).writerow(value[:SHOWN] for value in row.values)
    return text.getvalue().encode("utf-8", "replace").decode()


READER = FileReader(read_rows, parse_row, shown)
