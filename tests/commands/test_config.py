"""`biorag config`: which file is read, and keys in a keyring."""

from __future__ import annotations

import sys
from types import SimpleNamespace

from tests.cli import done, failed, invoke, succeeded


def test_the_file_that_is_read_is_named(tmp_path):
    file = tmp_path / "home" / "biorag.toml"
    assert done(invoke("config", "list", "--json")) == {"file": str(file), "exists": False, "keys": []}
    (tmp_path / "mine.toml").write_text("k = 3\n")
    listed = done(invoke("config", "list", "--json", BIORAG_CONFIG=tmp_path / "mine.toml"))
    assert listed == {"file": str(tmp_path / "mine.toml"), "exists": True, "keys": []}
    assert done(invoke("--config", "other.toml", "config", "list", "--json"))["file"] == "other.toml"


def test_keys_without_a_keyring(monkeypatch):
    monkeypatch.setitem(sys.modules, "keyring", None)
    failed(invoke("config", "key", "api-x.example", input="s3cret"), 4, "BIORAG_KEY_API__X_EXAMPLE", "biorag[keyring]")
    failed(invoke("config", "key", "u:s3cret@h", input="k"), 2, "is not a host")
    failed(invoke("config", "key", "api.example", "--delete"), 4, "has no key for api.example")


def test_keys_in_a_keyring(monkeypatch):
    held = {}
    ring = SimpleNamespace(
        get_password=lambda service, host: held.get(host),
        set_password=lambda service, host, key: held.update({host: key}),
        delete_password=lambda service, host: held.pop(host),
    )
    monkeypatch.setitem(sys.modules, "keyring", ring)
    report = done(invoke("config", "key", "https://API.example.org/v1", "--json", input="s3cret-key\n"))
    assert report == {"host": "api.example.org:443", "variable": "BIORAG_KEY_API_EXAMPLE_ORG_443", "kept": True}
    assert held == {"api.example.org:443": "s3cret-key"}
    assert done(invoke("config", "list", "--json"))["keys"] == ["api.example.org:443"]
    for bad in ("", "\n", "s3crét\n", "a\x1bb\n"):
        assert "s3cr" not in failed(invoke("config", "key", "h", input=bad), 2, "that is not a key")
    succeeded(invoke("config", "key", "api.example.org:443", "--delete"))
    assert (held, done(invoke("config", "list", "--json"))["keys"]) == ({}, [])
