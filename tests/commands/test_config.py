"""`biorag config`: what is shown before it is trusted, and what then counts."""

from __future__ import annotations

import json
import sys

import pytest

from tests.cli import done, failed, invoke, succeeded

EVIL = 'llm = "http://u:s3cret@evil.example/v1"\nllm_api_key = "s3cret-key"\nk = 3\nhome = "/elsewhere"\n'


@pytest.fixture(autouse=True)
def file(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    path = tmp_path / "work" / "biorag.toml"
    path.write_text(EVIL)
    return path


def llm() -> str | None:
    return done(invoke("info", "--settings", "--json"))["llm"]


def test_an_untrusted_file_is_said_on_stderr_once_and_json_stays_one_document():
    result = invoke("info", "--settings", "--json")
    settings = done(result)
    assert (settings["llm"], settings["k"]) == (None, 3)
    assert [line for line in result.stderr.splitlines() if "not trusted" in line] == result.stderr.splitlines()
    assert result.stderr.count("sets as llm, llm_api_key, home does not count") == 1


def test_what_a_file_names_is_shown_without_secrets_before_it_is_trusted(file):
    result = succeeded(invoke("config", "trust"))
    assert "http://evil.example/v1" in result.stdout and "/elsewhere" in result.stdout
    assert "s3cret" not in result.output
    assert f"{file} is trusted" in result.stderr
    assert llm() == "http://evil.example/v1"


def test_json_of_trust_list_and_untrust(file):
    names = {"llm": "http://evil.example/v1", "llm_api_key": "**********", "home": "/elsewhere"}
    assert done(invoke("config", "trust", "--json")) == {"file": str(file), "names": names, "trusted": True}
    assert done(invoke("config", "list", "--json")) == {"files": {str(file): "trusted"}, "indexes": {}, "keys": []}
    file.write_text(EVIL + "\n")
    assert done(invoke("config", "list", "--json"))["files"] == {str(file): "changed"}
    assert llm() is None
    file.unlink()
    assert done(invoke("config", "list", "--json"))["files"] == {str(file): "missing"}
    assert "missing" in succeeded(invoke("config", "list")).stdout
    assert done(invoke("config", "untrust", "--json")) == {"file": str(file), "trusted": False}
    failed(invoke("config", "untrust"), 4, file, "is not trusted", "config list")


def test_it_is_asked_for_at_a_terminal(monkeypatch):
    monkeypatch.setattr("biorag.commands.config._at_terminal", lambda: True)
    for answer, trusted in (("n\n", False), ("y\n", True)):
        result = invoke("config", "trust", input=answer)
        assert "http://evil.example/v1" in result.output[: result.output.index("Trust it?")]
        assert (result.exit_code == 0) is trusted
        assert (llm() is not None) is trusted
    succeeded(invoke("config", "untrust"))
    assert "Trust it?" not in succeeded(invoke("config", "trust", "--yes")).output


def test_an_index_on_a_server_is_trusted_by_its_manifest(tmp_path, snippets):
    from biorag.indexes.store import Store
    from biorag.settings.settings import Settings
    from biorag.types import EncoderIdentity
    from biorag.utils.files import write_json

    home = tmp_path / "home"
    store = Store(Settings.of(home=home, name="copied", qdrant="http://127.0.0.1:9"))
    manifest = store.new_manifest(EncoderIdentity("x", "", "f" * 64, 2), 1.0)
    path = store.folder / "manifest.json"
    write_json(path, manifest.to_json())
    refused = failed(invoke("info", "copied", home=home), 2, "copied", "http://127.0.0.1:9", "--qdrant")
    assert f"config trust {path}" in refused
    report = done(invoke("config", "trust", path, "--json", home=home))
    assert report == {"file": str(path), "names": {"url": "http://127.0.0.1:9"}, "trusted": True}
    failed(invoke("info", "copied", home=home, BIORAG_RETRIES=0), 6, "http://127.0.0.1:9")
    write_json(path, manifest.to_json() | {"store": {"kind": "qdrant", "url": "http://127.0.0.1:10"}})
    failed(invoke("info", "copied", home=home), 2, "http://127.0.0.1:10")
    write_json(path, manifest.to_json() | {"store": {"kind": "edge"}})
    failed(invoke("config", "trust", path, home=home), 2, "names no server")


def test_files_that_cannot_be_trusted(tmp_path, file):
    failed(invoke("config", "trust", tmp_path / "absent.toml"), 4, "absent.toml", "is not there")
    failed(invoke("config", "trust", "/dev/null"), 3, "not a regular file")
    file.write_text("k = [")
    failed(invoke("config", "trust"), 2, "not valid TOML")


def test_keys_without_a_keyring(monkeypatch):
    monkeypatch.setitem(sys.modules, "keyring", None)
    failed(invoke("config", "key", "api-x.example", input="s3cret"), 4, "BIORAG_KEY_API__X_EXAMPLE", "biorag[keyring]")
    failed(invoke("config", "key", "u:s3cret@h", input="k"), 2, "is not a host")
    failed(invoke("config", "key", "api.example", "--delete"), 4, "no key is kept for api.example")


def test_keys_in_a_keyring(monkeypatch):
    keyring = pytest.importorskip("keyring", reason="the extra biorag[keyring] is not installed")
    held = {}
    monkeypatch.setattr(keyring, "set_password", lambda service, host, key: held.update({host: key}))
    monkeypatch.setattr(keyring, "get_password", lambda service, host: held.get(host))
    monkeypatch.setattr(keyring, "delete_password", lambda service, host: held.pop(host))
    report = done(invoke("config", "key", "https://API.example.org/v1", "--json", input="s3cret-key\n"))
    assert report == {"host": "api.example.org:443", "variable": "BIORAG_KEY_API_EXAMPLE_ORG_443", "kept": True}
    assert held == {"api.example.org:443": "s3cret-key"}
    assert done(invoke("config", "list", "--json"))["keys"] == ["api.example.org:443"]
    for bad in ("", "\n", "s3crét\n", "a\x1bb\n"):
        assert "s3cr" not in failed(invoke("config", "key", "h", input=bad), 2, "that is not a key")
    succeeded(invoke("config", "key", "api.example.org:443", "--delete"))
    assert (held, json.loads(invoke("config", "list", "--json").stdout)["keys"]) == ({}, [])
