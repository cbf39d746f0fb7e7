"""A Zotero library is indexed with its papers, while Zotero keeps it locked, and followed as it changes."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from biorag.models import finding
from biorag.papers.files.zotero import zotero_corpus
from tests.cli import done, failed, invoke
from tests.papers.files.papers import BODY, paper

# What Zotero 7 has of these tables, as far as it says what a reference is.
SCHEMA = """
    CREATE TABLE itemTypes (itemTypeID INTEGER PRIMARY KEY, typeName TEXT);
    CREATE TABLE items (itemID INTEGER PRIMARY KEY, itemTypeID INT, key TEXT);
    CREATE TABLE deletedItems (itemID INTEGER PRIMARY KEY);
    CREATE TABLE fields (fieldID INTEGER PRIMARY KEY, fieldName TEXT);
    CREATE TABLE itemDataValues (valueID INTEGER PRIMARY KEY, value);
    CREATE TABLE itemData (itemID INT, fieldID INT, valueID);
    CREATE TABLE creators (creatorID INTEGER PRIMARY KEY, firstName TEXT, lastName TEXT, fieldMode INT);
    CREATE TABLE creatorTypes (creatorTypeID INTEGER PRIMARY KEY, creatorType TEXT);
    CREATE TABLE itemCreators (itemID INT, creatorID INT, creatorTypeID INT, orderIndex INT);
    CREATE TABLE itemAttachments (itemID INTEGER PRIMARY KEY, parentItemID INT, linkMode INT, contentType TEXT, path);
    CREATE TABLE collections (collectionID INTEGER PRIMARY KEY, collectionName TEXT, parentCollectionID INT, key TEXT);
    CREATE TABLE collectionItems (collectionID INT, itemID INT, orderIndex INT);
    CREATE TABLE tags (tagID INTEGER PRIMARY KEY, name TEXT);
    CREATE TABLE itemTags (itemID INT, tagID INT, type INT);
    INSERT INTO itemTypes VALUES (1, 'journalArticle'), (2, 'attachment'), (3, 'note');
    INSERT INTO creatorTypes VALUES (1, 'author'), (2, 'editor');
    INSERT INTO collections VALUES (1, 'Urate', NULL, 'C1'), (2, 'Trials', 1, 'C2'), (3, 'Empty', NULL, 'C3');
