"""The judge of claims that comes with biorag: when it loads, who asks it, what is said of it, and damaged files."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from biorag import engine
from biorag.api.session import Session
from biorag.engine import load_checker
from biorag.errors import MismatchError, MissingError
from biorag.mcp_server.tools import Tools
from biorag.models import finding
from biorag.models.exporting import write_export
from biorag.models.exports import GRAPH, RECORD, TOKENIZER
from biorag.models.finding import JUDGE_CARD, STARTER_JUDGE, find_encoder
from biorag.settings.settings import Settings
from biorag.types import Snippet
from biorag.utils.files import sha256_of
from tests.cli import done, failed, invoke, succeeded
from tests.conftest import write_judged

pytestmark = pytest.mark.models

QUESTION, CLAIM = "What blocks vitamin K?", "The drug keeps clotting factors that need vitamin K from being made."
BM25 = ("--mode", "bm25", "--no-rerank")
NOTE = "note: judged by a model of 23 million parameters, right in 71 of 100 unseen claims\n"


class Recorded:
    """A judge that supports every claim, and records them."""

    def __init__(self):
        self.sha256, self.loaded, self.claims = "5" * 64, 0, []

    def load(self, verifier, settings):
        assert verifier == "starter"
        self.loaded += 1
        return self

    def judge(self, pairs):
        self.claims += [claim for _, claim in pairs]
        return np.tile(np.array([0.83, 0.02, 0.15], np.float32), (len(pairs), 1))


@pytest.fixture
def judge(monkeypatch, starter_judge):
    recorded = Recorded()
    monkeypatch.setattr(engine, "load_judge", recorded.load)
    return recorded


@pytest.fixture
def writer(server):
    """The options of a generator that answers with the claim."""
    server.rule = lambda body: json.dumps({"answer": CLAIM, "citations": [1], "answer_choice": "A"})
    return ("--llm", server.url, "--llm-model", "writer", "--no-cache", *BM25)


def test_it_is_loaded_once_when_it_is_first_asked(judge):
    checker = load_checker(Settings.of(verifier="starter"))
    assert judge.loaded == 0
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: checker.check_claim(f"{CLAIM} {n}", [Snippet("s", "", "Warfarin.")]), range(32)))
    assert (judge.loaded, len(judge.claims)) == (1, 32)
    assert checker.identity() == judge.sha256


def test_the_identity_is_the_hash_of_the_weights(starter_judge):
    checker = load_checker(Settings.of(verifier="starter"))
    assert checker.identity() == sha256_of(starter_judge / GRAPH)
    assert load_checker(Settings.of(verifier="none")).identity() is None


def test_an_extract_loads_none_and_says_nothing_of_one(small_home, judge):
    shown = succeeded(invoke("ask", QUESTION, *BM25, home=small_home))
    assert shown.stdout.startswith("Extract") and "judged by" not in shown.stderr
    with Session(Settings.of(home=small_home, verifier="starter", mode="bm25", rerank=False), eager=True) as session:
        session.search(QUESTION)
    assert judge.loaded == 0


@pytest.mark.slow
def test_an_extract_imports_what_it_does_without(small_home):
    code = (
        "import json, sys\nfrom biorag.cli import app\ntry:\n    app(json.loads(sys.argv[1]))\n"
        "except SystemExit as end:\n    print(json.dumps([end.code, *sorted(sys.modules)]))"
    )
    asked = ["ask", QUESTION, *BM25, "--name", "default", "--json", "--verifier"]
    environment = {"BIORAG_HOME": str(small_home)}
    imported = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", code, json.dumps([*asked, verifier])],
                capture_output=True, text=True, check=True, env=environment,
            ).stdout.splitlines()[-1]
        )
        for verifier in ("none", "starter")
    ]  # fmt: skip
    assert imported[0] == imported[1] and imported[0][0] == 0


def test_what_is_shown_to_a_person_says_once_who_judged(small_home, judge, writer):
    for words, line in (
        (("verify", CLAIM, *BM25), "supports 83 %, contradicts 2 %, neither 15 %"),
        (("ask", QUESTION, *writer), f"{CLAIM} [supported, 83 %] [1"),
        (("ask", QUESTION, "-o", "A=warfarin", "-o", "B=insulin", *BM25), "Chosen by the evidence alone: supported"),
    ):
        shown = succeeded(invoke(*words, home=small_home))
        assert line in shown.stdout and " ".join(shown.stderr.split()).count(NOTE.strip()) == 1, words
        assert judge.claims, words
        judge.claims.clear()
    asked = done(invoke("ask", QUESTION, *writer, "--json", home=small_home))
    assert [note for note in asked["notes"] if note in NOTE] == [NOTE.removeprefix("note: ").rstrip()]
    talk = succeeded(invoke("chat", *writer, home=small_home, input=f"{QUESTION}\n{QUESTION}"))
    assert " ".join(talk.stderr.split()).count(NOTE.strip()) == 2, "once an answer"
    settings = Settings.of(home=small_home, verifier="starter", mode="bm25", rerank=False)
    with Session(settings) as session:
        judge.claims.clear()
        assert Tools(session).verify_claim(CLAIM)["verdict"] == "supported"
        assert set(judge.claims) == {CLAIM}


def test_another_verifier_is_named_without_a_figure(small_home, judge, writer, monkeypatch):
    monkeypatch.setattr(engine, "load_judge", lambda verifier, settings: judge)
    shown = succeeded(invoke("ask", QUESTION, *writer, "--verifier", "some/judge", home=small_home))
    assert "note: judged by some/judge\n" in shown.stderr and "unseen" not in shown.stderr
    rules = succeeded(invoke("ask", QUESTION, *writer, "--verifier", "none", home=small_home))
    assert "judged by" not in rules.stderr and "[unsupported]" in rules.stdout


def test_benchmarks_of_answers_ask_it_and_name_it(small_home, judge, tmp_path):
    data = write_judged(tmp_path / "asked", {"q": QUESTION}, [("q", "s1", 1)])
    (data / "answers.jsonl").write_text(json.dumps({"_id": "q", "type": "summary", "ideal_answer": ["Warfarin."]}))
    out = tmp_path / "answers"
    report = done(invoke("bench", "answers", data, *BM25, "--out", out, "--json", home=small_home))
    assert judge.claims and report["config"]["verifier"] == "starter"
    assert json.loads((out / "manifest.json").read_bytes())["identity"]["verifier"] == judge.sha256
    failed(invoke("bench", "answers", data, *BM25, "--verifier", "none", "--out", out, home=small_home), 5, "verifier")
    judge.claims.clear()
    run = ("bench", "mirage", "--benchmark", "demo", "--limit", 1, "--answer", "evidence", "--mode", "bm25")
    report = done(invoke(*run, "--out", tmp_path / "mirage", "--json", home=small_home))
    assert judge.claims and report["manifest"]["verifier"] == judge.sha256
    assert report["config"]["verifier"] == "starter"


@pytest.mark.parametrize("name", [GRAPH, TOKENIZER, RECORD, JUDGE_CARD])
@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_text("{}")])
def test_a_missing_or_damaged_file_is_one_sentence_with_the_next_step(starter_judge, name, damage):
    damage(starter_judge / name)
    with pytest.raises((MissingError, MismatchError), match=r"[:;] install tiny_judge again$") as caught:
        load_checker(Settings.of(verifier="starter")).identity()
    assert str(starter_judge) in str(caught.value) and "\n" not in str(caught.value)


def test_a_model_with_other_outputs_is_refused(starter_judge, tiny_encoder, monkeypatch):
    write_export(find_encoder(str(tiny_encoder)), "bi-encoder", starter_judge)
    checker = load_checker(Settings.of(verifier="starter"))
    with pytest.raises(MismatchError, match="is not the published judge of claims"):
        checker.identity()
    published = replace(finding.STARTER_JUDGE, sha256=sha256_of(starter_judge / GRAPH))
    monkeypatch.setattr(finding, "STARTER_JUDGE", published)
    with pytest.raises(MissingError, match="an exported encoder, not a judge of claims"):
        checker.identity()


def test_a_fault_shows_before_a_generator_writes(small_home, starter_judge, writer):
    (starter_judge / GRAPH).unlink()
    failed(invoke("ask", QUESTION, *writer, home=small_home), 4, "is missing: install tiny_judge again")
    succeeded(invoke("ask", QUESTION, *BM25, home=small_home))


def test_doctor_checks_it_and_models_lists_it(starter_judge, monkeypatch):
    monkeypatch.setattr("biorag.commands.doctor._question", lambda settings: "asked")
    monkeypatch.setattr("biorag.commands.doctor.STARTER_JUDGE", finding.STARTER_JUDGE)
    checks = {check["name"]: check["ok"] for check in done(invoke("doctor", "--json"))["checks"]}
    assert checks["starter judge"] is True
    (starter_judge / GRAPH).write_text("{}")
    failing = json.loads(invoke("doctor", "--json").stdout)["checks"]
    assert [check["name"] for check in failing if not check["ok"]] == ["starter judge"]
    assert "starter (judge of claims)" in [model["name"] for model in done(invoke("models", "--json"))]


@pytest.mark.skipif(bool(STARTER_JUDGE.sha256), reason="a judge comes with biorag")
def test_where_none_comes_with_biorag_it_is_said_and_not_listed(small_home):
    result = invoke("verify", "Metformin brings down sugar.", *BM25, "--verifier", "starter", home=small_home)
    failed(result, 4, "no judge of claims comes with this version")
    assert not any("judge" in model["name"] for model in done(invoke("models", "--json")))


@pytest.mark.skipif(not STARTER_JUDGE.sha256, reason="no judge comes with biorag yet")
def test_the_judge_that_comes_with_biorag_is_the_published_one():
    settings = Settings.of(verifier="starter")
    checker = load_checker(settings)
    assert checker.identity() == STARTER_JUDGE.sha256
    folder = STARTER_JUDGE.path().parent
    names = {path.name for path in folder.iterdir() if path.name != "__pycache__"}
    assert names == {"__init__.py", "README.md", JUDGE_CARD, GRAPH, TOKENIZER, RECORD}
    assert sum((folder / name).stat().st_size for name in names) <= 25_000_000
    text = Snippet("s", "", "Metformin lowers blood glucose mainly by suppressing its production in the liver.")
    assert checker.check_claim("Metformin reduces blood sugar.", [text]).probability
    assert engine.judged_by(settings).startswith("judged by a model of 2")
