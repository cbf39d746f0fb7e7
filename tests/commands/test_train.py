"""`biorag train` on tiny random models: what is written and printed, what is refused, what can be done with it."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from pathlib import Path

import pytest

from biorag.errors import BioragError
from biorag.training import parity, run_directory
from biorag.training.rows import is_held_out, read_rows, split
from biorag.types import Snippet
from tests.cli import Ended, done, failed, invoke, run, start, wait_until
from tests.conftest import WORDS, write_medrag
from tests.fakes import scores_of

pytestmark = pytest.mark.models

COUPLES = [(one, other) for one in WORDS for other in WORDS if one != other][::3]
PAIRS = [{"query": f"{one} and {other}?", "positive": f"{one} heals the {other}."} for one, other in COUPLES]
MINED = [
    {**pair, "negative_1": f"{other} hurts.", "negative_2": "a gene.", "kind": "bm25"}
    for pair, (_, other) in zip(PAIRS, COUPLES, strict=True)
]
FAST = ["--precision", "fp32", "--batch-size", "8", "--max-tokens", "32", "--evaluations", "2", "--validation", "0.2"]
SHORT = ["--query-tokens", "12"]
REPORTED = {
    "out",
    "stopped_by",
    "complete",
    "identity",
    "base",
    "data",
    "command",
    "rows",
    "without_negatives",
    "processes",
    "batch_size",
    "steps",
    "resumed_from_step",
    "final_loss",
    "best",
    "seconds",
    "hardware",
    "versions",
}


def write_jsonl(path: Path, rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def pairs(tmp_path) -> Path:
    return write_jsonl(tmp_path / "pairs.jsonl", PAIRS)


@pytest.fixture(scope="module")
def mined(tmp_path_factory) -> Path:
    return write_jsonl(tmp_path_factory.mktemp("rows") / "mined.jsonl", MINED)


@pytest.fixture
def train(tiny_encoder):
    """Run `biorag train STAGE DATA… --base ENCODER` with few steps; options given win."""

    def train(stage, *arguments, base=tiny_encoder, home=None):
        short = SHORT if stage == "reranker" else []
        return invoke("train", stage, "--base", base, *FAST, *short, *arguments, home=home)

    return train


@pytest.fixture(scope="module")
def models(tiny_encoder, mined, tmp_path_factory):
    """A retriever trained for dot products and a reranker trained on mined rows, with what the commands gave."""
    made = tmp_path_factory.mktemp("models")
    base = ["--base", tiny_encoder, *FAST, "--json"]
    retriever = invoke("train", "retriever", mined, *base, "--similarity", "dot", "--out", made / "retriever")
    reranker = invoke("train", "reranker", mined, *base, *SHORT, "--out", made / "reranker")
    return {"retriever": (made / "retriever", retriever), "reranker": (made / "reranker", reranker)}


# --- what is trained on -------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["retriever", "reranker"])
def test_json_is_the_manifest_and_nothing_else(models, stage, mined, tiny_encoder):
    out, result = models[stage]
    found = done(result)
    rows, _ = read_rows([mined])
    training, validation = split(rows, 0.2, 0)
    assert found.keys() - {"difference_from_colbert_ai"} == REPORTED
    assert ("difference_from_colbert_ai" in found) == (stage == "reranker")
    assert {"out": str(out), **json.loads((out / "training.json").read_text())} == found
    identity = found["identity"]
    assert (identity["kind"], identity["negatives"]) == (stage, "in-batch")
    assert found["base"] == str(tiny_encoder.resolve())
    assert (identity["data"]["training_rows"], identity["data"]["validation_rows"]) == (len(training), len(validation))
    assert (found["rows"], found["without_negatives"], found["resumed_from_step"]) == (len(training), 0, 0)
    assert found["steps"] == -(-len(training) // 8)
    assert found["complete"] is True
    assert found["data"] == {
        "files": [str(mined)],
        "pairs": "questions",
        "rows": len(rows),
        "questions": len(rows),
        "duplicates": 0,
        "empty": 0,
        "unknown": 0,
        "gold": 0,
    }
    settings = identity["settings"]
    assert (settings["train_batch_size"], settings["train_max_tokens"], settings["precision"]) == (8, 32, "fp32")
    assert {"curves.csv", "curves.png", "model.safetensors", "training.json"} <= {path.name for path in out.iterdir()}
    assert "README.md" not in {path.name for path in out.iterdir()}, "a model card would quote the questions"


def test_the_saved_reranker_is_that_of_colbert_ai(models):
    pytest.importorskip("colbert")
    assert done(models["reranker"][1])["difference_from_colbert_ai"] < 1e-3


def test_a_table_is_shown_without_json(train, pairs, tmp_path):
    result = train("retriever", pairs, "--out", tmp_path / "model")
    assert result.exit_code == 0, result.output
    held = json.loads((tmp_path / "model" / "training.json").read_text())
    assert f"Retriever{tmp_path / 'model'}" in "".join(result.stdout.split())
    assert f"{held['final_loss']:.4f}" in result.stdout
    assert f"{held['best']['value']:.4f} at step {held['best']['step']}" in result.stdout
    assert f"curves:{tmp_path / 'model' / 'curves.png'}" in "".join(result.stderr.split())


def beir(path: Path, corpus: bool) -> Path:
    """Write the pairs in BEIR's layout; judgement d0 of the first question again, and one of no known snippet."""
    write_jsonl(path / "queries.jsonl", [{"_id": f"q{n}", "text": pair["query"]} for n, pair in enumerate(PAIRS)])
    judged = [f"q{n}\td{n}\t1\n" for n in range(len(PAIRS))]
    (path / "qrels").mkdir()
    (path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join([*judged, "q0\tabsent\t1\n"]))
    if corpus:
        rows = [{"_id": f"d{n}", "title": "", "text": pair["positive"]} for n, pair in enumerate(PAIRS)]
        write_jsonl(path / "corpus.jsonl", rows)
    return path


