"""The MCP server by the SDK's own client: in this process, as a process of its own, and over HTTP."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import anyio
import pytest
from mcp import Client

from biorag.api.session import Session
from biorag.faces.mcp_server.server import build_server
from biorag.faces.mcp_server.tools import QUOTED
from biorag.faces.session_pool import SessionPool
from biorag.indexes.catalogue import rename_index
from biorag.settings.settings import Settings
from tests.cli import done, environment, invoke, succeeded, with_exports
from tests.loopback import Loopback

NAMES = {"search", "get_snippet", "ask", "verify_claim", "weigh", "cite", "index_info", "list_indexes"}
CLAIM = "Aspirin lowers fever and relieves pain."


@pytest.fixture(scope="module")
def home(small_home):
    return small_home


@pytest.fixture(scope="module")
def session(home):
    """An open index, shared."""
    with Session(Settings.of(home=home, name="default", reader="none")) as session:
        yield session


@pytest.fixture
def run(home):
    """Run a command in the home; return the JSON that it prints."""
    return lambda *words: done(invoke(*words, "--json", home=home, BIORAG_READER="none"))


def called(server, *calls, mode="auto"):
    """Return the results of calls of tools, (name, arguments) each, by one client."""

    async def ask():
        async with Client(server, mode=mode) as client:
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    return anyio.run(ask)


def value(result):
    """Return the JSON of a result that is no error, which its text repeats, without the notice that it quotes."""
    assert not result.is_error, result.content
    assert json.loads(result.content[0].text) == result.structured_content
    document = dict(result.structured_content)
    assert "snippets" in document or "hits" in document or document.get("notice") == QUOTED
    document.pop("notice", None)
    return document


def refusal(result) -> str:
    """Return the line of a result that is an error."""
    assert result.is_error, result
    (block,) = result.content
    assert len(block.text.splitlines()) == 1
    return block.text


def timeless(values):
    """Return an answer or a ranking without its times."""
    return {name: part for name, part in values.items() if name != "timings_ms"}


def described(session):
    """Return the tools of a server, and its instructions."""

    async def listed():
        async with Client(build_server(session)) as client:
            return (await client.list_tools()).tools, client.instructions

    return anyio.run(listed)


def test_the_tools_are_read_only_typed_and_say_that_they_quote(session):
    tools, instructions = described(session)
    assert {tool.name for tool in tools} == NAMES
    assert "default" in instructions
    for tool in tools:
        assert tool.annotations.read_only_hint
        assert not tool.annotations.destructive_hint
        assert tool.output_schema["type"] == "object"
        assert QUOTED in tool.description
        assert "\n" not in tool.description


def test_every_text_and_list_has_a_bound(session):
    def parts(schema):
        yield schema
        for part in schema.get("anyOf", []):
            yield from parts(part)

    bounds = {"string": "maxLength", "array": "maxItems", "object": "maxProperties"}
    unbounded = {
        f"{tool.name}.{name}"
        for tool in described(session)[0]
        for name, field in tool.input_schema["properties"].items()
        for part in parts(field)
        if "enum" not in part and bounds.get(part.get("type"), "type") not in part and "type" in part
    }
    assert unbounded == set()


def test_the_other_tools_are_what_the_commands_print(session, run, home):
    server = build_server(session)
    snippet, verdict, weighed, of_one, info, references, by_pmid = called(
        server,
        ("get_snippet", {"id": "s0", "mark": "fever"}),
        ("verify_claim", {"claim": CLAIM}),
        ("weigh", {"claim": CLAIM}),
        ("verify_claim", {"claim": CLAIM, "snippet": "1001"}),
        ("index_info", {}),
        ("cite", {"ids": ["s0", "1001"], "format": "bibtex"}),
        ("get_snippet", {"id": "1002"}),
    )
    assert value(snippet) == run("show", "s0", "--name", "default", "--mark", "fever")
    assert value(snippet)["snippets"][0]["marks"] != []
    assert value(by_pmid) == run("show", "1002", "--name", "default")
    assert value(verdict) == run("verify", CLAIM)
    assert timeless(value(weighed)) == timeless(run("weigh", CLAIM))
    assert value(of_one) == run("verify", CLAIM, "--snippet", "1001")
    described, facts = value(info), run("info", "default")
    assert [described[name] for name in ("name", "snippets", "updated")] == [
        facts[name] for name in ("name", "snippets", "updated")
    ]
    assert described["fields"] == run("indexes", "show", "default", "--fields")["fields"]
    assert re.search("[0-9a-f]{64}", json.dumps(described)) is None, "hashes tell an assistant nothing"
    assert value(references)["ids"] == ["s0", "s1"]
    assert value(references)["text"].count("@") == 2
    first = succeeded(invoke("search", "aspirin fever", "-k", 1, "--format", "bibtex", home=home)).stdout
    assert value(references)["text"].startswith(first.rstrip())


def test_the_tools_ask_the_index_that_is_named(session, home, tmp_path, run):
    other = Settings.of(home=shutil.copytree(home, tmp_path / "two", symlinks=True), name="default", reader="none")
    rename_index(other, "renamed")
    shutil.copytree(home / "indexes" / "default", other.indexes / "default")
    with Session(other) as first:
        listed, found, shown, missing = called(
            build_server(SessionPool(first, others=True)),
            ("list_indexes", {}),
            ("search", {"query": "aspirin", "k": 1, "index": "renamed"}),
            ("index_info", {"index": "renamed"}),
            ("get_snippet", {"id": "s0", "index": "nowhere"}),
        )
    facts = run("info", "default")
    row = {"snippets": facts["snippets"], "updated": facts["updated"]}
    assert value(listed)["indexes"] == [{"name": "default", **row}, {"name": "renamed", **row}]
    assert value(found)["hits"][0]["id"] == run("search", "aspirin", "-k", 1)["hits"][0]["id"]
    assert value(shown)["name"] == "renamed"
    assert refusal(missing) == "there is no index 'nowhere' here: choose one of default, renamed"


@pytest.mark.parametrize(
    ("name", "arguments", "part"),
    [
        ("search", {"query": "x", "k": 10**9}, "k: give at most 100"),
        ("search", {"query": " \n\t "}, "the query is empty"),
        ("search", {"query": "x", "filter": "nowhere=1"}, "no snippet has the field 'nowhere': the fields are"),
        ("search", {"query": "x", "mode": "fuzzy"}, "mode: "),
        ("get_snippet", {"id": "/etc/passwd\0"}, "no snippet '/etc/passwd\\x00'"),
        ("ask", {"question": "x", "options": {"A": "one"}}, "two options"),
        ("cite", {"ids": ["s0"] * 51}, "ids: "),
        ("cite", {"ids": ["s0"], "format": "../x"}, "'../x'"),
        ("delete", {}, "Unknown tool"),
    ],
)
def test_what_cannot_be_used_is_an_error_of_one_line(session, name, arguments, part):
    server = build_server(session)
    refused, afterwards = called(server, (name, arguments), ("search", {"query": "aspirin", "k": 1}))
    assert part in refusal(refused)
    assert len(value(afterwards)["hits"]) == 1, "the server answers on"


def test_a_bug_is_an_error_without_its_text(session, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("a path: /home/somebody")

    monkeypatch.setattr(Session, "search", broken)
    (result,) = called(build_server(session), ("search", {"query": "x"}))
    assert "somebody" not in refusal(result)


def variables(home) -> dict[str, str]:
    return {**os.environ, **environment(with_exports(home), {})}


CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
GREETING = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": CLIENT}


@contextmanager
def serving(home, *words):
    """Start the server as a host does; give the process once it has answered the greeting."""
    command = [sys.executable, "-m", "biorag", "mcp", *words]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=variables(home), text=True, **pipes) as process:
        process.stdin.write(json.dumps(GREETING) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["result"]["serverInfo"]["name"] == "biorag"
        yield process
        process.kill()


def test_standard_output_has_the_protocol_alone_and_the_end_of_input_ends_the_server(home):
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call"}
    call["params"] = {"name": "search", "arguments": {"query": "aspirin"}}
    half = {**call, "params": {"name": "search", "arguments": {"query": "\ud800 aspirin \udc00", "k": "\U0001f600"}}}
    with serving(home) as process:
        process.stdin.write(json.dumps(half) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["result"]["isError"]
        process.stdin.write("not JSON\n" + json.dumps(call) + "\n")
        process.stdin.flush()
        messages = [json.loads(process.stdout.readline())]
        while messages[-1].get("id") != 2:
            messages.append(json.loads(process.stdout.readline()))
        rest, log = process.communicate(timeout=200)
        assert (process.returncode, rest) == (0, "")
    assert {message["jsonrpc"] for message in messages} == {"2.0"}
    assert "Traceback" not in log
    assert "Index 'default'" in log


@pytest.mark.parametrize(
    "message",
    [
        '{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": []}',
        '{"jsonrpc": "2.0", "id": 7, "method": 3}',
        '{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": ' + "[" * 300 + "]" * 300 + "}}",
    ],
)
def test_every_request_with_an_id_is_answered(home, message):
    with serving(home) as process:
        print(message, file=process.stdin, flush=True)
        reply = json.loads(process.stdout.readline())
        assert (reply["id"], reply["error"]["code"]) == (7, -32602)
        print(json.dumps({"jsonrpc": "2.0", "id": 8, "method": "tools/list"}), file=process.stdin, flush=True)
        assert json.loads(process.stdout.readline())["id"] == 8, "the server answers on"


def test_a_host_that_closes_standard_output_ends_the_server_silently(home):
    with serving(home) as process:
        process.stdout.close()
        print(json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}), file=process.stdin, flush=True)
        assert process.wait(100) in (0, 141), "its input is still open"
        log = process.stderr.read()
        assert "error" not in log and "Traceback" not in log


def test_a_model_and_a_source_that_are_paths_go_by_their_names(session, monkeypatch):
    info = session.info()
    info["encoder"] = {**info["encoder"], "id": "/srv/models, new/encoder"}
    info["sources"] = [{**info["sources"][0], "name": "/srv/corpora/a.jsonl"}]
    monkeypatch.setattr(Session, "info", lambda self: info)
    roles = {"encoder": "/srv/m/encoder", "reranker": "encoder,cross:/srv/m@2/x@10", "generator": "org/model"}
    monkeypatch.setattr("biorag.engine.OpenIndex.models_used", lambda self, generator: roles)
    described, answer = called(
        build_server(session), ("index_info", {}), ("ask", {"question": "What does aspirin do?"})
    )
    assert value(described)["encoder"] == "encoder"
    assert [source["name"] for source in value(described)["sources"]] == ["a.jsonl"]
    named = {"encoder": "encoder", "reranker": "encoder,cross:x@10", "generator": "org/model"}
    assert value(answer)["models"] == named


class Hanging(Loopback):
    """A model server that takes questions and answers none; `asked` is set when the first has come."""

    def __init__(self) -> None:
        self.asked, self.ended = threading.Event(), threading.Event()
        super().__init__()

    def respond(self, method, path, headers, body):
        if method == "POST":
            self.asked.set()
            self.ended.wait(300)
        return 200, json.dumps({"data": [{"id": "m"}]}).encode(), {}


def test_the_end_of_input_ends_the_server_though_a_question_waits(home):
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call"}
    call["params"] = {"name": "ask", "arguments": {"question": "What does aspirin do?", "answer_anyway": True}}
    model = Hanging()
    try:
        with serving(home, "--name", "default", "--llm", model.url) as process:
            process.stdin.write(json.dumps(call) + "\n")
            process.stdin.flush()
            assert model.asked.wait(200)
            _, log = process.communicate(timeout=100)
            assert (process.returncode, "Traceback" in log) == (0, False), log
            assert not model.ended.is_set(), "the model has not answered"
    finally:
        model.ended.set()
        model.close()


def test_a_signal_ends_the_server_though_its_input_is_open(home):
    with serving(home) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(200) == 143
        assert "Traceback" not in process.stderr.read()
