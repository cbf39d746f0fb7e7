"""Files of an earlier day still serve: an index, settings and a finished run, as of 2026-11-23.

The index holds the fifteen snippets of `corpus.jsonl`, encoded by the starter encoder in fp32. When a format changes on
purpose, keep these files, add new ones beside them, and say in the changelog what a user has to do.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from biorag.cli import app

pytestmark = [pytest.mark.slow, pytest.mark.models]
FILES = Path(__file__).parent / "files"
QUESTION = "What is given for hyperkalaemia?"
BEST = {
    "bm25": [("demo_191", 0.492543)],
    "dense": [("demo_040", 0.807362), ("demo_026", 0.70241), ("demo_217", 0.657624)],
    "hybrid": [("demo_040", 0.807362), ("demo_026", 0.70241), ("demo_217", 0.657624)],
}
SETTINGS = {
    "name": "today",
    "mode": "dense",
    "lambda": 0.07,
    "fusion": "rrf",
    "k_init": 50,
    "reranker": "encoder@40,cross:models/ce@10",
    "similarity": "dot",
    "bm25_k": 1.2,
    "bm25_b": 0.4,
    "llm": "http://localhost:8080/v1",
    "train_learning_rate": 1e-05,
    "train_lora_rank": 8,
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home with the index of that day."""
    home = tmp_path_factory.mktemp("home")
    with tarfile.open(FILES / "index.tar.xz") as archive:
        archive.extractall(home / "indexes", filter="data")
    return home


def report(home: Path, *words: object) -> dict:
    variables = {"BIORAG_HOME": str(home), "BIORAG_PRECISION": "fp32", "HF_HUB_OFFLINE": "1"}
    result = CliRunner().invoke(app, [*map(str, words), "--json"], env=variables)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("mode", BEST)
def test_an_index_opens_and_finds_what_it_found(home, mode):
    hits = report(home, "search", QUESTION, "--name", "today", "-k", 3, "--mode", mode)["hits"]
    assert [hit["id"] for hit in hits] == [id for id, _ in BEST[mode]]
    assert [hit["score"] for hit in hits] == pytest.approx([score for _, score in BEST[mode]], abs=2e-3)


def test_a_finished_run_is_not_run_again(home, tmp_path):
    for name in ("verdicts.jsonl", "verdicts.jsonl.manifest.json"):
        shutil.copy(FILES / name, tmp_path)
    out = tmp_path / "verdicts.jsonl"
    retrieval = ("--name", "today", "--mode", "bm25", "--no-rerank", "--reader", "none")
    counts = report(home, "verify", "--claims", FILES / "claims.jsonl", *retrieval, "--out", out)
    assert counts == {"out": str(out), "claims": 2, "supported": 1, "unsupported": 1, "contradicted": 0, "unsure": 0}
    assert out.read_bytes() == (FILES / "verdicts.jsonl").read_bytes()


def test_a_file_of_settings_is_read(home):
    settings = report(home, "--config", FILES / "biorag.toml", "info", "--settings")
    assert {name: settings[name] for name in SETTINGS} == SETTINGS


def test_an_index_is_brought_up_to_date(home):
    again = report(home, "index", FILES / "corpus.jsonl", "--name", "today")
    assert (again["added"], again["updated"], again["unchanged"]) == (0, 0, 15)
