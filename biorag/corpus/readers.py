"""From files to snippets, one bad record at a time; and the lines of MedRAG and BEIR, told apart by their keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple, NoReturn, Self, cast

from biorag.corpus.sources import DamagedSourceError, Source, read_chunks, read_lines, reader_of, utf8_of
from biorag.errors import BadInputError, bounded
from biorag.types import Change, Deletion, Snippet
from biorag.utils.parsing import parse_json
from biorag.utils.text import has_control

PMID_KEYS = ("PMID", "pmid")
RECORD_KEYS = ("id", "_id", "title", "content")  # fields that are not metadata
MAX_DEPTH = 64
LONGEST_ID = 1024
LONGEST_TEXT = 2**20
LARGEST_TEXT = 64 << 20  # bytes of a file that is read as a whole
NO_TEXT = "a record with neither title nor abstract"
SHOWN = 2000  # bytes or characters of a bad record in the rejects file
# What publishers and databases put before a title, or in brackets behind it, when they take a paper back; behind a
# title in quotation marks it is of another paper.
_NOTICE = re.compile(
    r"\W{0,3}(?:(?i:retracted)(?:\s(?i:article|chapter|paper))?|(?:WITHDRAWN|TEMPORARY REMOVAL)(?:\sARTICLE)?)\W{0,2}"
    r"[\]):–—-](?=\W)|(?!(?i:reply|comment|corrig|erratum|correction|response|re:))[^'\"“”‘’«»]{0,2000}"
    r"[(\[]\s?(?i:retracted)(?:\s(?i:article|paper)\b[^()\[\]]{0,200})?\s?[)\]]\W{0,3}\Z"
)
_CONCERN = re.compile(r"\W{0,3}(?:editorial\s)?expression\sof\sconcern\s?[:.–—-]", re.IGNORECASE)
ENDING = r"(?:\s[\w:-]{1,30}\s?=[^<>]{0,300})?\s?/?>"  # of a tag, which a comparison has not
_RAISED = re.compile(r"(?<=[0-9])<(?:jats:)?sup>\s*([-−–+]?[0-9])", re.IGNORECASE)
_INLINE = re.compile(
    r"</?(?:[a-z]{2,5}:[a-z-]{1,20}|su[bp]|inf|[biua]|em|strong|italic|bold|sc|scp|small|span|font|underline|tt|math)"
    + ENDING,
    re.IGNORECASE,
)


class Reject(NamedTuple):
    """A line (or another `unit`) that is not a snippet, and why; `damaged` if the rest of the file cannot be read."""

    file: str
    line: int
    reason: str
    text: str
    damaged: bool = False
    unit: str = "line"
    records: int = 1  # that it stands for


class Record(NamedTuple):
    """A record of a file: where it stands, what it holds and, for a reject, its source; or why it cannot be read."""

    place: str
    content: Any
    source: str
    key: str = ""  # by which texts cite it, if the format has one
    fault: str = ""

    def check(self) -> Self:
        """Return the record; raises `ValueError` if it could not be read."""
        if self.fault:
            raise ValueError(self.fault)
        return self


EMPTY = Record("", "", "", fault=NO_TEXT)  # in the place of one that holds nothing, of which a file may have millions

OnReject = Callable[[Reject], None]


class FileReader(NamedTuple):
    """One format of corpus files."""

    # Yields each record of a file with its line, counted from 1; raises `DamagedSourceError`
    records: Callable[[Source], Iterator[tuple[int, Any]]]
    # Returns the change that a record makes; raises `ValueError`, saying why, at a bad one
    parse: Callable[[Any], Change]
    # Returns the source of a record, whose beginning goes into the rejects file
    shown: Callable[[Any], str] = attrgetter("source")


def read_snippets(source: Source, on_reject: OnReject | None = None) -> Iterator[Snippet]:
    """Yield the snippets of one corpus file; see `read_changes`, whose deletions are left out."""
    return (change for change in read_changes(source, on_reject) if not isinstance(change, Deletion))


def read_changes(
    source: Source, on_reject: OnReject | None = None, check: Callable[[Change], None] = lambda _: None
) -> Iterator[Change]:
    """Yield the snippets of one corpus file and, from PubMed's update files, the deletions, in their order.

    A bad record, also one at which `check` raises ValueError, raises `BadInputError`, or goes to `on_reject` if one is
    given; so does damage to the file, where its reading ends. Empty records of a file are one reject.
    """
    unit, empty, first = "line", 0, 0
    try:
        kind = reader_of(source)
        reader, unit = cast(FileReader, kind.load()), kind.unit
        for number, record in reader.records(source):
            if record is EMPTY and on_reject:
                empty, first = empty + 1, first or number
                continue
            try:
                change = reader.parse(EMPTY.check() if record is EMPTY else record)
                check(change)
                yield change
            except ValueError as error:
                if on_reject is None:
                    raise BadInputError(
                        f"{source.name}, {unit} {number}: {error}; fix it, or skip it with --on-bad-line skip"
                    ) from None
                on_reject(Reject(source.name, number, bounded(str(error)), reader.shown(record)[:SHOWN], unit=unit))
    except DamagedSourceError as error:
        if on_reject is None:
            raise
        on_reject(Reject(source.name, error.line, error.reason, "", damaged=True, unit=unit))
    if empty and on_reject:
        reason = f"{NO_TEXT}, the first of {empty:,} such" if empty > 1 else NO_TEXT
        on_reject(Reject(source.name, first, reason, "", unit=unit, records=empty))


def refuse(reject: Reject) -> NoReturn:
    """Raise `BadInputError` at a bad line: the `OnReject` of a corpus whose lines may not be skipped."""
    raise BadInputError(f"{reject.file}, {reject.unit} {reject.line}: {reject.reason}; fix or remove the {reject.unit}")


def parse_snippet(line: bytes) -> Snippet:
    """Return the snippet of a line of JSON, in MedRAG's form or BEIR's; raises `ValueError`, saying why."""
    try:
        record = parse_json(line)
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from None
    if not isinstance(record, dict):
        raise ValueError(f"not a JSON object but {type(record).__name__}")
    return snippet_of(record)


def snippet_of(record: Mapping[str, Any]) -> Snippet:
    """Return the snippet of a JSON object, in MedRAG's form or BEIR's; raises as `parse_snippet` does."""
    is_beir = "_id" in record or ("text" in record and not {"content", "contents"} & record.keys())
    return _from_beir(record) if is_beir else _from_medrag(record)


def unstyled(text: str) -> str:
    """Return a text without the tags that style words in HTML and JATS; an exponent keeps its sign: `10^6`."""
    return _INLINE.sub("", _RAISED.sub(r"^\1", text)) if "<" in text else text


def entry_of(fields: Mapping[str, Any], title: str, content: str) -> Snippet:
    """Return the snippet of an entry that may have a title alone, as PubMed's records may; raises as `snippet_of`."""
    snippet = snippet_of({**with_values(fields), "title": title, "content": content or title})
    return snippet if content else replace(snippet, content="")


