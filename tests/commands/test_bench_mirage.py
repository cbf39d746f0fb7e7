"""`biorag bench mirage`: files, report, table, resuming and comparing, by a scripted generator and by a server."""

from __future__ import annotations

import json
import time
from functools import partial

import pytest

from tests.cli import done, failed, invoke
from tests.fakes import ScriptedGenerator
from tests.loopback import Script


@pytest.fixture
def run(tmp_path):
    """Run a command in the scratch home, or in `home`."""
    return partial(invoke, home=tmp_path / "home")


@pytest.fixture
def scripted(monkeypatch):
    """Put a scripted generator in the starter's place."""
    generator = ScriptedGenerator()
    monkeypatch.setattr("biorag.commands.bench_mirage.require_generator", lambda settings, at_a_time: generator)
    monkeypatch.setattr("biorag.generators.gguf.GgufSource.sha256", lambda source: "0" * 64)
    return generator


@pytest.fixture
def mirage(run, small_home, scripted, tmp_path):
    def mirage(*arguments, out="out"):
        fixed = ["bench", "mirage", "--benchmark", "demo", "--out", tmp_path / out]
        return run(*fixed, *arguments, home=small_home)

    return mirage


def test_bench_mirage_writes_files_and_reports(mirage, scripted, tmp_path):
    asked = ("--limit", "2", "--task", "mmlu", "--task", "medmcqa", "--mode", "bm25", "--plot", tmp_path / "plots")
    found = done(mirage(*asked, "--json"))
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {"mirage.png", "mirage.svg"}
    assert set(found) == {"tasks", "average", "chance", "config", "manifest"}
    assert list(found["tasks"]) == ["mmlu", "medmcqa"]
    for score in found["tasks"].values():
        told = {"n", "accuracy", "std", "interval", "chance", "letters", "strict_accuracy", "parsed", "forced_A"}
        told |= {"malformed", "retries"}
        assert set(score) == told and (score["chance"], sum(score["letters"].values())) == (0.25, 2)
        assert (score["n"], score["parsed"], score["forced_A"]) == (2, 1.0, 0)
    assert found["average"] == sum(score["accuracy"] for score in found["tasks"].values()) / 2
    assert (found["config"]["mode"], found["config"]["answer"], found["config"]["k"]) == ("bm25", "generate", 5)
    assert (found["manifest"]["answered"], found["manifest"]["resumed"]) == (4, 0)
    assert found["manifest"]["generator"] == {"name": "scripted", "sha256": "0" * 64}
    assert found["manifest"]["index"]["snippets"] == 12
    assert json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8")) == found
    written = {path.relative_to(tmp_path / "out").parts[:-1] for path in (tmp_path / "out").rglob("*_demo-*.json")}
    assert {len(parts) for parts in written} == {5}
    assert {parts[0] for parts in written} == {"mmlu", "medmcqa"}
    assert {parts[1:4] for parts in written} == {("rag_5", "scripted", "default")}
    splits = {path.name.split("_")[0] for path in (tmp_path / "out" / "medmcqa").rglob("*.json")}
    assert splits == {"dev"}

    again = done(mirage("--limit", "3", "--task", "mmlu", "--task", "medmcqa", "--mode", "bm25", "--json"))
    assert (again["manifest"]["answered"], again["manifest"]["resumed"]) == (2, 4)
    assert len(scripted.prompts) == 6


def test_bench_mirage_says_first_how_many_questions_and_what_guessing_gives(mirage):
    shown = mirage("--limit", "2", "--mode", "bm25")
    assert shown.stderr.splitlines()[1] == "10 questions: 2 of each of 5 tasks"
    rows = [line.split("\t") for line in shown.stdout.splitlines()[1:]]
    column = rows[0].index("chance")
    assert column == rows[0].index("accuracy") + 1
    chances = {row[0]: float(row[column]) for row in rows[1:]}
    assert chances == {"medqa": 0.25, "medmcqa": 0.25, "pubmedqa": 0.3333, "bioasq": 0.5, "mmlu": 0.25}
    assert shown.stdout.splitlines()[0].endswith(", of guessing 0.3167")


def test_bench_mirage_closed_book(mirage, scripted, tmp_path):
    found = done(mirage("--limit", "1", "--mode", "none", "--json"))
    assert found["config"]["mode"] == "none"
    assert found["manifest"]["index"] is None
    assert len(list((tmp_path / "out").glob("*/cot/scripted/*_demo-*.json"))) == 5
    assert not any("<document" in prompt.user for prompt in scripted.prompts)


def test_bench_mirage_asks_a_server_several_questions_at_a_time(run, small_home, tmp_path):
    def later(body):
        time.sleep(0.02)
        return json.dumps({"step_by_step_thinking": "x", "relevant_context": "YES", "answer_choice": "A"})

    script = Script()
    script.rule = later
    fixed = ["bench", "mirage", "--benchmark", "demo", "--mode", "bm25", "--llm", script.url, "--llm-model", "m"]

    def reported(out, *options):
        script.most = 0
        return done(run(*fixed, *options, "--out", tmp_path / out, "--json", home=small_home))

    try:
        one = reported("one", "--no-cache", "--concurrency", "1")
        assert (script.most, one["manifest"]["cached"]) == (1, 0)
        several = reported("seven", "--concurrency", "7")
        assert 1 < script.most <= 7
        assert several["tasks"] == one["tasks"]
        asked = len(script.asked)
        kept = reported("kept")
        assert kept["manifest"]["cached"] == kept["manifest"]["answered"] == sum(t["n"] for t in kept["tasks"].values())
        assert len(script.asked) == asked
        resumed = reported("one", "--concurrency", "3", "--cache")
        assert (resumed["manifest"]["answered"], resumed["tasks"]) == (0, one["tasks"])
    finally:
        script.close()


def test_bench_mirage_in_the_folder_of_another_run_is_refused(mirage):
    done(mirage("--limit", "1", "--mode", "bm25", "--json"))
    failed(mirage("--limit", "1", "--mode", "bm25", "-k", "3", "--json"), 5, "other k (5 → 3)", "--out")
    failed(mirage("--limit", "1", "--mode", "bm25", "--answer", "score", "--json"), 5, "other answer")
    failed(mirage("--limit", "1", "--mode", "bm25", "--exclude-source", "--json"), 5, "other exclude_source")


def test_bench_mirage_compares_with_another_run(mirage, scripted, tmp_path):
    base = ["--limit", "2", "--answer", "score", "--mode", "bm25"]
    done(mirage(*base, "--json", out="one"))
    scripted.logprobs = {"B": 0.0}
    found = done(mirage(*base, "--compare", tmp_path / "one", "--json", out="two"))
    one = json.loads((tmp_path / "one" / "report.json").read_text())
    comparison = found["comparison"]
    assert comparison["questions"] == 10
    assert comparison["difference"] == pytest.approx(found["average"] - one["average"])
    assert comparison["low"] <= comparison["difference"] <= comparison["high"]
    table = mirage(*base, "--compare", tmp_path / "one", out="two")
    assert "Against the other run:" in table.stdout
