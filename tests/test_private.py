"""Nothing leaves the machine that was not named, and no key, login or question stands where it was not asked for."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from biorag.utils.network import restrict
from tests.cli import invoke, with_exports
from tests.conftest import write_judged
from tests.loopback import Script
from tests.qdrant_standin import StandIn

CANARIES = {
    "QDRANT_API_KEY": "canary-qdrant-key",
    "BIORAG_LLM_API_KEY": "canary-llm-key",
    "NCBI_API_KEY": "canary-ncbi-key",
}
LOGIN = "canary-user:canary-password"
QUESTION = "Does canary-question lower fever?"

# Runs commands in this fresh process, and tells every connection and look-up that Python's sockets were asked for.
WATCHED = """
import json, os, sys
attempts = []
def watch(event, args):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg") and args[0].family != 1:
        attempts.append([event, str(args[1])])
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        attempts.append([event, str(args[0])])
sys.addaudithook(watch)
from biorag.cli import app
ended = []
for command in json.loads(sys.argv[1]):
    try:
        app(command)
    except SystemExit as end:
        ended.append(end.code)
print("\\n" + json.dumps({"ended": ended, "attempts": attempts}))
"""


def watched(home: Path, *commands: list[str], **variables: str) -> dict:
    """Return the exit codes of commands, the connections tried, and what was said on stderr."""
    names = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    threads = {"BIORAG_THREADS": "1", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    ended = subprocess.run(
        [sys.executable, "-c", WATCHED, json.dumps([[str(word) for word in command] for command in commands])],
        capture_output=True,
        text=True,
        timeout=240,
        env={**names, **threads, "BIORAG_HOME": str(with_exports(home)), **variables},
    )
    assert ended.returncode == 0, ended.stderr
    return {**json.loads(ended.stdout.splitlines()[-1]), "said": ended.stderr}


@pytest.fixture
def dataset(tmp_path) -> Path:
    return write_judged(tmp_path / "dataset", {"q": "What lowers fever?"}, [("q", "s0", 1)])


# --- no remote service that was not named ---


@pytest.mark.slow
def test_the_main_commands_connect_to_nothing(tmp_path, corpus_file, dataset):
    ran = watched(
        tmp_path / "home",
        ["index", corpus_file, "--store-tokens", "full", "--json"],
        ["search", "fever", "--json"],
        ["ask", "What lowers fever?", "--max-tokens", "8", "--json"],
        ["bench", "retrieval", dataset, "--json"],
        ["models", "--json"],
    )
    assert (ran["ended"], ran["attempts"]) == ([0] * 5, []), ran["said"]
    ran = watched(
        tmp_path / "home",
        ["index", corpus_file, "--name", "other", "--encoder", "nobody/no-such-encoder"],
        ["ask", "fever?", "--llm", "hf:nobody/no-such/model.gguf"],
        BIORAG_OFFLINE="1",
        HF_HOME=str(tmp_path / "hub"),
    )
    assert (ran["ended"], ran["attempts"]) == ([4, 4], [])
    assert "no-such-encoder" in ran["said"] and "Traceback" not in ran["said"]


def test_the_runtime_of_exported_encoders_reports_nothing():
    """It reports from native code, which no guard of Python's sees; the variable is read when it is imported."""
    script = "import os, biorag; assert os.environ['ORT_DISABLE_TELEMETRY'] == '1'"
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "ORT_DISABLE_TELEMETRY": "0"})


# --- offline ---


@pytest.fixture
def server():
    with closing(StandIn()) as stand_in:
        yield stand_in


@pytest.fixture
def llm():
    script = Script()
    script.rule = lambda body: json.dumps({"answer": "canary", "citations": [1], "answer_choice": "A"})
    with closing(script):
        yield script


def run(*arguments: object, **env: str):
    restrict(None)
    return invoke(*arguments, **env)


# --- secrets ---


def files_below(folder: Path) -> str:
    return "\n".join(
        f"{path}\n{path.read_bytes().decode('latin-1')}" for path in sorted(folder.rglob("*")) if path.is_file()
    )


