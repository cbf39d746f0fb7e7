"""A Zotero library: its references as RIS files, and the papers attached to them; the library is only read."""

from __future__ import annotations

import logging
import os
import re
import shutil
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biorag.errors import BadInputError, MissingError, suggestion
from biorag.references.formats import ris_text
from biorag.registries import LIBRARIES
from biorag.utils.files import json_text, scratch_folder, sha256_of_json, write_text
from biorag.utils.parsing import read_beginning

logger = logging.getLogger(__name__)

MOST_NAMED = 20  # collections in a message
ZOTERO, DATABASE = LIBRARIES["Zotero library"].prefix, LIBRARIES["Zotero library"].database
LIBRARY, IDENTITY = "library.ris", "library.json"
HEADER, TRIES = 32, 6  # bytes that a write-ahead log begins with, which are others once it is begun anew; readings
STORED = "storage:"  # begins the path of an attachment in Zotero's own folder
PAPERS = (".pdf", ".html", ".htm", ".docx")
KEY = re.compile(r"\w{1,32}", re.ASCII)  # of an item, also its folder's name
SECONDS, LONGEST_VALUE = 30, 16 << 20  # of a library's reading, bytes of one value
LEAST_TEXT, MOST_TIMES, LEAST_ROW = 64 << 20, 30, 64  # characters: read at least, times the file's size, of any row
# Zotero's fields and the names of `rispy`.
FIELDS = {
    "title": "title",
    "abstractNote": "abstract",
    "DOI": "doi",
    "publicationTitle": "journal_name",
    "bookTitle": "journal_name",
    "journalAbbreviation": "alternate_title2",
    "volume": "volume",
    "issue": "number",
    "ISSN": "issn",
    "language": "language",
    "extra": "notes",
}
_VALUES = """
    SELECT itemData.itemID, fields.fieldName, itemDataValues.value FROM itemData
    JOIN fields USING (fieldID) JOIN itemDataValues USING (valueID)"""
_ITEMS = """
    SELECT items.itemID, items.key, itemTypes.typeName FROM items JOIN itemTypes USING (itemTypeID)
    WHERE itemTypes.typeName NOT IN ('attachment', 'note', 'annotation')
    AND items.itemID NOT IN (SELECT itemID FROM deletedItems) ORDER BY items.key"""
_AUTHORS = """
    SELECT itemCreators.itemID, creators.lastName, creators.firstName FROM itemCreators
    JOIN creators USING (creatorID) JOIN creatorTypes USING (creatorTypeID)
    WHERE creatorTypes.creatorType = 'author' ORDER BY itemCreators.itemID, itemCreators.orderIndex"""
_ATTACHED = """
    SELECT itemAttachments.parentItemID, items.key, itemAttachments.path FROM itemAttachments
    JOIN items USING (itemID) WHERE itemAttachments.parentItemID IS NOT NULL
    AND itemAttachments.path IS NOT NULL AND items.itemID NOT IN (SELECT itemID FROM deletedItems)
    ORDER BY items.key"""
# A collection with those inside it.
_COLLECTED = """
    WITH RECURSIVE inside(id) AS (
        SELECT collectionID FROM collections WHERE collectionName = ?
        UNION SELECT collectionID FROM collections JOIN inside ON parentCollectionID = inside.id)
    SELECT itemID FROM collectionItems WHERE collectionID IN (SELECT id FROM inside)"""


@dataclass(frozen=True, slots=True)
class ZoteroCorpus:
    """The files of a library: its references in one, its papers with each one's, those `missing`, and their folder."""

    references: Path | None
    attachments: list[tuple[Path, Path]]
    missing: list[Path]
    storage: Path | None = None  # or the folder of the references that an emptied collection had


