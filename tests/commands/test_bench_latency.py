"""`biorag bench latency` on the demonstration index."""

from __future__ import annotations

import json
from functools import partial

import pytest

from tests.cli import failed, invoke
from tests.tiny_colbert import write_published

pytestmark = pytest.mark.models

QUICK = ["--repetitions", "2", "--seconds", "1", "--index-limit", "12", "--limit", "6"]
QUICK += ["--batch-sizes", "1,4", "--k-init", "3"]
TIMING = {"n", "mean", "p50", "p95", "p99"}
bench = partial(invoke, "bench", "latency")


@pytest.fixture(scope="module")
def home(demo_home):
    return {"home": demo_home}


def test_a_file_for_a_folder_is_refused_before_anything_is_measured(home, tmp_path):
    (tmp_path / "out").write_text("notes")
    result = bench(*QUICK, "--out", tmp_path / "out", **home)
    assert result.exit_code == 2 and "name a folder" in " ".join(result.stderr.split())
    assert (tmp_path / "out").read_text() == "notes"


def test_a_baseline_without_its_package_is_refused_before_an_index_is_opened(tmp_path, monkeypatch):
    monkeypatch.setattr("biorag.utils.versions.installed_versions", lambda packages: packages != ["rank-bm25"])
    refused = bench(*QUICK, "--baseline", "--name", "none", home=tmp_path)
    failed(refused, 4, "this needs the package 'rank-bm25': run pip install 'biorag[bench]'")
    failed(bench(*QUICK, "--name", "none", home=tmp_path), 4, "index 'none' is not there")


@pytest.mark.slow
def test_everything_is_measured_and_written(home, tmp_path):
    out = tmp_path / "out"
    result = bench(*QUICK, "--out", out, "--json", **home)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert json.loads((out / "latency.json").read_text()) == report

    assert set(report) == {"machine", "index", "settings", "stages", "systems", "memory"}
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
    ours = {"index": stages["index"]["encode"]["ms_per_snippet"], "query": stages["encode_queries"]["1"]["mean"]}
    assert report["systems"] == {"biorag": {**ours, "total": stages["total_without_generator"]["mean"]}}


@pytest.mark.slow
def test_baselines_are_rank_bm25_and_the_same_checkpoint_by_colbert_ai(home, tiny_encoder, tmp_path):
    checkpoint = write_published(tmp_path / "colbert", tiny_encoder)
    result = bench(*QUICK, "--baseline", "--mode", "bm25", "--reranker", checkpoint, "--json", **home)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    stages, searched = report["stages"], report["stages"]["first_stage"]["rank_bm25"]
    assert set(searched) == {"1"}
    of_bm25 = {"index": stages["index"]["rank_bm25"]["ms_per_snippet"], "query": searched["1"]["mean"]}
    assert report["systems"]["rank_bm25"] == {**of_bm25, "total": searched["1"]["mean"]}
    assert stages["index"]["rank_bm25"]["ms_per_snippet"] > 0
    assert set(stages["rerank_colbert_ai"]) == TIMING
    shown = bench(*QUICK, "--baseline", "--no-rerank", **home).stdout
    assert "rank_bm25" in shown and "rerank_colbert_ai" not in shown, "--no-rerank has no checkpoint to time"
