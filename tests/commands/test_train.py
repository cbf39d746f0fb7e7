"""`biorag train` on tiny random models: what is written and printed, what is refused, what can be done with it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from biorag.training.rows import is_held_out, read_rows, split
from tests.cli import done, failed, invoke
from tests.conftest import WORDS

pytestmark = pytest.mark.models

REPORTED = {
    *(
        "out",
        "bytes",
        "stopped_by",
        "complete",
        "identity",
        "base",
        "data",
        "command",
        "rows",
        "without_negatives",
        "processes",
    ),
    *("batch_size", "steps", "resumed_from_step", "final_loss", "best", "seconds", "hardware", "versions"),
}
COUPLES = [(one, other) for one in WORDS for other in WORDS if one != other][::3]
PAIRS = [{"query": f"{one} and {other}?", "positive": f"{one} heals the {other}."} for one, other in COUPLES]
MINED = [
    {**pair, "negative_1": f"{other} hurts.", "negative_2": "a gene.", "kind": "bm25"}
    for pair, (_, other) in zip(PAIRS, COUPLES, strict=True)
]
FAST = ["--precision", "fp32", "--batch-size", "8", "--max-tokens", "32", "--evaluations", "2", "--validation", "0.2"]
SHORT = ["--query-tokens", "12"]


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
    assert result.stderr.startswith(
        f"from {tiny_encoder.resolve()}, a retriever already (bi-encoder): 0.0 M parameters"
    )
    rows, _ = read_rows([mined])
    training, validation = split(rows, 0.2, 0)
    assert found.keys() == REPORTED
    size = sum(path.stat().st_blocks * 512 for path in out.rglob("*") if path.is_file())
    assert {"out": str(out), "bytes": size, **json.loads((out / "training.json").read_text())} == found
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
    card = (out / "README.md").read_text()
    assert card.startswith(f"---\nlibrary_name: sentence-transformers\nbase_model: {found['base']}\n")
    assert f"A {stage} that " in card and found["identity"]["data"]["training_sha256"] in card
    assert shlex.join(found["command"]) in card and "(curves.png)" in card
    assert not any(row.query in card or row.positive in card for row in rows), "no training text, which may be private"


# --- the guard ----------------------------------------------------------------------------------------------


@pytest.fixture
def benchmark(tmp_path) -> Path:
    """Two of the training questions, one in other letters, one with a letter more."""
    questions = [PAIRS[0]["query"].upper(), PAIRS[7]["query"].replace("and", "andd"), "What is else?"]
    return write_jsonl(tmp_path / "benchmark.jsonl", [{"question": question} for question in questions])


def test_what_the_guard_drops_is_in_the_manifest(train, mined, benchmark, tmp_path):
    stage = "retriever"
    failed(train(stage, mined, "--guard", benchmark, "--out", tmp_path / "m"), 3, "2 training queries match")
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


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (["--drop-contaminated"], 2, ["--guard FILE"]),
        (["--guard", "absent.json"], 4, ["absent.json"]),
    ],
)
def test_options_that_do_not_go_together(train, mined, tmp_path, arguments, code, parts):
    failed(train("retriever", mined, *arguments, "--out", tmp_path / "m"), code, *parts)


# --- mixtures and drawn prompts -----------------------------------------------------------------------------


@pytest.fixture
def mixture(tmp_path, pairs) -> Path:
    """Two sets of the same questions, of which the file `guard.jsonl` has one."""
    write_jsonl(tmp_path / "guard.jsonl", [{"query": PAIRS[0]["query"]}])
    write_jsonl(tmp_path / "mined.jsonl", MINED[:20])
    path = tmp_path / "mix.toml"
    path.write_text(
        '[[sets]]\nrows = "mined.jsonl"\ntask = "Find what heals"\n'
        '[[sets]]\nname = "synthetic"\nrows = ["pairs.jsonl"]\n'
    )
    return path


def test_a_mixture_is_trained(mixture, tiny_encoder, tmp_path):
    options = ["--instruct", "bmretriever", "--random-prompts", 10]
    guard = ["--guard", tmp_path / "guard.jsonl", "--drop-contaminated"]
    arguments = [mixture, "--base", tiny_encoder, *FAST, *options, *guard, "--out", tmp_path / "m", "--json"]
    found = done(invoke("train", "retriever", *arguments))
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
    assert [(part["name"], part["rows"]) for part in (first, second)] == [
        ("mined", training[0]),
        ("synthetic", training[1]),
    ]
    assert first["instructions"] == second["instructions"] == identity["instructions"]
    assert identity["instructions"]["query"] == "Find what heals\nQuery: "
    assert len(set(identity["random_prompts"])) == 10
    assert found["steps"] == -(-training[0] // 8) + -(-training[1] // 8)


@pytest.mark.parametrize(
    ("words", "package", "extra"),
    [
        (("reranker",), "datasets", "train"),
        (("reader",), "accelerate", "train"),
        (("retriever", "--lora"), "peft", "decoders"),
        (("generator",), "gguf", "decoders"),
    ],
)
def test_a_missing_extra_is_told_before_anything_is_read(tmp_path, monkeypatch, words, package, extra):
    from biorag.utils import versions

    installed = versions.installed_versions
    monkeypatch.setattr(versions, "installed_versions", lambda names: {} if package in names else installed(names))
    told = invoke("train", *words, "gone.jsonl", "--base", "gone", "--out", tmp_path / "m", home=tmp_path)
    failed(told, 4, f"this needs the package '{package}': run pip install 'biorag[{extra}]'")
