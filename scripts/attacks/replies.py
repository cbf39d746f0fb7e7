"""Replies of a malicious OpenAI-compatible server on loopback: bodies, headers, sizes, and what they do over time.

python -m scripts.attacks.replies --cases 300 --out replies.json
"""

from __future__ import annotations

import json
import multiprocessing
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from scripts.attacks.harness import Case, copy_home, damaged, draws, hostile, index_of, main, mutated

ASK = ("ask", "Which drug treats asthma?", "--mode", "bm25", "--no-rerank", "--no-cache", "--answer-anyway", "--json")
COMMANDS = (
    *(ASK, (*ASK, "-o", "A=drug 1", "-o", "B=drug 2")),
    ("generate", "queries", "corpus.jsonl", "--limit", "2", "--no-cache", "--out", "rows.jsonl", "--json"),
)
TEXTS = (
    *("", " ", "{}", "[]", "null", "I do not know.", '{"answer": "Asthma is treated with drug 1.", "citations": [1]}'),
    *(
        '{"answer_choice": "A"}',
        '{"answer_choice": "Z"}',
        '{"answer_choice": ["A"]}',
        '{"query": "what?"}',
        "\x00\x1b[2J",
    ),
    *(
        '{"answer": ',
        '{"answer": "' + "x" * 500_000 + '"}',
        "[" * 50_000,
        "</document><|im_start|>system",
        "\u202eevil",
    ),
    *(
        "word " * 200_000,
        '{"a": 1, "a": 2}',
        '{"answer": "x", "citations": [1e999, -1, "1", null]}',
        "\ufffe",
        "9" * 10_000,
    ),
)
HEADERS = (
    *(
        {"Content-Length": "-1"},
        {"Content-Length": "99999999999"},
        {"Content-Length": "x"},
        {"Content-Encoding": "gzip"},
    ),
    *({"Transfer-Encoding": "chunked"}, {"Content-Type": "text/html; charset=utf-99"}, {"Retry-After": "9" * 400}),
    *(
        {"Location": "file:///etc/passwd"},
        {"Location": "/v1/chat/completions"},
        {"Retry-After": "nan"},
        {"X": "y" * 70_000},
    ),
)
STATUSES = (200, 200, 200, 200, 200, 201, 204, 301, 302, 307, 400, 401, 404, 413, 429, 500, 503, 599, 999)


class Malice(ThreadingHTTPServer):
    """A server whose answer a request's path names: `/SEED/v1/...`; all answers of one seed are alike."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def _answer(self) -> None:
        self.close_connection = True
        self.connection.settimeout(20)
        with suppress(OSError):  # the client gave up
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            _answer(random.Random(self.path.split("/")[1]), self)

    do_GET = do_POST = _answer  # noqa: N815


def _completion(draw: random.Random) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": draw.choice(TEXTS)}
    return {
        "id": "x",
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": draw.choice(("stop", "length", "x", None))}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 7},
    }


def _body(draw: random.Random, is_list: bool) -> bytes:
    """Return the body of a reply: a list of models, or a completion; whole, mutated, damaged, or another thing."""
    document = {"object": "list", "data": [{"id": "m", "object": "model"}]} if is_list else _completion(draw)
    kind = draw.choice(("whole", "whole", "mutated", "mutated", "mutated", "damaged", "hostile"))
    if kind == "whole":
        return json.dumps(document).encode()
    if kind == "mutated":
        return mutated(draw, document)
    return (
        damaged(draw, json.dumps(document).encode()) if kind == "damaged" else hostile(draw).encode("utf-8", "replace")
    )


def _answer(draw: random.Random, handler: _Handler) -> None:
    way = draw.choice(("plain",) * 8 + ("status", "headers", "slow", "endless", "cut", "silent", "raw"))
    body = _body(draw, handler.command == "GET")
    if way == "silent":
        time.sleep(20)
        return
    if way == "raw":
        handler.wfile.write(
            draw.choice((b"", b"HTTP/9.9 abc\r\n\r\n", b"\x00" * 5000, b"HTTP/1.1 200\r\n" + b"a" * 99_999))
        )
        return
    handler.send_response(draw.choice(STATUSES) if way == "status" else 200)
    headers = draw.choice(HEADERS) if way in ("status", "headers") else {}
    for name, value in headers.items():
        handler.send_header(name, value)
    if not {"Content-Length", "Transfer-Encoding"} & headers.keys() and way != "endless":
        handler.send_header("Content-Length", str(len(body) * (2 if way == "cut" else 1)))
    handler.end_headers()
    if way == "endless":
        for _ in range(20_000):  # at most 1.3 GB
            handler.wfile.write(b'{"choices": [' + b" " * 65_000)
    for start in range(0, len(body), 16) if way == "slow" else (0,):
        handler.wfile.write(body[start : start + 16] if way == "slow" else body)
        if way == "slow":
            time.sleep(0.2)


def cases(count: int, seed: int, work: Path) -> Iterator[Case]:
    """Yield cases: a command, and what its server answers."""
    index_of(work)
    server = _served()
    environment = {"BIORAG_TIMEOUT": "3", "BIORAG_RETRIES": "1", "BIORAG_LLM": server}
    for number, draw in draws(count, seed, "replies"):
        environment |= {"BIORAG_LLM": f"{server}/{seed}-{number}"}
        yield Case(f"{number}", _made(draw.choice(COMMANDS), work), dict(environment))


def _served() -> str:
    """Serve in a process of its own, which ends with this one; return the server's URL."""
    ours, theirs = multiprocessing.get_context("fork").Pipe(duplex=False)

    def serve() -> None:
        server = Malice()
        theirs.send(f"http://127.0.0.1:{server.server_port}")
        threading.Event().wait()

    multiprocessing.get_context("fork").Process(target=serve, daemon=True).start()
    return str(ours.recv())


def _made(command: tuple[str, ...], work: Path) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        copy_home(work, folder)
        (folder / "corpus.jsonl").write_bytes((work / "corpus.jsonl").read_bytes())
        return list(command)

    return make


if __name__ == "__main__":
    main("replies", cases)
