"""A bulk load: points are uploaded into a collection without a graph, then the graph is built and waited for.

Qdrant's guide to bulk uploads advises `m=0` while points come in: a graph that is built meanwhile is built again each
time segments are merged, and `m=0` takes less memory than no indexing at all (`indexing_threshold=0`). Whether a
collection is being loaded is read from its own configuration, so that a run which was killed is completed by the next.
"""

from __future__ import annotations

import logging
import time

from qdrant_client import QdrantClient, models

from biorag.errors import ServiceError
from biorag.indexes.cluster import sharding_of
from biorag.indexes.connection import server_errors

logger = logging.getLogger(__name__)

GRAPH_LINKS = 16  # `m` of the finished graph, Qdrant's default
# A change of the configuration restarts the optimizers in the background, and until then the old status is told.
SETTLED = 1.0  # seconds for which a collection must be green
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds between two looks
FIRST_REPORT, LONGEST_SILENCE = 10.0, 300.0  # seconds between two lines of progress: doubled each time
FAN_OUT_DELAY = 200  # milliseconds after which a second replica is asked too, where the first is slow


def is_loading(info: models.CollectionInfo) -> bool:
    """Return whether a collection has no graph yet."""
    return info.config.hnsw_config.m == 0


def build_graph(client: QdrantClient, collection: str) -> None:
    """Turn the graph of a collection on; the server builds it in the background."""
    replicated = any(len(shard.states) > 1 for shard in sharding_of(client, collection).shards)
    client.update_collection(
        collection,
        hnsw_config=models.HnswConfigDiff(m=GRAPH_LINKS),
        collection_params=models.CollectionParamsDiff(read_fan_out_delay_ms=FAN_OUT_DELAY) if replicated else None,
    )


def wait_until_green(client: QdrantClient, collection: str, patience: float) -> None:
    """Wait until a collection has been optimized for `SETTLED` seconds; log how far it is.

    An update of the configuration wakes a grey collection, whose optimizations a restart of the server left pending.

    Raises `ServiceError` if it makes no progress for so long, or the optimizer failed.

    `patience`: seconds that it may take without progress.
    """
    changed = reported = time.monotonic()
    pause, silence, seen, status, green = SHORTEST_PAUSE, FIRST_REPORT, "", None, 0.0
    while True:
        with server_errors():
            info = client.get_collection(collection)
            if info.status == models.CollectionStatus.GREY and status != info.status:
                client.update_collection(collection, optimizers_config=models.OptimizersConfigDiff())
        _check_optimizer(info, collection)
        now, progress = time.monotonic(), _progress(info)
        if progress != seen:
            seen, changed = progress, now
        if info.status == models.CollectionStatus.GREEN:
            green = now if status != info.status else green
            if now - green >= SETTLED:
                return
        elif now - changed > patience:
            raise ServiceError(
                f"collection {collection!r} has made no progress for {patience:.0f} s ({progress}): all that was sent "
                "is kept; look at the server's log, and give the same command again to resume waiting"
            )
        elif now - reported >= silence:
            reported, silence = now, min(2 * silence, LONGEST_SILENCE)
            logger.info("collection %r is being optimized, %s", collection, progress)
        status = info.status
        time.sleep(min(pause, SETTLED / 2) if status == models.CollectionStatus.GREEN else pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def _progress(info: models.CollectionInfo) -> str:
    """Return what changes in a collection while it is optimized."""
    queued = f", {info.update_queue.length:,} updates queued" if info.update_queue and info.update_queue.length else ""
    indexed = f"{info.indexed_vectors_count or 0:,} vectors of {info.points_count or 0:,} points indexed"
    return f"{info.status}: {indexed}, {info.segments_count} segments{queued}"


def _check_optimizer(info: models.CollectionInfo, collection: str) -> None:
    optimizer = info.optimizer_status
    fault = optimizer.error if isinstance(optimizer, models.OptimizersStatusOneOf1) else ""
    if fault or info.status == models.CollectionStatus.RED:
        raise ServiceError(
            f"the optimizer of collection {collection!r} failed ({fault or info.status}): look at the server's log, "
            "free memory or disk there, and give the same command again"
        )
