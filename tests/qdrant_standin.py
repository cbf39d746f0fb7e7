"""A loopback stand-in for a Qdrant server: its REST paths that biorag uses, over the client's in-memory engine."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

from pydantic import TypeAdapter
from qdrant_client import models

from tests.memory_engine import MemoryEngine

POINTS = TypeAdapter(list[models.PointStruct])
QUERIES = TypeAdapter(list[models.QueryRequest])
HEADERS: dict[str, str] = {}  # of every answer, besides its own


class StandIn:
    """Serves one in-memory engine; `refuse` may answer a request with a status instead; keeps the requests."""

    def __init__(self, api_key: str | None = None) -> None:
        self.engine = MemoryEngine()
        self.api_key = api_key
        self.requests: list[tuple[str, str]] = []
        self.bodies: list[tuple[str, str, dict[str, str], Any]] = []  # with each request's query and body
        self.refuse: Callable[[str, str], int | None] = lambda method, path: None
        self._turn = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def has(self, path: str) -> bool:
        return self.engine.collection_exists(path.rpartition("/")[2])

    def answer(self, method: str, path: str, body: Any) -> Any:
        routes: list[tuple[str, str, Callable[..., Any]]] = [
            ("GET", r"/collections/(\w[\w.-]*)/exists", self._exists),
            ("GET", r"/collections/(\w[\w.-]*)", self._info),
            ("GET", r"/collections/(\w[\w.-]*)/cluster", self._cluster),
            ("PUT", r"/collections/(\w[\w.-]*)/index", self._index),
            ("PUT", r"/collections/(\w[\w.-]*)", self._create),
            ("PATCH", r"/collections/(\w[\w.-]*)", self._patch),
            ("PUT", r"/collections/(\w[\w.-]*)/points", self._upsert),
            ("POST", r"/collections/(\w[\w.-]*)/points", self._retrieve),
            ("POST", r"/collections/(\w[\w.-]*)/points/count", self._count),
            ("POST", r"/collections/(\w[\w.-]*)/points/scroll", self._scroll),
            ("POST", r"/collections/(\w[\w.-]*)/points/delete", self._delete),
            ("POST", r"/collections/(\w[\w.-]*)/points/query/batch", self._query),
        ]
        for verb, pattern, route in routes:
            match = re.fullmatch(pattern, path)
            if match and verb == method:
                return route(match[1], body)
        raise KeyError(f"{method} {path}")

    def _exists(self, name: str, body: Any) -> Any:
        return {"exists": self.engine.collection_exists(name)}

    def _info(self, name: str, body: Any) -> Any:
        return self.engine.get_collection(name).model_dump(mode="json")

    def _create(self, name: str, body: Any) -> Any:
        request = models.CreateCollection.model_validate(body)
        return self.engine.create_collection(
            name,
            vectors_config=request.vectors,
            sparse_vectors_config=request.sparse_vectors,
            metadata=request.metadata,
            shard_number=request.shard_number,
            replication_factor=request.replication_factor,
            write_consistency_factor=request.write_consistency_factor,
            hnsw_config=request.hnsw_config,
        )

    def _patch(self, name: str, body: Any) -> Any:
        request = models.UpdateCollection.model_validate(body)
        return self.engine.update_collection(name, metadata=request.metadata, hnsw_config=request.hnsw_config)

    def _cluster(self, name: str, body: Any) -> Any:
        return self.engine.collection_cluster_info(name).model_dump(mode="json")

    def _index(self, name: str, body: Any) -> Any:
        schema = models.PayloadSchemaType(body["field_schema"])
        return self.engine.create_payload_index(name, body["field_name"], schema).model_dump(mode="json")

    def _upsert(self, name: str, body: Any) -> Any:
        self.engine.upsert(name, POINTS.validate_python(body["points"]))
        return {"operation_id": 0, "status": "completed"}

    def _retrieve(self, name: str, body: Any) -> Any:
        records = self.engine.retrieve(
            name,
            body["ids"],
            with_payload=body.get("with_payload", True),
            with_vectors=body.get("with_vector", False),
        )
        return [record.model_dump(mode="json") for record in records]

    def _count(self, name: str, body: Any) -> Any:
        return self.engine.count(name).model_dump(mode="json")

    def _scroll(self, name: str, body: Any) -> Any:
        what = {key: body[key] for key in ("limit", "offset", "with_payload") if key in body}
        records, after = self.engine.scroll(name, with_vectors=body.get("with_vector", False), **what)
        return {"points": [record.model_dump(mode="json") for record in records], "next_page_offset": after}

    def _delete(self, name: str, body: Any) -> Any:
        self.engine.delete(name, models.PointIdsList.model_validate(body))
        return {"operation_id": 0, "status": "completed"}

    def _query(self, name: str, body: Any) -> Any:
        answers = self.engine.query_batch_points(name, QUERIES.validate_python(body["searches"]))
        return [answer.model_dump(mode="json") for answer in answers]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                path, _, query = self.path.partition("?")
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                stand_in.requests.append((self.command, path))
                stand_in.bodies.append((self.command, path, dict(parse_qsl(query)), body))
                status = stand_in.refuse(self.command, path)
                if stand_in.api_key and self.headers.get("api-key") != stand_in.api_key:
                    status = 401
                if self.command == "PUT" and not path.endswith(("/points", "/index")) and stand_in.has(path):
                    status = 409
                if status:
                    self._send(status, {"status": {"error": "refused"}, "time": 0.0})
                    return
                with stand_in._turn:
                    result = stand_in.answer(self.command, path, body)
                self._send(200, {"result": result, "status": "ok", "time": 0.0})

            def _send(self, status: int, body: Any) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                for name, value in HEADERS.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_PATCH = _serve  # noqa: N815

            def log_message(self, *arguments: object) -> None:
                pass

        return Handler