@pytest.fixture(scope="module")
def home(tiny_encoder, tmp_path_factory):
    """A home with the pairs' positives as index `small`."""
    home = tmp_path_factory.mktemp("home")
    snippets = [Snippet(f"d{n}", "", pair["positive"]) for n, pair in enumerate(PAIRS)]
    corpus = write_medrag(home / "corpus.jsonl", snippets)
    done(invoke("index", corpus, "--name", "small", "--encoder", tiny_encoder, "--json", home=home))
    return home


def test_a_beir_folder_gives_the_rows_that_a_file_gives(train, pairs, home, tmp_path):
    """With its own corpus or with the index's passages."""
    plain = done(train("retriever", pairs, "--out", tmp_path / "plain", "--json"))
    own = beir(tmp_path / "own", corpus=True)
    bare = beir(tmp_path / "bare", corpus=False)
    found = [
        done(train("retriever", own, "--out", tmp_path / "a", "--json")),
        done(train("retriever", bare, "--name", "small", "--out", tmp_path / "b", "--json", home=home)),
    ]
    for each in found:
        assert each["data"]["unknown"] == 1
        assert each["data"]["rows"] == len(PAIRS)
        # The same texts in the same order: the ids alone are more than the file has.
        assert each["final_loss"] == pytest.approx(plain["final_loss"], abs=1e-6)
    assert found[0]["identity"]["data"] == found[1]["identity"]["data"]


def test_a_beir_folder_without_passages_needs_an_index(train, home, tmp_path):
    bare = beir(tmp_path / "bare", corpus=False)
    failed(train("retriever", bare, "--out", tmp_path / "m"), 4, bare, "--name INDEX")
    failed(train("retriever", bare, "--name", "absent", "--out", tmp_path / "m", home=home), 4, "'absent'", "small")
    assert not (tmp_path / "m").exists()


def test_the_reranker_takes_a_beir_folder_too(train, tmp_path):
    found = done(train("reranker", beir(tmp_path / "own", corpus=True), "--out", tmp_path / "m", "--json"))
    assert found["best"]["value"] is None, "held-out pairs have no negatives to be ordered against"
    assert found["rows"] == found["identity"]["data"]["training_rows"]


def test_files_and_folders_are_mixed(train, tmp_path):
    own = beir(tmp_path / "own", corpus=True)
    more = write_jsonl(tmp_path / "more.jsonl", [{"anchor": "gene gene?", "positive": "a gene."}, PAIRS[0]])
    found = done(train("retriever", own, more, "--out", tmp_path / "m", "--json"))
    assert found["data"]["files"] == [str(own), str(more)]
    assert (found["data"]["rows"], found["data"]["duplicates"]) == (len(PAIRS) + 1, 1)


