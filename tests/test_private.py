"""Nothing leaves the machine that was not named, and no key, login or question stands where it was not asked for."""

from __future__ import annotations

import base64
import json
import os
import socket
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import onnx
import pytest
from typer.testing import CliRunner

from biorag.cli import app
from biorag.utils.network import restrict
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
        env={**names, **threads, "BIORAG_HOME": str(home), **variables},
    )
    assert ended.returncode == 0, ended.stderr
    return {**json.loads(ended.stdout.splitlines()[-1]), "said": ended.stderr}


@pytest.fixture
def dataset(tmp_path) -> Path:
    folder = tmp_path / "dataset"
    (folder / "qrels").mkdir(parents=True)
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "What lowers fever?"}) + "\n")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\ts0\t1\n")
    return folder


# --- no remote service that was not named ---


@pytest.mark.slow
@pytest.mark.parametrize("offline", [[], ["--offline"]], ids=["as it is", "offline"])
def test_the_main_commands_connect_to_nothing(tmp_path, corpus_file, dataset, offline):
    found = watched(
        tmp_path / "home",
        [*offline, "index", corpus_file, "--json"],
        [*offline, "search", "fever", "--json"],
        [*offline, "ask", "What lowers fever?", "--max-tokens", "8", "--json"],
        [*offline, "bench", "retrieval", dataset, "--json"],
        [*offline, "info", "--json"],
        [*offline, "models", "--json"],
    )
    assert (found["ended"], found["attempts"]) == ([0] * 6, []), found["said"]


@pytest.mark.slow
def test_offline_a_model_of_the_hub_is_not_asked_for(tmp_path, corpus_file):
    found = watched(
        tmp_path / "home",
        ["--offline", "index", corpus_file, "--encoder", "nobody/no-such-encoder"],
        ["ask", "fever?", "--llm", "hf:nobody/no-such/model.gguf"],
        BIORAG_OFFLINE="1",
        HF_HOME=str(tmp_path / "hub"),
    )
    assert (found["ended"], found["attempts"]) == ([4, 4], [])
    assert "no-such-encoder" in found["said"] and "Traceback" not in found["said"]


# Native code's sockets are not Python's, but they take the proxy that is set.
PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY")
# The runtime's first report would be on its way before this ends.
LOADED = """
import sys, time
import biorag, onnxruntime
onnxruntime.InferenceSession(sys.argv[1])
time.sleep(15)
"""


@pytest.mark.slow
def test_the_runtime_of_exported_encoders_reports_nothing(tmp_path):
    number = onnx.helper.make_tensor_value_info("in", onnx.TensorProto.FLOAT, [1])
    same = onnx.helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["in"], ["out"])], "graph", [number], [same])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "model.onnx")
    names = {name: value for name, value in os.environ.items() if name not in ("CI", "NO_PROXY", "no_proxy")}
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        url = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        subprocess.run(
            [sys.executable, "-c", LOADED, tmp_path / "model.onnx"],
            check=True,
            env={**names, "ORT_DISABLE_TELEMETRY": "0", **dict.fromkeys(PROXIES, url)},
        )
        proxy.settimeout(0)
        with pytest.raises(BlockingIOError):
            proxy.accept()


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
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env=env)


@pytest.fixture
def indexed(server, corpus_file, tiny_encoder) -> str:
    result = run("index", corpus_file, "--qdrant", server.url, "--encoder", tiny_encoder, "--name", "wire")
    assert result.exit_code == 0, result.output
    server.requests.clear()
    return "wire"


def refused(result) -> None:
    assert result.exit_code == 6, result.output
    assert "error: offline: 127.0.0.1 is not named on this command line" in result.stderr
    assert "Traceback" not in result.stderr and "retrying" not in result.stderr


def test_offline_a_named_qdrant_server_is_used(server, indexed):
    result = run("--offline", "search", "fever", "--name", indexed, "--qdrant", server.url, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["hits"] and server.requests


@pytest.mark.parametrize(
    ("command", "env"),
    [(["--offline", "search"], {}), (["search"], {"BIORAG_OFFLINE": "1"}), (["search"], {"BIORAG_OFFLINE": "true"})],
    ids=["option", "1", "true"],
)
def test_offline_a_server_that_only_the_index_names_is_refused(server, indexed, command, env):
    refused(run(*command, "fever", "--name", indexed, **env))
    assert server.requests == []


def test_offline_by_the_settings_file(server, indexed, tmp_path):
    settings = tmp_path / "settings.toml"
    settings.write_text("offline = true\n")
    refused(run("--config", settings, "search", "fever", "--name", indexed))
    assert server.requests == []


def test_offline_a_generators_server_must_be_named_too(llm, corpus_file, tiny_encoder):
    assert run("index", corpus_file, "--encoder", tiny_encoder).exit_code == 0
    refused(run("--offline", "ask", "fever?", BIORAG_LLM=llm.url))
    assert llm.asked == []
    result = run("--offline", "ask", "fever?", "--llm", llm.url, "--llm-model", "m", "--json")
    assert result.exit_code == 0, result.output
    assert len(llm.asked) == 1


def test_not_offline_by_a_variable_that_says_so(server, indexed):
    result = run("search", "fever", "--name", indexed, BIORAG_OFFLINE="0")
    assert result.exit_code == 0, result.output


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
        "info, a table": ["info", "wire"],
        "all indexes": ["info", "--json"],
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
def test_no_key_and_no_login_is_in_any_output_or_file(outputs, llm):
    words = [*CANARIES.values(), *LOGIN.split(":"), base64.b64encode(LOGIN.encode()).decode()]
    leaks = {(name, word) for name, text in outputs.items() for word in words if word in text}
    assert leaks == set()
    sent = {asked.headers.get("Authorization") for asked in llm.asked}
    assert sent == {f"Basic {base64.b64encode(LOGIN.encode()).decode()}"}, "the login was used, all the same"


@pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")
def test_no_question_is_logged_nor_kept(outputs):
    """It stands in the report of the command that was given it, on stdout, and nowhere else."""
    for name, text in outputs.items():
        if name in ("search", "ask"):
            log = text[text.rindex("\n}\n") :]
            assert "DEBUG" in log, "it is the log that is looked at"
            text = log
        assert "canary-question" not in text, name


def test_replies_are_kept_where_others_may_not_look(tmp_path, llm, corpus_file, tiny_encoder):
    run("index", corpus_file, "--encoder", tiny_encoder)
    assert run("ask", QUESTION, "--llm", llm.url, "--llm-model", "m").exit_code == 0
    replies = tmp_path / "home" / "cache" / "replies"
    assert list(replies.rglob("*.json"))
    assert stat.S_IMODE(replies.stat().st_mode) == 0o700


def test_a_training_manifest_has_the_command_without_the_login(monkeypatch):
    from biorag.utils.network import command_line

    words = ["train", "retriever", "a@b", "--qdrant", "https://u:canary@h", "--encoder=x", "--qdrant=http://u:canary@h"]
    monkeypatch.setattr(sys, "argv", ["biorag", *words])
    assert command_line() == ["biorag", *words[:3], "--qdrant", "https://h", "--encoder=x", "--qdrant=http://h"]
