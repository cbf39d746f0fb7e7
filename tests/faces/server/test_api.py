"""The JSON API: the documents of the command line, typed bodies, errors of one sentence."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli import invoke, succeeded
from tests.faces.server.conftest import QUESTION, client_of

CHOICE = {"A": "thiamine", "B": "pyridoxine", "C": "folate"}


def without_times(text: str) -> str:
    """Leave out what differs from one run to the next: milliseconds."""
    return re.sub(r'"timings_ms": \{[^}]*\}', '"timings_ms": {}', text)


def printed(home, *words: object) -> str:
    return without_times(succeeded(invoke(*words, "--name", "default", "--json", home=home)).stdout)


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("search", {"query": "isoniazid", "mode": "bm25", "k": 3}, ["search", "isoniazid", "--mode=bm25", "-k", "3"]),
        ("search", {"query": "fever", "filter": "not id=demo_001"}, ["search", "fever", "--filter", "not id=demo_001"]),
        (
            "search",
            {"query": "fever", "filter": ["id=demo_001 or not (id=demo_002 or id=demo_003)"]},
            ["search", "fever", "--filter", "id=demo_001 or not (id=demo_002 or id=demo_003)"],
        ),
        (
            "ask",
            {"question": "Which vitamin is given with isoniazid?", "options": CHOICE},
            ["ask", "Which vitamin is given with isoniazid?", *(f"-o{a}={b}" for a, b in CHOICE.items())],
        ),
        ("ask", {"question": "Who won the world cup in 1998?"}, ["ask", "Who won the world cup in 1998?"]),
        (
            "verify",
            {"claim": "Isoniazid interferes with vitamin B6.", "snippet": "demo_044"},
            ["verify", "Isoniazid interferes with vitamin B6.", "--snippet", "demo_044"],
        ),
        ("weigh", {"claim": "Pyridoxine prevents neuropathy."}, ["weigh", "Pyridoxine prevents neuropathy."]),
    ],
)
def test_a_document_is_byte_for_byte_what_the_command_line_prints(client, demo_home, path, body, words):
    reply = client.post(f"/api/{path}", json=body)
    assert reply.status_code == 200, reply.text
    assert without_times(reply.text) == printed(demo_home, *words)


def test_a_snippet_and_the_index_are_what_the_command_line_prints(client, demo_home):
    shown = client.get("/api/show", params={"id": "demo_044", "mark": "neuropathy"}).text
    words = ["show", "demo_044", "--mark", "neuropathy", "--name", "default", "--json"]
    assert shown == succeeded(invoke(*words, home=demo_home)).stdout
    printed = json.loads(succeeded(invoke("info", "default", "--json", home=demo_home)).stdout)
    info = client.get("/api/info").json()
    assert info["sources"] == [{**source, "name": Path(source["name"]).name} for source in printed["sources"]]
    assert {**info, "sources": printed["sources"]} == printed


def test_clients_see_no_folder_of_the_server(client, session, monkeypatch):
    info = session.info()
    info["encoder"] = {**info["encoder"], "id": "/srv/models/encoder"}
    info["sources"] = [{**info["sources"][0], "name": "/srv/corpora/a.jsonl"}]
    monkeypatch.setattr(type(session), "info", lambda self: info)
    monkeypatch.setattr("biorag.engine.OpenIndex.models_used", lambda self, generator: {"encoder": "/srv/m/encoder"})
    shown = client.get("/api/info").json()
    assert (shown["encoder"]["id"], shown["sources"][0]["name"]) == ("encoder", "a.jsonl")
    completion = {"messages": [{"role": "user", "content": QUESTION}]}
    answers = [
        client.post("/api/ask", json={"question": QUESTION}).json(),
        client.post("/v1/chat/completions", json=completion).json()["biorag"],
        client.post("/v1/responses", json={"input": QUESTION}).json()["biorag"],
    ]
    assert [answer["models"] for answer in answers] == [{"encoder": "encoder"}] * 3


@pytest.mark.parametrize(
    ("path", "part"),
    [("/weigh?claim=%00", "he claim is empty"), ("/weigh?question=%E2%80%8B%01", "he query is empty")],
)
def test_a_page_of_invisible_text_is_one_sentence(client, path, part):
    reply = client.get(path)
    assert reply.status_code == 400 and part in reply.text


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "part"),
    [
        ("post", "/api/search", {"query": " "}, 400, "the query is empty"),
        ("post", "/api/ask", {"question": "\u2060\u200b"}, 400, "the query is empty"),
        *(("post", f"/api/{way}", {"claim": "\x00\ufeff"}, 400, "the claim is empty") for way in ("weigh", "verify")),
        ("post", "/api/search", {"query": ""}, 422, "query: give at least 1 character"),
        ("post", "/api/search", {"query": "fever", "filter": "colour=blue"}, 400, "the field 'colour': the fields are"),
        ("post", "/api/search", {"query": "fever", "home": "/"}, 422, "home: Extra inputs"),
        ("post", "/api/ask", {"question": QUESTION, "options": {"a": "x", "b": "y"}}, 400, "capital letter"),
        ("post", "/api/verify", {"claim": "x y", "snippet": "nowhere"}, 404, "nowhere"),
        ("get", "/api/nothing", None, 404, "no such page"),
        ("get", "/api/ask", None, 405, "another method"),
    ],
)
def test_an_error_is_a_status_and_one_sentence(client, method, path, body, status, part):
    reply = client.request(method, path, json=body)
    assert reply.status_code == status, reply.text
    assert part in reply.json()["error"]
    assert not re.search("Traceback|--|biorag", reply.text), "there is no command line here"


def test_the_api_describes_itself_and_loads_no_page_from_elsewhere(client):
    described = client.get("/openapi.json").json()
    assert {"/api/search", "/api/ask", "/api/show", "/api/verify", "/api/weigh", "/api/info"} <= set(described["paths"])
    assert described["components"]["schemas"]["AskBody"]["required"] == ["question"]
    assert [client.get(path).status_code for path in ("/docs", "/redoc")] == [404, 404]


def test_a_full_queue_asks_to_come_again(session):
    with client_of(session, queue=0) as client:
        reply = client.post("/api/ask", json={"question": QUESTION})
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "5")
        assert "all the questions" in reply.json()["error"]


def test_a_bug_is_one_sentence_too(client, session, monkeypatch):
    monkeypatch.setattr(type(session), "info", lambda self: 1 / 0)
    reply = client.get("/api/info")
    assert (reply.status_code, reply.json()["error"]) == (500, "the server failed at this: its log says why")
    assert json.loads(client.get("/api/show", params={"id": "demo_044"}).text)["index"] == "default"
