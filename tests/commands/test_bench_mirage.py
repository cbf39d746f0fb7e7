"""`biorag bench mirage`: files, report, table, resuming and comparing, by a scripted generator and by a server."""

from __future__ import annotations

import json
import time
from functools import partial
from html import escape

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
    found = done(mirage("--limit", "2", "--task", "mmlu", "--task", "medmcqa", "--mode", "bm25", "--json"))
    assert set(found) == {"tasks", "average", "config", "manifest"}
    assert list(found["tasks"]) == ["mmlu", "medmcqa"]
    for score in found["tasks"].values():
        assert set(score) == {"n", "accuracy", "std", "strict_accuracy", "parsed", "forced_A"}
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


def test_what_became_of_each_question_is_kept_and_shown(mirage, run, tmp_path):
    found = done(mirage("--limit", "2", "--task", "mmlu", "--task", "medmcqa", "--mode", "bm25", "--json"))
    rows = [json.loads(line) for line in (tmp_path / "out" / "questions.jsonl").read_text().splitlines()]
    assert len(rows) == 4
    for task, score in found["tasks"].items():
        mine = [row for row in rows if row["task"] == task]
        assert sum(row["right"] for row in mine) / 2 == score["accuracy"]
        assert all(row["right"] == (row["choice"] == row["gold"]) for row in mine)
        ranks = [[hit["rank"] for hit in row["evidence"]] for row in mine]
        assert ranks == [list(range(1, len(found) + 1)) for found in ranks]
    wrong = {row["id"] for row in rows if not row["right"]}
    shown = done(run("bench", "show", tmp_path / "out", "--wrong", "--json"))
    assert {row["id"] for row in shown["questions"]} == wrong
    page = tmp_path / "page.html"
    assert run("bench", "show", tmp_path / "out", "--html", page).exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert all(escape(row["question"]) in text or json.dumps(row["question"])[1:-1] in text for row in rows)
    assert "http://" not in text.replace("http://www.w3.org", "")


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
        default, one = reported("default", "--no-cache"), reported("one", "--no-cache", "--concurrency", "1")
        assert script.most == 1
        assert one["manifest"]["cached"] == 0
        assert default["tasks"] == one["tasks"]
        reported("seven", "--concurrency", "7")
        assert 1 < script.most <= 7
        asked = len(script.asked)
        kept = reported("kept")
        assert kept["manifest"]["cached"] == kept["manifest"]["answered"] == sum(t["n"] for t in kept["tasks"].values())
        assert len(script.asked) == asked
        assert kept["config"] == one["config"], "neither setting changes what is found"
        resumed = reported("one", "--concurrency", "3", "--cache")
        assert (resumed["manifest"]["answered"], resumed["tasks"]) == (0, one["tasks"])
    finally:
        script.close()
    refused_by_config = run(*fixed, "--concurrency", "0", "--out", tmp_path / "none", home=small_home)
    failed(refused_by_config, 2, "--concurrency 0")


def test_bench_mirage_in_the_folder_of_another_run_is_refused(mirage):
    done(mirage("--limit", "1", "--mode", "bm25", "--json"))
    failed(mirage("--limit", "1", "--mode", "bm25", "-k", "3", "--json"), 5, "other settings", "--out")
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


def test_a_missing_benchmark_is_refused_before_anything_is_written(run, small_home, tmp_path):
    missing = ["bench", "mirage", "--benchmark", tmp_path / "no.json", "--out", tmp_path / "o"]
    failed(run(*missing, home=small_home), 4, tmp_path / "no.json", "'demo'")
    assert not (tmp_path / "o").exists()
