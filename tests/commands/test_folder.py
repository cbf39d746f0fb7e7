"""A folder that is indexed again: the index holds what a new index of the folder would, and what cannot be read now."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from biorag.engine import open_stored
from biorag.errors import ServiceError
from biorag.indexes import writing
from biorag.indexes.edge import EdgeIndex
from biorag.indexes.records import HOLDINGS
from biorag.indexing import SnippetEncoders, index_corpus
from biorag.models import finding
from biorag.settings.settings import Settings
from biorag.utils.files import sha256_of
from tests.cli import done, failed, invoke, succeeded
from tests.conftest import write_medrag
from tests.corpus.samples import searchable_pdf
from tests.indexes.test_updates import killed
from tests.pubmed_records import article, file_of


@pytest.fixture
def run(tmp_path):
    """Run a command in the scratch home."""
    return partial(invoke, home=tmp_path / "home")


@pytest.fixture
def papers(tmp_path, snippets) -> Path:
    folder = tmp_path / "papers"
    folder.mkdir()
    (folder / "dose.pdf").write_bytes(searchable_pdf(["Colchicine eases gout.", "Take 0.5 mg twice a day."]))
    (folder / "other.pdf").write_bytes(searchable_pdf(["Rabies is fatal once symptoms begin."]))
    write_medrag(folder / "notes.jsonl", snippets[:4])
    (folder / "words.md").write_text("# Malaria\n\nMosquitoes transmit malaria.\n", encoding="utf-8")
    return folder


def held(home: Path, name: str) -> dict[str, str]:
    """Return the snippets of an index with the digests of their texts."""
    with open_stored(Settings.of(home=home, name=name)) as (_, index):
        return dict(index.digests(list(index.ids())))


def vectors(home: Path, name: str) -> dict[str, np.ndarray]:
    """Return the dense and token vectors of an index's snippets, one below the other."""
    with open_stored(Settings.of(home=home, name=name)) as (_, index):
        return {id: np.vstack([dense, tokens]) for id, (dense, tokens) in index.vectors(list(index.ids())).items()}


@pytest.fixture
def encoded(monkeypatch) -> list[str]:
    """The texts that were encoded."""
    texts: list[str] = []
    encode = SnippetEncoders.__call__

    def noting(self, snippets):
        texts.extend(snippet.contents for snippet in snippets)
        return encode(self, snippets)

    monkeypatch.setattr(SnippetEncoders, "__call__", noting)
    return texts


def changes(folder: Path, snippets):
    """Yield what changed in the folder, once it is done, and how many texts are new."""
    whole = searchable_pdf(["Colchicine eases gout quickly."])
    (folder / "dose.pdf").write_bytes(searchable_pdf(["Colchicine eases gout."]))
    (folder / "other.pdf").rename(folder / "renamed.pdf")
    write_medrag(folder / "notes.jsonl", snippets[1:5])
    yield "a page goes, a file is renamed, records come and go", 1
    (folder / "dose.pdf").write_bytes(whole)
    (folder / "deep").mkdir()
    (folder / "renamed.pdf").rename(folder / "deep" / "renamed.pdf")
    write_medrag(folder / "more.jsonl", [snippets[4], snippets[6]])
    yield "a page is edited, a file is moved, two files share a record", 2
    write_medrag(folder / "notes.jsonl", snippets[1:4])
    (folder / "dose.pdf").write_bytes(whole[:100])
    yield "one of two files loses the record that both had, and a file breaks", 0
    (folder / "more.jsonl").unlink()
    (folder / "words.md").write_text("# Fever\n\nAspirin lowers fever.\n", encoding="utf-8")
    (folder / "dose.pdf").write_bytes(whole)
    shutil.copy(folder / "deep" / "renamed.pdf", folder / "copy.pdf")
    yield "a file goes, one is replaced, the broken one is restored, and one is copied", 1
    yield "nothing changes", 0


def test_after_each_change_the_index_is_as_a_new_one(run, papers, snippets, tiny_encoder, encoded, tmp_path):
    common = ["--encoder", tiny_encoder, "--on-bad-line", "skip", "--yes", "--json"]
    done(run("index", papers, "--name", "kept", *common))
    before = held(tmp_path / "home", "kept")
    for number, (change, fresh) in enumerate(changes(papers, snippets)):
        encoded.clear()
        kept = run("index", papers, "--name", "kept", *common)
        assert len(encoded) == fresh, change
        new = run("index", papers, "--name", f"new{number}", *common)
        assert kept.exit_code == new.exit_code == (3 if "breaks" in change else 0)
        report = json.loads(kept.stdout)
        expected = held(tmp_path / "home", f"new{number}")
        if "breaks" in change:  # what it held is kept
            expected["dose.pdf#page=1"] = before["dose.pdf#page=1"]
            assert f"Files that cannot be read now, or hold nothing: {papers / 'dose.pdf'}" in kept.stderr
            assert report["unreadable"] == [str(papers / "dose.pdf")]
        before = held(tmp_path / "home", "kept")
        assert before == expected, change
        assert report["complete"]
        kept_vectors, new_vectors = (vectors(tmp_path / "home", name) for name in ("kept", f"new{number}"))
        for id, rows in new_vectors.items():
            np.testing.assert_allclose(kept_vectors[id], rows, atol=1e-5, err_msg=f"{change}: {id}")
    found, expected = (
        done(run("search", "Does colchicine ease gout?", "--mode", "dense", "--name", name, "--json"))["hits"]
        for name in ("kept", f"new{number}")
    )
    assert [(hit["id"], pytest.approx(hit["score"], abs=1e-5)) for hit in found] == [
        (hit["id"], hit["score"]) for hit in expected
    ]
    assert (report["added"], report["updated"], report["deleted"]) == (0, 0, 0)
    names = [source["name"] for source in done(run("info", "kept", "--json"))["sources"]]
    assert sorted(names) == sorted(str(path) for path in papers.rglob("*") if path.is_file())