def test_titles_are_the_queries_of_a_corpus(train, tmp_path):
    snippets = [Snippet(f"s{n}", pair["query"], pair["positive"]) for n, pair in enumerate(PAIRS)]
    corpus = write_medrag(tmp_path / "corpus.jsonl", [*snippets, Snippet("bare", "", "no title.")])
    found = done(train("retriever", corpus, "--pairs", "title-abstract", "--out", tmp_path / "m", "--json"))
    assert (found["data"]["pairs"], found["data"]["rows"], found["data"]["empty"]) == ("title-abstract", len(PAIRS), 1)
    rows, _ = read_rows([write_jsonl(tmp_path / "pairs.jsonl", PAIRS)])
    assert found["identity"]["data"]["training_rows"] == len(split(rows, 0.2, 0)[0])


def test_the_positives_of_a_question_are_capped(train, tmp_path):
    rows = [{"query": pair["query"], "positive": f"{pair['positive']} {n}"} for pair in PAIRS[:20] for n in range(3)]
    rows = write_jsonl(tmp_path / "rows.jsonl", rows)
    found = done(train("retriever", rows, "--max-positives", 2, "--out", tmp_path / "m", "--json"))
    held_out = sum(is_held_out(pair["query"], 0.2, 0) for pair in PAIRS[:20])
    assert found["rows"] == 2 * (20 - held_out)
    assert found["identity"]["data"]["validation_rows"] == 3 * held_out, "held-out rows are all kept"


def test_mined_negatives_alone(train, mined, tmp_path):
    """A scale of 20 over three unit vectors' cosines: no loss beyond log(3) + 40."""
    found = done(
        train("retriever", mined, "--negatives", "bm25", "--hard-negatives", 2, "--out", tmp_path / "m", "--json")
    )
    assert found["identity"]["negatives"] == "bm25"
    failed(
        train("retriever", mined, "--negatives", "random", "--out", tmp_path / "n"), 3, "mined as bm25", "biorag mine"
    )
    failed(train("retriever", mined, "--negatives", "hard", "--out", tmp_path / "n"), 2, "'hard'", "in-batch")
    assert not (tmp_path / "n").exists()


def test_scores_are_distilled(train, tmp_path):
    rows = [{**row, "scores": [3.0, 1.0, 2.0]} for row in MINED]
    path = write_jsonl(tmp_path / "scored.jsonl", rows)
    found = done(train("reranker", path, "--distill", "--hard-negatives", 2, "--out", tmp_path / "m", "--json"))
    assert found["identity"]["distill"] is True
    bare = write_jsonl(tmp_path / "bare.jsonl", [*rows, {**MINED[0], "query": "gene?"}])
    failed(train("reranker", bare, "--distill", "--validation", 0, "--out", tmp_path / "n"), 3, "'scores'")


# --- the guard ----------------------------------------------------------------------------------------------


@pytest.fixture
def benchmark(tmp_path) -> Path:
    """Two of the training questions, one in other letters, one with a letter more."""
    questions = [PAIRS[0]["query"].upper(), PAIRS[7]["query"].replace("and", "andd"), "What is else?"]
    return write_jsonl(tmp_path / "benchmark.jsonl", [{"question": question} for question in questions])


@pytest.mark.parametrize("stage", ["retriever", "reranker"])
def test_the_guard_stops_and_lists(train, mined, benchmark, tmp_path, stage):
    result = train(stage, mined, "--guard", benchmark, "--out", tmp_path / "m")
    parts = ["2 training queries match", PAIRS[0]["query"], PAIRS[7]["query"], benchmark, "--drop-contaminated"]
    failed(result, 3, *parts)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("stage", ["retriever", "reranker"])
def test_what_the_guard_drops_is_in_the_manifest(train, mined, benchmark, tmp_path, stage):
    arguments = [mined, "--guard", benchmark, "--drop-contaminated", "--validation", 0, "--out", tmp_path / "m"]
    found = done(train(stage, *arguments, "--json"))
    assert found["guard"]["benchmarks"] == [str(benchmark)]
    dropped = {match["query"]: match for match in found["guard"]["dropped"]}
    assert dropped.keys() == {PAIRS[0]["query"], PAIRS[7]["query"]}
    assert dropped[PAIRS[0]["query"]]["similarity"] == 1.0
    assert 0.8 <= dropped[PAIRS[7]["query"]]["similarity"] < 1
    assert found["rows"] == len(MINED) - 2
    assert json.loads((tmp_path / "m" / "training.json").read_text())["guard"] == found["guard"]
    shown = train(stage, *arguments)
    assert shown.exit_code == 0
    row = next(line for line in shown.stdout.splitlines() if "dropped by the guard" in line)
    assert row.split("\t")[1] == "2"


