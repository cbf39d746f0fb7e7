"""Files that commands write where the user says: nothing that biorag did not write is lost, and no input."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from biorag.corpus.sources import find_sources
from tests.cli import done, failed, invoke, succeeded
from tests.conftest import write_judged

BM25 = ("--mode", "bm25", "--no-rerank", "--json")
FOREIGN = ["a thesis\n", '{"file": "mine"}\n', "q1 Q0 d1 1 1.0 other-system\n", "\x1f\x8bnot gzip"]


def made(tmp_path):
    """Write a corpus that has a bad line, and a dataset."""
    (tmp_path / "corpus.jsonl").write_text('{"id": "s1", "title": "", "content": "Aspirin lowers fever."}\n{"id": 1}\n')
    write_judged(tmp_path / "data", {"q1": "aspirin?"}, [("q1", "s1", 1)])


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a corpus, a dataset, and no home yet."""
    monkeypatch.chdir(tmp_path)
    made(tmp_path)
    return tmp_path


def index(*arguments):
    return invoke("index", "corpus.jsonl", "--on-bad-line", "skip", *arguments)


@pytest.fixture(scope="module")
def template(tmp_path_factory, tiny_encoder):
    """Such a folder with a home in which the corpus is indexed."""
    folder = tmp_path_factory.mktemp("indexed")
    made(folder)
    words = ("--on-bad-line", "skip", "--encoder", tiny_encoder)
    succeeded(invoke("index", folder / "corpus.jsonl", *words, home=folder / "home"))
    return folder


@pytest.fixture
def indexed(template, tmp_path, monkeypatch):
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


WRITING = (  # commands up to the name of a file that they write
    ("snapshot", "save", "--force"),
    ("bench", "retrieval", "data", *BM25, "--force", "--run-file"),
    ("data", "sample", "corpus.jsonl", "--on-bad-line", "skip", "--sizes", "1", "--out"),
    ("verify", "--claims", "claims.jsonl", "--out"),
)


def test_no_output_replaces_an_input_whatever_it_is_called(indexed):
    (indexed / "link.jsonl").symlink_to("data/queries.jsonl")
    (indexed / "hard.jsonl").hardlink_to("data/queries.jsonl")
    config = indexed / "home" / "biorag.toml"
    config.write_text("k = 3\n")
    manifest = indexed / "home" / "indexes" / "default" / "manifest.json"
    inputs = ["data/queries.jsonl", "./data/../data/queries.jsonl", "link.jsonl", "hard.jsonl"]
    before = [(indexed / name).read_bytes() for name in (*inputs, config, manifest)]
    for name in inputs:
        failed(invoke("bench", "retrieval", "data", *BM25, "--run-file", name, "--force"), 2, "is read by this command")
    (indexed / "claims.jsonl").write_text('{"id": "c", "claim": "Aspirin lowers fever."}\n')
    for name in (config, manifest, manifest.parent.parent / "new"):
        for words in WRITING:
            refused = invoke(*words, name)
            assert refused.exit_code in (2, 5), (words, refused.stderr)
    assert not (manifest.parent.parent / "new").exists()
    assert [(indexed / name).read_bytes() for name in (*inputs, config, manifest)] == before


@pytest.mark.parametrize("leads_to", ["thesis", "nowhere", "out"])
def test_a_link_is_no_output(indexed, leads_to):
    (indexed / "thesis").touch()
    (indexed / "claims.jsonl").write_text('{"id": "c", "claim": "Aspirin lowers fever."}\n')
    (indexed / "out").symlink_to(leads_to)
    for words in WRITING:
        refused = invoke(*words, "out")
        assert refused.exit_code in (2, 5), (words, refused.stderr)
    assert (str((indexed / "out").readlink()), (indexed / "nowhere").exists()) == (leads_to, False)
    assert (indexed / "thesis").read_bytes() == b""