def words_pdf(seed: int, pages: int) -> bytes:
    """Return a PDF with a title of its own and 120 words a page."""
    vocabulary = ["gout", "colchicine", "fever", "dose", "pain", "relief", "trial", "placebo"]
    words = np.random.default_rng(seed).choice(vocabulary, (pages, 120))
    return searchable_pdf([" ".join(page) for page in words], title=f"A trial of colchicine number {seed}")


def test_a_file_moved_to_another_followed_folder_is_recognised(run, tiny_encoder, encoded, tmp_path):
    before, after, blocks = tmp_path / "before", tmp_path / "after", ("--block-tokens", "32")
    for folder in (before, after):
        folder.mkdir()
    (before / "trial.pdf").write_bytes(words_pdf(1, 3))
    (after / "other.pdf").write_bytes(words_pdf(2, 1))
    (after / "mine.ris").write_text("TY  - JOUR\nTI  - Another paper of mine\nAB  - Aspirin.\nER  - \n")
    for folder in (before, after):
        done(run("index", folder, "--name", "kept", "--encoder", tiny_encoder, *blocks, "--json"))
    (before / "trial.pdf").rename(after / "moved.pdf")
    encoded.clear()
    result = succeeded(run("index", after, "--name", "kept", "--json"))  # asks nothing: no text goes
    assert "files recognised as renamed or moved: 1" in result.stderr
    report = json.loads(result.stdout)
    assert (encoded, report["added"], report["updated"], report["deleted"]) == ([], 0, 0, 0)
    done(run("index", after, "--name", "new", "--encoder", tiny_encoder, *blocks, "--json"))
    assert held(tmp_path / "home", "kept") == held(tmp_path / "home", "new")
    assert len(encoded) == report["snippets"] > 8
    kept, new = (vectors(tmp_path / "home", name) for name in ("kept", "new"))
    for id, rows in new.items():
        np.testing.assert_allclose(kept[id], rows, atol=1e-5, err_msg=id)


def test_files_that_change_names_are_recognised(run, tiny_encoder, encoded, tmp_path):
    folder, kept = tmp_path / "papers", ("--name", "kept", "--json")
    folder.mkdir()
    for letter in "abc":
        entries = [f"@article{{{letter}{n}, title={{Aspirin {n} in {letter}}}}}" for n in range(4)]
        (folder / f"{letter}.bib").write_text("\n".join(entries))
    done(run("index", folder, "--encoder", tiny_encoder, *kept))
    for names in ("ba", "abc"):  # a swap; then each takes the name of the next
        contents = {name: (folder / f"{name}.bib").read_text() for name in names}
        for name, after in zip(names, names[1:] + names[0], strict=True):
            (folder / f"{after}.bib").write_text(contents[name])
        encoded.clear()
        result = succeeded(run("index", folder, *kept))  # asks nothing: no text goes
        assert f"files recognised as renamed or moved: {len(names)}" in result.stderr
        report = json.loads(result.stdout)
        assert (encoded, report["added"], report["deleted"], report["renamed"]) == ([], 0, 0, 4 * len(names))
    (folder / "a.bib").write_text((folder / "b.bib").read_text())  # and the entries of a are gone
    (folder / "b.bib").write_text("@article{x, title={Rabies}}")
    (folder / "c.bib").write_text("@article{y, title={Malaria}}")
    failed(run("index", folder, *kept), 2, "Remove 8 of 12 snippets")
    done(run("index", folder, "--yes", *kept))
    done(run("index", folder, "--encoder", tiny_encoder, "--name", "new", "--json"))
    assert held(tmp_path / "home", "kept") == held(tmp_path / "home", "new")


def test_a_record_that_comes_beside_a_paper_encodes_only_a_new_title(run, tiny_encoder, encoded, tmp_path):
    folder = tmp_path / "papers"
    folder.mkdir()
    (folder / "trial.pdf").write_bytes(words_pdf(1, 3))
    done(run("index", folder, "--name", "kept", "--encoder", tiny_encoder, "--json"))
    record = "TY  - JOUR\nTI  - {}\nAU  - Smith, Ann\nPY  - 2019\nER  - \n"
    for title, fresh in (("A trial of colchicine number 1", 1), ("Colchicine in gout, a trial", 4)):
        encoded.clear()
        (folder / "trial.ris").write_text(record.format(title))
        done(run("index", folder, "--name", "kept", "--yes", "--json"))
        assert len(encoded) == fresh, "the record itself, and the pages under another title"
    (hit, *_) = done(run("search", "colchicine", "--name", "kept", "--filter", "page=1", "--json"))["hits"]
    assert (hit["title"], hit["metadata"]["authors"]) == ("Colchicine in gout, a trial", ["Smith, Ann"])


