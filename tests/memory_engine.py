"""The client's in-memory engine, with what it does not keep of a collection: layout, graph, payload indexes, status."""

from __future__ import annotations

from typing import Any

from qdrant_client import QdrantClient, models

DEFAULT_LINKS = 16  # `m`, where a collection's maker does not say


class MemoryEngine(QdrantClient):
    """An in-memory engine that tells of its collections what a server of one node tells; keeps what it is asked.

    `calls` has the name and the arguments of each request that concerns a collection as a whole; `statuses` are told
    one after the other while there are any, then green.
    """

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.statuses: list[models.CollectionStatus] = []
        self._made: dict[str, dict[str, Any]] = {}
        self._links: dict[str, int] = {}
        self._schema: dict[str, dict[str, models.PayloadIndexInfo]] = {}

    def create_collection(self, collection_name: str, *args: Any, **options: Any) -> bool:
        self.calls.append(("create_collection", {"collection_name": collection_name, **options}))
        done = super().create_collection(collection_name, *args, **options)
        hnsw = options.get("hnsw_config")
        self._made[collection_name] = options
        self._links[collection_name] = DEFAULT_LINKS if hnsw is None else hnsw.m
        self._schema[collection_name] = {}
        return done

    def update_collection(self, collection_name: str, *args: Any, **options: Any) -> bool:
        self.calls.append(("update_collection", {"collection_name": collection_name, **options}))
        if hnsw := options.get("hnsw_config"):
            self._links[collection_name] = hnsw.m
        return super().update_collection(collection_name, *args, **options)

    def create_payload_index(
        self, collection_name: str, field_name: str, field_schema: Any = None, **options: Any
    ) -> models.UpdateResult:
        call = {"collection_name": collection_name, "field_name": field_name, "field_schema": field_schema, **options}
        self.calls.append(("create_payload_index", call))
        info = models.PayloadIndexInfo(data_type=field_schema, points=0)
        self._schema[collection_name][field_name] = info
        return models.UpdateResult(operation_id=0, status=models.UpdateStatus.COMPLETED)

    def get_collection(self, collection_name: str, **options: Any) -> models.CollectionInfo:
        info = super().get_collection(collection_name, **options)
        made = self._made.get(collection_name, {})
        info.config.params.shard_number = made.get("shard_number") or 1
        info.config.params.replication_factor = made.get("replication_factor") or 1
        info.config.params.write_consistency_factor = made.get("write_consistency_factor") or 1
        info.config.hnsw_config.m = self._links.get(collection_name, DEFAULT_LINKS)
        info.payload_schema = dict(self._schema.get(collection_name, {}))
        info.status = self.statuses.pop(0) if self.statuses else models.CollectionStatus.GREEN
        return info

    def collection_cluster_info(self, collection_name: str) -> models.CollectionClusterInfo:
        params = self.get_collection(collection_name).config.params
        points = self.count(collection_name).count
        return models.CollectionClusterInfo(
            peer_id=1,
            shard_count=params.shard_number,
            local_shards=[
                models.LocalShardInfo(
                    shard_id=shard, points_count=0 if shard else points, state=models.ReplicaState.ACTIVE
                )
                for shard in range(params.shard_number)
            ],
            remote_shards=[],
            shard_transfers=[],
        )
