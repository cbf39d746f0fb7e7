"""A proxy that fails a share of the requests, and what of biorag's requests arrives through it.

    python -m scripts.faults.proxy snippets.jsonl.gz

Snippets go through `write_index` and `qdrant-client` to the tests' stand-in for a Qdrant server (or to `--qdrant URL`),
with vectors drawn from their ids in place of encoded ones; questions go to a scripted OpenAI-compatible server.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import socket
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from biorag.benchmarks.mirage.run import each_answered
from biorag.corpus.readers import read_snippets
from biorag.corpus.sources import find_sources
from biorag.generators.server import ServerGenerator
from biorag.indexes.connection import connect
from biorag.indexes.points import DENSE, payload
from biorag.indexes.store import Store
from biorag.indexes.surveying import survey
from biorag.indexes.writing import surveyed_changes, write_index
from biorag.settings.settings import Settings
from biorag.types import Encoded, EncoderIdentity, GenerationRequest, Prompt, Snippet
from biorag.utils.network import Server

DIMENSION = 384
SHARE = 0.1
AT_A_TIME = 4  # questions
UNSENT = ("connection", "host", "content-length", "transfer-encoding", "date", "server")  # headers of one hop
SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}


class FaultProxy:
    """Passes HTTP requests on to `target`, and fails `share` of them in a way drawn from `KINDS`.

    `delay` is how long, in seconds, a reply is held back that comes too late.
    """

    def __init__(self, target: str, share: float = SHARE, seed: int = 0, delay: float = 1.0) -> None:
        self.target = urlsplit(target).netloc
        self.share = share
        self.delay = delay
        self.requests = 0
        self.faults: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._turn = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        """Where clients reach the proxy."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def draw(self) -> str | None:
        """Return how the next request is failed; None for one that is not."""
        with self._turn:
            self.requests += 1
            kind = self._random.choice(list(KINDS)) if self._random.random() < self.share else None
            if kind:
                self.faults[kind] += 1
            return kind

    def _handler(proxy) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                kind = proxy.draw()
                self.close_connection = True
                (KINDS[kind] if kind else _passed)(_Exchange(self, proxy))

            do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815

            def log_message(self, *arguments: object) -> None:
                pass

        return Handler


class _Exchange:
    """One request at the proxy: what can be read of it, asked of the server, and sent back."""

    def __init__(self, handler: BaseHTTPRequestHandler, proxy: FaultProxy) -> None:
        self._handler = handler
        self._proxy = proxy
        self.delay = proxy.delay
        self.length = int(handler.headers.get("Content-Length") or 0)

    def read(self, length: int) -> bytes:
        return self._handler.rfile.read(length)

    def ask(self) -> tuple[HTTPResponse, bytes]:
        """Pass the request on, and return the server's whole answer."""
        headers = {name: value for name, value in self._handler.headers.items() if name.lower() not in UNSENT}
        with closing(HTTPConnection(self._proxy.target, timeout=600)) as server:
            server.request(self._handler.command, self._handler.path, self.read(self.length), headers)
            answer = server.getresponse()
            return answer, answer.read()

    def send(self, status: int, body: bytes, length: int, headers: Sequence[tuple[str, str]] = ()) -> None:
        """Send an answer said to be of `length` bytes, if the client is still there."""
        self._handler.send_response_only(status)
        for name, value in headers:
            if name.lower() not in UNSENT:
                self._handler.send_header(name, value)
        self._handler.send_header("Content-Length", str(length))
        self._handler.send_header("Connection", "close")
        with suppress(OSError):
            self._handler.end_headers()
            self._handler.wfile.write(body)

    def reset(self) -> None:
        """End the connection at once, as a machine does that goes down."""
        self._handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._handler.connection.close()


def _passed(exchange: _Exchange) -> None:
    answer, body = exchange.ask()
    exchange.send(answer.status, body, len(body), answer.getheaders())


def _unread(exchange: _Exchange) -> None:
    exchange.reset()


