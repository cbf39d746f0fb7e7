"""The replicas of a simulated cluster's shards: which are read, which take a write, and what becomes of their nodes.

The rules are those of the server's source at 1.19 (`lib/collection/src/shards/replica_set`, `shards/resolve.rs`): which
replicas are asked, how many must answer, how their answers are joined, when a write counts and which replicas it
deactivates. Points are held by the client's in-memory engine, one for each replica. Latencies are counted, not waited
for, so that nothing depends on the speed of the machine. It is no Qdrant server.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from qdrant_client import QdrantClient, models

READABLE, UPDATABLE = {"Active", "ActiveRead"}, {"Active", "Partial", "Initializing", "ActiveRead"}
PATIENCE = 1.0  # seconds, counted, after which a client has gone


class ClusterError(Exception):
    """What a node answers in place of a result."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class HungUpError(Exception):
    """A node that ends the connection without an answer, or answers when the client has gone."""


@dataclass
class Node:
    """A node: whether it runs, is cut off from the others, what it answers instead, and how long a read takes."""

    id: int
    running: bool = True
    cut_off: bool = False
    answers: int | None = None
    latency: float = 0.001
    view: dict[int, dict[int, str]] | None = None  # the states as it last knew them, while it is cut off


@dataclass
class Collection:
    """A collection: its configuration, and one engine and one state for each replica."""

    request: models.CreateCollection
    links: int
    metadata: dict[str, Any]
    engines: dict[tuple[int, int], QdrantClient]
    states: dict[int, dict[int, str]]
    schema: dict[str, Any] = field(default_factory=dict)

    @property
    def acknowledgements(self) -> int:
        return self.request.write_consistency_factor or 1


