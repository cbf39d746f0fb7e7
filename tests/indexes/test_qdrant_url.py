"""`--qdrant URL` from the command line to the wire: real requests of qdrant-client to a loopback server."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from biorag.cli import app
from biorag.indexes.store import Store
from biorag.settings.settings import Settings
from biorag.types import EncoderIdentity
from tests.conftest import write_medrag
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


def test_index_writes_every_snippet_and_the_manifest(server, indexed, snippets):
    assert (indexed["added"], indexed["snippets"]) == (len(snippets), len(snippets))
    records, _ = server.engine.scroll("wire", limit=100, with_payload=True, with_vectors=True)
    assert {record.payload["id"]: record.payload["content"] for record in records} == {
        snippet.id: snippet.content for snippet in snippets
    }
    manifest = server.engine.get_collection("wire").config.metadata["biorag"]
    assert manifest["snippets"] == len(snippets) and manifest["complete"] is True
    assert "secret-key" not in json.dumps(manifest)


def test_indexing_again_encodes_and_sends_nothing(server, indexed, run, corpus_file):
    server.requests.clear()
    report = json.loads(run("index", corpus_file, "--name", "wire", "--json").stdout)
    assert (report["added"], report["updated"], report["unchanged"]) == (0, 0, indexed["snippets"])
    assert ("PUT", "/collections/wire/points") not in server.requests


def test_a_changed_snippet_is_replaced(server, indexed, run, tmp_path, snippets):
    changed = [*snippets[1:], type(snippets[0])("s0", "Aspirin", "Another text altogether.")]
    report = json.loads(run("index", write_medrag(tmp_path / "new.jsonl", changed), "--name", "wire", "--json").stdout)
    assert (report["added"], report["updated"], report["snippets"]) == (0, 1, len(snippets))


@pytest.mark.parametrize("mode", ["bm25", "dense", "hybrid"])
def test_search_by_name_alone_finds_the_server(indexed, run, mode, snippets):
    result = run("search", snippets[2].contents, "--name", "wire", "--mode", mode, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["hits"][0]["id"] == "s2"


def test_another_machine_needs_only_the_url(server, indexed, run, monkeypatch, tmp_path):
    monkeypatch.setenv("BIORAG_HOME", str(tmp_path / "other"))
    result = run(
        "search", "malaria parasites", "--qdrant", server.url, "--name", "wire", "--mode", "bm25", "--no-rerank"
    )
    assert result.exit_code == 0 and "Malaria" in result.stdout


def test_a_wrong_key_is_exit_code_6_and_not_shown(server, run, corpus_file, tiny_encoder, monkeypatch):
    monkeypatch.setenv("QDRANT_API_KEY", "wrong-key")
    result = run("index", corpus_file, "--qdrant", server.url, "--encoder", tiny_encoder, "--name", "wire")
    assert result.exit_code == 6
    assert "401" in result.stderr and "wrong-key" not in result.stderr and "Traceback" not in result.stderr


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


def test_a_server_that_is_down_for_a_while_loses_nothing(server, run, corpus_file, tiny_encoder, snippets):
    """What was acknowledged is not sent again."""
    puts = []

    def fail_two_of_three(method: str, path: str) -> int | None:
        if method == "PUT" and path.endswith("/points"):
            puts.append(path)
            return 503 if len(puts) % 3 else None
        return None

    server.refuse = fail_two_of_three
    command = ["index", corpus_file, "--qdrant", server.url, "--encoder", tiny_encoder, "--name", "wire"]
    result = run(*command, "--batch-size", 3, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["added"] == len(snippets) == 12
    assert len(puts) == 4 * 3, "each of the four batches was taken at its third try"
    assert "answered 503" in result.stderr and "(2 of 5)" in result.stderr


def test_an_interruption_while_waiting_for_the_server_ends_the_run_at_once(server, monkeypatch, tmp_path, snippets):
    monkeypatch.setattr("biorag.utils.retries.BACKOFF", 60.0)
    settings = Settings.of(home=tmp_path, name="wire", qdrant=server.url, qdrant_api_key="secret-key")
    store = Store(settings)
    index = store.open(store.new_manifest(EncoderIdentity("drawn", "", "f" * 64, 2), 10.0), writable=True)
    server.refuse = lambda method, path: 503
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        index.upsert(snippets * 50, np.ones((600, 2), np.float32))
    assert time.monotonic() - started < 25, "it waits for no further try, half a minute away at least"


def test_a_foreign_collection_is_left_alone(server, run, corpus_file, tiny_encoder):
    server.engine.create_collection("wire", vectors_config={})
    result = run("index", corpus_file, "--qdrant", server.url, "--encoder", tiny_encoder, "--name", "wire")
    assert result.exit_code == 5 and "not made by biorag" in result.stderr


def test_a_second_writer_of_the_same_home_is_refused(server, run, indexed, corpus_file, tiny_encoder):
    home = Path(os.environ["BIORAG_HOME"])
    store = Store(Settings.of(home=home, name="wire", qdrant=server.url, qdrant_api_key="secret-key"))
    writer = store.open(store.require_manifest(), writable=True)
    result = run("index", corpus_file, "--name", "wire", "--encoder", tiny_encoder)
    writer.close()
    assert result.exit_code == 6
    assert "is being written by process" in result.stderr
    assert run("index", corpus_file, "--name", "wire", "--encoder", tiny_encoder).exit_code == 0