def test_the_guard_reads_titles_too(train, benchmark, tmp_path):
    snippets = [Snippet(f"s{n}", pair["query"], pair["positive"]) for n, pair in enumerate(PAIRS)]
    corpus = write_medrag(tmp_path / "corpus.jsonl", snippets)
    arguments = [corpus, "--pairs", "title-abstract", "--guard", benchmark, "--out", tmp_path / "m"]
    failed(train("retriever", *arguments), 3, "2 training queries match")


# --- what is refused ----------------------------------------------------------------------------------------

STAGES = pytest.mark.parametrize("stage", ["retriever", "reranker"])


@STAGES
@pytest.mark.parametrize(
    ("row", "parts"),
    [
        ({"positive": "So."}, ["no 'query' or 'anchor'"]),
        ({"query": "Why?"}, ["no 'positive'"]),
        ({"query": "Why?", "positive": "So.", "negative": "so"}, ["a negative is the same text as the positive"]),
        ({"query": "Why?", "positive": "So.", "negative_1": "No.", "negative_2": " SO "}, ["same text"]),
        ({"query": 7, "positive": "So."}, ["'query' is int, not a string"]),
        ([], ["not a JSON object"]),
    ],
)
def test_bad_rows(train, tmp_path, stage, row, parts):
    path = write_jsonl(tmp_path / "rows.jsonl", [*PAIRS, row])
    failed(train(stage, path, "--out", tmp_path / "m"), 3, f"{path}, line {len(PAIRS) + 1}:", *parts)
    assert not (tmp_path / "m").exists()


@STAGES
def test_a_file_without_rows(train, tmp_path, stage):
    path = write_jsonl(tmp_path / "rows.jsonl", [{"query": " ", "positive": "So."}])
    failed(train(stage, path, "--out", tmp_path / "m"), 3, path, "no training row")


@STAGES
def test_nothing_left_to_train_on(train, pairs, tmp_path, stage):
    """One question, and the seed holds it out."""
    seed = next(seed for seed in range(1000) if is_held_out(PAIRS[0]["query"], 0.2, seed))
    path = write_jsonl(tmp_path / "rows.jsonl", PAIRS[:1])
    failed(train(stage, path, "--seed", seed, "--out", tmp_path / "m"), 3, "no training row is left")


@STAGES
@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (["--negatives", "random", "--hard-negatives", "0"], 2, ["--hard-negatives 1"]),
        (["--negatives", "bm25", "--mini-batch-size", "2"], 2, ["--mini-batch-size"]),
        (["--max-steps", "3", "--epochs", "2"], 2, ["--max-steps", "--epochs"]),
        (["--warmup-steps", "3", "--warmup", "0.2"], 2, ["--warmup-steps", "--warmup"]),
        (["--eval-steps", "3", "--evaluations", "2"], 2, ["--eval-steps", "--evaluations"]),
        (["--drop-contaminated"], 2, ["--guard FILE"]),
        (["--guard", "absent.json"], 4, ["absent.json"]),
    ],
)
def test_options_that_do_not_go_together(train, mined, tmp_path, stage, arguments, code, parts):
    failed(train(stage, mined, *arguments, "--out", tmp_path / "m"), code, *parts)


def test_values_that_are_not_known(train, pairs, tmp_path):
    out = ["--out", tmp_path / "m"]
    failed(train("retriever", pairs, "--pairs", "titles", *out), 2, "'titles'", "questions, title-abstract")
    failed(train("retriever", pairs, "--similarity", "euclid", *out), 2, "euclid")
    failed(train("retriever", pairs, "--batch-size", "0", *out), 2, "--batch-size 0")
    failed(train("retriever", pairs, "--precision", "fp8", *out), 2, "fp8")
    assert not (tmp_path / "m").exists()


def test_data_that_is_not_there(train, tmp_path):
    failed(train("retriever", tmp_path / "absent.jsonl", "--out", tmp_path / "m"), 4, "absent.jsonl")
    arguments = [tmp_path / "absent", "--pairs", "title-abstract", "--out", tmp_path / "m"]
    failed(train("retriever", *arguments), 4, "absent")


# --- bases that do not fit ----------------------------------------------------------------------------------


