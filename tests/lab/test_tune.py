"""`biorag tune`: the values that are measured, the best one, and points that survive a stop."""

from __future__ import annotations

import json
import os
import tomllib
from functools import partial
from pathlib import Path

import pytest

from biorag.errors import UsageError
from biorag.lab.tuning.parameters import PARAMETERS
from biorag.lab.tuning.run import TuningPlan, TuningRun
from biorag.settings.settings import Settings
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
    monkeypatch.setattr("biorag.lab.tuning.run.measure", lambda *_: pytest.fail("measured again"))
    killed = tmp_path / "out" / ".curve.png.0123456789abcdef"
    killed.touch()
    os.utime(killed, (0, 0))
    assert done(invoke(*words, "--values", "5,2"))["points"] == first["points"]
    assert not killed.exists(), "left by a run that was killed while it drew"
    assert done(invoke(*words, "--values", "5", "--measure", "success@3"))["measure"] == "success@3"
    bm25 = invoke(*words, "--values", "2", "--mode", "bm25")
    failed(bm25, 5, 'out was made with other mode ("hybrid" → "bm25"): choose another --out')


def test_a_run_resumes_where_it_was_stopped(tmp_path):
    measured = []

    def measure(value):
        measured.append(value)
        if len(measured) == 3:
            raise KeyboardInterrupt
        return {"one": {"nDCG@10": 1 - abs(value - 20) / 100}, "two": {"nDCG@10": 0.5}}

    with pytest.raises(KeyboardInterrupt):
        TuningRun(tmp_path, {"index": 1}).measured([20, 5, 10, 50], measure)
    assert list(TuningRun(tmp_path, {"index": 1}).measured([20, 5, 10], measure)) == [5, 10, 20]
    points = TuningRun(tmp_path, {"index": 1}).measured([50, 10], measure)
    assert measured == [5, 10, 20, 20, 50]
    assert TuningPlan(PARAMETERS["k_init"], "nDCG@10", 50, ()).best(points) == 20
    flat = {value: {"one": {"nDCG@10": 0.5 if value < 50 else 0.4}} for value in (5, 10, 20, 50)}
    bests = [TuningPlan(PARAMETERS["k_init"], "nDCG@10", value, ()).best(flat) for value in (20, 50)]
    assert bests == [20, 5], "of equals the current, else the lowest"


def test_data_sets_weigh_the_same_and_are_searched_by_a_part_of_their_questions(invoke, place, tmp_path):
    write_judged(tmp_path / "other", {"q": "What slows the heart?"}, [("q", "s10", 1)])
    words = ("--param", "interpolation", "--values", "0,1,2", "--json", "--out")
    report = done(invoke("tune", place / "asked", tmp_path / "other", *words, "both"))
    assert len(report["points"]) == 4, "three and the value in use"
    for point in report["points"]:
        assert point["mean"] == pytest.approx(sum(point["datasets"].values()) / 2)
    assert "mean nDCG@10" in (tmp_path / "biorag.toml").read_text()
    held_out = ("--held-out", "--validation", 0.5)
    report = done(invoke("tune", place / "asked", *held_out, *words, "held-out"))
    count = sum(is_held_out(text, 0.5, 0) for text, _ in QUESTIONS.values())
    assert (report["side"], report["datasets"]) == ("held-out", {"asked": count})
    assert 0 < count < len(QUESTIONS)


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


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_value_is_allowed_and_they_lie_around_the_default(name):
    parameter, default = PARAMETERS[name], Settings.of()
    assert parameter.values[0] < default.flat()[name] < parameter.values[-1]
    for value in parameter.values:
        assert default.replace(**{name: value}).flat()[name] == value


def test_lists_of_values():
    assert PARAMETERS["lambda"].parse("0.1, 0,0.1") == [0.0, 0.1]
    for text in ("", "a", "1,,2", "nan", "1,inf"):
        with pytest.raises(UsageError, match="--values"):
            PARAMETERS["lambda"].parse(text)
    with pytest.raises(UsageError, match="whole numbers"):
        PARAMETERS["k_init"].parse("10,20.5")


@pytest.mark.parametrize(
    ("name", "changes", "needed"),
    [
        ("lambda", {}, False),
        ("k_init", {"rerank": False}, True),
        ("k_init", {"mode": "bm25"}, False),
        ("interpolation", {"reranker": "cross:m"}, True),
        ("interpolation", {"reranker": "encoder,cross:m"}, False),
        ("cross_interpolation", {"reranker": "encoder,cross:m"}, False),
        ("cross_interpolation", {}, True),
    ],
)
def test_what_a_parameter_needs(name, changes, needed):
    assert bool(PARAMETERS[name].needs(Settings.of(**changes))) == needed