def beir_record(snippet: Snippet) -> dict[str, Any]:
    """Return a snippet as a line of a BEIR folder's `corpus.jsonl` has it, which `snippet_of` reads back."""
    metadata = dict(snippet.metadata) | ({} if snippet.pmid is None else {"PMID": snippet.pmid})
    record = {"_id": snippet.id, "title": snippet.title, "text": snippet.content}
    return {**record, "metadata": metadata} if metadata else record


def _from_beir(record: Mapping[str, Any]) -> Snippet:
    extra = record.get("metadata") or {}
    if not isinstance(extra, dict):
        raise ValueError(f"'metadata' is {type(extra).__name__}, not an object")
    key = "_id" if "_id" in record else "id"
    others = {name: value for name, value in record.items() if name not in (key, "title", "text", "metadata")}
    return _snippet(as_id(record.get(key), key), _text(record, "title"), _text(record, "text"), {**others, **extra})


def _from_medrag(record: Mapping[str, Any]) -> Snippet:
    title, content = _text(record, "title"), _text(record, "content")
    if not content.strip():
        # `contents` is title and content in one; where only it is given, it is the text.
        title, content = "", _text(record, "contents")
    others = {key: value for key, value in record.items() if key not in ("id", "title", "content", "contents")}
    return _snippet(as_id(record.get("id"), "id"), title, content, others)


