"""Stand-ins for the servers of recipes on loopback ports: OpenAI-compatible ones, and NCBI's E-utilities."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any
from urllib.parse import parse_qs

from biorag.lab.recipes.recipe import RecipeServer
from tests.lab.recipes.rehearsal.inputs import FIRST_PMID, ROWS, pubmed_xml, texts

WORDS_OF_A_TEXT = 12
WORD = re.compile(r"[A-Za-z]{4,}")
EUTILS = "--eutils"
CITES_NOTHING = 4  # every fourth paper: PubMed has the references of a part of its papers


class _Answer:
    """A server that answers a path and a body with a status, a type and a body."""

    def __init__(self, server: RecipeServer) -> None:
        self._server = server

    def get(self, path: str) -> tuple[int, str, bytes]:
        """Answer a GET."""
        models = {"object": "list", "data": [{"id": self._server.model or "stand-in", "object": "model"}]}
        return (200, "application/json", json.dumps(models).encode()) if path.endswith("/models") else _unknown(path)

    def post(self, path: str, body: bytes) -> tuple[int, str, bytes]:
        """Answer a POST."""
        if not path.endswith("/chat/completions"):
            return _unknown(path)
        asked = json.loads(body)
        if self._server.model and asked.get("model") != self._server.model:
            fault = {"error": {"message": f"The model `{asked.get('model')}` does not exist", "type": "not_found"}}
            return 404, "application/json", json.dumps(fault).encode()
        return 200, "application/json", json.dumps(_completion(asked, body)).encode()


class _Entrez(_Answer):
    """The E-utilities: what papers cite, and their records."""

    def get(self, path: str) -> tuple[int, str, bytes]:
        return 200, "application/json", b'{"einforesult": {"dblist": ["pubmed"]}}'

    def post(self, path: str, body: bytes) -> tuple[int, str, bytes]:
        form = parse_qs(body.decode())
        if path.endswith("/elink.fcgi"):
            return 200, "application/json", json.dumps({"linksets": [_links(int(id)) for id in form["id"]]}).encode()
        if path.endswith("/efetch.fcgi"):
            papers = {pmid: texts()[(pmid - FIRST_PMID) % ROWS] for pmid in map(int, form["id"][0].split(","))}
            return 200, "text/xml", pubmed_xml(papers)
        return _unknown(path)


@contextmanager
def stand_ins(servers: Mapping[str, RecipeServer]) -> Iterator[dict[str, str]]:
    """Serve stand-ins of servers; yield their URLs by name."""
    running: dict[str, ThreadingHTTPServer] = {}
    try:
        for name, server in servers.items():
            answer = (_Entrez if server.option == EUTILS else _Answer)(server)
            running[name] = ThreadingHTTPServer(("127.0.0.1", 0), _handler(answer))
            threading.Thread(target=running[name].serve_forever, args=(0.05,), daemon=True).start()
        yield {name: f"http://127.0.0.1:{listening.server_port}" for name, listening in running.items()}
    finally:
        for listening in running.values():
            listening.shutdown()
            listening.server_close()


def _handler(answer: _Answer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            self._send(*answer.get(self.path))

        def do_POST(self) -> None:
            self._send(*answer.post(self.path, self.rfile.read(int(self.headers.get("Content-Length") or 0))))

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def _unknown(path: str) -> tuple[int, str, bytes]:
    return 404, "application/json", json.dumps({"error": {"message": f"no {path}"}}).encode()


def _completion(asked: Mapping[str, Any], body: bytes) -> dict[str, Any]:
    """Return a chat completion of the schema that is asked for, of words of the request; equal ones reply equally."""
    draw = Random(hashlib.sha256(body).digest())
    words = WORD.findall(asked["messages"][-1]["content"]) or ["text"]
    schema = asked.get("response_format", {}).get("json_schema", {}).get("schema")
    reply = json.dumps(_of_schema(schema, words, draw)) if schema else _text(words, draw)
    choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": reply}, "finish_reason": "stop"}
    if asked.get("logprobs"):
        listed = [{"token": letter, "logprob": -draw.random()} for letter in "ABCDEFGH"]
        choice["logprobs"] = {"content": [{"token": "A", "logprob": -1.0, "top_logprobs": listed}]}
    usage = {"prompt_tokens": len(body) // 4, "completion_tokens": len(reply) // 4}
    return {"object": "chat.completion", "model": asked.get("model"), "choices": [choice], "usage": usage}


def _of_schema(schema: Mapping[str, Any], words: Sequence[str], draw: Random) -> Any:
    """Return a value that a JSON schema allows."""
    if "enum" in schema:
        return draw.choice(schema["enum"])
    kind = schema.get("type", "object")
    if kind == "object":
        return {name: _of_schema(value, words, draw) for name, value in schema.get("properties", {}).items()}
    if kind == "array":
        number = max(1, schema.get("minItems") or 1)
        values = [_of_schema(schema["items"], words, draw) for _ in range(number)]
        return list(dict.fromkeys(values)) if schema.get("uniqueItems") else values
    return {"boolean": True, "integer": 1, "number": 0.5}.get(kind, _text(words, draw))


def _text(words: Sequence[str], draw: Random) -> str:
    return " ".join(draw.choices(words, k=WORDS_OF_A_TEXT)).capitalize()


def _links(pmid: int) -> dict[str, Any]:
    """Return what a paper cites: papers that are in no other stand-in."""
    cited = [FIRST_PMID + ROWS + (7 * pmid + place) % ROWS for place in range(4 * (pmid % CITES_NOTHING))]
    group = {"dbto": "pubmed", "linkname": "pubmed_pubmed_refs", "links": list(map(str, cited))}
    return {"dbfrom": "pubmed", "ids": [str(pmid)], **({"linksetdbs": [group]} if cited else {})}
