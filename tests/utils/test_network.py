"""URLs without credentials, and the guard that offline mode puts before Python's sockets."""

from __future__ import annotations

import logging
import os
import socket
import threading
from contextlib import closing

import httpx
import pytest

from biorag.errors import OfflineError, UsageError
from biorag.settings.services import SENT, announce
from biorag.settings.sources import load_settings
from biorag.utils.network import (
    is_loopback,
    login_apart,
    origin_of,
    remember_credentials,
    restrict,
    without_credentials,
)
from biorag.utils.secrets import redacted

# --- URLs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "apart", "login"),
    [
        ("http://host:1/v1", "http://host:1/v1", None),
        ("https://user:pa%40ss@host/v1", "https://host/v1", "user:pa@ss"),
        ("http://user@host", "http://host", "user"),
        ("http://a@b:c@host:8", "http://host:8", "a@b:c"),
        ("http://:p@[::1]:6333/", "http://[::1]:6333/", ":p"),
        ("http://u:p/w@host:80", "http://u:p/w@host:80", None),
        ("http://u:p%2Fw@host:80", "http://host:80", "u:p/w"),
        ("http://u:p@[::1", "http://[::1", "u:p"),
    ],
)
def test_a_login_is_taken_out_of_a_url(url, apart, login):
    assert login_apart(url) == (apart, login)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:pass@host:6333/x?api_key=k&b=c", "https://host:6333/x?…"),
        ("--qdrant=https://user:pass@host", "--qdrant=https://host"),
        ("user:pass@host:6333", "host:6333"),
        ("http://host:1/v1", "http://host:1/v1"),
    ],
)
def test_what_is_shown_of_a_url_has_no_credentials(text, shown):
    assert without_credentials(text) == shown


def test_the_login_of_a_url_is_a_secret_setting_and_the_url_is_clean():
    settings = load_settings({"qdrant": "http://u:qq@h:1", "llm": "http://v:ll@i/v1"}, None, {})
    assert (settings.services.qdrant, settings.generation.llm) == ("http://h:1", "http://i/v1")
    assert settings.services.server(settings.services.qdrant, "qdrant").auth == ("u", "qq")
    assert settings.replace(k=3).services.server(settings.generation.llm, "llm").auth == ("v", "ll")
    for shown in (repr(settings), str(settings.public()), str(settings.model_dump(mode="json"))):
        assert "qq" not in shown and "v:ll" not in shown
    assert "qq" not in repr(settings.services.server(settings.services.qdrant, "qdrant"))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("qdrant", "http://s3cret@h:1?api_key=s3cret"),
        ("qdrant", "s3cret:s3cret@h:6333"),
        ("llm", "http://h/v1?key=s3cret"),
        ("llm", "http://s3cret:s3cret@h:port"),
        ("llm", "http://s3cret:s3cret/s3cret@h:80"),
        ("llm", "http://user:12/s3cret@h"),
        ("qdrant_api_key", "s3cret\n"),
        ("llm_api_key", "s3crét"),
        ("llm_login", "s3cret\x00"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_without_its_secret(setting, value):
    with pytest.raises(UsageError, match=setting) as caught:
        load_settings({setting: value}, None, {})
    assert "s3cret" not in str(caught.value) and "s3cr" not in str(caught.value)
    assert "\n" not in str(caught.value)


# --- the guard ----------------------------------------------------------------------------------------------


@pytest.fixture
def listening():
    """A loopback socket that takes connections; its port, and the addresses that came."""
    came = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def accept() -> None:
            while True:
                try:
                    connection, address = server.accept()
                except OSError:
                    return
                came.append(address)
                connection.close()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1], came


REFUSED = {
    "connect": lambda port: socket.socket().connect(("127.0.0.1", port)),
    "a name": lambda port: socket.create_connection(("localhost", port)),
    "IPv6": lambda port: socket.socket(socket.AF_INET6).connect(("::1", port)),
    "sendto": lambda port: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", port)),
    "sendmsg": lambda port: socket.socket(type=socket.SOCK_DGRAM).sendmsg([b"x"], [], 0, ("127.0.0.1", port)),
    "getaddrinfo": lambda port: socket.getaddrinfo("host.invalid", port),
    "httpx": lambda port: httpx.get(f"http://127.0.0.1:{port}"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_offline_nothing_is_sent_nor_looked_up(listening, how):
    port, came = listening
    restrict(["http://other.invalid:6333"])
    with pytest.raises(OfflineError, match=r"^offline: \S+ is not named on this command line.*--qdrant") as caught:
        REFUSED[how](port)
    assert caught.value.exit_code == 6
    assert came == []


@pytest.mark.parametrize("named", ["127.0.0.1", "LOCALHOST"])
def test_offline_a_named_host_is_reached_by_its_name_and_its_address(listening, named):
    port, came = listening
    restrict([f"http://{named}:1"])
    with pytest.raises(OfflineError, match=rf":{port} is not named"):
        socket.create_connection((named, port), timeout=5)
    assert came == []
    restrict([f"http://{named}:1", f"http://{named}:{port}/v1"])
    for host in (named, "127.0.0.1"):  # the address is known once the name was looked up
        with closing(socket.create_connection((host, port), timeout=5)) as ours:
            assert ours.recv(1) == b""


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://LocalHost.:8080", True),
        ("http://a.localhost", True),
        ("http://127.9.9.9", True),
        ("http://[::1]:6333", True),
        ("https://localhost.example", False),
        ("http://10.0.0.1", False),
        ("https://", False),
    ],
)
def test_urls_that_name_this_machine(url, here):
    assert is_loopback(url) is here


def test_left_the_guard_gives_the_environment_back(monkeypatch):
    monkeypatch.setenv("BIORAG_OFFLINE", "0")
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    before = dict(os.environ)
    restrict([])
    restrict(["http://host:1"])
    assert os.environ["BIORAG_OFFLINE"] == os.environ["TRANSFORMERS_OFFLINE"] == "1"
    restrict(None)
    assert dict(os.environ) == before


@pytest.mark.parametrize("url", ["http://u:s3cret-pw@proxy:3128", "u:s3cret-pw@proxy:3128"])
def test_the_logins_of_proxies_and_the_hubs_token_are_secrets(monkeypatch, url):
    monkeypatch.setenv("https_proxy", url)
    monkeypatch.setenv("HF_TOKEN", "hf_canary-token")
    remember_credentials()
    assert redacted("u:s3cret-pw s3cret-pw hf_canary-token") == "… … …"


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://Host./v1", "host:443"),
        ("http://host", "host:80"),
        ("http://u:p@host:8080/x", "host:8080"),
        ("http://[::1]:6333", "::1:6333"),
        ("http://", ""),
        ("http://h:x", ""),
    ],
)
def test_the_origin_of_a_url(url, origin):
    assert origin_of(url) == origin


def test_nothing_is_said_to_go_to_a_host_that_offline_mode_refuses(caplog):
    restrict(["http://named.example"])
    with caplog.at_level(logging.INFO, "biorag"):
        for host in ("named", "other"):
            announce(f"http://{host}.example", "eutils")
    assert [record.getMessage() for record in caplog.records] == [SENT["eutils"] % "named.example"]