def _snippet(id: str, title: str, content: str, others: Mapping[str, Any]) -> Snippet:
    title, content = unstyled(title), unstyled(content)
    if not content.strip():
        raise ValueError(f"snippet {id!r} has no text")
    metadata = {key: value for key, value in others.items() if key not in PMID_KEYS}
    _check_values(metadata, MAX_DEPTH)
    snippet = Snippet(id, title, content, _pmid(others), {**notices_in(title), **metadata})
    if snippet.document != id:
        raise ValueError(f"'document' and 'block' make snippet {id!r} a block, which biorag makes itself")
    return snippet


def notices_in(title: str) -> dict[str, Any]:
    """Return the fields that say of a paper what its title does: that it was retracted, or is under suspicion."""
    concern = {"concern": ["Expression of Concern"]} if _CONCERN.match(title) else {}
    return {**concern, **({"retracted": True} if _NOTICE.match(title) else {})}


def _check_values(value: Any, levels: int) -> None:
    """Refuse values that the stores cannot keep: whole numbers beyond 64 bits, JSON deeper than 128 levels."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("a field has a whole number beyond 64 bits")
    if isinstance(value, dict | list):
        if not levels:
            raise ValueError(f"a field is nested more than {MAX_DEPTH} levels deep")
        for inner in value.values() if isinstance(value, dict) else value:
            _check_values(inner, levels - 1)


def as_id(value: Any, key: str) -> str:
    """Return an id that a record has under a key: a text, or a whole number; raises `ValueError`, naming the key."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if value is None or value == "":
        raise ValueError(f"no {key!r}")
    if not isinstance(value, str):
        raise ValueError(f"{key!r} is {type(value).__name__}, not a string")
    # Ids stand in run files, one a line, and in C strings, which end at a NUL.
    if has_control(value):
        raise ValueError(f"{key!r} has a control character")
    if len(value) > LONGEST_ID:
        raise ValueError(f"{key!r} is longer than {LONGEST_ID:,} characters")
    return value


def text_of(content: bytes) -> str:
    """Return the content of a text file; raises `ValueError` if it is not UTF-8, or has a NUL."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 (byte {error.start}): convert it") from None
    if "\0" in text:
        raise ValueError("a NUL character: it is not text")
    return text


def read_text(source: Source) -> str:
    """Return the text of a file that is read as a whole; raises `DamagedSourceError` if it is too large, or no text."""
    content = bytearray()
    for chunk in read_chunks(source):
        content += chunk
        if len(content) > LARGEST_TEXT:
            raise DamagedSourceError(source.name, 1, f"more than {LARGEST_TEXT >> 20} MiB: split it")
    try:
        return text_of(utf8_of(bytes(content)))
    except ValueError as error:
        raise DamagedSourceError(source.name, 1, str(error)) from None


def with_values(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a record that have a value."""
    return {name: value for name, value in fields.items() if value not in (None, "", [])}


def _text(record: Mapping[str, Any], key: str) -> str:
    value = record.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{key!r} is {type(value).__name__}, not a string")
    if len(value) > LONGEST_TEXT:
        raise ValueError(f"{key!r} is longer than {LONGEST_TEXT:,} characters: split it")
    return value


def _pmid(others: Mapping[str, Any]) -> int | None:
    value = next((others[key] for key in PMID_KEYS if others.get(key) not in (None, "")), None)
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**53:
        raise ValueError(f"PMID {value!r} is not a positive whole number")
    return value


def shown_bytes(content: bytes) -> str:
    """Return the beginning of bytes as text."""
    return content[:SHOWN].decode("utf-8", "replace")


def _json_lines(source: Source) -> Iterator[tuple[int, bytes | Record]]:
    return ((number, EMPTY if line.strip() == b"{}" else line) for number, line in read_lines(source))


JSON_LINES = FileReader(_json_lines, parse_snippet, shown_bytes)