def zotero_corpus(name: str, folder: Path, may_be_empty: Callable[[Path], bool] = lambda folder: False) -> ZoteroCorpus:
    """Write the references of a library, or of a collection and those in it, as RIS below `folder`; find its papers.

    Raises `MissingError` if there is no library or collection, or this is empty and the folder of its references may
    not be, `BadInputError` if it cannot be read.
    """
    path = Path.home() / "Zotero" if name.startswith(ZOTERO) else Path(name)
    database = path if path.name == DATABASE else path / DATABASE
    collection = name.removeprefix(ZOTERO) if name.startswith(ZOTERO) else ""
    if not database.is_file():
        raise MissingError(f"no Zotero library at {database}: name the path of its {DATABASE}")
    try:
        with scratch_folder() as private, closing(_Library(database, private)) as library:
            entries = _entries(library, collection)
            attached = list(library.rows(_ATTACHED))
            rows = list(library.rows("SELECT 0, collectionName, key FROM collections ORDER BY 2, 3"))
    except OSError as error:
        raise BadInputError(f"{database} cannot be read: {error.strerror}: check its permissions") from None
    except (sqlite3.Error, ValueError) as error:
        raise BadInputError(
            f"{database} cannot be read as a Zotero library ({error}): it is damaged, or of another program, unless "
            f"Zotero is writing to it: close Zotero and retry, or put Zotero's backup, {DATABASE}.bak, in its place"
        ) from None
    if not entries and not collection:
        raise BadInputError(f"{database} holds no reference outside Zotero's trash: add one, or restore one from there")
    keys = [key for _, name, key in rows if name == collection]
    target = _folder_of(folder, json_text([str(database.resolve()), *keys]), collection) if entries or keys else folder
    if not entries and keys and may_be_empty(target):
        return ZoteroCorpus(None, [], [], target)
    if collection and not entries:
        collections = {name for _, name, _ in rows}
        others = ", ".join(map(repr, sorted(collections)[:MOST_NAMED])) or "none"
        guess = suggestion(collection, collections - {collection})
        raise MissingError(
            f"Zotero has no collection {collection!r} with references in it{guess}: its collections are {others}"
        )
    _write(target / LIBRARY, entries.values())
    attachments, missing = [], []
    for parent, key, stored in attached:
        paper = _paper(database.parent, key, stored)
        if parent not in entries or not paper or not KEY.fullmatch(key):
            continue
        if not os.path.isfile(paper):  # noqa: PTH113 - also of a name that is too long, or a folder without permission
            logger.warning("%s: attached to %r, but not there", paper, entries[parent].get("title", ""))
            missing.extend([paper] if "\0" not in stored else [])  # what is no path was never read
        else:
            record = target / key / f"{paper.stem}.ris"  # of the paper's name, so that it is this paper's
            _write(record, [entries[parent]])
            attachments.append((paper, record))
    return ZoteroCorpus(target / LIBRARY, attachments, missing, None if collection else database.parent / "storage")


def _folder_of(folder: Path, identity: str, collection: str) -> Path:
    """Return the folder of the references of one library, or of its collections by their keys, which no other has.

    It is named after the collection, and by a hash too where another has that name; `IDENTITY` in it says whose it is.
    """
    for file in sorted(folder.glob(f"*/{IDENTITY}")):
        if file.read_text(encoding="utf-8") == identity:
            return file.parent
    target = folder / (re.sub(r"\W+", "-", collection) or "library")
    if (target / IDENTITY).exists():
        target = folder / f"{target.name}-{sha256_of_json(identity)[:8]}"
    write_text(target / IDENTITY, identity)
    return target


def _paper(home: Path, key: str, path: str) -> Path | None:
    """Return the file of an attachment, whether it is there or not; None if it is of another kind."""
    name = path.removeprefix(STORED)
    paper = home / "storage" / key / Path(name).name if path.startswith(STORED) else Path(name)
    return paper if paper.name.lower().endswith(PAPERS) else None