def _cut_upload(exchange: _Exchange) -> None:
    exchange.read(exchange.length // 2)
    exchange.reset()


def _cut_reply(exchange: _Exchange) -> None:
    answer, body = exchange.ask()
    exchange.send(answer.status, body[: len(body) // 2], len(body), answer.getheaders())


def _half_json(exchange: _Exchange) -> None:
    _, body = exchange.ask()
    exchange.send(200, body[: len(body) // 2], len(body) // 2)


def _late(exchange: _Exchange) -> None:
    answer, body = exchange.ask()
    time.sleep(exchange.delay)
    exchange.send(answer.status, body, len(body), answer.getheaders())


def _unavailable(exchange: _Exchange) -> None:
    exchange.read(exchange.length)
    exchange.send(503, b"restarting", 10)


def _too_many(exchange: _Exchange) -> None:
    exchange.read(exchange.length)
    exchange.send(429, b"slow down", 9, [("Retry-After", "1")])


# The last four are done by the server before the client hears of a fault.
KINDS: dict[str, Callable[[_Exchange], None]] = {
    "connection reset": _unread,
    "cut in mid-upload": _cut_upload,
    "503": _unavailable,
    "429": _too_many,
    "cut in mid-reply": _cut_reply,
    "half of the JSON": _half_json,
    "later than the time-out": _late,
}


def vector_of(text: str) -> np.ndarray:
    """Return a unit vector drawn from a text's hash, `(DIMENSION,)`."""
    drawn = np.random.default_rng(list(text.encode()[:512])).standard_normal(DIMENSION).astype(np.float32)
    return drawn / np.linalg.norm(drawn)


def encode(snippets: Sequence[Snippet]) -> Encoded:
    """Stand in for the bi-encoder."""
    return Encoded(np.stack([vector_of(snippet.contents) for snippet in snippets]), [])


def index_through(proxy: FaultProxy, corpus: Path, **settings: Any) -> dict[str, Any]:
    """Index a corpus through the proxy, hold every point against its snippet, and return the counts."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="biorag-faults-") as home:
        settings = Settings.of(home=Path(home), qdrant=proxy.url, **settings)
        store, sources = Store(settings), find_sources([str(corpus)], Path(home) / "spool")
        found = survey(sources, None, lambda _: None)
        manifest = store.new_manifest(EncoderIdentity("drawn", "", "f" * 64, DIMENSION), found.avg_len)
        report = write_index(store, manifest, surveyed_changes(sources, found), lambda: encode, lambda _: None)
        wanted = {snippet.id: snippet for source in sources for snippet in read_snippets(source, None)}
    return {
        "snippets": len(wanted),
        "added": report.added,
        "points": report.snippets,
        "requests": proxy.requests,
        "faults": dict(sorted(proxy.faults.items())),
        "seconds": round(time.perf_counter() - started, 1),
        **held(f"http://{proxy.target}", settings.index.name, wanted),
    }


def held(url: str, name: str, wanted: dict[str, Snippet]) -> dict[str, int]:
    """Compare a collection, read without the proxy, with what it should hold."""
    client = connect(Server(url, timeout=120, retries=0))
    seen: Counter[str] = Counter()
    wrong, offset = 0, None
    while True:
        records, offset = client.scroll(name, limit=1000, offset=offset, with_payload=True, with_vectors=True)
        for record in records:
            seen[record.payload["id"]] += 1
            snippet = wanted.get(record.payload["id"])
            same = snippet is not None and record.payload == payload(snippet)
            wrong += not (same and np.allclose(record.vector[DENSE], vector_of(snippet.contents), atol=1e-6))
        if offset is None:
            return {
                "missing": len(wanted.keys() - seen.keys()),
                "twice": sum(times > 1 for times in seen.values()),
                "wrong": wrong,
            }


def ask_through(proxy: FaultProxy, questions: int, timeout: float, retries: int = 5) -> dict[str, Any]:
    """Ask a generator's server through the proxy; each reply must be the one to its question."""
    started = time.perf_counter()
    generator = ServerGenerator(Server(proxy.url, timeout, retries, at_a_time=AT_A_TIME), "m", 4096)
    replies: dict[int, str] = {}
    each_answered(
        range(questions),
        lambda number: generator.generate(GenerationRequest(Prompt("Repeat.", f"question {number}"), SCHEMA, 16)).text,
        replies.__setitem__,
        AT_A_TIME,
    )
    right = sum(json.loads(replies[number]) == {"answer": f"question {number}"} for number in replies)
    return {
        "questions": questions,
        "replies": len(replies),
        "right": right,
        "requests": proxy.requests,
        "faults": dict(sorted(proxy.faults.items())),
        "seconds": round(time.perf_counter() - started, 1),
    }


def repeating(body: dict[str, Any]) -> str:
    """Reply as a model would that repeats the question."""
    return json.dumps({"answer": body["messages"][1]["content"]})


def main() -> int:
    """Run both, `--seeds` times each, and print one JSON document; the exit code is 1 if anything was lost."""
    from tests.loopback import Script
    from tests.qdrant_standin import StandIn

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, help="snippets, as 'biorag index' takes them")
    parser.add_argument("--qdrant", help="URL of a real server; else the stand-in")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--share", type=float, default=SHARE)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--timeout", type=int, default=5, help="seconds for one reply")
    asked = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    runs: dict[str, list[dict[str, Any]]] = {"index": [], "generator": []}
    for seed in range(asked.seeds):
        stand_in, script = StandIn(), Script()
        script.rule = repeating
        late = 1.5 * asked.timeout
        with (
            closing(FaultProxy(asked.qdrant or stand_in.url, asked.share, seed, late)) as proxy,
            closing(FaultProxy(script.url, asked.share, seed, AT_A_TIME * late)) as other,
        ):
            runs["index"].append(index_through(proxy, asked.corpus, name=f"faults-{seed}", timeout=asked.timeout))
            runs["generator"].append(ask_through(other, asked.questions, asked.timeout))
        stand_in.close()
        script.close()
    sys.stdout.write(json.dumps(runs, indent=2) + "\n")
    lost = [run for run in runs["index"] if run["missing"] or run["twice"] or run["wrong"]]
    lost += [run for run in runs["generator"] if run["right"] != run["questions"]]
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())
