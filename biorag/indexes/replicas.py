"""The shards of a collection and their replicas: which can be read, and what is missing."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from qdrant_client import QdrantClient, models

from biorag.errors import ServiceError
from biorag.indexes.connection import server_errors
from biorag.indexes.points import StoredError

logger = logging.getLogger(__name__)

# The states in which a replica has all of its shard's points, and is read from.
READABLE = {
    state.value
    for state in (
        models.ReplicaState.ACTIVE,
        models.ReplicaState.ACTIVEREAD,
        models.ReplicaState.RESHARDINGSCALEDOWN,
    )
}
UNREACHABLE = "unreachable"

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

    @property
    def lagging(self) -> bool:
        """Whether a replica is dead, or is being brought up to date."""
        return any(state not in READABLE for state in self.states.values()) or not self.states

    def __str__(self) -> str:
        """Return its name and its replicas' states, for messages."""
        states = ", ".join(f"node {node}: {state}" for node, state in sorted(self.states.items()))
        return f"{self.id} ({states})" if states else str(self.id)


@dataclass(frozen=True, slots=True)
class Sharding:
    """The shards of a collection as one node knows them; `distributed` if other nodes hold replicas too."""

    shards: tuple[Shard, ...]
    distributed: bool
    transfers: tuple[Mapping[str, Any], ...] = field(default=())

    @property
    def missing(self) -> list[Shard]:
        """The shards of which no replica can be read."""
        return [shard for shard in self.shards if not shard.readable]


def sharding_of(client: QdrantClient, collection: str) -> Sharding:
    """Return where the shards of a collection lie; a shard that the node does not list has no replica.

    Raises
    ------
    StoredError
        If a shard is listed that there cannot be.
    """
    info = client.collection_cluster_info(collection)
    states: dict[int, dict[int, str]] = {shard: {} for shard in range(info.shard_count)}
    points = {shard.shard_id: shard.points_count for shard in info.local_shards}
    for shard, node, state in _replicas(info):
        if shard not in states:
            raise StoredError(f"a shard {shard} of {info.shard_count}")
        states[shard][node] = state
    return Sharding(
        shards=tuple(Shard(shard, states[shard], points.get(shard)) for shard in sorted(states)),
        distributed=bool(info.remote_shards),
        transfers=tuple(
            {"shard": transfer.shard_id, "from": transfer.from_, "to": transfer.to} for transfer in info.shard_transfers
        ),
    )


def _replicas(info: models.CollectionClusterInfo) -> Iterator[tuple[int, int, str]]:
    for local in info.local_shards:
        yield local.shard_id, info.peer_id, local.state.value
    for remote in info.remote_shards:
        yield remote.shard_id, remote.peer_id, remote.state.value


def reached_alone(client: QdrantClient, sharding: Sharding) -> Sharding:
    """Return the shards with the replicas marked that the asked node does not reach.

    Reads do not change a replica's state: one on a node that is down stays active until a write misses it.
    """
    status = client.cluster_status()
    if not isinstance(status, models.ClusterStatusOneOf1):
        return sharding
    lost = {int(node) for node, peer in status.peers.items() if peer.uri in status.message_send_failures}
    marked = (
        replace(shard, states={node: UNREACHABLE if node in lost else state for node, state in shard.states.items()})
        for shard in sharding.shards
    )
    return replace(sharding, shards=tuple(marked))


def require_every_shard(sharding: Sharding, collection: str) -> None:
    """Check that an answer can rest on every shard.

    Raises
    ------
    ServiceError
        Naming the shards of which no replica can be read.
    """
    if missing := sharding.missing:
        shards = f"shard{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"
        raise ServiceError(
            f"collection {collection!r} is not whole: no replica of {shards} can be read. Start the nodes that hold "
            "them; biorag does not answer from the other shards"
        )


def require_leader(client: QdrantClient) -> None:
    """Check that the node which answers is in touch with the majority of its cluster.

    A node that was cut off may hold replicas that miss later writes, and takes them for active.

    Raises
    ------
    ServiceError
        If it knows no leader.
    """
    status = client.cluster_status()
    if isinstance(status, models.ClusterStatusOneOf1) and not status.raft_info.leader:
        raise ServiceError(
            f"node {status.peer_id} of the Qdrant cluster is cut off from the others (it knows no leader), and may "
            "hold old data: reconnect it, or name another node with --qdrant"
        )


def require_whole(client: QdrantClient, collection: str) -> Sharding:
    """Return where the shards lie if a read can rest on all of them; see `require_every_shard`, `require_leader`."""
    with server_errors():
        sharding = sharding_of(client, collection)
        require_every_shard(sharding, collection)
        if sharding.distributed:
            require_leader(client)
    return sharding


def await_new_shards(client: QdrantClient, collection: str, replicas: int | None) -> None:
    """Wait until the shards of a collection that was just made can be read; raises as `require_every_shard` does.

    A cluster of fewer nodes than replicas were asked for makes as many as it has nodes, and does not say so.
    """
    deadline = time.monotonic() + NEW_SHARDS
    while (sharding := sharding_of(client, collection)).missing and time.monotonic() < deadline:
        time.sleep(PAUSE)
    require_every_shard(sharding, collection)
    fewest = min(len(shard.states) for shard in sharding.shards)
    if replicas is not None and fewest < replicas:
        logger.warning(
            "collection %r has %d of %d replicas of a shard: the cluster has too few nodes for more",
            *(collection, fewest, replicas),
        )