def test_much_goes_only_after_a_question_and_may_be_kept(run, papers, tiny_encoder, tmp_path):
    done(run("index", papers, "--encoder", tiny_encoder, "--name", "kept", "--json"))
    before = held(tmp_path / "home", "kept")
    (papers / "notes.jsonl").unlink()
    message = failed(run("index", papers, "--name", "kept"), 2)
    assert "Remove 4 of 8 snippets, which no file holds any more (else: --keep-missing)?" in message
    assert held(tmp_path / "home", "kept") == before
    done(run("index", papers, "--name", "kept", "--keep-missing", "--json"))
    assert held(tmp_path / "home", "kept") == before
    assert done(run("index", papers, "--name", "kept", "--yes", "--json"))["deleted"] == 4


def test_what_was_kept_of_a_changed_file_goes_with_the_next_run(run, papers, snippets, tiny_encoder, tmp_path):
    common = ["--encoder", tiny_encoder, "--yes", "--json"]
    done(run("index", papers, "--name", "kept", *common))
    before = held(tmp_path / "home", "kept")
    write_medrag(papers / "notes.jsonl", snippets[2:6])
    (papers / "words.md").write_text("# Fever\n\nAspirin lowers fever.\n", encoding="utf-8")
    for _ in range(2):
        done(run("index", papers, "--name", "kept", "--keep-missing", *common))
        kept = held(tmp_path / "home", "kept")
        assert kept.keys() == before.keys() | {snippet.id for snippet in snippets[4:6]}
    assert done(run("index", papers, "--name", "kept", *common))["deleted"] == 2
    done(run("index", papers, "--name", "new", *common))
    assert held(tmp_path / "home", "kept") == held(tmp_path / "home", "new")


def test_bad_files_of_a_folder_are_listed_and_the_others_indexed(run, papers, tiny_encoder):
    (papers / "scan.pdf").write_bytes(searchable_pdf([""]))
    (papers / "latin.md").write_bytes("Café".encode("latin-1"))
    (papers / "whole.pdf").write_bytes(b"%PDF-1.4 broken")
    result = succeeded(run("index", papers, "--encoder", tiny_encoder, "--name", "kept", "--json"))
    assert json.loads(result.stdout)["snippets"] == 8
    for line in (
        "scan.pdf, page 1: no text on any page",
        "latin.md, line 1: not UTF-8",
        "whole.pdf, page 1: a PDF that",
    ):
        assert line in result.stderr
    failed(run("index", papers, "--name", "strict", "--encoder", tiny_encoder, "--on-bad-line", "stop"), 3)


def test_an_unchanged_file_is_not_read_again(run, papers, tiny_encoder, tmp_path, monkeypatch):
    import biorag.papers.files.pdf

    done(run("index", papers, "--encoder", tiny_encoder, "--name", "kept", "--json"))
    monkeypatch.setattr(biorag.papers.files.pdf, "read_pages", None)
    (papers / "words.md").write_text("# Fever\n\nAspirin lowers fever.\n", encoding="utf-8")
    report = done(run("index", papers, "--name", "kept", "--json"))
    assert (report["updated"], report["deleted"], report["unchanged"]) == (1, 0, 7)


def test_a_deletion_by_source_needs_no_file_and_indexing_again_brings_it_back(run, papers, tiny_encoder, tmp_path):
    done(run("index", papers, "--encoder", tiny_encoder, "--name", "kept", "--json"))
    kept = (papers / "dose.pdf").read_bytes()
    (papers / "dose.pdf").unlink()
    assert done(run("delete", "--source", "dose.pdf", "--name", "kept", "--yes", "--json"))["deleted"] == 2
    assert not any(id.startswith("dose.pdf") for id in held(tmp_path / "home", "kept"))
    message = failed(run("delete", "--source", "dosse.pdf", "--name", "kept", "--yes"), 4)
    known = "(did you mean dose.pdf?); it holds dose.pdf, notes.jsonl"
    assert f"no file 'dosse.pdf' went into index 'kept' {known}" in message
    failed(run("delete", "--id", "dose.pdf", "--name", "kept", "--yes"), 4, "--source takes the name of a file")
    failed(run("delete", "--source", "dose.pdf", "--name", "kept", "--yes"), 4, "holds nothing of 'dose.pdf' any more")
    nothing = succeeded(run("delete", "--filter", "page>7", "--name", "kept", "--yes"))
    assert "Nothing is removed: no snippet matches" in nothing.stderr
    (papers / "dose.pdf").write_bytes(kept)
    assert done(run("index", papers, "--name", "kept", "--json"))["added"] == 2


