"""Keys and logins: which server gets which."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from biorag.settings.settings import Settings
from biorag.settings.sources import for_children, load_settings

A, B = "https://a.example/v1", "https://b.example/v1"
KINDS = ("llm", "qdrant", "reader", "eutils")


def named(folder: Path, **settings: str) -> Path:
    path = folder / "named.toml"
    path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    return path


def sent(settings: Settings, url: str, kind: str = "llm") -> tuple[str | None, str | None]:
    server = settings.services.server(url, kind)
    return server.api_key, server.login


def warnings(caplog) -> list[str]:
    """Return what was warned of; which hosts are told depends on the commands that ran before in this process."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_came_with_a_url_goes_to_its_host_alone(tmp_path, caplog, kind):
    variables = {
        f"BIORAG_{kind.upper()}": A,
        f"BIORAG_{kind.upper()}_API_KEY": "k3y",
        f"BIORAG_{kind.upper()}_LOGIN": "u:p",
    }
    assert sent(load_settings({}, None, variables), A, kind) == ("k3y", "u:p")
    assert warnings(caplog) == []
    assert sent(load_settings({kind: B}, None, variables), B, kind) == (None, None)
    assert f"{kind}_api_key was set for a.example:443 and is not sent to b.example:443: set it" in caplog.text
    assert "k3y" not in caplog.text
    file = named(tmp_path, **{kind: A, f"{kind}_api_key": "k3y", f"{kind}_login": "u:p"})
    assert sent(load_settings({}, file, {}), A, kind) == ("k3y", "u:p")
    assert sent(load_settings({kind: B}, file, {}), B, kind) == (None, None)
    assert sent(load_settings({}, file, {f"BIORAG_{kind.upper()}": B}), B, kind) == (None, None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_came_alone_goes_to_the_server_that_the_user_named(tmp_path, kind):
    variables = {f"BIORAG_{kind.upper()}_API_KEY": "k3y", f"BIORAG_{kind.upper()}_LOGIN": "u:p"}
    for settings in (
        load_settings({kind: A}, None, variables),
        load_settings({}, named(tmp_path, **{kind: A}), variables),
        load_settings({}, None, variables | {f"BIORAG_{kind.upper()}": A}),
    ):
        assert sent(settings, A, kind) == ("k3y", "u:p")
        assert sent(settings, B, kind) == (None, None)
        assert sent(settings.replace(**{kind: B}), B, kind) == (None, None), "changed within the program"


@pytest.mark.parametrize(
    "other",
    ["http://a.example/v1", "https://a.example:8443", "https://a.example.evil.example", "https://evil.example/a.example"],
)  # fmt: skip
def test_another_port_or_scheme_or_a_longer_name_is_another_server(other):
    settings = load_settings({"llm": A}, None, {"BIORAG_LLM_API_KEY": "k3y"})
    assert sent(settings, other)[0] is None
    for same in ("https://A.Example./v1", "https://a.example:443", "https://a.example/other"):
        assert sent(settings, same)[0] == "k3y"


def test_a_login_in_a_url_goes_to_its_host_alone():
    settings = load_settings({"llm": "https://u:p%40ss@a.example/v1"}, None, {"BIORAG_LLM_LOGIN": "other:login"})
    assert sent(settings, A) == (None, "u:p@ss")
    assert sent(settings.replace(llm=B), B) == (None, None)
    of_variable = load_settings({"llm": B}, None, {"BIORAG_LLM": "https://u:p@a.example/v1"})
    assert sent(of_variable, B) == (None, None)


def test_a_child_gets_the_credentials_of_the_servers_that_its_settings_name():
    environ = {"BIORAG_LLM": A, "BIORAG_LLM_API_KEY": "of-a", "BIORAG_LLM_LOGIN": "u:p", "BIORAG_K": "3", "PATH": "x",
               "BIORAG_QDRANT": B, "QDRANT_API_KEY": "of-b", "NCBI_API_KEY": "n", "BIORAG_OFFLINE": "1"}  # fmt: skip
    expected = {"NCBI_API_KEY": "n", "BIORAG_OFFLINE": "1", "PATH": "x"}
    assert for_children(environ, {}) == for_children(environ, {"llm": B, "qdrant": A}) == expected
    of_a = {"BIORAG_LLM_API_KEY": "of-a", "BIORAG_LLM_LOGIN": "u:p"}
    assert for_children(environ, {"llm": A}) == expected | of_a
    assert for_children({"BIORAG_LLM_API_KEY": "k"}, {"llm": B}) == {"BIORAG_LLM_API_KEY": "k"}


def test_the_host_is_said_once_where_something_leaves_the_machine(caplog, monkeypatch):
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    services = load_settings({}, None, {}).services
    with caplog.at_level(logging.INFO):
        services.server("http://localhost:8080", "llm")
        assert caplog.messages == []
        services.server(A, "llm")
        assert caplog.messages == ["questions and evidence go to a.example (--llm)"]
        monkeypatch.setenv("HTTPS_PROXY", "http://me:pw@proxy.example:3128")
        services.server(A, "qdrant")
        services.server("http://127.0.0.1:6333", "qdrant")
    assert caplog.messages[1:] == [
        "questions and snippets go to a.example through the proxy http://proxy.example:3128 (the index's server)"
    ]
