"""`biorag tune` from the command line."""

from __future__ import annotations

import json
import tomllib
from functools import partial
from pathlib import Path

import pytest

from biorag.training.rows import is_held_out
from tests import cli
from tests.cli import done, failed, succeeded
from tests.conftest import write_judged, write_medrag

QUESTIONS = {
    "q0": ("Which drug thins the blood by vitamin K?", "s1"),
    "q1": ("What acts through antithrombin?", "s2"),
    "q2": ("Which drug lowers glucose in the liver?", "s3"),
    "q3": ("What parasite causes malaria?", "s5"),
    "q4": ("How is tuberculosis treated?", "s6"),
    "q5": ("What calms the airways in asthma?", "s7"),
}


def write_questions(folder: Path) -> Path:
    """Write the questions as a data set."""
    texts = {id: text for id, (text, _) in QUESTIONS.items()}
    return write_judged(folder, texts, [(id, snippet, 1) for id, (_, snippet) in QUESTIONS.items()])


@pytest.fixture(scope="module")
def place(tmp_path_factory, snippets, tiny_encoder) -> Path:
    """A folder with a home, whose index `default` the tests only read, and a data set."""
    place = tmp_path_factory.mktemp("tune")
    corpus = write_medrag(place / "corpus.jsonl", snippets)
    succeeded(cli.invoke("index", corpus, "--encoder", tiny_encoder, home=place / "home"))
    write_questions(place / "asked")
    return place


@pytest.fixture
def invoke(place, tmp_path, monkeypatch):
    """Run a command in an empty folder, with the module's home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BIORAG_CONFIG", "biorag.toml")
    (tmp_path / "biorag.toml").touch()
    return partial(cli.invoke, home=place / "home")


def test_points_are_what_bench_retrieval_measures_and_the_best_is_written(invoke, place, tmp_path):
    (tmp_path / "biorag.toml").write_text("k = 7 # mine\nlambda = 0.2\n")
    data = place / "asked"
    found = done(
        invoke("tune", data, "--param", "lambda", "--no-rerank", "--values", "0,0.1", "--out", "out", "--json")
    )
    assert [point["value"] for point in found["points"]] == [0.0, 0.1, 0.2]
    for point in found["points"]:
        alone = done(invoke("bench", "retrieval", data, "--no-rerank", "--lambda", point["value"], "--json"))
        assert point["datasets"]["asked"] == point["mean"] == pytest.approx(alone["metrics"]["nDCG@10"], abs=1e-6)
    best = max(found["points"], key=lambda point: point["mean"])
    assert found["best"]["mean"] == best["mean"]
    assert (found["current"]["value"], found["written"]) == (0.2, "biorag.toml")
    text = (tmp_path / "biorag.toml").read_text()
    assert tomllib.loads(text) == {"k": 7, "lambda": found["best"]["value"]}
    assert f"nDCG@10 {best['mean']:.4f} on asked (6 questions), index default, 3 values" in text
    assert json.loads((tmp_path / "out" / "report.json").read_bytes()) == found
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"points.json", "curve.png", "report.json"}


def test_points_at_hand_are_not_measured_again(invoke, place, tmp_path, monkeypatch):
    words = ("tune", place / "asked", "--param", "k_init", "--out", "out", "--no-write", "--json")
    first = done(invoke(*words, "--values", "2,5"))
    assert not (tmp_path / "biorag.toml").read_text()
    monkeypatch.setattr("biorag.benchmarks.retrieval.measure", lambda *_: pytest.fail("measured again"))
    assert done(invoke(*words, "--values", "5,2"))["points"] == first["points"]
    other = done(invoke(*words, "--values", "5", "--measure", "success@3"))
    assert other["measure"] == "success@3"
    failed(invoke(*words, "--values", "2", "--mode", "bm25"), 5, "out was made with other settings", "--out")


def test_two_data_sets_weigh_the_same(invoke, place, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    failed(invoke("tune", place / "asked", other, "--param", "k_init", "--out", "o"), 4, "queries.jsonl")
    write_judged(other, {"q": "What slows the heart?"}, [("q", "s10", 1)])
    words = ("--param", "interpolation", "--values", "0,1,2", "--out", "o", "--json")
    found = done(invoke("tune", place / "asked", other, *words))
    assert len(found["points"]) == 4, "three and the value in use"
    for point in found["points"]:
        assert point["mean"] == pytest.approx(sum(point["datasets"].values()) / 2)
    assert "mean nDCG@10" in (tmp_path / "biorag.toml").read_text()


def test_the_two_sides_are_the_questions(invoke, place, tmp_path):
    words = ("tune", place / "asked", "--param", "k_init", "--values", 5, "--no-write", "--validation", 0.5, "--json")
    sides = {side: done(invoke(*words, f"--{side}", "--out", side)) for side in ("training", "held-out")}
    left_out = sum(is_held_out(text, 0.5, 0) for text, _ in QUESTIONS.values())
    assert 0 < left_out < len(QUESTIONS)
    assert sides["held-out"]["datasets"] == {"asked": left_out}
    assert sides["training"]["datasets"] == {"asked": len(QUESTIONS) - left_out}
    assert {name: side["side"] for name, side in sides.items()} == {name: name for name in sides}


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--param", "mu"), ("unknown parameter 'mu'", "lambda")),
        (("--param", "lambda", "--fusion", "rrf"), ("--param lambda", "--fusion linear")),
        (("--param", "k_init", "--values", "0"), ("k_init=0",)),
        (("--param", "k_init", "--training", "--held-out"), ("--held-out, --training and --dropped",)),
        (("--param", "k_init", "--dropped"), ("--dropped", "--guard FILE")),
        (("--param", "k_init", "--validation", "0.5"), ("--validation", "--training, --held-out or --dropped")),
    ],
)
def test_what_does_not_go_together_is_said(invoke, place, words, parts):
    failed(invoke("tune", place / "asked", "--out", "out", *words), 2, *parts)


def test_no_value_is_tried_that_the_file_cannot_hold(invoke, place, tmp_path):
    (tmp_path / "biorag.toml").write_text('reranker = "encoder@9"\n')
    words = ("tune", place / "asked", "--param", "k_init", "--reranker", "encoder", "--values", "5", "--out", "out")
    failed(invoke(*words), 2, "'encoder@9' cannot rerank 9 candidates where k_init is 5", "k_init 9 or more")
    assert done(invoke(*words, "--no-write", "--json"))["written"] is None