@STAGES
def test_a_base_that_is_not_there(train, pairs, tmp_path, stage):
    failed(train(stage, pairs, "--out", tmp_path / "m", base="nobody/nothing"), 4, "'nobody/nothing'")
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(64))
    failed(train(stage, pairs, "--out", tmp_path / "m", base=tmp_path / "model.gguf"), 4, "model.gguf")
    (tmp_path / "folder").mkdir()
    (tmp_path / "model.gguf").rename(tmp_path / "folder" / "model.gguf")
    failed(train(stage, pairs, "--out", tmp_path / "m", base=tmp_path / "folder"), 4, "folder", "safetensors")


def test_a_colbert_checkpoint_is_no_bi_encoder(train, models, pairs, tmp_path):
    checkpoint, _ = models["reranker"]
    result = train("retriever", pairs, "--out", tmp_path / "m", base=checkpoint)
    failed(result, 4, checkpoint, "late-interaction checkpoint")


def without_text(path: Path, tokenizer: Path | None) -> Path:
    """Write a tiny vision transformer, with or without the tokenizer of something else."""
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=16, patch_size=8
    )
    ViTModel(config).save_pretrained(path)
    if tokenizer:
        for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
            if (tokenizer / name).is_file():
                shutil.copy(tokenizer / name, path / name)
    else:
        (path / "preprocessor_config.json").write_text(
            json.dumps({"image_processor_type": "ViTImageProcessor", "size": {"height": 16, "width": 16}})
        )
    return path


@STAGES
@pytest.mark.parametrize("tokenizer", [True, False])
def test_a_model_without_text_encoder(train, pairs, tiny_encoder, tmp_path, stage, tokenizer):
    base = without_text(tmp_path / "vit", tiny_encoder if tokenizer else None)
    failed(train(stage, pairs, "--out", tmp_path / "m", base=base), 4, base)


@STAGES
def test_a_model_of_an_unknown_type(train, pairs, tiny_encoder, tmp_path, stage):
    base = tmp_path / "odd"
    base.mkdir()
    shutil.copy(tiny_encoder / "model.safetensors", base)
    (base / "config.json").write_text(json.dumps({"model_type": "nonesuch"}))
    failed(train(stage, pairs, "--out", tmp_path / "m", base=base), 4, base, "nonesuch")


# --- folders that hold something ----------------------------------------------------------------------------


