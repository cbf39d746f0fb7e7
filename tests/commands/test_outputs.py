"""Files that commands write where the user says: nothing that biorag did not write is lost, and no input."""

from __future__ import annotations

import json
import os
import threading

import pytest

from biorag.corpus.sources import find_sources
from biorag.utils.files import write_text
from biorag.utils.locks import DirectoryLock
from tests.cli import done, failed, invoke, succeeded

BM25 = ("--mode", "bm25", "--no-rerank", "--json")
FOREIGN = ["a thesis\n", '{"file": "mine"}\n', "q1 Q0 d1 1 1.0 other-system\n", "\x1f\x8bnot gzip"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a corpus that has a bad line, a dataset, and a home."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.jsonl").write_text('{"id": "s1", "title": "", "content": "Aspirin lowers fever."}\n{"id": 1}\n')
    (tmp_path / "data" / "qrels").mkdir(parents=True)
    (tmp_path / "data" / "queries.jsonl").write_text('{"_id": "q1", "text": "aspirin?"}\n')
    (tmp_path / "data" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\ts1\t1\n")
    return tmp_path


def index(*arguments):
    return invoke("index", "corpus.jsonl", "--on-bad-line", "skip", *arguments)


@pytest.fixture
def indexed(place, tiny_encoder):
    succeeded(index("--encoder", tiny_encoder))
    return place


@pytest.mark.parametrize("name", ["corpus.jsonl", "./data/../corpus.jsonl", "link.jsonl", "hard.jsonl"])
def test_rejects_do_not_replace_the_corpus_whatever_it_is_called(place, tiny_encoder, name):
    (place / "link.jsonl").symlink_to("corpus.jsonl")
    (place / "hard.jsonl").hardlink_to("corpus.jsonl")
    before = (place / "corpus.jsonl").read_bytes()
    failed(index("--encoder", tiny_encoder, "--rejects", name), 2, "is read by this command")
    assert (place / "corpus.jsonl").read_bytes() == before
    assert (place / "link.jsonl").is_symlink()


@pytest.mark.parametrize("content", FOREIGN)
def test_rejects_replace_earlier_ones_and_nothing_else(place, tiny_encoder, content):
    (place / "mine.txt").write_text(content)
    failed(index("--encoder", tiny_encoder, "--rejects", "mine.txt"), 2, "mine.txt", "no rejects file")
    assert (place / "mine.txt").read_text() == content
    succeeded(index("--encoder", tiny_encoder, "--rejects", "rejects.jsonl"))
    first = (place / "rejects.jsonl").read_bytes()
    (place / "corpus.jsonl").write_text((place / "corpus.jsonl").read_text() + '{"id": 2}\n')
    succeeded(index("--encoder", tiny_encoder, "--rejects", "rejects.jsonl"))
    assert (place / "rejects.jsonl").read_bytes().startswith(first)
    assert len((place / "rejects.jsonl").read_bytes().splitlines()) == 2


def test_a_snapshot_replaces_an_earlier_one_and_nothing_else(indexed):
    for number, content in enumerate([*FOREIGN, (indexed / "corpus.jsonl").read_text()]):
        (indexed / f"mine{number}").write_text(content)
        failed(invoke("snapshot", "save", f"mine{number}"), 2, f"mine{number}", "no snapshot")
        assert (indexed / f"mine{number}").read_text() == content
    for _ in range(2):
        assert done(invoke("snapshot", "save", "saved.tar.gz", "--json"))["snippets"] == 1
    (indexed / "empty").touch()
    assert done(invoke("snapshot", "save", "empty", "--json"))["snippets"] == 1


@pytest.mark.parametrize("flag", ["--run-file", "--per-question"])
def test_results_replace_earlier_ones_and_no_input(indexed, flag):
    measure = ("bench", "retrieval", "data", *BM25, flag)
    for name, content in (("mine.txt", content) for content in FOREIGN):
        (indexed / name).write_text(content)
        failed(invoke(*measure, name), 2, name, "that biorag wrote")
        assert (indexed / name).read_text() == content
    for name in ("data/queries.jsonl", "data/qrels/test.tsv"):
        before = (indexed / name).read_bytes()
        failed(invoke(*measure, name), 2, "is read by this command")
        assert (indexed / name).read_bytes() == before
    for _ in range(2):
        assert done(invoke(*measure, "new/out"))["questions"] == 1
    assert [path.name for path in (indexed / "new").iterdir()] == ["out"]


def test_what_is_no_file_is_written_to_and_stays(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "through")
    reader.join(60)
    assert (read, pipe.is_fifo(), len(list(tmp_path.iterdir()))) == (["through"], True, 1)


@pytest.mark.parametrize("content", FOREIGN)
def test_force_replaces_a_file_that_biorag_did_not_write_but_no_input(indexed, content):
    (indexed / "mine").write_text(content)
    done(invoke("bench", "retrieval", "data", *BM25, "--run-file", "mine", "--force"))
    assert (indexed / "mine").read_bytes().startswith(b"q1 Q0 s1 1 1.0 biorag\n")
    (indexed / "mine").write_text(content)
    assert done(invoke("snapshot", "save", "mine", "--force", "--json"))["snippets"] == 1
    (indexed / "mine").write_text(content)
    succeeded(index("--rejects", "mine", "--force"))
    assert json.loads((indexed / "mine").read_text())["line"] == 2
    (indexed / "pairs.jsonl").write_text('{"query": "aspirin", "positive": "Aspirin lowers fever."}\n')
    before = (indexed / "pairs.jsonl").read_bytes()
    (indexed / "hard").hardlink_to("pairs.jsonl")
    (indexed / "soft").symlink_to("pairs.jsonl")
    for link in ("pairs.jsonl", "hard", "soft"):
        filtered = ("generate", "filter", "pairs.jsonl", "--out", link, "--force")
        failed(invoke(*filtered), 2, "is read by this command")
    assert (indexed / "pairs.jsonl").read_bytes() == before


def test_no_output_replaces_the_configuration_or_a_part_of_an_index(indexed):
    file = indexed / "home" / "biorag.toml"
    file.write_text("k = 3\n")
    inside = indexed / "home" / "indexes" / "default" / "manifest.json"
    before = inside.read_bytes()
    for target in (file, inside):
        for words in (
            ("snapshot", "save", target, "--force"),
            ("bench", "retrieval", "data", *BM25, "--run-file", target, "--force"),
            ("bench", "retrieval", "data", *BM25, "--per-question", target, "--force"),
            ("index", "corpus.jsonl", "--on-bad-line", "skip", "--rejects", target, "--force"),
        ):
            failed(invoke(*words), 2, "is read by this command")
    assert file.read_text() == "k = 3\n"
    assert inside.read_bytes() == before


def test_a_survey_that_fails_leaves_the_rejects_of_the_one_before(place, tiny_encoder):
    succeeded(index("--encoder", tiny_encoder, "--rejects", "rejects.jsonl"))
    first = (place / "rejects.jsonl").read_bytes()
    (place / "corpus.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    failed(index("--encoder", tiny_encoder, "--rejects", "rejects.jsonl"), 3, "holds no snippet")
    assert len((place / "rejects.jsonl").read_bytes().splitlines()) == 2
    (place / "corpus.jsonl").write_text('{"id": "s1", "title": "", "content": "Aspirin lowers fever."}\n')
    succeeded(index("--encoder", tiny_encoder, "--rejects", "rejects.jsonl"))
    assert first
    assert not (place / "rejects.jsonl").exists()


def mirage(out, *more):
    asked = ("bench", "mirage", "--benchmark", "demo", "--limit", "1", "--answer", "evidence", "--out", out)
    return invoke(*asked, *BM25, *more)


def test_a_folder_with_files_of_the_users_takes_no_results(indexed):
    (indexed / "thesis").mkdir()
    for name in ("report.json", "notes.txt", "lock"):
        (indexed / "thesis" / name).write_text("mine\n")
        failed(mirage("thesis"), 5, "thesis holds something other than a MIRAGE run")
        assert (indexed / "thesis" / name).read_text() == "mine\n"
        (indexed / "thesis" / name).unlink()
    assert done(mirage("thesis"))["manifest"]["answered"] == 5


@pytest.mark.parametrize("name", ["report.json", "bm25/golden.json", "lock"])
def test_results_beside_files_of_the_users_replace_none_of_them(indexed, name):
    question = {"id": "g", "body": "aspirin?", "type": "factoid", "documents": ["http://x/pubmed/1"]}
    (indexed / "corpus.jsonl").write_text('{"id": "s2", "title": "", "content": "Aspirin lowers fever.", "PMID": 1}\n')
    succeeded(index())
    (indexed / "golden.json").write_text(json.dumps({"questions": [question]}))
    measure = ("bench", "bioasq", "golden.json", "--system", "bm25", "--out", "out", "--json")
    file = indexed / "out" / name
    file.parent.mkdir(parents=True)
    file.write_text("mine\n")
    (indexed / "out" / "notes.txt").write_text("mine too\n")
    failed(invoke(*measure), 2, name, "biorag did not write it")
    assert file.read_text() == "mine\n"
    file.unlink()
    for _ in range(2):
        assert done(invoke(*measure))["questions"] == 1
    assert (indexed / "out" / "notes.txt").read_text() == "mine too\n"
    assert not (indexed / "out" / "lock").exists()


@pytest.mark.parametrize("name", ["out", "golden"])
def test_a_second_process_is_kept_out_of_a_folder_of_results(indexed, name):
    with DirectoryLock(indexed / name, exclusive=True, what="test"):
        failed(mirage(name), 6, name, "is being written by process")
    assert done(mirage(name))["manifest"]["answered"] == 5


def test_a_manifest_that_is_the_users_is_not_replaced(indexed):
    (indexed / "claims.jsonl").write_text('{"id": "c", "claim": "Aspirin lowers fever."}\n')
    (indexed / "out.jsonl.manifest.json").write_text('{"name": "my web app"}\n')
    judge = ("verify", "--claims", "claims.jsonl", "--out", "out.jsonl", *BM25)
    failed(invoke(*judge), 5, "out.jsonl.manifest.json")
    assert (indexed / "out.jsonl.manifest.json").read_text() == '{"name": "my web app"}\n'
    (indexed / "out.jsonl.manifest.json").unlink()
    assert done(invoke(*judge))["claims"] == 1


def test_a_folder_is_indexed_without_what_biorag_wrote_into_it(indexed, tiny_encoder):
    (indexed / "corpus.jsonl").write_text('{"id": "s1", "title": "", "content": "Aspirin lowers fever."}\n{"id": 1}\n')
    succeeded(index("--rejects", "rejects.jsonl"))
    (indexed / "claims").mkdir()
    (indexed / "c.txt").write_text('{"id": "c", "claim": "Aspirin lowers fever."}\n')
    done(invoke("verify", "--claims", "c.txt", "--out", "claims/verdicts.jsonl", *BM25))
    done(invoke("bench", "retrieval", "data", *BM25, "--per-question", "questions.jsonl"))
    done(mirage("mirage"))
    (indexed / "data" / "queries.jsonl").unlink()
    found = [source.name for source in find_sources(["."], indexed / "spool", indexed / "home")]
    assert found == ["corpus.jsonl"]
    (indexed / "home" / "kept.jsonl").write_text("{}\n")
    assert [source.name for source in find_sources(["."], indexed / "spool", indexed / "home")] == found


def test_ids_with_white_space_make_no_run_file(place, tiny_encoder):
    (place / "corpus.jsonl").write_text('{"id": "s 1", "title": "", "content": "Aspirin lowers fever."}\n')
    succeeded(invoke("index", "corpus.jsonl", "--encoder", tiny_encoder))
    (place / "data" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\ts 1\t1\n")
    failed(invoke("bench", "retrieval", "data", *BM25, "--run-file", "run.trec"), 3, "'s 1'", "white space")
    assert not (place / "run.trec").exists()
    assert done(invoke("bench", "retrieval", "data", *BM25, "--per-question", "rows"))["metrics"]["R@5"] == 1.0


def test_names_that_are_not_utf_8_are_indexed_and_shown_escaped(place, tiny_encoder):
    name = os.fsdecode(b"caf\xe9.jsonl")
    (place / name).write_text('{"id": "s1", "title": "", "content": "Aspirin lowers fever."}\n{"id": 1}\n')
    sentence = failed(invoke("index", name, "--encoder", tiny_encoder), 3)
    assert "caf\\xe9.jsonl, line 2" in sentence
    succeeded(invoke("index", name, "--encoder", tiny_encoder, "--on-bad-line", "skip", "--rejects", name + "l"))
    assert json.loads((place / (name + "l")).read_bytes())["file"] == "caf\\xe9.jsonl"
    assert done(invoke("info", "default", "--json"))["sources"][0]["name"] == "caf\\xe9.jsonl"
    assert done(invoke("index", name, "--on-bad-line", "skip", "--json"))["unchanged"] == 1
    out = os.fsdecode(b"run\xff")
    assert done(mirage(out))["manifest"]["answered"] == 5
    assert done(mirage(out))["manifest"]["resumed"] == 5
    done(invoke("bench", "retrieval", "data", *BM25, "--run-file", out + ".trec"))
    saved = done(invoke("snapshot", "save", out + ".tar.gz", "--json"))
    assert saved["file"] == "run\\xff.tar.gz"
