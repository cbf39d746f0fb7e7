"""A Qdrant server made to do harm: wrong types, hits that nobody asked for, lists without an end, huge or deep replies.

    python -m scripts.attacks.payloads --cases 300 --out payloads.json

The server runs in a process of its own; the name of a case's collection tells it what to answer.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from scripts.attacks.harness import CORPUS, Case, draws, hostile, index_of, main, mutated

COMMANDS = (
    ("search", "asthma drug", "--mode", "bm25", "--no-rerank", "-k", "4", "--json"),
    ("search", "asthma drug", "--mode", "dense", "--no-rerank", "-k", "4", "--json"),
    ("search", "asthma drug", "-k", "4", "--json"),
    ("info", "--json"),
    ("index", "../clean/corpus.jsonl", "--json"),
)
STEPS = ("", "/exists", "/points/count", "/points/query/batch", "/points", "/points/scroll")
HUGE = 300 << 20  # bytes of a reply


def cases(count: int, seed: int, work: Path) -> Iterator[Case]:
    """Yield cases, and run their server meanwhile."""
    manifest = json.loads((index_of(work) / "manifest.json").read_bytes())
    command = [sys.executable, "-m", "scripts.attacks.payloads", "--serve", json.dumps(manifest)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        try:
            for number, draw in draws(count, seed, "payloads"):
                step = draw.choice(STEPS)
                name = f"c{draw.getrandbits(48)}-{STEPS.index(step)}"
                making = partial(_made, draw.choice(COMMANDS), name, url)
                yield Case(f"{number} {step or '/'}", making, {"BIORAG_RETRIES": "0", "BIORAG_TIMEOUT": "5"})
        finally:
            server.terminate()


def _made(command: Sequence[str], name: str, url: str, folder: Path) -> Sequence[str]:
    placed = [command[0], name, *command[1:]] if command[0] == "info" else [*command, "--name", name]
    return [*placed, "--qdrant", url]


class Answers:
    """What an honest server with the corpus of all attacks would answer, for the fields that biorag reads."""

    def __init__(self, manifest: Any) -> None:
        from biorag.indexes.points import payload, point_id
        from biorag.types import Snippet

        rows = [json.loads(line) for line in CORPUS.splitlines()]
        snippets = [Snippet(row["id"], row["title"], row["content"], row["PMID"]) for row in rows]
        self.manifest = manifest
        self.points = sorted(
            ({"id": str(point_id(snippet.id)), "payload": payload(snippet)} for snippet in snippets),
            key=lambda point: point["id"],
        )

    def result(self, step: str, name: str, body: Any) -> Any:
        """Return the honest answer to a request."""
        dimension = self.manifest["encoder"]["dimension"]
        store = {"kind": "qdrant", "url": "http://127.0.0.1"}
        if step == "/exists":
            return {"exists": True}
        if step == "":
            metadata = {"biorag": {**self.manifest, "name": name, "store": store, "checksums": None}}
            return _collection(dimension, metadata)
        if step == "/points/count":
            return {"count": len(self.points)}
        if step == "/points/query/batch":
            return [{"points": self._hits(search.get("limit", 10))} for search in body["searches"]]
        if step == "/points":
            asked = body.get("ids", []) if isinstance(body, dict) else []
            found = [point for point in self.points if point["id"] in asked]
            return [{**point, "vector": {"dense": [0.05] * dimension}} for point in found]
        if step == "/points/scroll":
            return {"points": self.points, "next_page_offset": None}
        return {"operation_id": 1, "status": "completed"}

    def _hits(self, limit: int) -> list[dict[str, Any]]:
        return [{**point, "version": 1, "score": 1 / (n + 1)} for n, point in enumerate(self.points[:limit])]


def _collection(dimension: int, metadata: Any) -> Any:
    """Return the description of a collection."""
    hnsw = {"m": 16, "ef_construct": 100, "full_scan_threshold": 10000}
    optimizers = {"deleted_threshold": 0.2, "vacuum_min_vector_number": 1000, "default_segment_number": 0}
    config = {
        "params": {"vectors": {"dense": {"size": dimension, "distance": "Cosine"}}, "shard_number": 1},
        "hnsw_config": hnsw,
        "optimizer_config": {**optimizers, "flush_interval_sec": 5},
        "metadata": metadata,
    }
    return {
        **{"status": "green", "optimizer_status": "ok", "segments_count": 1, "payload_schema": {}},
        **{"config": config, "points_count": 8, "indexed_vectors_count": 8},
    }


def harmful(draw: random.Random, step: str, honest: Any) -> bytes:
    """Return a reply of one kind of harm to the step that a case attacks."""
    whole = {"result": honest, "status": "ok", "time": 0.0}
    kind = draw.choice(("mutated", "mutated", "mutated", "mutated", "more", "strange", "endless", "raw", "huge"))
    points = honest if isinstance(honest, list) else honest.get("points", [])
    if kind == "more" and points:
        whole["result"] = points * draw.choice((2, 1000, 100_000 // len(points)))
    elif kind == "strange" and points:
        for point in points:
            if "payload" in point:
                point["payload"] |= draw.choice(({"id": "other"}, {"content": "Other."}, {"id": 7}, {"metadata": 3}))
    elif kind == "endless" and step == "/points/scroll":
        whole["result"] = {**honest, "next_page_offset": honest["points"][0]["id"]}
    elif kind == "raw":
        return hostile(draw).encode("utf-8", "surrogatepass")
    elif kind == "huge":
        return b" " * HUGE
    else:
        return mutated(draw, whole)
    return json.dumps(whole).encode()


def serve(manifest: Any) -> None:
    """Be the server, until the process is ended."""
    answers = Answers(manifest)

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            match = re.fullmatch(r"/collections/(c(\d+)-(\d))(/.*)?", self.path.partition("?")[0])
            assert match is not None, self.path
            step = match[4] or ""
            honest = answers.result(step, match[1], body)
            if step == STEPS[int(match[3])] and self.command in ("GET", "POST"):
                self._send(harmful(random.Random(match[2]), step, json.loads(json.dumps(honest))))
            else:
                self._send(json.dumps({"result": honest, "status": "ok", "time": 0.0}).encode())

        def _send(self, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_PATCH = _serve  # noqa: N815

        def log_message(self, *arguments: object) -> None:
            pass

        def handle(self) -> None:
            try:
                super().handle()
            except ConnectionError:  # the client has read enough
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"http://127.0.0.1:{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(json.loads(sys.argv[2]))
    else:
        main("payloads", cases)
