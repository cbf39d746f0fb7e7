"""A Qdrant cluster simulated on loopback, behind one address as a load balancer gives it; no Qdrant server."""

from __future__ import annotations

import argparse
import json
import re
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

from pydantic import TypeAdapter
from qdrant_client import QdrantClient, models

from tests.replica_sets import ClusterError, Collection, HungUpError, Node, ReplicaSets

POINTS = TypeAdapter(list[models.PointStruct])
QUERIES = TypeAdapter(list[models.QueryRequest])


class SimulatedCluster(ReplicaSets):
    """Nodes 1, 2, … behind one address; requests go to the first of `order` that runs."""

    def __init__(self, nodes: int = 3, seed: int = 0) -> None:
        super().__init__(nodes, seed)
        self.order = list(self.nodes)
        self.status: Callable[[], str] = lambda: "green"
        self._turn = threading.RLock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    # --- collections

    def _create(self, name: str, body: Any) -> bool:
        request = models.CreateCollection.model_validate(body)
        if name in self.collections:
            raise ClusterError(409, f"Collection `{name}` already exists!")
        copies = min(request.replication_factor or 1, len(self.nodes))
        states: dict[int, dict[int, str]] = {}
        for shard in range(request.shard_number or len(self.nodes)):
            ids = [1 + (shard + copy) % len(self.nodes) for copy in range(copies)]
            states[shard] = dict.fromkeys(ids, "Active")
        engines = {(shard, id): self._new_engine(name, request) for shard in states for id in states[shard]}
        links = 16 if request.hnsw_config is None or request.hnsw_config.m is None else request.hnsw_config.m
        self.collections[name] = Collection(request, links, dict(request.metadata or {}), engines, states)
        return True

    def _patch(self, collection: Collection, body: Any) -> bool:
        request = models.UpdateCollection.model_validate(body)
        collection.metadata |= request.metadata or {}
        if request.hnsw_config and request.hnsw_config.m is not None:
            collection.links = request.hnsw_config.m
        return True

    def _info(self, name: str, node: Node) -> Any:
        collection = self.collections[name]
        engine = next(iter(collection.engines.values()))
        info = engine.get_collection(name)
        params, request = info.config.params, collection.request
        params.shard_number, params.replication_factor = len(collection.states), request.replication_factor or 1
        params.write_consistency_factor = collection.acknowledgements
        info.config.hnsw_config.m, info.config.metadata = collection.links, collection.metadata
        info.status = models.CollectionStatus(self.status())
        counts = [
            self._read(collection, shard, node, 1, lambda engine: engine.count(name).count)
            for shard in collection.states
        ]
        info.points_count = info.indexed_vectors_count = sum(counts)
        info.payload_schema = {
            key: models.PayloadIndexInfo(data_type=kind, points=0) for key, kind in collection.schema.items()
        }
        return info.model_dump(mode="json")

    def _cluster(self, name: str, node: Node) -> Any:
        collection = self.collections[name]
        states = node.view or collection.states
        replicas = [(shard, id, state) for shard, each in states.items() for id, state in each.items()]
        return {
            "peer_id": node.id,
            "shard_count": len(states),
            "local_shards": [
                {"shard_id": shard, "points_count": collection.engines[shard, id].count(name).count, "state": state}
                for shard, id, state in replicas
                if id == node.id
            ],
            "remote_shards": [
                {"shard_id": shard, "peer_id": id, "state": state} for shard, id, state in replicas if id != node.id
            ],
            "shard_transfers": [],
        }

    def _status(self, node: Node) -> Any:
        gone = [id for id in self.nodes if id != node.id and not self._reached(node.id, id)]
        has_majority = 2 * len(gone) < len(self.nodes)
        return {
            "status": "enabled",
            "peer_id": node.id,
            "peers": {str(id): {"uri": f"http://node-{id}:6335/"} for id in self.nodes},
            "raft_info": {
                "term": 1,
                "commit": 1,
                "pending_operations": 0,
                "leader": node.id if has_majority else 0,
                "role": "Leader" if has_majority else "PreCandidate",
                "is_voter": True,
            },
            "consensus_thread_status": {"consensus_thread_status": "working", "last_update": "2026-01-01T00:00:00Z"},
            "message_send_failures": {
                f"http://node-{id}:6335/": {"count": 3, "latest_error": "unreachable", "latest_error_timestamp": None}
                for id in gone
            },
        }

    def _query(self, name: str, node: Node, consistency: int | str, body: Any) -> Any:
        requests = QUERIES.validate_python(body["searches"])
        collection = self.collections[name]
        shards = [
            self._read(
                collection,
                shard,
                node,
                consistency,
                lambda engine: [answer.points for answer in engine.query_batch_points(name, requests)],
            )
            for shard in collection.states
        ]
        merged = []
        for place, request in enumerate(requests):
            points = [point for shard in shards if shard is not None for point in shard[place]]
            points.sort(key=lambda point: -point.score)
            merged.append({"points": [point.model_dump(mode="json") for point in points[: request.limit or 10]]})
        return merged

    def _retrieve(self, name: str, node: Node, consistency: int | str, body: Any) -> Any:
        collection, found = self.collections[name], []
        for shard, ids in self._by_shard(collection, body["ids"]).items():

            def read(engine: QdrantClient, ids: Sequence[Any] = tuple(ids)) -> Any:
                payload, vectors = body.get("with_payload", True), body.get("with_vector", False)
                return [engine.retrieve(name, list(ids), with_payload=payload, with_vectors=vectors)]

            for records in self._read(collection, shard, node, consistency, read) or []:
                found += [record.model_dump(mode="json") for record in records]
        return found

    def _count(self, name: str, node: Node) -> Any:
        collection = self.collections[name]
        counts = [
            self._read(collection, shard, node, 1, lambda engine: engine.count(name).count)
            for shard in collection.states
        ]
        return {"count": sum(count or 0 for count in counts)}

    def _scroll(self, name: str, node: Node, consistency: int | str, body: Any) -> Any:
        collection, found = self.collections[name], []
        for shard in collection.states:

            def read(engine: QdrantClient) -> Any:
                records, _ = engine.scroll(
                    name, limit=body["limit"] + 1, offset=body.get("offset"), with_payload=["id"]
                )
                return [records]

            for records in self._read(collection, shard, node, consistency, read) or []:
                found += records
        found.sort(key=lambda record: record.id)
        following = found[body["limit"]].id if len(found) > body["limit"] else None
        page = [record.model_dump(mode="json") for record in found[: body["limit"]]]
        return {"points": page, "next_page_offset": following}

    def _upsert(self, name: str, node: Node, body: Any) -> Any:
        points = {str(point.id): point for point in POINTS.validate_python(body["points"])}
        return self._write(
            name, node, list(points), lambda engine, ids: engine.upsert(name, [points[str(id)] for id in ids])
        )

    def _delete(self, name: str, node: Node, body: Any) -> Any:
        return self._write(name, node, body["points"], lambda engine, ids: engine.delete(name, ids))

    # --- HTTP

    def answer(self, method: str, path: str, query: dict[str, str], body: Any, node: Node) -> Any:
        """Return what a node answers to a request."""
        if path == "/":
            return {"title": "simulated cluster", "version": "1.20.0"}
        if path == "/cluster":
            return self._status(node)
        match = re.fullmatch(r"/collections/([\w.-]+)(/.*)?", path)
        assert match, path
        name, rest = match[1], match[2] or ""
        consistency: int | str = query.get("consistency", "1")
        if rest == "/exists":
            return {"exists": name in self.collections}
        if (method, rest) == ("PUT", ""):
            return self._create(name, body)
        if name not in self.collections:
            raise ClusterError(404, f"Collection `{name}` doesn't exist!")
        collection = self.collections[name]
        routes: dict[tuple[str, str], Callable[[], Any]] = {
            ("GET", ""): lambda: self._info(name, node),
            ("PATCH", ""): lambda: self._patch(collection, body),
            ("DELETE", ""): lambda: bool(self.collections.pop(name)),
            ("GET", "/cluster"): lambda: self._cluster(name, node),
            ("PUT", "/index"): lambda: self._index(collection, body),
            ("PUT", "/points"): lambda: self._upsert(name, node, body),
            ("POST", "/points"): lambda: self._retrieve(name, node, consistency, body),
            ("POST", "/points/count"): lambda: self._count(name, node),
            ("POST", "/points/scroll"): lambda: self._scroll(name, node, consistency, body),
            ("POST", "/points/delete"): lambda: self._delete(name, node, body),
            ("POST", "/points/query/batch"): lambda: self._query(name, node, consistency, body),
        }
        return routes[method, rest]()

    def _index(self, collection: Collection, body: Any) -> Any:
        collection.schema[body["field_name"]] = body["field_schema"]
        return {"operation_id": 0, "status": "completed"}

    def _served(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        """Return status and body of an answer; raise HungUpError for none."""
        node = next((self.nodes[id] for id in self.order if self.nodes[id].running), None)
        if node is None:
            raise HungUpError
        if node.answers is not None:
            return node.answers, {"status": {"error": "out of memory"}, "time": 0.0}
        try:
            return 200, {"result": self.answer(method, path, query, body, node), "status": "ok", "time": 0.0}
        except ClusterError as error:
            text = f"Service internal error: {error}" if error.status == 500 else str(error)
            return error.status, {"status": {"error": text}, "time": 0.0}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                path, _, query = self.path.partition("?")
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                try:
                    with cluster._turn:
                        status, answer = cluster._served(self.command, path, dict(parse_qsl(query)), body)
                except HungUpError:
                    self.close_connection = True
                    return
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815

            def log_message(self, *arguments: object) -> None:
                pass

        return Handler


def main() -> None:
    """Serve a cluster until the process is ended; print its URL."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--nodes", type=int, default=3)
    print(SimulatedCluster(parser.parse_args().nodes).url, flush=True)  # noqa: T201
    threading.Event().wait()


if __name__ == "__main__":
    main()
