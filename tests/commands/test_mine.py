"""`biorag mine` on the demonstration index: what is written, what is refused, and with which exit code."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from biorag.training.rows import read_rows
from tests import cli
from tests.cli import done, failed
from tests.conftest import write_demo_questions

REPORT_KEYS = {
    *("out", "kind", "rows", "negatives", "per_row_mean", "without", "resumed", "contaminated", "matches", "input"),
    "seconds",
}


@pytest.fixture
def no_encoder(monkeypatch):
    """The encoder must not be loaded."""

    def refuse(*_):
        raise AssertionError("the encoder was loaded")

    monkeypatch.setattr("biorag.engine.load_encoder", refuse)


@pytest.fixture
def beir(tmp_path) -> Path:
    """The demonstration questions with their judged snippets, whose texts are in the index."""
    return write_demo_questions(tmp_path / "demo-beir")


@pytest.fixture
def pairs(tmp_path) -> Path:
    path = tmp_path / "pairs.jsonl"
    rows = [{"query": f"Why is the {part} painful?", "positive": f"The {part} is inflamed."} for part in PARTS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


PARTS = ["liver", "kidney", "heart", "lung"]


@pytest.fixture
def invoke(demo_home):
    return partial(cli.invoke, home=demo_home)


@pytest.fixture
def mine(invoke):
    def mine(*arguments, **options):
        return done(invoke("mine", *arguments, "--json", **options))

    return mine


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def searched(invoke, query: str, *options) -> list[dict]:
    result = invoke("search", query, *options, "--no-rerank", "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["hits"]


# --- bm25 and random need no encoder ------------------------------------------------------------------------


def test_bm25_negatives_are_those_that_search_finds(mine, invoke, beir, tmp_path, no_encoder):
    out = tmp_path / "runs" / "bm25.jsonl"
    report = mine(beir, "--negatives", "bm25", "--per-row", 32, "--out", out)
    written, (rows, _) = lines(out), read_rows([out])
    assert report.keys() == REPORT_KEYS
    assert (report["out"], report["kind"], report["contaminated"], report["resumed"]) == (str(out), "bm25", 0, 0)
    assert report["rows"] == len(written) == report["input"]["rows"] - report["without"]
    assert report["negatives"] == sum(len(line["negatives"]) for line in written)
    assert report["per_row_mean"] == round(report["negatives"] / report["rows"], 2)
    golds: dict[str, set[str]] = {}
    for line in written:
        golds.setdefault(line["query"], set()).add(line["positive_id"])
    for line, row in zip(written, rows, strict=True):
        hits = searched(invoke, line["query"], "--mode", "bm25", "-k", 42)
        left = [hit for hit in hits if hit["id"] not in golds[line["query"]]][-32:]
        assert [(one["id"], one["rank"]) for one in line["negatives"]] == [(hit["id"], hit["rank"]) for hit in left]
        assert [one["score"] for one in line["negatives"]] == [hit["score"] for hit in left]
        assert list(row.negatives) == [line[f"negative_{n}"] for n in range(1, len(left) + 1)]
        assert all(hit["content"] in text for hit, text in zip(left, row.negatives, strict=True))
        assert (row.kind, row.query_id, row.positive_id) == ("bm25", line["query_id"], line["positive_id"])


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--negatives", "in-batch"], ["none are mined", "train retriever PAIRS --negatives in-batch"]),
        (["--negatives", "hard"], ["'hard'", "bm25, bm25-hits, citation, random, retriever"]),
        (["--negatives", "bm25", "--ranks", "1-5"], ["--ranks", "retriever"]),
        (["--negatives", "retriever", "--mode", "bm25"], ["'bm25'", "dense, hybrid"]),
        (["--negatives", "retriever", "--ranks", "9-5"], ["'9-5'", "FIRST-LAST"]),
    ],
)
def test_wrong_usage(invoke, pairs, tmp_path, no_encoder, arguments, parts):
    failed(invoke("mine", pairs, "--out", tmp_path / "mined.jsonl", *arguments), 2, *parts)
    assert not (tmp_path / "mined.jsonl").exists()
