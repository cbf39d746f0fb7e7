"""`biorag serve` as a process: it says where it is, answers, and ends cleanly."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import sys
import time

import anyio
import httpx
import pytest

from biorag.api.session import Session
from biorag.errors import UsageError
from biorag.server.asking import Asking, WorkQueue
from biorag.server.bodies import AskBody
from biorag.server.guards import CLIENTS, RateLimiter
from biorag.server.options import ServeOptions
from biorag.utils.http import GivenUpError
from tests.cli import failed, invoke
from tests.server.conftest import QUESTION, client_of, serving


@pytest.mark.parametrize("sent", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_it_says_where_it_is_and_ends_when_told(demo_home, sent):
    with serving(demo_home) as served:
        page = httpx.get(served.url)
        assert (page.status_code, "Ask the index default" in page.text) == (200, True)
        with socket.create_connection(("127.0.0.1", served.port)):  # an idle connection does not keep it
            assert served.end(sent) == 0
    assert re.search(r"ready at http://127\.0\.0\.1:\d+/ \(Ctrl-C ends it\)", "".join(served.lines))
    assert served.lines[-1] == "stopped\n"
    assert "Traceback" not in "".join(served.lines)


def test_a_port_that_is_taken_is_one_sentence(demo_home):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = ["serve", "--name", "default", "--port", port]
        failed(invoke(*words, home=demo_home), 6, f"port {port}", "--port")


def test_a_missing_package_names_the_extra(demo_home, monkeypatch):
    for module in ("biorag.server.running", "biorag.server.app", "biorag.server.api", "biorag.server.openai"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    failed(invoke("serve", "--name", "default", home=demo_home), 4, "fastapi", "pip install 'biorag[serve]'")


def test_which_hosts_are_answered_for():
    token = "x" * 16
    assert ServeOptions().trusted_hosts == ["localhost", "127.0.0.1", "[::1]", "127.0.0.1"]
    assert ServeOptions(host="0.0.0.0", token=token).trusted_hosts == ["*"]
    named = ServeOptions(host="2001:db8::7", token=token, allowed_hosts=("lab.example",)).trusted_hosts
    assert named[3:] == ["[2001:db8::7]", "lab.example"]
    with pytest.raises(UsageError, match="--allowed-host"):
        ServeOptions(allowed_hosts=("lab*.example",))


def test_a_bucket_fills_again_with_time_and_few_clients_are_kept():
    now = [0.0]
    limiter = RateLimiter(2, lambda: now[0])
    assert [limiter.wait("a"), limiter.wait("a"), limiter.wait("b")] == [0, 0, 0]
    assert limiter.wait("a") == pytest.approx(30)
    now[0] += 31
    assert limiter.wait("a") == 0
    for number in range(CLIENTS + 5):
        limiter.wait(str(number))
    assert len(limiter._buckets) == CLIENTS
    assert RateLimiter(0).wait("a") == 0
    assert ServeOptions().rate > 0


def test_every_response_is_guarded(client):
    for path in ("/", "/static/style.css", "/api/info", "/nowhere", "/v1/models", "/openapi.json"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "same-origin")
        assert headers["cache-control"] in ("no-store", "no-cache")
        assert "server" not in headers


def test_an_answer_is_shown_as_it_is_written_and_then_as_it_was_checked(session, monkeypatch):
    """The generator is a stand-in that writes in two steps; what is shown in between is marked as not checked."""
    ask, plain = Session.ask, session.settings

    def slowly(self, question, on_text, **changes):
        for reply in ('{"answer": "Because <b>', '{"answer": "Because <b>it helps'):
            on_text(reply)
            time.sleep(0.6)
        self.settings = plain
        return ask(self, question, **changes)

    monkeypatch.setattr(Session, "ask", slowly)
    monkeypatch.setattr(session, "settings", session.settings.replace(llm="http://127.0.0.1:9"))
    with client_of(session) as client:
        begun = client.post("/ask", data={"question": QUESTION}, headers={"hx-request": "true"})
        name = re.search(r'sse-connect="(/answers/[^"]+)"', begun.text)[1]
        events = client.get(name).text
        assert client.get(name).status_code == 404, "it is written once"
    kinds = re.findall(r"^event: (\w+)$", events, re.MULTILINE)
    assert (kinds[0], kinds[-2:]) == ("provisional", ["checked", "done"])
    first, last = events.split("event: checked")
    assert "not checked yet" in first
    assert "Because &lt;b&gt;" in first
    assert 'class="supported"' in last
    assert "not checked" not in last


def test_a_generator_stops_once_nobody_waits(session):
    async def asked():
        with Asking(session, WorkQueue(1, 1), AskBody(question=QUESTION)) as asking:
            asking.grow("a")
        with pytest.raises(GivenUpError):
            asking.grow("ab")
        assert [reply async for reply in asking.replies(0.01)][:1] in ([], ["a"])
        with contextlib.suppress(GivenUpError):
            asking.answer()

    anyio.run(asked)