class ReplicaSets:
    """Nodes 1, 2, … and the replicas of collections that they hold."""

    def __init__(self, nodes: int = 3, seed: int = 0) -> None:
        self.nodes = {id: Node(id) for id in range(1, nodes + 1)}
        self.collections: dict[str, Collection] = {}
        self.writes: list[tuple[int, int, list[str]]] = []  # shard, node and ids of each write that was applied
        self._random = random.Random(seed)

    # --- what happens to nodes

    def kill(self, *nodes: int) -> None:
        """Stop nodes; the states of their replicas stay until a write finds them gone."""
        for node in nodes:
            self.nodes[node].running = False

    def start(self, *nodes: int) -> None:
        """Start nodes again; their replicas that missed writes stay dead until `recover`."""
        for node in nodes:
            self.nodes[node].running = True

    def cut(self, node: int) -> None:
        """Cut a node off: it keeps the states that it knew, and serves what it holds."""
        self.nodes[node].cut_off = True
        states = next(iter(self.collections.values())).states
        self.nodes[node].view = {shard: dict(replicas) for shard, replicas in states.items()}

    def heal(self, node: int) -> None:
        """Bring a node back to the others, whose states it takes over."""
        self.nodes[node].cut_off, self.nodes[node].view = False, None

    def recover(self) -> None:
        """Bring dead replicas up to date from an active one, as the cluster does by itself."""
        for collection in self.collections.values():
            for shard, states in collection.states.items():
                active = [node for node, state in states.items() if state == "Active" and self._reached(0, node)]
                for node, state in states.items():
                    if state == "Dead" and active and self._reached(0, node):
                        self._copy(collection, shard, active[0], node)
                        states[node] = "Active"

    def _copy(self, collection: Collection, shard: int, source: int, target: int) -> None:
        (name,) = (each.name for each in collection.engines[shard, source].get_collections().collections)
        records, _ = collection.engines[shard, source].scroll(name, limit=10**6, with_vectors=True)
        engine = self._new_engine(name, collection.request)
        points = [models.PointStruct(id=each.id, vector=each.vector, payload=each.payload) for each in records]
        if points:
            engine.upsert(name, points)
        collection.engines[shard, target] = engine

    def _reached(self, origin: int, node: int) -> bool:
        """Whether a node is reached from another, or (from 0) from the majority."""
        if origin == node:
            return self.nodes[node].running
        apart = self.nodes[node].cut_off or (origin != 0 and self.nodes[origin].cut_off)
        return self.nodes[node].running and not apart

    def _new_engine(self, name: str, request: models.CreateCollection) -> QdrantClient:
        engine = QdrantClient(":memory:")
        engine.create_collection(
            name, vectors_config=request.vectors, sparse_vectors_config=request.sparse_vectors, metadata={}
        )
        return engine

    # --- reads

    def _read(
        self,
        collection: Collection,
        shard: int,
        node: Node,
        consistency: int | str,
        read: Callable[[QdrantClient], Any],
    ) -> Any:
        """Read a shard, as `execute_and_resolve_read_operation` does: local first, others when one fails."""
        states = (node.view or collection.states)[shard]
        readable = [id for id, state in states.items() if state in READABLE]
        joining = sum(state == "Initializing" for state in states.values())
        required = self._required(consistency, len(states))
        if len(readable) + joining < required:
            raise ClusterError(
                500, f"The replica set for shard {shard} on peer {node.id} does not have enough active replicas"
            )
        if len(readable) < required:
            required = max(required - joining, len(readable))
        answers = self._answers(collection, shard, node, readable, required, read)
        if not answers:
            return None  # the empty answer of a shard without a replica that can be read
        return answers[0] if len(answers) == 1 else resolved(answers, majority=consistency == "majority")

    @staticmethod
    def _required(consistency: int | str, replicas: int) -> int:
        if consistency in ("all", "majority"):
            return replicas
        return replicas // 2 + 1 if consistency == "quorum" else min(max(int(consistency), 1), replicas)

    def _answers(
        self,
        collection: Collection,
        shard: int,
        node: Node,
        readable: Sequence[int],
        required: int,
        read: Callable[[QdrantClient], Any],
    ) -> list[Any]:
        """Ask replicas until enough have answered; the slowest of those that are waited for counts as latency."""
        others = [id for id in readable if id != node.id]
        self._random.shuffle(others)
        local = [id for id in readable if id == node.id]
        queue, fan_out = [*local, *others], 0 if local else 1
        asked, failed = queue[: required + fan_out], 0
        rest = queue[required + fan_out :]
        answered: list[int] = []
        for id in asked:
            if self._reached(node.id, id) and self.nodes[id].answers is None:
                answered.append(id)
            else:
                failed += 1
                asked += rest[:1]
                rest = rest[1:]
        fastest = sorted(answered, key=lambda id: self.nodes[id].latency)[:required]
        if len(fastest) < required:
            raise ClusterError(500, f"{failed} of {len(asked)} read operations failed")
        if fastest and max(self.nodes[id].latency for id in fastest) > PATIENCE:
            raise HungUpError
        return [read(collection.engines[shard, id]) for id in fastest]

    # --- writes

    def _by_shard(self, collection: Collection, ids: Sequence[Any]) -> dict[int, list[Any]]:
        shards: dict[int, list[Any]] = {}
        for id in ids:
            shards.setdefault(UUID(str(id)).int % len(collection.states), []).append(id)
        return shards

    def _write(self, name: str, node: Node, ids: Sequence[Any], write: Callable[[QdrantClient, list[Any]], Any]) -> Any:
        """Write to every shard of these points, as `update_with_consistency` does; all are tried before one fails."""
        collection = self.collections[name]
        errors = []
        for shard, part in self._by_shard(collection, ids).items():
            try:
                self._write_shard(collection, shard, node, part, write)
            except ClusterError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return {"operation_id": 0, "status": "completed"}

    def _write_shard(
        self,
        collection: Collection,
        shard: int,
        node: Node,
        ids: list[Any],
        write: Callable[[QdrantClient, list[Any]], Any],
    ) -> None:
        states = (node.view or collection.states)[shard]
        updatable = [id for id, state in states.items() if state in UPDATABLE]
        if not updatable:
            raise ClusterError(500, f"The replica set for shard {shard} on peer {node.id} has no active replica")
        done = [id for id in updatable if self._reached(node.id, id) and self.nodes[id].answers is None]
        for id in done:
            write(collection.engines[shard, id], ids)
            self.writes.append((shard, id, [str(each) for each in ids]))
        if len(done) < min(collection.acknowledgements, len(states)):
            raise ClusterError(500, f"{len(updatable) - len(done)} of {len(updatable)} write operations failed")
        if len(done) < len(updatable) and node.view is not None:
            raise ClusterError(500, "deactivation timed out. Consistency of this update is not guaranteed.")
        for id in set(updatable) - set(done):
            states[id] = "Dead"


def resolved(answers: list[Any], majority: bool) -> Any:
    """Join the answers of replicas: lists of points keep what enough of them hold alike; of counts the middle or least.

    `answers` has one list of lists of points for each replica, or one count.
    """
    if isinstance(answers[0], int):
        return sorted(answers)[len(answers) // 2] if majority else min(answers)
    needed = len(answers) // 2 + 1 if majority else len(answers)
    return [_kept([answer[place] for answer in answers], needed) for place in range(len(answers[0]))]


def _kept(replicas: list[list[Any]], needed: int) -> list[Any]:
    held: dict[str, list[Any]] = {}
    for points in replicas:
        for point in points:
            held.setdefault(str(point.id), []).append(point)
    return [
        points[0]
        for points in held.values()
        if sum(point.model_dump() == points[0].model_dump() for point in points) >= needed
    ]