class _Library:
    """Zotero's database, as it is while Zotero runs and locks it; raises `ValueError` at more than one can hold."""

    def __init__(self, path: Path, private: Path) -> None:
        path.open("rb").close()  # SQLite does not say why it cannot
        self.id = f"zotero-{sha256_of_json(str(path.resolve()))[:8]}"
        self._left = LEAST_TEXT + MOST_TIMES * path.stat().st_size
        self._connection = sqlite3.connect(_readable(path.resolve(), private), uri=True)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
        end = time.monotonic() + SECONDS  # a view may have rows without end
        self._connection.set_progress_handler(lambda: time.monotonic() > end, 100_000)
        self.close = self._connection.close

    def rows(self, query: str, *values: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query: the number of an item, and texts."""
        for item, *cells in self._connection.execute(query, values):
            if any(isinstance(cell, bytes) for cell in cells):
                raise ValueError("a text is binary")
            texts = ["" if cell is None else str(cell) for cell in cells]
            self._left -= LEAST_ROW + sum(map(len, texts))
            if self._left < 0:
                raise ValueError("it has more text than its size allows")
            yield item, *texts


def _readable(database: Path, folder: Path) -> str:
    """Return the URI of a database; if it has a write-ahead log, of a copy, because SQLite would write beside it."""
    log, copy, header = Path(f"{database}-wal"), folder / DATABASE, b""
    for _ in range(TRIES):  # while the log begins alike, it has what a checkpoint writes into the database, too
        begun, header = header, read_beginning(log, HEADER) if log.exists() else b""
        if header == begun:
            return f"{copy.as_uri()}?mode=ro" if header else f"{database.as_uri()}?mode=ro&immutable=1"
        shutil.copyfile(database, copy)
        shutil.copyfile(log, f"{copy}-wal")
    raise ValueError("its log is begun anew all the time")


def _entries(library: _Library, collection: str) -> dict[int, dict[str, Any]]:
    """Return the references of a library by the numbers of their items, as `rispy` writes them, of Zotero's types."""
    values: defaultdict[int, dict[str, str]] = defaultdict(dict)
    for item, name, value in library.rows(_VALUES):
        values[item][name] = value
    authors: defaultdict[int, list[str]] = defaultdict(list)
    for item, last, first in library.rows(_AUTHORS):
        authors[item].append(", ".join(filter(None, (last, first))))
    tags: defaultdict[int, list[str]] = defaultdict(list)
    for item, tag in library.rows("SELECT itemID, name FROM itemTags JOIN tags USING (tagID) ORDER BY name"):
        tags[item].append(tag)
    kept = {item for (item,) in library.rows(_COLLECTED, collection)} if collection else None
    return {
        item: {**_entry(kind, values[item]), "authors": authors[item], "keywords": tags[item]}
        | {"id": f"{library.id}#item={key}"}  # the same in all its collections
        for item, key, kind in library.rows(_ITEMS)
        if kept is None or item in kept
    }


def _entry(kind: str, values: Mapping[str, str]) -> dict[str, Any]:
    entry: dict[str, Any] = {"type_of_reference": kind}
    entry |= {ris: " ".join(values[name].split()) for name, ris in FIELDS.items() if values.get(name)}
    if notes := entry.pop("notes", ""):
        entry["notes"] = [notes]
    start, _, end = values.get("pages", "").partition("-")
    entry |= {name: page.strip() for name, page in (("start_page", start), ("end_page", end.strip("-"))) if page}
    if date := values.get("date", "").split(" ")[0]:  # "2019-03-00 March 2019": sortable, then as it was typed
        entry |= {"year": date[:4], "date": re.sub(r"(-00)+$", "", date).replace("-", "/")}
    if values.get("url"):
        entry["urls"] = [values["url"]]
    return entry


def _write(path: Path, entries: Iterable[Mapping[str, Any]]) -> None:
    """Write references as RIS, unless the file has them already."""
    text = ris_text(list(entries))
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        write_text(path, text)
