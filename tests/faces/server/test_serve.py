"""`biorag serve` as a process: it says where it is, answers, and ends cleanly."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import socket
import threading
import time

import httpx
import pytest
from starlette.requests import Request

from biorag.api.session import Session
from biorag.errors import MissingError, ServiceError, UsageError
from biorag.faces.server.asking import WorkQueue, answered
from biorag.faces.server.faults import RefusedError, status_of
from biorag.faces.server.guards import CLIENTS, RateLimiter
from biorag.faces.server.openai.messages import index_of
from biorag.faces.server.options import ServeOptions
from biorag.faces.session_pool import IDLE_SECONDS, MOST_OPEN, SessionPool, first_of
from biorag.indexes.catalogue import rename_index
from biorag.indexes.manifest import MANIFEST
from biorag.indexes.shard_files import CHECKSUMS, SHARD
from biorag.indexes.store import by_size
from biorag.settings.sources import load_settings
from biorag.utils import versions
from biorag.utils.http import GivenUpError
from biorag.utils.locks import DirectoryLock
from tests.cli import failed, invoke
from tests.faces.server.conftest import QUESTION, client_of, serving


@pytest.mark.parametrize("sent", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_it_says_where_it_is_and_ends_when_told(demo_home, sent):
    with serving(demo_home) as served:
        page = httpx.get(served.url)
        assert (page.status_code, "from <strong>default</strong>" in page.text) == (200, True)
        with socket.create_connection(("127.0.0.1", served.port)):  # an idle connection does not keep it
            assert served.end(sent) == 0
    assert re.search(r"ready at http://127\.0\.0\.1:\d+/ \(Ctrl-C ends it\)", "".join(served.lines))
    assert served.lines[-1] == "stopped\n"
    assert "Traceback" not in "".join(served.lines)


def test_a_port_that_is_taken_is_one_sentence_before_an_index_is_opened(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = ["serve", "--name", "default", "--port", port]
        failed(invoke(*words, home=tmp_path), 6, f"port {port}", "--port")


def test_a_missing_package_names_the_extra(demo_home, monkeypatch):
    installed = versions.installed_versions
    monkeypatch.setattr(versions, "installed_versions", lambda names: {} if "fastapi" in names else installed(names))
    failed(invoke("serve", "--name", "default", home=demo_home), 4, "'fastapi'", "pip install 'biorag[serve]'")


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


@pytest.fixture
def many_home(demo_home, tmp_path):
    """A home of one index more than a pool keeps open, besides `default`."""
    home = tmp_path / "many"
    shutil.copytree(demo_home, home)
    for number in range(MOST_OPEN + 1):
        shutil.copytree(home / "indexes" / "inhalers", home / "indexes" / "copy")
        rename_index(load_settings({"home": home, "name": "copy"}, None), f"copy{number}")
    return home


def is_free(home, name) -> bool:
    """Whether an index could be written to, because nothing has it open."""
    try:
        DirectoryLock(home / "indexes" / name, exclusive=True).release()
    except ServiceError:
        return False
    return True


def test_other_indexes_are_opened_when_they_are_asked_and_closed_again(many_home):
    now = [0.0]
    names = [f"copy{number}" for number in range(MOST_OPEN + 1)]
    with Session(load_settings({"home": many_home, "name": "default"}, None), eager=True) as first:
        pool = SessionPool(first, others=True, clock=lambda: now[0])
        assert pool.names() == [*names, "default", "inhalers"]
        assert [(each.name, each.snippets) for each in pool.listed()][-2:] == [("default", 263), ("inhalers", 5)]
        with pool.lend() as session:
            assert session is first
        for name in names:
            now[0] += 1
            assert is_free(many_home, name), "a list of indexes opens none"
            with pool.lend(name) as session:
                assert session.search("hoarseness")[0].snippet.id == "inhaler_3"
                assert session.name == name
                assert session._models().encoder is first._models().encoder
        assert [is_free(many_home, name) for name in names] == [True, False, False, False], "the oldest was closed"
        with pool.lend(names[1]) as session:
            now[0] += IDLE_SECONDS + 1
            pool.close_idle()
            assert [is_free(many_home, name) for name in names] == [True, False, True, True]
            assert len(session.search("hoarseness")) == 5, "an index that is being asked stays open"
        with pytest.raises(MissingError, match="no index 'nowhere' here: choose one of copy0"):
            pool.lend("nowhere").__enter__()
        pool.close_idle(0)
        assert is_free(many_home, names[1])
        with pytest.raises(MissingError, match=r"choose one of default$"):
            SessionPool(first, others=False).lend("inhalers").__enter__()


def test_what_cannot_be_opened_is_left_out_and_said(demo_home, tmp_path, caplog):
    home = shutil.copytree(demo_home, tmp_path / "home", symlinks=True)
    indexes = home / "indexes"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        for name, store in (("away", {"kind": "qdrant", "url": url}), ("torn", {"kind": "edge"}), ("demo", {})):
            shutil.copytree(indexes / "inhalers", indexes / name)
            manifest = json.loads((indexes / name / MANIFEST).read_text())
            changes = {"name": name, "store": store or manifest["store"], "snippets": 10_000}
            (indexes / name / MANIFEST).write_text(json.dumps({**manifest, **changes}))
        shutil.rmtree(indexes / "torn" / SHARD)
        settings = load_settings({"home": home}, None)
        assert by_size(settings) == ["away", "torn", "default", "inhalers", "demo"]
        assert first_of(settings) == "default"
        with Session(settings.replace(name="default")) as first:
            pool = SessionPool(first, others=True)
            said = [record.getMessage() for record in caplog.records]
            assert pool.names() == ["default", "demo", "inhalers"]
            assert [line.partition(":")[0] for line in said] == [
                "index 'away' is left out",
                "index 'torn' is left out",
            ]
            assert url in said[0]
            with pytest.raises(ServiceError, match=r"index 'torn' cannot be opened now: its files are missing"):
                pool.lend("torn").__enter__()
            with pytest.raises(ServiceError, match=f"index 'away' cannot be opened now: .*{url}") as closed:
                pool.lend("away").__enter__()
            with pytest.raises(RefusedError) as refused:
                index_of(pool, "biorag/away")
            assert (status_of(closed.value), status_of(refused.value)) == (503, 503)
            assert refused.value.public == closed.value.public
            shutil.copytree(indexes / "inhalers" / SHARD, indexes / "torn" / SHARD)
            pool.check_again()
            assert pool.names() == ["default", "demo", "inhalers", "torn"]
            (indexes / "demo" / CHECKSUMS).unlink()
            with pytest.raises(ServiceError, match="index 'demo' cannot be opened now"):
                pool.lend("demo").__enter__()
            assert "checksums.json" in caplog.records[-1].getMessage()
            (indexes / "inhalers" / MANIFEST).write_text("{")
            for ask in (lambda: pool.lend("inhalers").__enter__(), lambda: index_of(pool, "inhalers")):
                with pytest.raises(ServiceError, match="index 'inhalers' cannot be opened now: its files") as damaged:
                    ask()
                assert status_of(damaged.value) == 503
    found = json.loads(invoke("doctor", "--json", home=home).stdout)["checks"]
    (fault,) = [check["detail"] for check in found if check["name"] == "indexes"]
    assert url in fault and f"index 'demo' has lost {indexes / 'demo' / CHECKSUMS}" in fault


def test_without_a_name_the_page_has_all_indexes_and_with_one_that_alone(session):
    with client_of(session, others=True) as client:
        home = client.get("/").text
        assert re.findall(r'href="/\?index=(\w+)"( aria-current="true")?', home)[2:] == [  # after the ways home
            ("default", ' aria-current="true"'),
            ("inhalers", ""),
        ]
        assert "5 snippets, 0." in home
        chosen = client.get("/?index=inhalers").text
        assert 'name="index" value="inhalers"' in chosen
        answer = client.get("/ask", params={"index": "inhalers", "question": "Does hoarseness occur?"}).text
        assert "Haas M · 2016 · Airway Letters · Observational study" in answer
        assert '<a href="/ask?index=default&amp;question=Does+hoarseness+occur%3F">default</a>' in answer
        assert client.get("/api/info").json()["name"] == "default"
        assert client.get("/api/info", params={"index": "inhalers"}).json()["snippets"] == 5
        found = client.post("/api/search", json={"query": "hoarseness", "index": "inhalers"}).json()
        assert found["hits"][0]["id"] == "inhaler_3"
        claim = {"claim": "Hoarseness occurs.", "index": "inhalers"}
        assert client.post("/api/verify", json=claim).json()["claim"] == claim["claim"]
        assert client.post("/api/weigh", json=claim).status_code == 200
        answer = client.post("/api/ask", json={"question": "Does hoarseness occur?", "index": "inhalers"}).json()
        assert {hit["id"].partition("_")[0] for hit in answer["hits"]} == {"inhaler"}
        missing = [
            client.get("/api/show", params={"id": "x", "index": "nowhere"}),
            client.post("/api/ask", json={"question": "x", "index": "nowhere"}),
        ]
        for reply in missing:
            sentence = "there is no index 'nowhere' here: choose one of default, inhalers"
            assert (reply.status_code, reply.json()) == (404, {"error": sentence})
        lost = client.get("/ask", params={"index": "nowhere", "question": "x"})
        assert (lost.status_code, "There is no index &#39;nowhere&#39; here" in lost.text) == (404, True)
    with client_of(session) as client:
        assert "inhalers" not in client.get("/").text
        assert client.get("/?index=inhalers").status_code == 404


def test_a_question_that_is_wrong_stands_in_the_form_again(client):
    reply = client.get("/ask", params={"question": "Is fever bad?", "filter": "colour=blue"})
    assert reply.status_code == 400
    assert ">Is fever bad?</textarea>" in reply.text
    assert 'value="colour=blue"' in reply.text
    assert "No snippet has the field &#39;colour&#39;: the fields are content, id, title</p>" in reply.text


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


def test_a_client_that_leaves_gives_up_its_place_at_once():
    """At once is a few turns of the event loop, however long they take."""
    release = threading.Event()

    def request(left: asyncio.Event) -> Request:
        async def receive():
            await left.wait()
            return {"type": "http.disconnect"}

        return Request({"type": "http"}, receive)

    async def turns() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def ask() -> str:
        queue, stays, leaves = WorkQueue(1, 2), asyncio.Event(), asyncio.Event()
        first = asyncio.create_task(answered(request(stays), queue, lambda grow: str(release.wait())))
        second = asyncio.create_task(answered(request(leaves), queue, lambda grow: "never asked"))
        await turns()  # both have their place
        with pytest.raises(RefusedError, match="all the questions"):
            await answered(request(stays), queue, lambda grow: "no place")
        leaves.set()
        await turns()
        assert isinstance(second.exception(), GivenUpError)
        third = asyncio.create_task(answered(request(stays), queue, lambda grow: "a place"))
        release.set()
        return await first + await third

    try:
        assert asyncio.run(ask()) == "Truea place"
    finally:
        release.set()
