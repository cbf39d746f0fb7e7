"""`biorag bench latency` on the demonstration index."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from biorag import engine
from biorag.benchmarks.latency.run import loaded_token_models
from biorag.engine import SnippetEncoders
from biorag.indexes.manifest import TokenParameters
from biorag.models.finding import ModelFiles
from biorag.models.late_interaction import StoredLateInteraction
from tests.cli import invoke

pytestmark = pytest.mark.models

QUICK = ["--repetitions", "2", "--warm-up", "0", "--seconds", "1", "--index-limit", "12", "--limit", "6"]
QUICK += ["--batch-sizes", "1,4", "--k-init", "3"]
TIMING = {"n", "mean", "p50", "p95", "p99"}
bench = partial(invoke, "bench", "latency")


@pytest.fixture(scope="module")
def home(demo_home):
    return {"home": demo_home}


@pytest.fixture
def dataset(tmp_path):
    folder = tmp_path / "asked"
    (folder / "qrels").mkdir(parents=True)
    texts = ["Why is pyridoxine given with isoniazid?", "Does warfarin need monitoring?", "What treats malaria?"]
    rows = [json.dumps({"_id": f"q{n}", "text": text}) for n, text in enumerate(texts)]
    (folder / "queries.jsonl").write_text("\n".join(rows))
    (folder / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(f"q{n}\td\t1\n" for n in range(3))
    )
    return folder


@pytest.mark.slow
def test_everything_is_measured_and_written(home, tmp_path):
    out = tmp_path / "out"
    result = bench(*QUICK, "--out", out, "--json", **home)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert json.loads((out / "latency.json").read_text()) == report
    assert (out / "latency.png").read_bytes().startswith(b"\x89PNG")

    assert set(report) == {"machine", "index", "settings", "stages", "memory"}
    assert (report["index"]["name"], report["index"]["snippets"]) == ("default", 263)
    assert report["index"]["bytes_per_snippet"] > 384 * 4
    settings = report["settings"]
    assert (settings["repetitions"], settings["questions"], settings["index_snippets"]) == (2, 6, 12)
    assert settings["questions_from"] == "titles of the index's snippets"
    assert "torch" in settings["threads"]
    assert report["memory"]["peak_bytes"] > 0

    stages = report["stages"]
    assert set(stages["index"]) == {"encode", "bm25", "write", "optimize", "total"}
    for by_size in (stages["encode_queries"], *stages["first_stage"].values()):
        assert set(by_size) == {"1", "4"}
        for size, timed in by_size.items():
            assert set(timed) == TIMING | {"ms_per_query"}
            assert timed["ms_per_query"] == pytest.approx(timed["mean"] / int(size), abs=1e-3)
    assert set(stages["first_stage"]) == {"bm25", "dense", "hybrid"}
    assert stages["rerank"]["k_init"] == 3
    assert set(stages["fetch"]) == set(stages["total_without_generator"]) == TIMING
    assert (stages["generation"], stages["total_with_generator"]) == (None, None)


@pytest.mark.slow
@pytest.mark.long
def test_a_generator_is_measured_where_one_is_named(home):
    result = bench(*QUICK, "--llm", "starter", "--max-tokens", "8", "--k", "1", "--json", BIORAG_THREADS="1", **home)
    assert result.exit_code == 0, result.output
    stages = json.loads(result.stdout)["stages"]
    generation = stages["generation"]
    assert (generation["questions"], set(generation["generate"])) == (2, TIMING)
    assert stages["total_with_generator"]["p50"] > stages["total_without_generator"]["p50"]


@pytest.mark.parametrize(
    ("weights", "stored", "loaded"), [("same", True, False), ("other", True, True), ("same", False, True)]
)
def test_a_reranker_that_was_loaded_to_index_with_is_not_loaded_again(settings, monkeypatch, weights, stored, loaded):
    index, tokens, anew = object(), object(), object()
    monkeypatch.setattr(
        "biorag.retrieval.rerankers.find_encoder", lambda spec: ModelFiles(spec, "", Path(spec), weights)
    )
    monkeypatch.setattr("biorag.models.colbert.ColBERT", lambda files, precision: anew)
    parameters = TokenParameters("/models/colbert", "", "same", 8, 1)
    encoders = SnippetEncoders(None, *((tokens, parameters) if stored else (None, None)))
    manifest = SimpleNamespace(name="small", tokens=encoders.parameters)
    settings = settings.replace(reranker="colbert")
    (reranker,) = engine.load_rerankers(settings, None, index, manifest, loaded_token_models(encoders))
    assert reranker._encoder is (anew if loaded else tokens)
    assert isinstance(reranker, StoredLateInteraction) == (not loaded)
    assert engine.load_rerankers(settings.replace(rerank=False), None, index, manifest, {}) == []