@pytest.mark.parametrize("moved", [False, True])
def test_an_exported_index_follows_its_files_where_it_is_imported(run, papers, tiny_encoder, encoded, tmp_path, moved):
    done(run("index", papers, "--encoder", tiny_encoder, "--name", "first", "--json"))
    done(run("indexes", "export", tmp_path / "first.tar.gz", "--name", "first", "--json"))
    done(run("indexes", "import", tmp_path / "first.tar.gz", "--name", "kept", "--json"))
    if moved:
        papers = papers.rename(tmp_path / "elsewhere")
    (papers / "dose.pdf").unlink()
    encoded.clear()
    report = done(run("index", papers, "--name", "kept", "--keep-missing", "--json"))
    assert (encoded, report["added"], report["updated"], report["deleted"]) == ([], 0, 0, 0)
    assert done(run("index", papers, "--name", "kept", "--json"))["deleted"] == (0 if moved else 2)
    assert done(run("delete", "--source", "other.pdf", "--name", "kept", "--yes", "--json"))["deleted"] == 1


def test_words_of_a_filter_need_no_accents(run, tiny_encoder, tmp_path):
    (tmp_path / "a.ris").write_text(
        "TY  - JOUR\nTI  - Pain and how it ends\nAU  - Gräfe, Jan\nAU  - Großmann, Łucja\nER  - \n", encoding="utf-8"
    )
    done(run("index", tmp_path / "a.ris", "--encoder", tiny_encoder, "--name", "kept", "--json"))
    for words, hits in (
        ("Grafe", 1),
        ("gräfe", 1),
        ("grafe, jan", 1),
        ("Jan", 1),
        ("grossmann, lucja", 1),
        ("lucja", 1),
    ):
        found = run("search", "pain", "--name", "kept", "--filter", f'authors~"{words}"', "--json")
        assert len(done(found)["hits"]) == hits, words
    either = run("search", "pain", "--name", "kept", "--filter", "authors~Grafe or authors~Nobody", "--json")
    assert len(done(either)["hits"]) == 1
    assert done(run("search", "pain", "--name", "kept", "--filter", "not authors~Grafe", "--json"))["hits"] == []
    assert "no snippet has" in failed(run("search", "pain", "--name", "kept", "--filter", "authors~Graf"), 2)


def test_an_emptied_index_is_no_choice_of_the_page(run, papers, tiny_encoder, tmp_path):
    from biorag.api.session import Session
    from biorag.faces.session_pool import SessionPool

    for name in ("full", "emptied"):
        done(run("index", papers / "words.md", "--encoder", tiny_encoder, "--name", name, "--json"))
    done(run("delete", "--source", "words.md", "--name", "emptied", "--yes", "--json"))
    with Session(Settings.of(home=tmp_path / "home", name="full")) as session:
        shelf = SessionPool(session, others=True)
        assert shelf.names() == [summary.name for summary in shelf.listed()] == ["full"]


def test_damage_to_the_record_is_told(run, papers, tiny_encoder, tmp_path):
    succeeded(run("index", papers, "--encoder", tiny_encoder, "--name", "kept"))
    (tmp_path / "home" / "indexes" / "kept" / HOLDINGS).write_text("{", encoding="utf-8")
    assert "holdings.json is damaged" in failed(run("index", papers, "--name", "kept"), 5)


def note(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"# Notes\n\n{text}\n", encoding="utf-8")
    return path