def with_login(url: str) -> str:
    return url.replace("://", f"://{LOGIN}@")


@pytest.fixture
def outputs(tmp_path, server, llm, corpus_file, dataset, tiny_encoder, monkeypatch) -> dict[str, str]:
    """What each of many commands printed, and the files they left, with secrets in variables and URLs."""
    monkeypatch.setenv("BIORAG_HOME", str(tmp_path / "home"))
    for name, value in CANARIES.items():
        monkeypatch.setenv(name, value)
    server.api_key = CANARIES["QDRANT_API_KEY"]
    reached = ["--qdrant", with_login(server.url), "--name", "wire"]
    asked = [*reached, "--llm", with_login(llm.url), "--llm-model", "m", "--max-tokens", 16]
    out = tmp_path / "out"
    out.mkdir()
    commands = {
        "index": ["--debug", "index", corpus_file, *reached, "--encoder", tiny_encoder, "--json"],
        "search": ["--debug", "search", QUESTION, *reached, "--json"],
        "ask": ["--debug", "ask", QUESTION, *asked, "--json"],
        "info": ["info", "wire", "--json", "--qdrant", with_login(server.url)],
        "settings": ["info", "--settings", "--json"],
        "mirage": ["bench", "mirage", "--benchmark", "demo", "--limit", 1, *asked, "--out", out / "mirage", "--json"],
        "retrieval": ["bench", "retrieval", dataset, *reached, "--json"],
        "mine": ["mine", dataset, "--negatives", "retriever", *reached, "--out", out / "mined.jsonl", "--json"],
        "wrong index": ["search", "fever", "--qdrant", with_login("http://127.0.0.1:9"), "--name", "wire"],
        "wrong URL": ["search", "fever", "--qdrant", with_login("http://127.0.0.1:x")],
    }
    found = {}
    for name, command in commands.items():
        result = run(*command)
        assert (result.exit_code == 0) == (not name.startswith("wrong")), (name, result.output)
        found[name] = result.stdout + result.stderr
    server.refuse = lambda method, path: 503
    llm.rule = lambda body: (500, {"error": f"{CANARIES['BIORAG_LLM_API_KEY']} {LOGIN}"})
    failing = {
        "Qdrant fails": ["--debug", "search", "fever", *reached],
        "the generator fails": ["--debug", "ask", "fever?", "--llm", with_login(llm.url), "--llm-model", "m"],
    }
    run("index", corpus_file, "--encoder", tiny_encoder)
    for name, command in failing.items():
        result = run(*command)
        assert result.exit_code == 6, (name, result.output)
        found[name] = result.stdout + result.stderr
    found["files"] = files_below(tmp_path / "home") + files_below(out)
    found["metadata"] = json.dumps(server.engine.get_collection("wire").config.metadata)
    return found


@pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")
def test_no_key_no_login_and_no_question_is_in_any_output_or_file(outputs, llm):
    """A question stands in the report of the command that was given it, on stdout, and nowhere else."""
    login = base64.b64encode(LOGIN.encode()).decode()
    words = [*CANARIES.values(), *LOGIN.split(":"), login]
    assert {(name, word) for name, text in outputs.items() for word in words if word in text} == set()
    sent = {asked.headers.get("Authorization") for asked in llm.asked}
    assert sent == {f"Basic {login}"}, "the login was used, all the same"
    for name, text in outputs.items():
        if name in ("search", "ask"):
            text = text[text.rindex("\n}\n") :]
            assert "DEBUG" in text, "the log is looked at"
        assert "canary-question" not in text, name


def test_replies_are_kept_where_others_may_not_look(tmp_path, llm, corpus_file, tiny_encoder):
    run("index", corpus_file, "--encoder", tiny_encoder)
    assert run("ask", QUESTION, "--llm", llm.url, "--llm-model", "m", "--answer-anyway").exit_code == 0
    replies = tmp_path / "home" / "cache" / "replies"
    assert list(replies.rglob("*.json"))
    assert stat.S_IMODE(replies.stat().st_mode) == 0o700
