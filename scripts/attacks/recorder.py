"""A server on this machine that keeps every byte it is sent, and answers as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler, bytes], None]


def completion(text: str) -> bytes:
    """Return the body of a chat completion."""
    return json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}).encode()


def send(handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    """Answer a request with a JSON body."""
    handler.send_response(status)
    for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


@dataclass
class Recorder:
    """A loopback server (or on another address of this machine), and what it was sent: heads and bodies."""

    answer: Answer = lambda handler, _: send(handler, completion("{}"))
    address: str = "127.0.0.1"
    requests: list[str] = field(default_factory=list)
    url: str = ""

    @property
    def text(self) -> str:
        """All that was sent."""
        return "\n".join(self.requests)

    @contextmanager
    def running(self) -> Iterator[Recorder]:
        """Serve until the block ends."""
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                recorder.requests.append(f"{self.requestline}\n{self.headers}\n{body.decode('utf-8', 'replace')}")
                try:
                    recorder.answer(self, body)
                except (BrokenPipeError, ConnectionResetError):
                    return

            def log_message(self, *_: Any) -> None:
                pass

        for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"):
            setattr(Handler, f"do_{method}", Handler._serve)
        server = ThreadingHTTPServer((self.address, 0), Handler)
        server.daemon_threads = True
        self.url = f"http://{self.address}:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()


def replying(text: str, headers: Mapping[str, str] | None = None) -> Answer:
    """Return the answer of a chat server that always says the same."""
    return lambda handler, _: send(handler, completion(text), 200, **(headers or {}))
