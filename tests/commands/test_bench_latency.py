"""`biorag bench latency` on the demonstration index, with baselines, growth and files; and what it refuses."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from biorag import engine
from biorag.benchmarks.latency import growth
from biorag.benchmarks.latency.run import loaded_token_models
from biorag.engine import SnippetEncoders
from biorag.errors import ServiceError
from biorag.indexes.manifest import TokenParameters
from biorag.models.finding import ModelFiles
from biorag.models.late_interaction import StoredLateInteraction
from tests.cli import failed, invoke

pytestmark = pytest.mark.models

QUICK = ["--repetitions", "2", "--warm-up", "0", "--seconds", "1", "--index-limit", "12", "--limit", "6"]
QUICK += ["--batch-sizes", "1,4", "--k-init", "3"]
TIMING = {"n", "mean", "p50", "p95", "p99"}
bench = partial(invoke, "bench", "latency")
ALL = "rank_bm25,bm25s,sentence-transformers,qdrant-local"


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


def test_a_run_that_ends_early_keeps_the_sizes_before(home, tmp_path, monkeypatch):
    grow = growth.grow

    def failing(subject, corpus, asked, size, *rest):
        if size == 60:
            raise ServiceError("no room")
        return grow(subject, corpus, asked, size, *rest)

    monkeypatch.setattr(growth, "grow", failing)
    monkeypatch.setattr(growth, "memory_of_opening", growth._opened)
    out = tmp_path / "out"
    result = bench(*QUICK, "--no-rerank", "--sizes", "30,60", "--out", out, **home)
    failed(result, ServiceError.exit_code, "no room")
    unfinished = json.loads((out / "latency.unfinished.json").read_text())
    assert [grown["snippets"] for grown in unfinished["growth"]] == [30]
    assert not (out / "latency.json").exists(), "one of an earlier run would be kept"


@pytest.mark.slow
def test_everything_is_measured_and_written(home, tmp_path, monkeypatch):
    monkeypatch.setattr(growth, "memory_of_opening", growth._opened)
    out = tmp_path / "out"
    result = bench(*QUICK, "--baseline", ALL, "--sizes", "50,100", "--quantize", "--out", out, "--json", **home)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert json.loads((out / "latency.json").read_text()) == found
    assert not (out / "latency.unfinished.json").exists()
    for name in ("latency.png", "growth.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")

    assert set(found) == {"machine", "index", "settings", "stages", "memory", "baselines", "growth", "doublings"}
    assert (found["index"]["name"], found["index"]["snippets"]) == ("default", 263)
    assert found["index"]["bytes_per_snippet"] > 384 * 4
    settings = found["settings"]
    assert (settings["repetitions"], settings["questions"], settings["index_snippets"]) == (2, 6, 12)
    assert settings["questions_from"] == "titles of the index's snippets"
    assert "recombined" in settings["growth"]
    assert "torch" in settings["threads"]
    assert found["memory"]["peak_bytes"] > 0

    stages = found["stages"]
    assert set(stages["index"]) == {"encode", "bm25", "write", "optimize", "total"}
    batched = [stages["encode_queries"], *(stages["first_stage"][mode] for mode in ("bm25", "dense", "hybrid"))]
    for by_size in batched:
        assert set(by_size) == {"1", "4"}
        for size, timed in by_size.items():
            assert set(timed) == TIMING | {"ms_per_query"}
            assert timed["ms_per_query"] == pytest.approx(timed["mean"] / int(size), abs=1e-3)
    assert stages["rerank"]["k_init"] == 3
    assert set(stages["fetch"]) == set(stages["total_without_generator"]) == TIMING
    assert (stages["generation"], stages["total_with_generator"]) == (None, None)

    compared = {(each["baseline"], each["task"]): each for each in found["baselines"]}
    assert set(compared) == {
        ("sentence-transformers", "encode"),
        ("qdrant-local", "write"),
        ("sentence-transformers + qdrant-local", "encode and write"),
        ("sentence-transformers", "encode 1 questions"),
        ("sentence-transformers", "encode 4 questions"),
        ("rank_bm25", "search, bm25"),
        ("bm25s", "search, bm25"),
        ("qdrant-local", "search, dense"),
    }
    dense = compared["qdrant-local", "search, dense"]
    assert (dense["snippets"], dense["ours_recall"], dense["theirs_recall"]) == (263, 1.0, 1.0)
    assert [(each["snippets"], each["quantized"]) for each in found["growth"]] == [
        (50, False),
        (50, True),
        (100, False),
        (100, True),
    ]
    assert [len(each["baselines"]) for each in found["growth"]] == [3, 0, 3, 0]


@pytest.mark.slow
def test_tables_say_what_was_measured_on_what(home, dataset):
    result = bench(*QUICK, "--questions", dataset, "--no-rerank", "--mode", "bm25", **home)
    assert result.exit_code == 0, result.output
    for part in ("Machine: ", "CPU flags: ", "Index default: 263 snippets", "Questions: 3, asked", "Memory of this"):
        assert part in result.stdout
    for title in ("Indexing 12 snippets", "Encoding questions, and the first stage", "One question at a time, bm25"):
        assert title in result.stdout
    assert "rerank" not in result.stdout
    assert "Generation" not in result.stdout


@pytest.mark.slow
@pytest.mark.long
def test_a_generator_is_measured_where_one_is_named(home):
    result = bench(*QUICK, "--llm", "starter", "--max-tokens", "8", "--k", "1", "--json", BIORAG_THREADS="1", **home)
    assert result.exit_code == 0, result.output
    stages = json.loads(result.stdout)["stages"]
    found = stages["generation"]
    assert (found["questions"], set(found["generate"])) == (2, TIMING)
    assert found["prompt_tokens"] > 50
    assert found["prompt_tokens_per_s"] > 0
    assert found["output_tokens_per_s"] > 0
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
    (found,) = engine.load_rerankers(settings, None, index, manifest, loaded_token_models(encoders))
    assert found._encoder is (anew if loaded else tokens)
    assert isinstance(found, StoredLateInteraction) == (not loaded)
    assert engine.load_rerankers(settings.replace(rerank=False), None, index, manifest, {}) == []


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (["--baseline", "elastic"], 2, ["unknown baseline 'elastic'", "bm25s, qdrant-local, rank_bm25, sentence"]),
        (["--batch-sizes", "1,x"], 2, ["--batch-sizes '1,x'", "1,10,2000"]),
        (["--sizes", "0"], 2, ["--sizes '0'"]),
        (["--name", "nothing"], 4, ["index 'nothing' is not there"]),
    ],
)
def test_what_cannot_be_measured_is_said_in_a_sentence(arguments, code, parts):
    failed(bench(*arguments), code, *parts)


def test_a_file_in_place_of_the_folder_is_refused_before_measuring(tmp_path):
    (tmp_path / "file").write_text("")
    failed(bench("--out", tmp_path / "file"), 2, "is a file", "--out")