def test_a_pipe_that_nobody_reads_is_no_output(indexed):
    os.mkfifo(indexed / "out")
    failed(invoke("bench", "retrieval", "data", *BM25, "--run-file", "out", "--force"), 2, "nobody reads")
    assert (indexed / "out").is_fifo()
    (indexed / "home" / "cache").mkdir(exist_ok=True)
    os.mkfifo(indexed / "home" / "cache" / "last-hits.json")
    succeeded(invoke("search", "aspirin", "--mode", "bm25", "--no-rerank"))


def test_a_sentence_quotes_a_file_up_to_a_bound(place):
    (place / "wide.csv").write_text("," * 100_000 + "\n")
    for words in (("index", "wide.csv"), ("index", "wide.csv", "--on-bad-line", "skip")):
        assert len(failed(invoke(*words), 3, "no column", "content=Abstract")) < 2200


def test_an_output_replaces_an_earlier_one_and_with_force_another_file(indexed):
    writing = {
        "no snapshot": lambda *words: invoke("snapshot", "save", *words),
        "run file": lambda *words: invoke("bench", "retrieval", "data", *BM25, "--run-file", *words),
        "file of measures": lambda *words: invoke("bench", "retrieval", "data", *BM25, "--per-question", *words),
    }
    for kind, write in writing.items():
        for content in FOREIGN:
            (indexed / "mine").write_text(content)
            failed(write("mine"), 2, "mine", kind, "that biorag wrote")
            assert (indexed / "mine").read_text() == content
        asked = ["--yes"] if kind == "no snapshot" else []
        for words in (["mine", "--force"], ["mine", *asked], [f"new {kind}/out"]):
            succeeded(write(*words))
        (indexed / "mine").write_text("")
        succeeded(write("mine"))


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


def test_results_beside_files_of_the_users_replace_none_of_them(indexed):
    question = {"id": "g", "body": "aspirin?", "type": "factoid", "documents": ["http://x/pubmed/1"]}
    (indexed / "corpus.jsonl").write_text('{"id": "s2", "title": "", "content": "Aspirin lowers fever.", "PMID": 1}\n')
    succeeded(index())
    (indexed / "golden.json").write_text(json.dumps({"questions": [question]}))
    measure = ("bench", "bioasq", "golden.json", "--system", "bm25", "--out", "out", "--json")
    file = indexed / "out" / "report.json"
    file.parent.mkdir(parents=True)
    file.write_text("mine\n")
    (indexed / "out" / "notes.txt").write_text("mine too\n")
    failed(invoke(*measure), 2, "report.json", "no result that biorag wrote: name another file or folder")
    assert file.read_text() == "mine\n"
    file.unlink()
    for _ in range(2):
        assert done(invoke(*measure))["questions"] == 1
    assert (indexed / "out" / "notes.txt").read_text() == "mine too\n"


def test_a_folder_is_indexed_without_what_biorag_wrote_into_it(indexed, tiny_encoder):
    (indexed / "corpus.jsonl").write_text('{"id": "s1", "title": "", "content": "Aspirin lowers fever."}\n{"id": 1}\n')
    succeeded(index())
    shutil.copy(indexed / "home" / "indexes" / "default" / "rejects.jsonl", indexed)
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


def test_names_that_are_not_utf_8_are_indexed_and_shown_escaped(place, tiny_encoder):
    name = os.fsdecode(b"caf\xe9.jsonl")
    (place / name).write_text('{"id": "s1", "title": "", "content": "Aspirin lowers fever."}\n{"id": 1}\n')
    sentence = failed(invoke("index", name, "--encoder", tiny_encoder), 3)
    assert "caf\\xe9.jsonl, line 2" in sentence
    succeeded(invoke("index", name, "--encoder", tiny_encoder, "--on-bad-line", "skip"))
    rejects = place / "home" / "indexes" / "default" / "rejects.jsonl"
    assert json.loads(rejects.read_bytes())["file"] == "caf\\xe9.jsonl"
    assert done(invoke("info", "default", "--json"))["sources"][0]["name"] == "caf\\xe9.jsonl"
    assert done(invoke("index", name, "--on-bad-line", "skip", "--json"))["unchanged"] == 1
