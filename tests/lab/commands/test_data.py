"""`biorag data` from the command line: what it writes is read by the commands that it is for."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests import cli
from tests.cli import done, failed, succeeded
from tests.lab.conversion.published import MEDRAG, PQAL, write_lines


@pytest.fixture
def invoke(tmp_path):
    return partial(cli.invoke, home=tmp_path / "home")


@pytest.fixture
def write(tmp_path):
    def write(name: str, record) -> Path:
        path = tmp_path / name
        path.write_text(json.dumps(record))
        return path

    return write


def test_a_converted_set_is_indexed_measured_and_mined(invoke, write, tmp_path, tiny_encoder):
    out = tmp_path / "pqal"
    report = done(invoke("data", "convert", "pubmedqa", write("ori_pqal.json", PQAL), "--out", out, "--json"))
    assert {key: report[key] for key in ("questions", "snippets", "answers", "rejected")} == {
        "questions": 3,
        "snippets": 3,
        "answers": 3,
        "rejected": 0,
    }
    assert report["files"] == ["answers.jsonl", "corpus.jsonl", "qrels/test.tsv", "queries.jsonl"]
    assert done(invoke("index", out, "--encoder", tiny_encoder, "--json"))["snippets"] == 3
    measured = done(invoke("bench", "retrieval", out, "--mode", "bm25", "--no-rerank", "--json"))
    assert measured["questions"] == 3
    assert measured["metrics"]["success@10"] == 1.0
    mined = done(invoke("mine", out, "--negatives", "random", "--out", tmp_path / "mined.jsonl", "--json"))
    assert mined["rows"] == 3


def test_the_samples_of_the_paper_are_disjoint(invoke, write, tmp_path):
    """In small: questions, then documents for an index and for a first phase of training (M+C, section 3.2.1)."""
    pmids = [*map(int, PQAL), *range(50, 90)]
    chunks = write_lines(tmp_path / "chunk.jsonl", [{**MEDRAG[0], "id": f"c{n}", "PMID": n} for n in pmids])
    succeeded(invoke("data", "convert", "pubmedqa", write("ori_pqaa.json", PQAL), "--out", tmp_path / "pqaa"))
    succeeded(invoke("data", "sample", tmp_path / "pqaa", "--sizes", 2, "--seed", 3, "--out", tmp_path / "pairs"))
    excluded = ["--exclude", tmp_path / "pairs" / "sample-1"]
    words = [chunks, "--sizes", "30,11", "--seed", 3, *excluded, "--out", tmp_path / "mc", "--json"]
    assert done(invoke("data", "sample", *words))["excluded"] == 2
    drawn = [
        {json.loads(line)["metadata"]["PMID"] for line in (tmp_path / name / "corpus.jsonl").read_text().splitlines()}
        for name in ("pairs/sample-1", "mc/sample-1", "mc/sample-2")
    ]
    assert [len(numbers) for numbers in drawn] == [2, 30, 11]
    assert len(set.union(*drawn)) == 43


def test_bad_records_are_skipped_on_demand(invoke, write, tmp_path):
    file = write("ori_pqal.json", {"7": {"QUESTION": "?"}, **PQAL})
    words = ["data", "convert", "pubmedqa", file, "--out", tmp_path / "out"]
    failed(invoke(*words), 3, "ori_pqal.json, entry 1: 7: 'CONTEXTS'", "--on-bad-line skip")
    result = succeeded(invoke(*words, "--on-bad-line", "skip"))
    assert "1 bad line was skipped" in result.stderr
    assert "rejects.jsonl" in result.stderr.replace("\n", "")


def test_what_cannot_be_done_is_said(invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    unknown = invoke("data", "convert", "bioask", "x", "--out", "o")
    failed(unknown, 2, "unknown format 'bioask': use one of abstracts, beir, bioasq")
    failed(invoke("data", "sample", "x", "--sizes", "3,0", "--out", "o"), 2, "--sizes '3,0'")
    assert not (tmp_path / "o").exists()
