"""The shards of a collection and their replicas: which can be read, which are missing, and facts about them."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qdrant_client import QdrantClient, models

from biorag.errors import ServiceError
from biorag.indexes.connection import server_errors
from biorag.indexes.points import StoredError

logger = logging.getLogger(__name__)

STATES = models.ReplicaState
READABLE = {str(state.value) for state in (STATES.ACTIVE, STATES.ACTIVEREAD, STATES.RESHARDINGSCALEDOWN)}

NEW_SHARDS = 30.0  # seconds in which the replicas of a new collection become active
PAUSE = 0.05  # seconds between two looks at them


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard: the state of each replica by the id of its node, and its points where the asked node holds one."""

    id: int
    states: Mapping[int, str]
    points: int | None = None

    @property
    def readable(self) -> bool:
        """Whether a replica can be read."""
        return any(state in READABLE for state in self.states.values())

    def __str__(self) -> str:
        """Return its name and its replicas' states, for messages."""
        states = ", ".join(f"node {node}: {state}" for node, state in sorted(self.states.items()))
        return f"{self.id} ({states})" if states else str(self.id)


@dataclass(frozen=True, slots=True)
class Sharding:
    """The shards of a collection as one node knows them; `distributed` if other nodes hold replicas too."""

    shards: tuple[Shard, ...]
    distributed: bool


def sharding_of(client: QdrantClient, collection: str) -> Sharding:
    """Return where the shards of a collection lie; a shard that the node does not list has no replica.

    Raises `StoredError` if a shard is listed that there cannot be.
    """
    info = client.collection_cluster_info(collection)
    states: dict[int, dict[int, str]] = {shard: {} for shard in range(info.shard_count)}
    points = {shard.shard_id: shard.points_count for shard in info.local_shards}
    replicas: list[models.LocalShardInfo | models.RemoteShardInfo] = [*info.local_shards, *info.remote_shards]
    for replica in replicas:
        if replica.shard_id not in states:
            raise StoredError(f"a shard {replica.shard_id} of {info.shard_count}")
        node = info.peer_id if isinstance(replica, models.LocalShardInfo) else replica.peer_id
        states[replica.shard_id][node] = replica.state.value
    shards = tuple(Shard(shard, states[shard], points.get(shard)) for shard in sorted(states))
    return Sharding(shards, distributed=bool(info.remote_shards))


def require_whole(client: QdrantClient, collection: str) -> Sharding:
    """Return where the shards lie if a read can rest on all of them.

    Raises `ServiceError` naming the shards of which no replica can be read; or the node, if it was cut off from the
    majority of its cluster: it may hold replicas that miss later writes, and take them for active.
    """
    with server_errors():
        sharding = sharding_of(client, collection)
        if missing := [str(shard) for shard in sharding.shards if not shard.readable]:
            raise ServiceError(
                f"collection {collection!r} is not whole: no replica of shard{'s' if len(missing) > 1 else ''} "
                f"{', '.join(missing)} can be read. Start the nodes that hold them; biorag does not answer from the "
                "other shards"
            )
        status = client.cluster_status() if sharding.distributed else None
    if isinstance(status, models.ClusterStatusOneOf1) and not status.raft_info.leader:
        raise ServiceError(
            f"node {status.peer_id} of the Qdrant cluster is cut off from the others (it knows no leader), and may "
            "hold old data: reconnect it, or name another node with --qdrant"
        )
    return sharding


def await_new_shards(client: QdrantClient, collection: str, replicas: int | None) -> None:
    """Wait until the shards of a collection that was just made can be read.

    A cluster of fewer nodes than replicas were asked for makes as many as it has nodes, and does not say so.
    """
    deadline = time.monotonic() + NEW_SHARDS
    while not all(shard.readable for shard in sharding_of(client, collection).shards) and time.monotonic() < deadline:
        time.sleep(PAUSE)
    fewest = min(len(shard.states) for shard in require_whole(client, collection).shards)
    if replicas is not None and fewest < replicas:
        logger.warning(
            "collection %r has %d of %d replicas of a shard: the cluster has too few nodes for more",
            *(collection, fewest, replicas),
        )


def collection_facts(client: QdrantClient, collection: str) -> dict[str, Any]:
    """Return the state of a collection as JSON values, a shard that cannot be read included.

    `shards` has the state of each replica by its node, and the shard's points where the asked node holds it.
    """
    info, sharding = client.get_collection(collection), sharding_of(client, collection)
    params, queue, optimizer = info.config.params, info.update_queue, info.optimizer_status
    return {
        "status": str(info.status),
        "optimizer": optimizer.error if isinstance(optimizer, models.OptimizersStatusOneOf1) else str(optimizer),
        "points": info.points_count,
        "indexed_vectors": info.indexed_vectors_count,
        "queued": queue.length if queue else None,
        "replicas": params.replication_factor,
        "shards": [
            {
                "shard": shard.id,
                "points": shard.points,
                "replicas": {str(node): str(state) for node, state in sorted(shard.states.items())},
            }
            for shard in sharding.shards
        ],
    }
