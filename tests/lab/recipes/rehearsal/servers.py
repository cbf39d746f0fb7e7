"""Stand-ins for the servers of recipes on loopback ports: OpenAI-compatible ones, and NCBI's E-utilities."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any
from urllib.parse import parse_qs

from biorag.lab.recipes.recipe import RecipeServer
from tests.lab.recipes.rehearsal.inputs import FIRST_PMID, ROWS, pubmed_xml, texts
from tests.loopback import Loopback

WORDS_OF_A_TEXT = 12
WORD = re.compile(r"[A-Za-z]{4,}")
EUTILS = "--eutils"
CITES_NOTHING = 4  # every fourth paper: PubMed has the references of a part of its papers


class _Model(Loopback):
    """An OpenAI-compatible server that knows its model."""

    def __init__(self, server: RecipeServer) -> None:
        self.model = server.model
        super().__init__()

    def respond(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        """Answer a request."""
        answer: Any = {"object": "list", "data": [{"id": self.model or "stand-in", "object": "model"}]}
        status = 200
        if not path.endswith("/models"):
            asked = json.loads(body)
            answer = _completion(asked, body)
            if self.model and asked.get("model") != self.model:
                status, answer = 404, {"error": {"message": f"The model `{asked.get('model')}` does not exist"}}
        return status, json.dumps(answer).encode(), {"Content-Type": "application/json"}


class _Entrez(_Model):
    """The E-utilities: what papers cite, and their records."""

    def respond(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        """Answer a request."""
        form = parse_qs(body.decode())
        if path.endswith("/efetch.fcgi"):
            papers = {pmid: texts()[(pmid - FIRST_PMID) % ROWS] for pmid in map(int, form["id"][0].split(","))}
            return 200, pubmed_xml(papers), {"Content-Type": "text/xml"}
        answer: Any = {"einforesult": {"dblist": ["pubmed"]}}
        if path.endswith("/elink.fcgi"):
            answer = {"linksets": [_links(int(id)) for id in form["id"]]}
        return 200, json.dumps(answer).encode(), {"Content-Type": "application/json"}


@contextmanager
def stand_ins(servers: Mapping[str, RecipeServer]) -> Iterator[dict[str, str]]:
    """Serve stand-ins of servers; yield their URLs by name."""
    with ExitStack() as running:
        started = {name: (_Entrez if server.option == EUTILS else _Model)(server) for name, server in servers.items()}
        for server in started.values():
            running.callback(server.close)
        yield {name: server.url for name, server in started.items()}


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
