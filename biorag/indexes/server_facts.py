"""What `biorag info` tells of a collection on a server: shards, replicas, optimizer, and what lags behind."""

from __future__ import annotations

from typing import Any

from qdrant_client import QdrantClient, models

from biorag.indexes.replicas import Sharding, sharding_of


def collection_facts(client: QdrantClient, collection: str) -> dict[str, Any]:
    """Return the state of a collection as JSON values, a shard that cannot be read included.

    `shards` has the state of each replica by its node, and the shard's points where the asked node holds it. Behind are
    replicas that are not active, `transfers` between nodes, `queued` updates, and vectors that no index has yet.
    """
    info = client.get_collection(collection)
    sharding = sharding_of(client, collection)
    params, queue = info.config.params, info.update_queue
    optimizer = info.optimizer_status
    return {
        "status": str(info.status),
        "optimizer": optimizer.error if isinstance(optimizer, models.OptimizersStatusOneOf1) else str(optimizer),
        "graph_links": info.config.hnsw_config.m,
        "points": info.points_count,
        "indexed_vectors": info.indexed_vectors_count,
        "segments": info.segments_count,
        "queued": queue.length if queue else None,
        "payload_indexes": sorted(info.payload_schema),
        "replicas": params.replication_factor,
        "write_consistency_factor": params.write_consistency_factor,
        "shards": _shards(sharding),
        "behind": [str(shard) for shard in sharding.shards if shard.lagging],
        "transfers": list(sharding.transfers),
    }


def _shards(sharding: Sharding) -> list[dict[str, Any]]:
    return [
        {
            "shard": shard.id,
            "points": shard.points,
            "replicas": {str(node): str(state) for node, state in sorted(shard.states.items())},
        }
        for shard in sharding.shards
    ]
