"""Files that commands write where the user says: nothing that biorag did not write is lost, and no input."""

from __future__ import annotations

import os
import threading

import pytest

from biorag.utils.files import write_text
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
