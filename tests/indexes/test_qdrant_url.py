"""`--qdrant URL` from the command line to the wire: real requests of qdrant-client to a loopback server."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from biorag.cli import app
from biorag.indexes.store import Store
from biorag.settings.settings import Settings
from tests.qdrant_standin import StandIn


@pytest.fixture
def server():
    stand_in = StandIn(api_key="secret-key")
    yield stand_in
    stand_in.close()


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setenv("QDRANT_API_KEY", "secret-key")
    return lambda *arguments: CliRunner().invoke(app, [*map(str, arguments)])


@pytest.fixture
def indexed(server, run, corpus_file, tiny_encoder):
    result = run("index", corpus_file, "--qdrant", server.url, "--encoder", tiny_encoder, "--name", "wire", "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_another_machine_needs_only_the_url(server, indexed, snippets, run, monkeypatch, tmp_path):
    assert (indexed["added"], indexed["snippets"]) == (len(snippets), len(snippets))
    manifest = server.engine.get_collection("wire").config.metadata["biorag"]
    assert (manifest["snippets"], manifest["complete"]) == (len(snippets), True)
    assert "secret-key" not in json.dumps(manifest)
    monkeypatch.setenv("BIORAG_HOME", str(tmp_path / "other"))
    result = run(
        "search", "malaria parasites", "--qdrant", server.url, "--name", "wire", "--mode", "bm25", "--no-rerank"
    )
    assert result.exit_code == 0 and "Malaria" in result.stdout


def test_a_wrong_key_is_exit_code_6_and_not_shown(server, run, corpus_file, tiny_encoder, monkeypatch):
    monkeypatch.setenv("QDRANT_API_KEY", "wrong-key")
    result = run("index", corpus_file, "--qdrant", server.url, "--encoder", tiny_encoder, "--name", "wire")
    assert result.exit_code == 6
    assert (
        "check QDRANT_API_KEY" in result.stderr
        and "wrong-key" not in result.stderr
        and "Traceback" not in result.stderr
    )


def test_a_server_that_fails_midway_keeps_what_was_acknowledged(server, run, corpus_file, tiny_encoder, snippets):
    puts = []

    def fail_after_two(method: str, path: str) -> int | None:
        if method == "PUT" and path.endswith("/points"):
            puts.append(path)
            return 503 if len(puts) > 2 else None
        return None

    command = ["index", corpus_file, "--qdrant", server.url, "--encoder", tiny_encoder, "--name", "wire"]
    server.refuse = fail_after_two
    result = run(*command, "--batch-size", 3)
    assert result.exit_code == 6 and "503" in result.stderr
    assert server.engine.count("wire").count == 6
    server.refuse = lambda method, path: None
    report = json.loads(run(*command, "--json").stdout)
    assert (report["added"], report["unchanged"], report["snippets"]) == (len(snippets) - 6, 6, len(snippets))


def test_a_collection_whose_making_was_not_answered_is_used(server, run, corpus_file, tiny_encoder, snippets):
    make = server._create

    def make_and_go_down(name, body):
        make(name, body)
        server._create = make
        raise ConnectionError

    server._create = make_and_go_down
    result = run("index", corpus_file, "--qdrant", server.url, "--encoder", tiny_encoder, "--name", "wire", "--json")
    assert result.exit_code == 0, result.stderr
    assert server.requests.count(("PUT", "/collections/wire")) == 2
    assert server.engine.count("wire").count == len(snippets)


def test_a_second_writer_of_the_same_home_is_refused(server, run, indexed, corpus_file, tiny_encoder):
    home = Path(os.environ["BIORAG_HOME"])
    store = Store(Settings.of(home=home, name="wire", qdrant=server.url, qdrant_api_key="secret-key"))
    writer = store.open(store.require_manifest(), writable=True)
    result = run("index", corpus_file, "--name", "wire", "--encoder", tiny_encoder)
    writer.close()
    assert result.exit_code == 6
    assert "is being written by process" in result.stderr
    assert run("index", corpus_file, "--name", "wire", "--encoder", tiny_encoder).exit_code == 0


# --- a server made to do harm


@pytest.mark.parametrize(
    ("step", "harm", "says"),
    [
        ("_retrieve", lambda result: result[0]["payload"].update(content="Not."), "that differs from its digest"),
        ("_retrieve", lambda result: result[0]["payload"].update(id="other"), "'other' that was not asked for"),
        ("_retrieve", lambda result: result[0].update(payload=None), "payload 0"),
        ("_query", lambda result: result[0]["points"][0].update(score=float("nan")), "JSON"),
        ("_query", lambda result: result[0]["points"].extend(result[0]["points"] * 10_000), "not asked for"),
        ("_query", lambda result: result.clear(), "0 answers to"),
        ("_query", lambda result: result.insert(0, 3), "does not answer as Qdrant does (result.0: Input should be an"),
        ("_count", lambda result: result.update(count=-5), "a count of -5 snippets"),
        ("_info", lambda result: result["config"]["metadata"]["biorag"].update(snippets="many"), "damaged (snippets"),
        ("_info", lambda result: result["config"]["metadata"].update(biorag=[[[]]]), "not a JSON object"),
    ],
)
def test_what_a_server_must_not_answer_is_one_sentence(server, indexed, run, monkeypatch, step, harm, says):
    honest = getattr(server, step)

    def harmful(name, body):
        result = honest(name, body)
        harm(result)
        return result

    monkeypatch.setattr(server, step, harmful)
    result = run("search", "malaria parasites", "--name", "wire", "--mode", "bm25", "--no-rerank", "-k", "3")
    assert (result.exit_code in (5, 6), result.stdout) == (True, ""), result.stderr
    assert says in result.stderr and "internal error" not in result.stderr and "Traceback" not in result.stderr


def test_a_reply_has_bounds(indexed, run, monkeypatch):
    monkeypatch.setattr("biorag.indexes.connection.LARGEST_REPLY", 20)
    result = run("search", "malaria", "--name", "wire", "--mode", "bm25", "--no-rerank")
    assert (result.exit_code, "more than 20 bytes" in result.stderr) == (6, True)