def test_what_cannot_be_read_is_kept_and_named(run, papers, tiny_encoder, tmp_path, monkeypatch):
    """A folder that may not be listed, a link to a disk that is not there, a damaged file; then all of it is back."""
    note(papers / "closed" / "deep" / "inside.md", "Rabies is fatal.")
    target = note(tmp_path / "disk" / "linked.md", "Gout is painful.")
    (papers / "linked.md").symlink_to(target)
    done(run("index", papers, "--encoder", tiny_encoder, "--name", "kept", "--json"))
    before = held(tmp_path / "home", "kept")
    dose, scandir = (papers / "dose.pdf").read_bytes(), os.scandir

    def refusing(path="."):
        if str(path).endswith("/closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    (papers / "dose.pdf").write_bytes(dose[:200])
    target.rename(tmp_path / "elsewhere.md")
    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", refusing)
        result = run("index", papers, "--name", "kept", "--json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["deleted"], held(tmp_path / "home", "kept")) == (3, 0, before), result.stderr
    unread = [papers / "closed" / "deep" / "inside.md", papers / "dose.pdf", target]
    assert sorted(report["unreadable"]) == sorted(map(str, unread))
    assert "3 files cannot be read now, or hold nothing, and what index 'kept' held of them is kept" in result.stderr
    (papers / "dose.pdf").write_bytes(dose)
    (tmp_path / "elsewhere.md").rename(target)
    report = done(run("index", papers, "--name", "kept", "--json"))
    assert (report["added"], report["updated"], report["deleted"], report["unreadable"]) == (0, 0, 0, [])
    target.unlink()
    (papers / "linked.md").unlink()
    (papers / "dose.pdf").unlink()
    report = done(run("index", papers, "--name", "kept", "--yes", "--json"))
    assert report["deleted"] == 2, "what is gone goes; a link's target elsewhere was never in the folder"


def test_what_is_new_and_cannot_be_read_is_named(run, papers, tiny_encoder, tmp_path, monkeypatch):
    """With exit code 3, in a first index and in a later one: a file and a folder; a link to nothing is not."""
    closed = note(papers / "closed" / "inside.md", "Rabies is fatal.").parent
    (papers / "linked.md").symlink_to("/nowhere/file")
    scandir = os.scandir

    def refusing(real, path=".", *rest, **others):
        if str(path).endswith(("/closed", "/dose.pdf")):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *rest, **others)

    for name in ("kept", "kept", "new"):
        with monkeypatch.context() as patched:
            patched.setattr(os, "scandir", partial(refusing, scandir))
            patched.setattr(io, "open", partial(refusing, io.open))
            result = run("index", papers, "--encoder", tiny_encoder, "--name", name, "--json")
        report = json.loads(result.stdout)
        assert (result.exit_code, report["unreadable"]) == (3, [str(closed), str(papers / "dose.pdf")]), result.stderr
        assert "2 files cannot be read now" in result.stderr
    report = done(run("index", papers, "--name", "kept", "--json"))
    assert (report["added"], report["unreadable"]) == (3, [])


def test_an_index_keeps_what_it_held_where_nothing_is_left_to_read(run, tiny_encoder, tmp_path, monkeypatch):
    closed = note(tmp_path / "papers" / "closed" / "inside.md", "Rabies is fatal.").parent
    empty = note(tmp_path / "papers" / "note.md", "Aspirin lowers fever.")
    words = ("index", tmp_path / "papers", "--encoder", tiny_encoder, "--name", "kept", "--json")
    held = done(run(*words))["snippets"]
    empty.write_text("")
    scandir = os.scandir

    def refusing(path="."):
        if str(path) == str(closed):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", refusing)
        result = run(*words)
    report = json.loads(result.stdout)
    assert (result.exit_code, report["snippets"], report["deleted"]) == (3, held, 0), result.stderr
    assert sorted(report["unreadable"]) == [str(closed / "inside.md"), str(empty)]
    assert "what index 'kept' held of them is kept" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("is_known", [False, True], ids=["first", "later"])
@pytest.mark.parametrize(
    ("owner", "name", "at"),
    [(EdgeIndex, "upsert", 1), (EdgeIndex, "upsert", 3), (EdgeIndex, "optimize", 1), (writing, "write_ledger", 2)],
)
def test_nothing_of_a_killed_run_outlives_its_files(run, tiny_encoder, tmp_path, owner, name, at, is_known):
    """Files that it read go, are renamed or are edited before the next run, also where it ran over an index."""
    folder = tmp_path / "papers"
    folder.mkdir()
    common = ("--encoder", tiny_encoder, "--batch-size", "2", "--block-tokens", "16", "--yes", "--json")

    def write(file: str, *ids: str) -> None:
        rows = ({"id": id, "title": "", "content": f"{id} eases gout of {file} " * 6} for id in ids)
        (folder / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    if is_known:
        for file in "abcd":
            write(file, f"old-{file}", f"same-{file}")
        done(run("index", folder, "--name", "kept", *common))
    for file in "abcd":
        write(file, f"new-{file}", f"same-{file}", f"more-{file}")
    with killed(owner, name, at):
        run("index", folder, "--name", "kept", *common)
    (folder / "a.jsonl").unlink()
    write("b", "later-b", "same-b", "more-a")
    (folder / "c.jsonl").rename(folder / "renamed.jsonl")
    if name == "upsert":
        done(run("index", folder / "b.jsonl", "--name", "kept", *common))
    done(run("index", folder, "--name", "kept", *common))
    done(run("index", folder, "--name", "new", *common))
    assert held(tmp_path / "home", "kept") == held(tmp_path / "home", "new")


PAPER = "<title>Colchicine in acute gout</title><p>It eases gout.</p>"
REFERENCES = {
    "paper.bib": "@article{k, title={Colchicine in acute gout}, author={Doe, Jane}, abstract={Colchicine.}}\n",
    "one.ris": "TY  - JOUR\nTI  - Aspirin in migraine\nAB  - Aspirin.\nER  - \n",
    "two.nbib": "PMID- 123\nTI  - Rabies in bats\nAB  - Bats.\n",
}


@pytest.fixture
def followed(run, tiny_encoder, tmp_path) -> tuple[Path, Path]:
    """Two folders that an index follows: papers, with references and a table, and a note."""
    first, second = tmp_path / "first", tmp_path / "second"
    note(second / "note.txt", "Rabies is fatal.")
    for number in range(8):
        note(first / f"{number}.md", f"Gout has {number} causes.")
    for name, text in {**REFERENCES, "page.html": PAPER, "rows.csv": "id,title,abstract\nr,Zinc,Colds.\n"}.items():
        (first / name).write_text(text, encoding="utf-8")
    done(run("index", first, second, "--encoder", tiny_encoder, "--name", "kept", "--json"))
    return first, second


def check_kept(run, home: Path, folders: tuple[Path, Path], unreadable: list[Path]) -> str:
    """Check that all but a new note is kept and these files are named; return standard error."""
    before = held(home, "kept")
    note(folders[0] / "new.txt", "Mosquitoes transmit malaria.")
    result = run("index", *folders, "--name", "kept", "--json")
    report = json.loads(result.stdout)
    counts = [report[name] for name in ("added", "updated", "deleted")]
    assert (result.exit_code, counts, report["unreadable"]) == (3, [1, 0, 0], sorted(map(str, unreadable)))
    assert held(home, "kept").items() > before.items()
    return result.stderr


def test_a_link_to_nothing_in_place_of_a_file_keeps_what_it_held(run, followed, tmp_path):
    """Also where a folder holds nothing else, and where the records of a paper are behind it."""
    links = [followed[1] / "note.txt", *(followed[0] / name for name in (*REFERENCES, "0.md", "page.html", "rows.csv"))]
    for path in links[:-2]:
        path.unlink()
        path.symlink_to("/nowhere/file")
    check_kept(run, tmp_path / "home", followed, links[:-2])
    for path in links[-2:]:
        path.unlink()
        path.symlink_to(path.name)  # to itself
    (followed[0] / "new.txt").unlink()
    (followed[0] / "1.md").unlink()
    report = json.loads(run("index", *followed, "--name", "kept", "--json").stdout)
    assert (report["deleted"], report["unreadable"]) == (2, sorted(map(str, links)))


def test_a_damaged_page_keeps_what_it_held(run, followed, tmp_path):
    (followed[0] / "page.html").write_bytes(b"abc \x80\x81\xff" + bytes(range(256)))
    assert "line 1: not UTF-8" in check_kept(run, tmp_path / "home", followed, [followed[0] / "page.html"])


INVALID = b"\xff\xfe\x00\xd8\x00\xd8"  # the byte order mark of UTF-16, and half surrogate pairs
CUT_FILES = {
    **{f"empty{suffix}": b"" for suffix in (".txt", ".md", ".jsonl", ".csv")},
    **{f"blank{suffix}": b"\n \n" for suffix in (".txt", ".md", ".jsonl")},
    **{f"invalid{suffix}": INVALID for suffix in (".txt", ".md", ".html", ".bib", ".csv", ".ris")},
    "header.csv": b"id,title,abstract\n",
    "front.md": b"---\ntitle: Gout\n---\n",
    "words.bib": b"hello\n",
    "error.bib": b"<!DOCTYPE html>\n<html><body>502 Bad Gateway</body></html>\n",
}
WHOLE = {
    ".txt": "Rabies in {} is fatal.",
    ".md": "# Gout\n\nGout in {} is painful.\n",
    ".html": "<title>Gout</title><p>Gout in {} is painful.</p>",
    ".jsonl": '{{"id": "{0}", "title": "Gout", "content": "Gout in {0}."}}\n',
    ".csv": "id,title,abstract\nrow-{0},Zinc in {0},Colds.\n",
    ".bib": "@article{{{0}, title={{Colchicine in {0}}}, abstract={{Colchicine.}}}}\n",
    ".ris": "TY  - JOUR\nTI  - Aspirin in {}\nAB  - Aspirin.\nER  - \n",
}


def test_a_file_without_a_record_that_had_some_keeps_them(run, followed, tmp_path):
    """Of whatever kind: empty, as a full disk leaves it, of another kind, or UTF-16 that is none."""
    for name in CUT_FILES:
        stem, suffix = name.split(".")
        (followed[0] / name).write_text(WHOLE[f".{suffix}"].format(stem))
    done(run("index", *followed, "--name", "kept", "--json"))
    for name, content in CUT_FILES.items():
        (followed[0] / name).write_bytes(content)
    stderr = check_kept(run, tmp_path / "home", followed, [followed[0] / name for name in CUT_FILES])
    assert "invalid.txt, line 1: not UTF-8" in stderr and "words.bib, line 1: no BibTeX entry in it" in stderr
    for name in CUT_FILES:
        (followed[0] / name).unlink()
    report = done(run("index", *followed, "--name", "kept", "--yes", "--json"))
    assert (report["deleted"], report["unreadable"]) == (len(CUT_FILES), [])


def test_damaged_files_of_pubmed_are_named_until_they_are_whole(run, tiny_encoder, tmp_path):
    """Their records stay whatever their files hold; also of one that is cut, whose first record is still read."""
    folder = tmp_path / "papers"
    note(folder / "note.txt", "Rabies is fatal.")
    files = [folder / "0.xml", folder / "1.xml", folder / "2.xml", folder / "3.xml.gz"]
    whole = [file_of(article(10 * number + 1, "One."), article(10 * number + 2, "Two.")) for number in range(4)]
    whole[3] = gzip.compress(whole[3])
    always_cut = file_of(article(91, "Nine."), article(92, "Ten."))
    (folder / "cut.xml").write_bytes(always_cut[:-60])
    for path, content in zip(files, whole, strict=True):
        path.write_bytes(content)
    done(run("index", folder, "--encoder", tiny_encoder, "--name", "kept", "--json"))
    before = held(tmp_path / "home", "kept")
    for path, content in zip(files, (bytes(300), b" \n", whole[2][:-60], whole[3][:40]), strict=True):
        path.write_bytes(content)
    for _ in range(2):
        result = run("index", folder, "--name", "kept", "--json")
        report = json.loads(result.stdout)
        assert (result.exit_code, report["unreadable"]) == (3, list(map(str, files))), result.stderr
        assert held(tmp_path / "home", "kept") == before
    for path, content in zip(files, whole, strict=True):
        path.write_bytes(content)
    assert done(run("index", folder, "--name", "kept", "--json"))["unreadable"] == []


def test_references_that_may_not_be_read_stop_no_folder(run, followed, tmp_path, monkeypatch):
    opening = io.open

    def refusing(file, *rest, **others):
        if Path(str(file)).name in REFERENCES:
            raise PermissionError(13, "Permission denied", str(file))
        return opening(file, *rest, **others)

    finding._computed_hash.cache_clear()
    monkeypatch.setattr(io, "open", refusing)
    stderr = check_kept(run, tmp_path / "home", followed, [followed[0] / name for name in REFERENCES])
    assert "paper.bib, line 1: cannot be read: Permission denied" in stderr


def facts(home: Path, id: str) -> list[str]:
    with open_stored(Settings.of(home=home, name="kept")) as (_, index):
        return [snippet.metadata.get("authors") for snippet in index.fetch([id]).values()]


ENDNOTE = """<xml><records><record><ref-type name='Journal Article'/><contributors><authors><author>Doe, Jane</author>
</authors></contributors><titles><title>Colchicine in acute gout</title></titles></record></records></xml>"""
CUT = "@article{k, title={Colchicine in acute gout\n@article{m, title={Zinc}, author={Roe, Ann}}\n"


@pytest.mark.parametrize(
    ("name", "whole", "damaged"),
    [("paper.bib", REFERENCES["paper.bib"], CUT), ("paper.xml", ENDNOTE, "abc \0\1")],
    ids=["BibTeX", "EndNote"],
)
def test_a_paper_beside_damaged_references_keeps_their_facts(run, tiny_encoder, tmp_path, name, whole, damaged):
    folder = tmp_path / "papers"
    note(folder / "note.txt", "Rabies is fatal.")
    (folder / "page.html").write_text(PAPER, encoding="utf-8")
    (folder / name).write_text(whole, encoding="utf-8")
    done(run("index", folder, "--encoder", tiny_encoder, "--name", "kept", "--json"))
    ids = held(tmp_path / "home", "kept")
    (page,) = (id for id in ids if id.startswith("page.html"))
    assert facts(tmp_path / "home", page) == [["Doe, Jane"]]
    (folder / name).write_text(damaged, encoding="utf-8")
    result = run("index", folder, "--name", "kept", "--yes", "--json")
    assert (result.exit_code, held(tmp_path / "home", "kept").items() >= ids.items()) == (3, True), result.stderr
    assert facts(tmp_path / "home", page) == [["Doe, Jane"]]
    assert "papers keep what the index has of them, since a record beside them cannot be read: " in result.stderr
    (folder / name).write_text(whole.replace("Doe, Jane", "Roe, Ann"), encoding="utf-8")
    done(run("index", folder, "--name", "kept", "--yes", "--json"))
    assert facts(tmp_path / "home", page) == [["Roe, Ann"]]


def test_a_record_that_is_damaged_is_kept_and_one_that_was_never_read_holds_nothing_up(run, tiny_encoder, tmp_path):
    record = "TY  - JOUR\nTI  - Number {} of the trials\nER  - \n"
    export, skipping = tmp_path / "refs.ris", ("--name", "kept", "--on-bad-line", "skip", "--yes", "--json")
    empty, records = "TY  - JOUR\nER  - \n", [record.format(number) for number in range(6)]
    export.write_text("".join([*records, empty]))
    done(run("index", export, "--encoder", tiny_encoder, *skipping))
    export.write_text("".join([*records[:2], records[2].replace("TY  - JOUR", "XX"), *records[3:], empty]))
    outcome = run("index", export, *skipping)
    report = json.loads(outcome.stdout)
    assert (outcome.exit_code, report["rejected"], report["snippets"], report["deleted"]) == (3, 2, 6, 0)
    export.write_text("".join([*records[:5], empty]))
    assert done(run("index", export, *skipping))["deleted"] == 1


def test_another_run_that_ends_meanwhile_loses_nothing(run, papers, tiny_encoder, tmp_path):
    """Its files are known to the index, and the later run is refused until it has seen them."""
    other = note(tmp_path / "other" / "one.md", "Gout is painful.")
    done(run("index", papers, "--encoder", tiny_encoder, "--name", "kept", "--json"))
    (papers / "words.md").write_text("# Fever\n\nAspirin lowers fever.\n", encoding="utf-8")
    settings = Settings.of(home=tmp_path / "home", name="kept")

    @contextmanager
    def meanwhile():
        index_corpus(settings, [str(other.parent)])
        yield

    with pytest.raises(ServiceError, match="another run has changed index 'kept' meanwhile: run the same command"):
        index_corpus(settings, [str(papers)], alone=meanwhile)
    assert done(run("index", papers, "--name", "kept", "--json"))["updated"] == 1
    other.unlink()
    note(other.parent / "two.md", "Rabies is fatal.")
    assert done(run("index", other.parent, "--name", "kept", "--json"))["deleted"] == 1


def test_a_followed_folder_that_may_not_be_entered_stops_no_other(run, followed, tmp_path, monkeypatch):
    def refusing(real, inside):
        def asked(path=".", *rest, **others):
            if isinstance(path, str | Path) and followed[1] in (Path(path) / inside).parents:
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, *rest, **others)

        return asked

    for name, inside in (("stat", ""), ("lstat", ""), ("scandir", "any")):
        monkeypatch.setattr(os, name, refusing(getattr(os, name), inside))
    (tmp_path / "first" / "copy.txt").write_text("# Notes\n\nRabies is fatal.\n")  # the other is not moved to here
    result = run("index", *followed, "--name", "kept", "--json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["added"], report["deleted"]) == (3, 1, 0), result.stderr
    assert report["unreadable"] == [str(followed[1] / "note.txt")]
    assert f"folder {followed[1]} cannot be read: check its permissions" in result.stderr


@pytest.mark.parametrize("emptied", ["papers", "papers/mounted"])
def test_a_folder_that_was_not_empty_and_is_asks(run, tiny_encoder, tmp_path, emptied):
    for number in range(6):
        note(tmp_path / "papers" / f"{number}.md", f"Gout has {number} causes.")
    note(tmp_path / "papers" / "mounted" / "sub" / "one.md", "Rabies is fatal.")
    done(run("index", tmp_path / "papers", "--encoder", tiny_encoder, "--name", "kept", "--json"))
    before = held(tmp_path / "home", "kept")
    shutil.rmtree(tmp_path / emptied)
    (tmp_path / emptied).mkdir()
    sentence = failed(run("index", tmp_path / "papers", "--name", "kept"), 2, "give --yes")
    assert f"now empty: {tmp_path / emptied} (else: --keep-missing)?" in sentence
    assert held(tmp_path / "home", "kept") == before
    report = done(run("index", tmp_path / "papers", "--name", "kept", "--yes", "--json"))
    assert (report["deleted"], report["snippets"]) == ((1, 6) if "/" in emptied else (7, 0))


def test_a_third_is_a_third_of_the_snippets(run, tiny_encoder, tmp_path):
    words = np.random.default_rng(0).choice(["gout", "colchicine", "fever", "dose"], 2000)
    (tmp_path / "papers").mkdir()
    rows = [{"id": "long", "title": "", "content": " ".join(words)}], [{"id": "a", "title": "", "content": "Gout."}]
    for name, content in zip(("long.jsonl", "short.jsonl"), rows, strict=True):
        (tmp_path / "papers" / name).write_text("".join(json.dumps(row) + "\n" for row in content))
    (tmp_path / "papers" / "more.jsonl").write_text(
        "".join(json.dumps({"id": f"b{number}", "title": "", "content": "Fever."}) + "\n" for number in range(9))
    )
    blocks = ("--encoder", tiny_encoder, "--block-tokens", "32", "--name", "kept", "--json")
    snippets = done(run("index", tmp_path / "papers", *blocks))["snippets"]
    (tmp_path / "papers" / "long.jsonl").unlink()
    failed(run("index", tmp_path / "papers", "--name", "kept"), 2, f"Remove {snippets - 10:,} of {snippets:,} snippets")


def test_files_of_one_name_in_two_folders_are_two(run, tiny_encoder, tmp_path):
    first = note(tmp_path / "labA" / "notes.md", "Gout is painful.")
    second = note(tmp_path / "labB" / "notes.md", "Rabies is fatal.")
    done(run("index", first, "--encoder", tiny_encoder, "--name", "kept", "--json"))
    ids = set(held(tmp_path / "home", "kept"))
    report = done(run("index", second, "--name", "kept", "--json"))
    assert (report["added"], report["updated"], report["deleted"]) == (1, 0, 0)
    both = held(tmp_path / "home", "kept")
    assert (len(both), both.keys() - ids) == (2, {next(iter(ids)).replace("notes.md", "labB/notes.md")})
    done(run("index", first, second, "--encoder", tiny_encoder, "--name", "new", "--json"))
    assert held(tmp_path / "home", "new").keys() == both.keys()
    for files in ([second], [first, second], [second.parent, first.parent]):
        report = done(run("index", *files, "--name", "kept", "--json"))
        assert (report["added"], report["updated"], report["deleted"]) == (0, 0, 0)
    note(second, "Rabies is nearly always fatal.")
    assert done(run("index", second.parent, "--name", "kept", "--json"))["updated"] == 1
    assert held(tmp_path / "home", "kept").keys() == both.keys()
    first.parent.rename(tmp_path / "labC")  # as it is, it keeps its ids
    report = done(run("index", tmp_path / "labC", "--name", "kept", "--json"))
    assert (report["added"], report["deleted"], held(tmp_path / "home", "kept").keys()) == (0, 0, both.keys())


def test_an_index_in_which_two_files_had_one_name_has_both_once_they_are_indexed_again(run, tiny_encoder, tmp_path):
    """The record of the rule before: both files have the document that the second left."""
    files = [note(tmp_path / lab / "notes.md", f"Gout of {lab} is painful.") for lab in ("labA", "labB")]
    done(run("index", files[1], "--encoder", tiny_encoder, "--name", "kept", "--json"))
    record = tmp_path / "home" / "indexes" / "kept" / HOLDINGS
    ledger = json.loads(record.read_text())
    ledger["files"][str(files[0])] = {**ledger["files"][str(files[1])], "sha256": sha256_of(files[0])}
    record.write_text(json.dumps(ledger))
    done(run("index", *files, "--name", "kept", "--yes", "--json"))
    assert len(held(tmp_path / "home", "kept")) == 2
    again = done(run("index", *files, "--name", "kept", "--json"))
    assert (again["added"], again["updated"], again["deleted"], again["snippets"]) == (0, 0, 0, 2)