"""
GOUT = {
    "title": "Low-dose colchicine in acute gout",
    "abstractNote": "Colchicine eases acute gout within a day.",
    "publicationTitle": "Annals of Gout",
    "journalAbbreviation": "Ann Gout",
    "DOI": "10.5555/gout.2019",
    "date": "2019-03-00 March 2019",
    "volume": "12",
    "pages": "100-109",
}
RABIES = {"title": "Rabies after bites", "abstractNote": "Rabies is fatal once symptoms begin.", "date": "2001-00-00"}
TRASHED = {"title": "A paper in the trash", "abstractNote": "Nobody wants this paper any more."}


def add(library: sqlite3.Connection, item: int, values: dict[str, str], authors=(), collection=None, tags=()) -> None:
    library.execute("INSERT INTO items VALUES (?, 1, ?)", (item, f"KEY{item:05}"))
    for name, value in values.items():
        field = library.execute("INSERT INTO fields (fieldName) VALUES (?)", (name,)).lastrowid
        written = library.execute("INSERT INTO itemDataValues (value) VALUES (?)", (value,)).lastrowid
        library.execute("INSERT INTO itemData VALUES (?, ?, ?)", (item, field, written))
    for order, (last, first) in enumerate(authors):
        person = library.execute("INSERT INTO creators VALUES (NULL, ?, ?, 0)", (first, last)).lastrowid
        library.execute("INSERT INTO itemCreators VALUES (?, ?, 1, ?)", (item, person, order))
    for name in tags:
        tag = library.execute("INSERT INTO tags (name) VALUES (?)", (name,)).lastrowid
        library.execute("INSERT INTO itemTags VALUES (?, ?, 0)", (item, tag))
    if collection:
        library.execute("INSERT INTO collectionItems VALUES (?, ?, 0)", (collection, item))


@pytest.fixture
def database(tmp_path) -> Path:
    """A library of three references, of which one has a PDF that says nothing of itself, and one is in the trash."""
    path = tmp_path / "Zotero" / "zotero.sqlite"
    file = path.parent / "storage" / "PDF00001" / "download (3).pdf"
    file.parent.mkdir(parents=True)
    file.write_bytes(paper(["LOW DOSE"], "", metadata={"title": "Microsoft Word - final.docx"}))
    with closing(sqlite3.connect(path)) as library, library:
        library.executescript(SCHEMA)
        add(library, 1, GOUT, [("Smith", "John A."), ("van der Berg", "Piet")], collection=2, tags=["gout"])
        add(library, 2, RABIES, [("Okafor", "Ada")])
        add(library, 3, TRASHED)
        library.execute("INSERT INTO deletedItems VALUES (3)")
        library.execute("INSERT INTO items VALUES (4, 2, 'PDF00001')")
        library.execute("INSERT INTO itemAttachments VALUES (4, 1, 0, 'application/pdf', 'storage:download (3).pdf')")
        library.execute("INSERT INTO items VALUES (5, 2, 'PDF00002')")
        library.execute("INSERT INTO itemAttachments VALUES (5, 2, 0, 'application/pdf', 'storage:../../../gone.pdf')")
    return path


@pytest.fixture
def run(tmp_path, monkeypatch, tiny_encoder):
    monkeypatch.setenv("HOME", str(tmp_path))
    return partial(invoke, home=tmp_path / "home", BIORAG_ENCODER=tiny_encoder)


def found(run, question: str) -> list[dict]:
    return done(run("search", question, "--name", "mine", "--json"))["hits"]


def test_a_library_is_read_while_zotero_has_it_open(run, database):
    with closing(sqlite3.connect(database)) as open_in_zotero:
        open_in_zotero.execute("BEGIN EXCLUSIVE")
        done(run("index", "zotero:", "--name", "mine", "--json"))
    hits = found(run, BODY)
    pdf = next(hit for hit in hits if "enrolled adults" in hit["content"])
    assert (pdf["title"], pdf["metadata"]["authors"][0]) == (GOUT["title"], "Smith, John A.")
    assert (pdf["metadata"]["year"], pdf["metadata"]["doi"]) == (2019, "10.5555/gout.2019")
    assert pdf["metadata"]["journal"] == "Annals of Gout"
    assert any("Rabies is fatal" in hit["content"] for hit in found(run, "rabies"))
    assert not any("Nobody wants" in hit["content"] for hit in found(run, "a paper in the trash"))
    reference = run("search", BODY, "--name", "mine", "--format", "vancouver").stdout
    assert "Smith JA, van der Berg P. Low-dose colchicine in acute gout. " in reference
    assert "2019" in reference and "12:100" in reference, reference
    assert reference.count("Low-dose colchicine") == 1, "one reference a paper, with the numbers of its hits"


def test_what_stands_in_the_write_ahead_log_alone_is_seen(database, tmp_path, monkeypatch):
    """Also if Zotero begins the log anew while it is copied; nothing is written beside it."""
    copied = shutil.copyfile

    def copying(source, target):
        if str(source).endswith("-wal") and not list(zotero.execute("SELECT 1 FROM items WHERE itemID = 11")):
            zotero.execute("PRAGMA wal_checkpoint(RESTART)")
            with zotero:
                add(zotero, 11, {"title": "Cholera and water"})
            folder.update(held_in(database.parent))
        return copied(source, target)

    def held_in(place: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()}

    with closing(sqlite3.connect(database)) as zotero:
        for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "wal_autocheckpoint = 0"):
            zotero.execute(f"PRAGMA {pragma}")
        with zotero:
            add(zotero, 10, {"title": "Malaria and mosquitoes"})
        folder = held_in(database.parent)
        assert b"Malaria" not in folder[database.name]
        assert "Malaria" in zotero_corpus(str(database), tmp_path / "home").references.read_text()
        assert held_in(database.parent) == folder
        monkeypatch.setattr(shutil, "copyfile", copying)
        references = zotero_corpus(str(database), tmp_path / "home").references.read_text()
        assert all(title in references for title in ("Low-dose colchicine", "Malaria", "Cholera"))
        assert held_in(database.parent) == folder


def test_the_index_follows_the_library(run, database):
    report = done(run("index", str(database), "--name", "mine", "--json"))
    assert report["files"]["taken"] == {"PDF": 1, "Zotero library": 1}
    again = done(run("index", str(database), "--name", "mine", "--json"))
    assert (again["added"], again["updated"], again["deleted"]) == (0, 0, 0)
    with closing(sqlite3.connect(database)) as library, library:
        library.execute("INSERT INTO deletedItems VALUES (2)")
    done(run("index", str(database), "--name", "mine", "--yes", "--json"))
    assert not any("Rabies is fatal" in hit["content"] for hit in found(run, "rabies"))


def test_a_collection_is_read_with_those_in_it(run, database):
    done(run("index", "zotero:Urate", "--name", "mine", "--json"))
    assert not any("Rabies is fatal" in hit["content"] for hit in found(run, "rabies"))
    assert any(hit["title"] == GOUT["title"] for hit in found(run, "colchicine"))
    failed(run("index", "zotero:Empty", "--name", "mine"), 4, "no collection 'Empty'")
    message = "(did you mean Trials?): its collections are 'Empty', 'Trials', 'Urate'"
    failed(run("index", "zotero:Trails", "--name", "mine"), 4, message)


def test_zoteros_folder_is_its_library_and_a_paper_that_is_gone_is_named(run, database):
    outcome = run("index", str(database.parent), "--name", "mine", "--json")
    assert done(outcome)["snippets"] > 2
    assert "gone.pdf: attached to 'Rabies after bites', but not there" in outcome.stderr


def test_a_paper_goes_with_the_last_collection_that_has_it(run, database):
    with closing(sqlite3.connect(database)) as library, library:
        library.execute("INSERT INTO collections VALUES (4, 'Later', NULL, 'C4')")
        library.execute("INSERT INTO collectionItems VALUES (4, 1, 0), (4, 2, 0), (2, 2, 0)")
    for name in ("Urate", "Later"):
        before = run("index", f"zotero:{name}", "--name", "mine", "--json")
    papers = [hit["id"] for hit in found(run, BODY) if "enrolled adults" in hit["content"]]
    assert papers, before.stderr
    for left, name, is_there in ((2, "Urate", True), (4, "Later", False)):
        with closing(sqlite3.connect(database)) as library, library:
            library.execute("DELETE FROM collectionItems WHERE itemID = 1 AND collectionID = ?", (left,))
        run("index", f"zotero:{name}", "--name", "mine", "--yes", "--json")
        assert (papers[0] in [hit["id"] for hit in found(run, BODY)]) is is_there, name


def test_an_item_without_identifiers_is_one_document_until_its_last_collection_loses_it(run, database):
    with closing(sqlite3.connect(database)) as library, library:
        library.execute("INSERT INTO collections VALUES (4, 'Later', NULL, 'C4')")
        library.execute("INSERT INTO collectionItems VALUES (4, 2, 0), (2, 2, 0)")
    for name in ("Urate", "Later"):
        done(run("index", f"zotero:{name}", "--name", "mine", "--json"))

    def rabies() -> list[str]:
        return [hit["id"] for hit in found(run, "rabies") if "Rabies is fatal" in hit["content"]]

    (item,) = rabies()
    assert item.endswith("#item=KEY00002")
    for left, name, held in ((2, "Urate", [item]), (4, "Later", [])):
        with closing(sqlite3.connect(database)) as library, library:
            library.execute("DELETE FROM collectionItems WHERE itemID = 2 AND collectionID = ?", (left,))
        report = done(run("index", f"zotero:{name}", "--name", "mine", "--yes", "--json"))
        assert (rabies(), report["deleted"]) == (held, len(held) == 0), name


def test_what_is_no_library_is_said(run, tmp_path):
    failed(run("index", "zotero:", "--name", "mine"), 4, "no Zotero library at")
    other = tmp_path / "zotero.sqlite"
    other.write_bytes(b"SQLite format 3\0" + bytes(100))
    failed(run("index", str(other), "--name", "mine"), 3, "cannot be read as a Zotero library")


def test_a_key_names_no_file_elsewhere(run, database, tmp_path):
    (tmp_path / "victim").mkdir()
    for name, content in (("paper.pdf", paper(["A PAPER"], "")), ("paper.ris", b"a user's reference")):
        (tmp_path / "victim" / name).write_bytes(content)
    for key in (str(tmp_path / "victim"), "../../../victim", "a\nb"):
        with closing(sqlite3.connect(database)) as library, library:
            library.execute("UPDATE items SET key = ? WHERE itemID = 4", (key,))
            library.execute("UPDATE itemAttachments SET path = ?", (str(tmp_path / "victim" / "paper.pdf"),))
        done(run("index", str(database), "--name", "mine", "--json", "--yes"))
        assert (tmp_path / "victim" / "paper.ris").read_bytes() == b"a user's reference"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("UPDATE creators SET lastName = 5", 0),
        ("UPDATE items SET key = 9 WHERE itemID = 4", 0),
        ("UPDATE itemAttachments SET path = 5", 0),
        ("UPDATE itemAttachments SET path = '/' || hex(zeroblob(2000)) || '.pdf'", 0),
        ("UPDATE creators SET lastName = x'ff'", 3),
        ("UPDATE itemAttachments SET path = x'ff'", 3),
        ("UPDATE itemDataValues SET value = hex(zeroblob(20000000))", 3),
        (
            "DROP TABLE tags; CREATE VIEW tags AS WITH RECURSIVE n(tagID, name) AS "
            "(SELECT 1, 'a' UNION ALL SELECT 1, name FROM n) SELECT * FROM n",
            3,
        ),
    ],
)
def test_a_hostile_library_is_read_or_refused_in_one_sentence(run, database, change, code, monkeypatch):
    monkeypatch.setattr("biorag.papers.files.zotero.SECONDS", 1)
    with closing(sqlite3.connect(database)) as library:
        library.executescript(change)
    read = run("index", str(database), "--name", "mine")
    assert read.exit_code == code, read.stderr
    assert code == 0 or "cannot be read as a Zotero library" in read.stderr


def test_a_paper_in_the_trash_is_not_read(database, tmp_path):
    assert len(zotero_corpus(str(database), tmp_path / "before").attachments) == 1
    with closing(sqlite3.connect(database)) as library, library:
        library.execute("INSERT INTO deletedItems VALUES (4)")
    assert zotero_corpus(str(database), tmp_path / "after").attachments == []


def test_papers_of_a_storage_that_is_not_mounted_are_kept(run, database):
    before = done(run("index", str(database), "--name", "mine", "--json"))["snippets"]
    storage = database.parent / "storage"
    storage.rename(database.parent / "unmounted")
    storage.mkdir()
    outcome = run("index", str(database), "--name", "mine", "--json")
    report = json.loads(outcome.stdout)
    assert (outcome.exit_code, report["snippets"], report["deleted"]) == (3, before, 0)
    assert report["unreadable"] == [str(storage / "PDF00001" / "download (3).pdf")]
    storage.rmdir()
    (database.parent / "unmounted").rename(storage)
    assert done(run("index", str(database), "--name", "mine", "--json"))["snippets"] == before
    with closing(sqlite3.connect(database)) as library, library:
        library.execute("INSERT INTO deletedItems VALUES (4)")
    assert done(run("index", str(database), "--name", "mine", "--yes", "--json"))["snippets"] < before


def refused(monkeypatch, *names: str) -> None:
    """Refuse to open files of these names, as one without permission; a superuser may open all."""
    opening = io.open

    def refusing(file, *rest, **others):
        if Path(str(file)).name in names:
            raise PermissionError(13, "Permission denied", str(file))
        return opening(file, *rest, **others)

    finding._computed_hash.cache_clear()
    monkeypatch.setattr(io, "open", refusing)


def test_papers_that_cannot_be_read_stop_no_library(run, database, monkeypatch):
    """One without permission is kept and named, as a new one is, and a path with a NUL is no file."""
    with monkeypatch.context() as patched:
        refused(patched, "download (3).pdf")
        outcome = run("index", str(database), "--name", "mine", "--json")
    assert (outcome.exit_code, len(json.loads(outcome.stdout)["unreadable"])) == (3, 1), outcome.stderr
    before = done(run("index", str(database), "--name", "mine", "--json"))["snippets"]
    with closing(sqlite3.connect(database)) as library, library:
        add(library, 9, {"title": "Malaria and mosquitoes", "abstractNote": "Mosquitoes transmit malaria."})
        library.execute("UPDATE itemAttachments SET path = '/a' || char(0) || '/b.pdf' WHERE itemID = 5")
    with monkeypatch.context() as patched:
        refused(patched, "download (3).pdf")
        outcome = run("index", str(database), "--name", "mine", "--json")
    report = json.loads(outcome.stdout)
    assert (outcome.exit_code, report["snippets"], report["deleted"]) == (3, before + 1, 0), outcome.stderr
    assert report["unreadable"] == [str(database.parent / "storage" / "PDF00001" / "download (3).pdf")]
    assert "b.pdf: attached to 'Rabies after bites', but not there" in outcome.stderr
    assert done(run("index", str(database), "--name", "mine", "--json"))["unreadable"] == []


def test_a_library_without_permission_and_one_of_trash_are_told(run, database, monkeypatch):
    with monkeypatch.context() as patched:
        refused(patched, database.name)
        failed(run("index", str(database), "--name", "mine"), 3, "cannot be read: Permission denied: check its perm")
    with closing(sqlite3.connect(database)) as library, library:
        library.execute("INSERT INTO deletedItems VALUES (1), (2)")
    failed(run("index", str(database), "--name", "mine"), 3, "holds no reference outside Zotero's trash")


def test_collections_and_libraries_that_are_called_alike_are_two(run, database, tmp_path):
    with closing(sqlite3.connect(database)) as library, library:
        for number, (name, title) in enumerate({"A B": "Alpha", "A-B": "Beta", "C++": "Gamma", "C#": "Delta"}.items()):
            library.execute("INSERT INTO collections VALUES (?, ?, NULL, ?)", (10 + number, name, f"K{number}"))
            add(library, 20 + number, {"title": f"{title} in acute gout", "abstractNote": f"{title} helps."})
            library.execute("INSERT INTO collectionItems VALUES (?, ?, 0)", (10 + number, 20 + number))
    for name in ("A B", "A-B", "C++", "C#", "A B"):
        report = done(run("index", f"zotero:{name}", "--name", "mine", "--json"))
    assert (report["snippets"], report["unchanged"], report["added"]) == (4, 1, 0)
    other = tmp_path / "other" / "zotero.sqlite"
    other.parent.mkdir()
    shutil.copy(database, other)
    with closing(sqlite3.connect(other)) as library, library:
        library.execute("UPDATE itemDataValues SET value = replace(value, 'helps', 'harms')")
    whole = done(run("index", "zotero:", "--name", "mine", "--yes", "--json"))["snippets"]
    report = done(run("index", str(other), "--name", "mine", "--yes", "--json"))
    assert (report["deleted"], report["snippets"] > whole) == (0, True)
