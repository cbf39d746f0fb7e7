"""Servers on a loopback port: one base of them, and an OpenAI-compatible one with scripted answers."""

import json
import threading
from collections.abc import Callable
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from biorag.generators.server import ServerGenerator
from biorag.utils.network import Server


class Asked(NamedTuple):
    method: str
    path: str
    headers: dict
    body: dict | None


class Loopback:
    """A server on a loopback port, whose subclasses answer each request: status, body, headers."""

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def respond(self, method: str, path: str, headers: Message, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        raise NotImplementedError

    def _handler(loopback):  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def _answer(self):
                content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, body, headers = loopback.respond(self.command, self.path, self.headers, content)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(b"" if self.command == "HEAD" else body)

            do_HEAD = do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815

        return Handler


class Script(Loopback):
    """An OpenAI-compatible server that answers with the given (status, body) pairs in turn and keeps the requests."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes]] = []
        self.asked: list[Asked] = []
        self.rule: Callable[[dict | None], tuple[int, dict] | str] | None = None  # answers by the body, in any order
        self.at_a_time = 0  # requests being answered now, and the most there have been
        self.most = 0
        self._lock = threading.Lock()
        super().__init__()

    @property
    def bodies(self) -> list[dict]:
        return [asked.body for asked in self.asked if asked.method == "POST"]

    def will(self, *answers) -> None:
        """Queue answers: a status with a body, or the text of a completion."""
        self.answers.extend(map(encoded, answers))

    @contextmanager
    def counted(self):
        with self._lock:
            self.at_a_time += 1
            self.most = max(self.most, self.at_a_time)
        try:
            yield
        finally:
            with self._lock:
                self.at_a_time -= 1

    def generator(self, model: str | None = "m", key: str | None = None, **options) -> ServerGenerator:
        reached = {"timeout": 5.0, "retries": 4, **options}
        return ServerGenerator(Server(self.url, api_key=key, **reached), model, 4096)

    def respond(self, method, path, headers, body):
        values = json.loads(body) if body else None
        self.asked.append(Asked(method, path, dict(headers), values))
        with self.counted():
            if self.rule:
                return *encoded(self.rule(values)), {}
            return *(self.answers.pop(0) if self.answers else (599, b"nothing was scripted")), {}


def encoded(answer) -> tuple[int, bytes]:
    status, body = answer if isinstance(answer, tuple) else (200, completion(answer))
    return status, body if isinstance(body, bytes) else json.dumps(body).encode()


def completion(content, finish: str = "stop", **more):
    return {"choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": finish, **more}]}
