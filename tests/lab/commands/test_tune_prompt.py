"""`biorag tune prompt` from the command line, with a server as the model that reflects."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

from biorag.models.prompted import write_prompts
from biorag.training.rows import is_held_out
from tests import cli
from tests.cli import done, failed, succeeded
from tests.conftest import write_judged, write_medrag
from tests.lab.commands.test_tune import QUESTIONS, write_questions
from tests.loopback import Script

INSTRUCTION = "Find what treats it"
LONG = "fever " * 200  # leaves no room for the question: any shorter prompt is better


@pytest.fixture(scope="module")
def made(tmp_path_factory, snippets, tiny_encoder) -> Path:
    """A folder with a data set, an encoder of a bad prompt, and a home whose index `default` is of it."""
    place = tmp_path_factory.mktemp("tune-prompt")
    shutil.copytree(tiny_encoder, place / "encoder")
    write_prompts(place / "encoder", {"query": LONG})
    corpus = write_medrag(place / "corpus.jsonl", snippets)
    succeeded(cli.invoke("index", corpus, "--encoder", place / "encoder", home=place / "home"))
    write_questions(place / "prompt")
    return place


@pytest.fixture
def server():
    script = Script()
    script.rule = lambda body: json.dumps({"instruction": f"{INSTRUCTION} {body['seed'] % 7}."})
    yield script
    script.close()


@pytest.fixture
def invoke(made, tmp_path, monkeypatch):
    """Run a command in an empty folder with the module's home."""
    monkeypatch.chdir(tmp_path)
    return partial(cli.invoke, home=made / "home")


@pytest.fixture
def words(made, server):
    data = str(made / "prompt")
    model = ("--llm", server.url, "--llm-model", "m", "--no-cache")
    return ("tune", "prompt", data, *model, "--validation", "0.5", "--calls", "30", "--out", "out")


def query_prompt(folder: Path) -> str:
    return json.loads((folder / "config_sentence_transformers.json").read_bytes()).get("prompts", {}).get("query", "")


def hits(invoke, *more):
    found = done(invoke("search", "What calms the airways?", "--mode", "dense", "--no-rerank", *more, "--json"))
    return [(hit["id"], hit["score"]) for hit in found["hits"]]


def test_an_encoder_with_the_winner_searches_the_index(invoke, made, words, server, tmp_path):
    assert done(invoke(*words[:-1], "kept", "--no-write", "--json"))["written"] is None
    assert not (tmp_path / "kept" / "encoder").exists()
    server.asked.clear()
    report = done(invoke(*words, "--json"))
    left_out = sum(is_held_out(text, 0.5, 0) for text, _ in QUESTIONS.values())
    assert sum(report["questions"].values()) == len(QUESTIONS)
    assert report["questions"]["held_out"] == left_out
    assert report["development"]["after"] > report["development"]["before"]
    assert report["winner"] in [candidate["instruction"] for candidate in report["candidates"]]
    held_out = report["held_out"]
    assert held_out["difference"] == pytest.approx(held_out["after"] - held_out["before"])
    assert held_out["low"] <= held_out["difference"] <= held_out["high"]
    assert report["lm_calls"] == len(server.bodies)
    assert report["prompt"] == {"before": LONG, "after": f"{report['winner']} "}
    assert report["written"] == str(Path("out") / "encoder")
    assert query_prompt(made / "encoder") == LONG
    assert query_prompt(tmp_path / "out" / "encoder") == report["prompt"]["after"]
    assert json.loads((tmp_path / "out" / "report.json").read_bytes()) == report
    assert hits(invoke, "--encoder", tmp_path / "out" / "encoder") != hits(invoke)

    again = done(invoke(*words, "--json"))
    changing = {"seconds": 0, "lm_calls": 0}
    assert {**again, **changing} == {**report, **changing}
    assert again["lm_calls"] == 0
    failed(invoke(*words, "--max-tokens", 64, "--json"), 5, "out was made with other max_tokens", "--out")
    (state,) = [path.name for path in (tmp_path / "out" / "gepa").glob("*.bin")]
    assert state == "gepa_state.bin", "the run resumes from GEPA's own state"


def test_nothing_is_written_where_no_candidate_is_better(invoke, made, words, server):
    server.rule = lambda _: json.dumps({"instruction": ""})
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    assert "held out (" in result.stdout
    shown = " ".join(result.stderr.split())
    assert "about 30 metric calls, one searched question each, and at most 5 replies of m" in shown
    assert "no candidate is better than the encoder's own prompt" in shown
    assert query_prompt(made / "encoder") == LONG


def test_a_winner_that_is_worse_on_held_out_questions_is_not_written(invoke, made, words, tmp_path):
    """The long prompt finds the same for every question; here that is right for those held out."""
    always = hits(invoke)[0][0]
    texts = {id: text for id, (text, _) in QUESTIONS.items()}
    judged = [(id, always if is_held_out(texts[id], 0.5, 0) else snippet, 1) for id, (_, snippet) in QUESTIONS.items()]
    write_judged(tmp_path / "turned", texts, judged)
    turned = [tmp_path / "turned" if word == str(made / "prompt") else word for word in words]
    said = " ".join(invoke(*turned).stderr.split())
    assert "on the held-out questions the winner is worse than the encoder's own prompt, which stays" in said
    report = done(invoke(*turned, "--json"))
    assert report["development"]["after"] > report["development"]["before"]
    assert report["held_out"]["difference"] < 0
    assert report["written"] is None
    assert query_prompt(made / "encoder") == LONG


@pytest.mark.parametrize(
    ("more", "code", "parts"),
    [
        (("--budget", "huge"), 2, ("--budget", "'huge'", "heavy, light, medium")),
        (("--llm", "none"), 2, ("generator",)),
        (("--validation", "0"), 3, ("no question", "held out", "--validation 0")),
    ],
)
def test_what_is_refused(invoke, words, more, code, parts):
    failed(invoke(*words, *more), code, *parts)


def test_a_bare_model_keeps_no_prompt(invoke, made, words):
    (made / "encoder" / "modules.json").rename(made / "modules.json")
    try:
        bare = ("--name", "bare", "--encoder", made / "encoder")
        succeeded(invoke("index", made / "corpus.jsonl", *bare))
        failed(invoke(*words, *bare), 4, "no modules.json", "--no-write")
    finally:
        (made / "modules.json").rename(made / "encoder" / "modules.json")
