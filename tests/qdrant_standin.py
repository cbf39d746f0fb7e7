"""The stand-in for a Qdrant server: the client's in-memory engine, alone or behind the REST paths that biorag uses."""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Callable, Iterator
from email.message import Message
from typing import Any
from urllib.parse import parse_qsl

from pydantic import TypeAdapter
from qdrant_client import QdrantClient, models

from tests.loopback import Loopback

POINTS = TypeAdapter(list[models.PointStruct])
QUERIES = TypeAdapter(list[models.QueryRequest])
SCHEMA = TypeAdapter(models.PayloadSchemaType | models.TextIndexParams)
DEFAULT_LINKS = 16  # `m`, where a collection's maker does not say


TEXTS = "text (with phrase_matching: true)"
KINDS = f"bool, datetime, float, geo, integer, keyword, keyword (with prefix: true), text, {TEXTS}, uuid"


def conditions_of(filter: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the conditions on keys of the payload in a filter, with their keys."""
    if isinstance(filter, dict):
        if "key" in filter:
            yield filter["key"], filter
        for part in filter.values():
            yield from conditions_of(part)
    for part in filter if isinstance(filter, list) else ():
        yield from conditions_of(part)


def kinds_for(condition: dict[str, Any]) -> str:
    """Return the kinds of index that compare values as a condition does."""
    if "range" in condition:
        return "datetime, float, integer"
    return "bool" if isinstance(condition["match"].get("value"), bool) else "keyword"


class MemoryEngine(QdrantClient):
    """An in-memory engine that also keeps a collection's layout, graph and payload indexes, as a server does.

    `statuses` are told one after the other while there are any, then green. `replicas` are the states of each shard's
    replicas by node, where the collection lies on several; the engine is node 1. `leader` is the cluster's, 0 for none.
    """

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.statuses: list[models.CollectionStatus] = []
        self.replicas: dict[int, dict[int, str]] | None = None
        self.leader = 1
        self.updates: list[dict[str, Any]] = []  # what collections were updated with
        self._made: dict[str, models.CreateCollection] = {}
        self._schema: dict[str, dict[str, models.PayloadIndexInfo]] = {}
        self._writing = threading.Lock()  # the in-memory mode does not bear the parallel upserts that a server does

    def create_collection(self, collection_name: str, *args: Any, **options: Any) -> bool:
        done = super().create_collection(collection_name, *args, **options)
        names = ("shard_number", "replication_factor", "write_consistency_factor", "hnsw_config")
        self._made[collection_name] = models.CreateCollection(**{name: options.get(name) for name in names})
        self._schema[collection_name] = {}
        return done

    def update_collection(self, collection_name: str, *args: Any, **options: Any) -> bool:
        self.updates.append(options)
        if hnsw := options.get("hnsw_config"):
            self._made[collection_name].hnsw_config = hnsw
        return super().update_collection(collection_name, *args, **options)

    def create_payload_index(
        self, collection_name: str, field_name: str, field_schema: Any = None, **options: Any
    ) -> models.UpdateResult:
        params = field_schema if isinstance(field_schema, models.TextIndexParams) else None
        kind = models.PayloadSchemaType.TEXT if params else models.PayloadSchemaType(field_schema)
        self._schema[collection_name][field_name] = models.PayloadIndexInfo(data_type=kind, params=params, points=0)
        return models.UpdateResult(operation_id=0, status=models.UpdateStatus.COMPLETED)

    def upsert(self, *args: Any, **options: Any) -> models.UpdateResult:
        with self._writing:
            return super().upsert(*args, **options)

    def get_collection(self, collection_name: str, **options: Any) -> models.CollectionInfo:
        info = super().get_collection(collection_name, **options)
        made = self._made.get(collection_name, models.CreateCollection())
        info.config.params.shard_number = made.shard_number or 1
        info.config.params.replication_factor = made.replication_factor or 1
        info.config.params.write_consistency_factor = made.write_consistency_factor or 1
        info.config.hnsw_config.m = DEFAULT_LINKS if made.hnsw_config is None else made.hnsw_config.m
        info.payload_schema = dict(self._schema.get(collection_name, {}))
        info.status = self.statuses.pop(0) if self.statuses else models.CollectionStatus.GREEN
        return info

    def collection_cluster_info(self, collection_name: str) -> models.CollectionClusterInfo:
        shards = self.get_collection(collection_name).config.params.shard_number or 1
        replicas = self.replicas or {shard: {1: "Active"} for shard in range(shards)}
        points = self.count(collection_name).count
        listed = [(shard, node, state) for shard, states in replicas.items() for node, state in states.items()]
        return models.CollectionClusterInfo(
            peer_id=1,
            shard_count=shards,
            local_shards=[
                models.LocalShardInfo(shard_id=shard, points_count=0 if shard else points, state=state)
                for shard, node, state in listed
                if node == 1
            ],
            remote_shards=[
                models.RemoteShardInfo(shard_id=shard, peer_id=node, state=state)
                for shard, node, state in listed
                if node != 1
            ],
            shard_transfers=[],
        )

    def cluster_status(self, **options: Any) -> models.ClusterStatus:
        raft = {"term": 1, "commit": 1, "pending_operations": 0, "leader": self.leader, "is_voter": True}
        thread = {"consensus_thread_status": "working", "last_update": "2026-01-01T00:00:00Z"}
        status = {"status": "enabled", "peer_id": 1, "peers": {}, "message_send_failures": {}}
        return models.ClusterStatusOneOf1.model_validate(
            {**status, "raft_info": raft, "consensus_thread_status": thread}
        )


class StandIn(Loopback):
    """Serves one in-memory engine; `refuse` may answer a request with a status instead; keeps the requests.

    Words are looked for by an index of texts alone: without one a server compares parts of texts. `strict` filters by
    indexed keys alone, as managed servers do, and `most` are the points that it takes at once.
    """

    def __init__(self, api_key: str | None = None) -> None:
        self.engine = MemoryEngine()
        self.api_key = api_key
        self.requests: list[tuple[str, str]] = []
        self.bodies: list[tuple[str, str, dict[str, str], Any]] = []  # with each request's query and body
        self.refuse: Callable[[str, str], int | tuple[int, Any] | None] = lambda method, path: None
        self.strict, self.most = False, 10_000
        self.retry_after = 0.0  # seconds that a refusal asks to wait
        self._turn = threading.Lock()
        super().__init__()

    def has(self, path: str) -> bool:
        return self.engine.collection_exists(path.rpartition("/")[2])

    def answer(self, method: str, path: str, body: Any) -> Any:
        if path == "/cluster":
            return self.engine.cluster_status().model_dump(mode="json")
        match = re.fullmatch(r"/collections/(\w[\w.-]*)(/.*)?", path)
        assert match, path
        name, rest = match[1], match[2] or ""
        engine = self.engine
        routes: dict[tuple[str, str], Callable[[], Any]] = {
            ("GET", "/exists"): lambda: {"exists": engine.collection_exists(name)},
            ("GET", ""): lambda: self._info(name, body),
            ("GET", "/cluster"): lambda: engine.collection_cluster_info(name).model_dump(mode="json"),
            ("PUT", ""): lambda: self._create(name, models.CreateCollection.model_validate(body)),
            ("PATCH", ""): lambda: self._patch(name, models.UpdateCollection.model_validate(body)),
            ("DELETE", ""): lambda: engine.delete_collection(name),
            ("PUT", "/index"): lambda: self._index(name, body),
            ("PUT", "/points"): lambda: self._done(engine.upsert(name, POINTS.validate_python(body["points"]))),
            ("POST", "/points"): lambda: self._retrieve(name, body),
            ("POST", "/points/count"): lambda: self._count(name, body),
            ("POST", "/points/scroll"): lambda: self._scroll(name, body),
            ("POST", "/points/delete"): lambda: self._done(engine.delete(name, body["points"])),
            ("POST", "/points/query/batch"): lambda: self._query(name, body),
        }
        return routes[method, rest]()

    def _done(self, result: models.UpdateResult) -> Any:
        return {"operation_id": 0, "status": "completed"}

    def _create(self, name: str, request: models.CreateCollection) -> Any:
        names = ("metadata", "shard_number", "replication_factor", "write_consistency_factor", "hnsw_config")
        options = {option: getattr(request, option) for option in names}
        vectors, sparse = request.vectors, request.sparse_vectors
        return self.engine.create_collection(name, vectors_config=vectors, sparse_vectors_config=sparse, **options)

    def _patch(self, name: str, request: models.UpdateCollection) -> Any:
        return self.engine.update_collection(name, metadata=request.metadata, hnsw_config=request.hnsw_config)

    def _index(self, name: str, body: Any) -> Any:
        schema = SCHEMA.validate_python(body["field_schema"])
        return self.engine.create_payload_index(name, body["field_name"], schema).model_dump(mode="json")

    def _info(self, name: str, body: Any) -> Any:
        return self.engine.get_collection(name).model_dump(mode="json")

    def _count(self, name: str, body: Any) -> Any:
        return self.engine.count(name).model_dump(mode="json")

    def _retrieve(self, name: str, body: Any) -> Any:
        options = {"with_payload": body.get("with_payload", True), "with_vectors": body.get("with_vector", False)}
        return [record.model_dump(mode="json") for record in self.engine.retrieve(name, body["ids"], **options)]

    def _scroll(self, name: str, body: Any) -> Any:
        options = {key: body[key] for key in ("limit", "offset", "with_payload") if key in body}
        records, after = self.engine.scroll(name, with_vectors=body.get("with_vector", False), **options)
        return {"points": [record.model_dump(mode="json") for record in records], "next_page_offset": after}

    def _query(self, name: str, body: Any) -> Any:
        answers = self.engine.query_batch_points(name, QUERIES.validate_python(body["searches"]))
        return [answer.model_dump(mode="json") for answer in answers]

    def _fault(self, path: str, body: Any) -> str:
        """Return why a request is refused, as a server 1.18.3 does."""
        count = len(body.get("points", ())) if isinstance(body, dict) and path.endswith("/points") else 0
        if count > self.most:
            help = f'Help: Reduce the "upsert limit" parameter to or below {self.most}.'
            return f'Bad request: Limit exceeded {count} > {self.most} for "upsert limit". {help}'
        searches = body["searches"] if path.endswith("/query/batch") else ()
        schema = self.engine._schema.get(path.removeprefix("/collections/").partition("/")[0], {})
        for key, condition in (pair for search in searches for pair in conditions_of(search.get("filter"))):
            words = "phrase" in condition.get("match", {})
            indexed = schema.get(key)
            lacks = indexed is None or (words and indexed.data_type != models.PayloadSchemaType.TEXT)
            if lacks and (self.strict or words):
                kinds = TEXTS if words else KINDS if "values_count" in condition else kinds_for(condition)
                wanted = f'Index required but not found for "{key}" of one of the following types: [{kinds}].'
                return f"Bad request: {wanted} Help: Create an index for this key or use a different filter."
        return ""

    def respond(self, method: str, path: str, headers: Message, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        path, _, query = path.partition("?")
        values = json.loads(body) if body else None
        self.requests.append((method, path))
        self.bodies.append((method, path, dict(parse_qsl(query)), values))
        status = self.refuse(method, path)
        if self.api_key and headers.get("api-key") != self.api_key:
            status = 401
        if method == "PUT" and not path.endswith(("/points", "/index")) and self.has(path):
            status = 409
        reply: Any = {"status": {"error": "refused"}, "time": 0.0}
        if isinstance(status, tuple):
            status, reply = status
        elif not status and (fault := self._fault(path, values)):
            status, reply = 400, {"status": {"error": fault}, "time": 0.0}
        if not status:
            with self._turn:
                reply = {"result": self.answer(method, path, values), "status": "ok", "time": 0.0}
        asked = {"Retry-After": str(math.ceil(self.retry_after))} if status == 429 else {}
        return status or 200, json.dumps(reply).encode(), {"Content-Type": "application/json", **asked}
