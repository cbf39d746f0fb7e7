"""A folder that is indexed again: the index holds what a new index of the folder would."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

from biorag.engine import open_stored
from biorag.indexes.holdings import HOLDINGS
from biorag.settings.settings import Settings
from tests.cli import done, failed, invoke, succeeded
from tests.conftest import write_medrag
from tests.corpus.samples import searchable_pdf


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


def changes(folder: Path, snippets):
    """Yield the name of each change of the folder, once it is made."""
    (folder / "dose.pdf").write_bytes(searchable_pdf(["Colchicine eases gout."]))
    yield "a page goes"
    (folder / "dose.pdf").write_bytes(searchable_pdf(["Colchicine eases gout quickly."]))
    yield "a page is edited"
    (folder / "other.pdf").rename(folder / "renamed.pdf")
    yield "a file is renamed"
    (folder / "deep").mkdir()
    (folder / "renamed.pdf").rename(folder / "deep" / "renamed.pdf")
    yield "a file is moved"
    write_medrag(folder / "notes.jsonl", snippets[1:5])
    yield "records come and go"
    write_medrag(folder / "more.jsonl", [snippets[4], snippets[6]])
    yield "two files share a record"
    write_medrag(folder / "notes.jsonl", snippets[1:4])
    yield "one of two files loses the record that both had"
    (folder / "more.jsonl").unlink()
    yield "a file goes"
    (folder / "words.md").write_text("# Fever\n\nAspirin lowers fever.\n", encoding="utf-8")
    yield "a file is replaced"
    whole = (folder / "dose.pdf").read_bytes()
    (folder / "dose.pdf").write_bytes(whole[:100])
    yield "a file breaks"
    (folder / "dose.pdf").write_bytes(whole)
    yield "it is restored"
    shutil.copy(folder / "deep" / "renamed.pdf", folder / "copy.pdf")
    yield "a file is copied"
    yield "nothing changes"


def test_after_each_change_the_index_is_as_a_new_one(run, papers, snippets, tiny_encoder, tmp_path):
    common = ["--encoder", tiny_encoder, "--on-bad-line", "skip", "--yes", "--json"]
    done(run("index", papers, "--name", "kept", *common))
    for number, change in enumerate(changes(papers, snippets)):
        kept, new = (run("index", papers, "--name", name, *common) for name in ("kept", f"new{number}"))
        assert kept.exit_code == new.exit_code == (3 if change == "a file breaks" else 0)
        report = json.loads(kept.stdout)
        assert held(tmp_path / "home", "kept") == held(tmp_path / "home", f"new{number}"), change
        assert report["complete"]
    assert (report["added"], report["updated"], report["deleted"]) == (0, 0, 0)
    names = [source["name"] for source in done(run("info", "kept", "--json"))["sources"]]
    assert sorted(names) == sorted(str(path) for path in papers.rglob("*") if path.is_file())


def test_much_goes_only_after_a_question_and_may_be_kept(run, papers, tiny_encoder, tmp_path):
    done(run("index", papers, "--encoder", tiny_encoder, "--name", "kept", "--json"))
    before = held(tmp_path / "home", "kept")
    (papers / "notes.jsonl").unlink()
    message = failed(run("index", papers, "--name", "kept"), 2)
    assert "Remove 4 documents that the files no longer hold, of 8 snippets (else: --keep-missing)?" in message
    assert held(tmp_path / "home", "kept") == before
    done(run("index", papers, "--name", "kept", "--keep-missing", "--json"))
    assert held(tmp_path / "home", "kept") == before
    assert done(run("index", papers, "--name", "kept", "--yes", "--json"))["deleted"] == 4


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
    import biorag.corpus.pdf

    done(run("index", papers, "--encoder", tiny_encoder, "--name", "kept", "--json"))
    monkeypatch.setattr(biorag.corpus.pdf, "read_pages", None)
    (papers / "words.md").write_text("# Fever\n\nAspirin lowers fever.\n", encoding="utf-8")
    report = done(run("index", papers, "--name", "kept", "--json"))
    assert (report["updated"], report["deleted"], report["unchanged"]) == (1, 0, 7)


def test_a_deletion_by_source_needs_no_file_and_indexing_again_brings_it_back(run, papers, tiny_encoder, tmp_path):
    done(run("index", papers, "--encoder", tiny_encoder, "--name", "kept", "--json"))
    kept = (papers / "dose.pdf").read_bytes()
    (papers / "dose.pdf").unlink()
    assert done(run("delete", "--source", "dose.pdf", "--name", "kept", "--yes", "--json"))["deleted"] == 2
    assert not any(id.startswith("dose.pdf") for id in held(tmp_path / "home", "kept"))
    message = failed(run("delete", "--source", "nothing.pdf", "--name", "kept", "--yes"), 4)
    assert "no file 'nothing.pdf' went into index 'kept'; it holds dose.pdf, notes.jsonl" in message
    (papers / "dose.pdf").write_bytes(kept)
    assert done(run("index", papers, "--name", "kept", "--json"))["added"] == 2


def test_damage_to_the_record_is_told(run, papers, tiny_encoder, tmp_path):
    succeeded(run("index", papers, "--encoder", tiny_encoder, "--name", "kept"))
    (tmp_path / "home" / "indexes" / "kept" / HOLDINGS).write_text("{", encoding="utf-8")
    assert "holdings.json is damaged" in failed(run("index", papers, "--name", "kept"), 5)