@STAGES
def test_a_folder_of_something_else_is_not_touched(train, mined, tmp_path, stage):
    (tmp_path / "thesis.txt").write_text("mine")
    failed(train(stage, mined, "--out", tmp_path), 5, tmp_path, "something other", "another --out")
    failed(train(stage, mined, "--out", tmp_path / "thesis.txt"), 5, "thesis.txt", "something other")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def contents(out: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


@STAGES
def test_a_folder_of_another_run_is_not_touched(train, models, mined, tmp_path, tiny_modernbert, stage):
    out = shutil.copytree(models[stage][0], tmp_path / "m")
    before = contents(out)
    dot = ["--similarity", "dot"] if stage == "retriever" else []
    failed(train(stage, mined, *dot, "--epochs", 2, "--out", out), 5, out, "other train_epochs:")
    failed(train(stage, mined, *dot, "--seed", 1, "--out", out), 5, "seed", "training_sha256")
    failed(train(stage, mined, *dot, "--negatives", "bm25", "--out", out), 5, "other negatives:")
    failed(train(stage, mined, *dot, "--out", out, base=tiny_modernbert), 5, "other base_sha256:")
    if stage == "retriever":
        failed(train(stage, mined, "--out", out), 5, "other similarity:")
    assert contents(out) == before
    again = done(train(stage, mined, *dot, "--out", out, "--json"))
    assert {**again, "out": ""} == {**done(models[stage][1]), "out": ""}
    assert contents(out) == before


def test_the_other_stages_folder_is_not_touched(train, models, mined):
    failed(train("reranker", mined, "--out", models["retriever"][0]), 5, "kind")


def test_a_damaged_manifest_is_said(train, mined, tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "training.json").write_text('{"identity": {')
    failed(train("retriever", mined, "--out", tmp_path / "m"), 5, "training.json", "damaged")


# --- what goes wrong on the way -----------------------------------------------------------------------------


def raising(error):
    def fail(*_, **__):
        raise error

    return fail


@STAGES
def test_a_full_memory_is_one_sentence(train, mined, tmp_path, monkeypatch, stage):
    import torch

    from biorag.training import reranker, retriever

    trainer = {"retriever": retriever, "reranker": reranker}[stage]._Trainer
    monkeypatch.setattr(trainer, "train", raising(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate …")))
    result = train(stage, mined, "--out", tmp_path / "m")
    failed(result, 6, "--batch-size 8", "--mini-batch-size", "--gradient-checkpointing", "--max-tokens")
    monkeypatch.undo()
    assert done(train(stage, mined, "--out", tmp_path / "m", "--json"))["complete"] is True


@STAGES
def test_an_interrupt_ends_with_130(train, mined, tmp_path, monkeypatch, stage):
    monkeypatch.setattr(f"biorag.training.{stage}._Trainer.train", raising(KeyboardInterrupt))
    failed(train(stage, mined, "--out", tmp_path / "m"), 130, "interrupted", "the same command")
    assert json.loads((tmp_path / "m" / "training.json").read_text())["complete"] is False


@STAGES
def test_a_run_that_did_nothing_yet_makes_way(train, mined, tmp_path, monkeypatch, stage):
    """Other settings may take a folder without a checkpoint, and not one with."""
    out = ["--out", tmp_path / "m"]
    with monkeypatch.context() as patched:
        patched.setattr(f"biorag.training.{stage}._Trainer.train", raising(KeyboardInterrupt))
        failed(train(stage, mined, *out), 130)
    with monkeypatch.context() as patched:
        patched.setattr(run_directory.TrainingRun, "finish", raising(KeyboardInterrupt))
        failed(train(stage, mined, "--seed", 1, *out), 130)
    failed(train(stage, mined, *out), 5, "seed")
    found = done(train(stage, mined, "--seed", 1, *out, "--json"))
    assert found["identity"]["settings"]["seed"] == 1


@STAGES
def test_a_run_killed_after_its_last_step_goes_on(train, mined, tmp_path, monkeypatch, stage):
    whole = done(train(stage, mined, "--out", tmp_path / "whole", "--json"))
    arguments = [mined, "--out", tmp_path / "cut"]
    with monkeypatch.context() as patched:
        patched.setattr(run_directory.TrainingRun, "finish", raising(KeyboardInterrupt))
        failed(train(stage, *arguments), 130)
    resumed = done(train(stage, *arguments, "--json"))
    assert resumed["resumed_from_step"] == resumed["steps"] == whole["steps"]
    assert resumed["final_loss"] == pytest.approx(whole["final_loss"], abs=1e-6)
    assert resumed["best"] == whole["best"]
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")


@STAGES
def test_a_run_killed_while_it_clears_up_goes_on(train, mined, tmp_path, monkeypatch, stage):
    def partly(path, **_):
        for weights in path.rglob("model.safetensors"):
            weights.unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run_directory.shutil, "rmtree", partly)
        failed(train(stage, mined, "--out", tmp_path / "m"), 130)
    assert done(train(stage, mined, "--out", tmp_path / "m", "--json"))["complete"] is True


def test_a_run_killed_before_its_first_manifest_was_whole_goes_on(train, pairs, tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / ".training.json.4711").write_text("{")  # as write_json leaves it
    assert done(train("retriever", pairs, "--out", tmp_path / "m", "--json"))["complete"] is True


@pytest.mark.parametrize("fault", [ValueError("no such model"), ImportError("libcudart.so.12")])
def test_a_colbert_ai_that_fails_costs_no_training(train, mined, tmp_path, monkeypatch, fault):
    """Installed, but broken, or without this kind of backbone (T5's)."""
    monkeypatch.setattr(parity, "find_spec", lambda _: True)
    monkeypatch.setattr(parity, "ColbertAI", raising(fault))
    found = done(train("reranker", mined, "--out", tmp_path / "m", "--json"))
    assert (found["complete"], found["difference_from_colbert_ai"]) == (True, None)


def test_a_package_that_plots_need_is_asked_for_before_training(train, pairs, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    failed(train("retriever", pairs, "--out", tmp_path / "m"), 4, "matplotlib", "pip install 'biorag[train]'")
    assert not (tmp_path / "m" / "checkpoints").exists()


def weights(out: Path) -> dict[str, list[float]]:
    from safetensors.numpy import load_file

    return {name: value.round(5).tolist() for name, value in load_file(out / "model.safetensors").items()}


# --- mixtures and drawn prompts -----------------------------------------------------------------------------


@pytest.fixture
def mixture(tmp_path, pairs) -> Path:
    """Two sets of the same questions, of which the file `guard.jsonl` has one."""
    write_jsonl(tmp_path / "guard.jsonl", [{"query": PAIRS[0]["query"]}])
    write_jsonl(tmp_path / "mined.jsonl", MINED[:20])
    path = tmp_path / "mix.toml"
    path.write_text(
        '[[sets]]\nrows = "mined.jsonl"\nweight = 2\ntemperature = 0.1\ntask = "Find what heals"\n'
        '[[sets]]\nname = "synthetic"\nrows = ["pairs.jsonl"]\nweight = 0.5\n'
    )
    return path


def test_a_mixture_is_trained_by_a_real_process(mixture, tiny_encoder, tmp_path):
    options = ["--instruct", "bmretriever", "--random-prompts", 10, "--sample-negatives"]
    guard = ["--guard", tmp_path / "guard.jsonl", "--drop-contaminated"]
    arguments = [mixture, "--base", tiny_encoder, *FAST, *options, *guard, "--out", tmp_path / "m", "--json"]
    found = json.loads(run("train", "retriever", *arguments).stdout)
    sets, identity = found["data"]["sets"], found["identity"]
    dropped = [pair["query"] for pair in PAIRS if pair["query"] in {m["query"] for m in found["guard"]["dropped"]}]
    assert PAIRS[0]["query"] in dropped
    for each, all_of_it in zip(sets, (PAIRS[:20], PAIRS), strict=True):
        assert each["rows"] == len(all_of_it)
        assert each["dropped"] == sum(pair["query"] in dropped for pair in all_of_it)
    first, second = identity["data"]["sets"]
    training = [
        sum(pair["query"] not in dropped and not is_held_out(pair["query"], 0.2, 0) for pair in all_of_it)
        for all_of_it in (PAIRS[:20], PAIRS)
    ]
    assert (first["name"], first["rows"], first["weight"], first["temperature"]) == ("mined", training[0], 2.0, 0.1)
    assert (second["name"], second["rows"], second["weight"]) == ("synthetic", training[1], 0.5)
    assert first["instructions"] == second["instructions"] == identity["instructions"]
    assert identity["instructions"]["query"] == "Find what heals\nQuery: "
    assert len(set(identity["random_prompts"])) == 10
    assert found["steps"] == 2 * -(-training[0] // 8) + -(-round(training[1] / 2) // 8)


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (["mix.toml", "pairs.jsonl"], 2, ["mix.toml is a mixture", "give no other path"]),
        (["mix.toml", "--pairs", "title-abstract"], 2, ["leave out --pairs title-abstract"]),
        (["mix.toml"], 2, ["the task of set 'mined'", "--instruct"]),
        (["lost.toml"], 4, ["lost.toml is not there"]),
        (["pairs.jsonl", "--random-prompts", 10], 2, ["--random-prompts", "--instruct bmretriever"]),
        (["pairs.jsonl", "--random-prompts", 10, "--instruct", "none"], 2, ["'none'", "{task}"]),
    ],
)
def test_what_is_asked_of_a_mixture_in_vain(train, mixture, tmp_path, monkeypatch, arguments, code, parts):
    monkeypatch.chdir(tmp_path)
    failed(train("retriever", *arguments, "--out", "m"), code, *parts)
    assert not (tmp_path / "m").exists()


def test_a_set_of_which_no_row_is_left_is_named(train, mixture, tmp_path):
    options = ["--instruct", "bmretriever", "--guard", tmp_path / "pairs.jsonl", "--drop-contaminated"]
    write_jsonl(tmp_path / "other.jsonl", [{"query": "What of another?", "positive": "Nothing."}])
    mixture.write_text('[[sets]]\nrows = "other.jsonl"\n[[sets]]\nrows = "mined.jsonl"')
    result = train("retriever", mixture, *options, "--validation", 0, "--out", tmp_path / "m")
    failed(result, 3, "set 'mined': no training row is left")


def test_a_mixture_is_of_retrievers_alone(train, mixture, tmp_path):
    failed(train("reranker", mixture, "--out", tmp_path / "m"), 2, "'biorag train retriever'")


# --- a real process, killed ---------------------------------------------------------------------------------


def checkpoints(out: Path) -> set[str]:
    return {path.parent.name for path in (out / "checkpoints").glob("checkpoint-*/trainer_state.json")}


def stopped(sent: signal.Signals, out: Path, *arguments: object) -> Ended:
    """Train, and send a signal when the run has written a checkpoint that was not there before."""
    before = checkpoints(out)
    with start("train", "retriever", *arguments, "--out", out) as process:
        wait_until(process, lambda: checkpoints(out) - before)
        process.send_signal(sent)
        return process.communicate()


def test_a_killed_run_goes_on_to_the_same_loss(train, tiny_encoder, pairs, tmp_path):
    """Killed, then interrupted, then let finish; against a run in one piece."""
    arguments = [pairs, "--base", tiny_encoder, *FAST, "--epochs", 60, "--evaluations", 15, "--learning-rate", 1e-3]
    out = tmp_path / "cut"
    code, stdout, _ = stopped(signal.SIGKILL, out, *arguments)
    assert (code, stdout) == (-signal.SIGKILL, "")
    assert json.loads((out / "training.json").read_text())["complete"] is False
    assert not (out / "model.safetensors").exists()

    code, stdout, stderr = stopped(signal.SIGINT, out, *arguments)
    assert (code, stdout) == (130, ""), stderr
    assert stderr.splitlines()[-1] == "error: interrupted; finished work is kept, and the same command resumes"
    assert "Traceback" not in stderr

    resumed = json.loads(run("train", "retriever", *arguments, "--out", out, "--json").stdout)
    whole = done(train("retriever", *arguments[3:], pairs, "--out", tmp_path / "whole", "--json"))
    assert 0 < resumed["resumed_from_step"] < resumed["steps"] == whole["steps"]
    assert resumed["final_loss"] == pytest.approx(whole["final_loss"], abs=1e-3)
    assert resumed["best"]["step"] == whole["best"]["step"]
    assert resumed["best"]["value"] == pytest.approx(whole["best"]["value"], abs=1e-3)


# --- what can be done with it -------------------------------------------------------------------------------


def test_a_trained_encoder_is_indexed_with_its_similarity(models, home, tmp_path):
    encoder, _ = models["retriever"]
    arguments = ["--encoder", encoder, "--json"]
    done(invoke("index", home / "corpus.jsonl", "--name", "dot", *arguments, home=home))
    done(invoke("index", home / "corpus.jsonl", "--name", "cosine", "--similarity", "cosine", *arguments, home=home))
    info = {name: done(invoke("info", name, "--json", home=home)) for name in ("small", "dot", "cosine")}
    assert {name: found["similarity"] for name, found in info.items()} == {
        "small": "cosine",
        "dot": "dot",
        "cosine": "cosine",
    }
    assert info["dot"]["encoder"]["id"] == str(encoder.resolve())
    query = ["search", PAIRS[3]["query"], "--mode", "dense", "--no-rerank", "-k", 5, "--json"]
    scores = {
        name: [hit["score"] for hit in done(invoke(*query, "--name", name, home=home))["hits"]]
        for name in ("dot", "cosine")
    }
    assert max(scores["cosine"]) <= 1 + 1e-5 < max(scores["dot"]), "32 dimensions of a layer's norm"


def test_hits_are_reordered_by_the_trained_reranker(models, home):
    from biorag.models.colbert import ColBERT
    from biorag.models.finding import find_encoder
    from biorag.models.late_interaction import LateInteraction

    reranker, _ = models["reranker"]
    query = PAIRS[3]["query"]
    settings = ["--mode", "dense", "--k-init", 20, "-k", 20, "--name", "small", "--json"]
    plain = done(invoke("search", query, *settings, "--no-rerank", home=home))["hits"]
    config = write_jsonl(home / "plain.toml", [])
    config.write_text("interpolation = 0.0\n")
    found = done(invoke("--config", config, "search", query, *settings, "--reranker", reranker, home=home))["hits"]
    assert {hit["id"] for hit in found} == {hit["id"] for hit in plain}
    texts = {hit["id"]: hit["content"] for hit in plain}
    scores = scores_of(LateInteraction(ColBERT(find_encoder(str(reranker)))), query, list(texts.values()))
    expected = dict(zip(texts, scores, strict=True))
    assert {hit["id"]: hit["score"] for hit in found} == pytest.approx(expected, abs=1e-4)
    assert [hit["id"] for hit in found] != [hit["id"] for hit in plain]


def test_a_trained_encoder_is_a_base_again(train, models, pairs, tmp_path):
    for stage in ("retriever", "reranker"):
        found = done(train(stage, pairs, "--out", tmp_path / stage, "--json", base=models["retriever"][0]))
        assert found["base"] == str(models["retriever"][0].resolve())


def test_every_error_here_is_one_for_users():
    """The codes above are those of the classes; a bug would be 1."""
    assert sorted({kind.exit_code for kind in BioragError.__subclasses__()}) == [2, 3, 4, 5, 6, 7]
