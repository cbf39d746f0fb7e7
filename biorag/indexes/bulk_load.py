"""A bulk load: points are uploaded into a collection without a graph, then the graph is built and waited for.

Qdrant's guide to bulk uploads advises `m=0` while points come in: a graph that is built meanwhile is built again each
time segments are merged, and `m=0` takes less memory than no indexing at all (`indexing_threshold=0`). Whether a
collection is being loaded is read from its own configuration, so that a run which was killed is completed by the next.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from qdrant_client import QdrantClient, models

from biorag.errors import ServiceError
from biorag.indexes.connection import server_errors
from biorag.indexes.replicas import sharding_of

logger = logging.getLogger(__name__)

GRAPH_LINKS = 16  # `m` of the finished graph, Qdrant's default
# A change of the configuration restarts the optimizers in the background, and until then the old status is told.
SETTLED = 1.0  # seconds for which a collection must be green
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds between two looks
FIRST_REPORT, LONGEST_SILENCE = 10.0, 300.0  # seconds between two lines of progress: doubled each time
FAN_OUT_DELAY = 200  # milliseconds after which a second replica is asked too, where the first is slow


@dataclass(frozen=True, slots=True)
class OptimizerProgress:
    """What changes in a collection while it is optimized."""

    status: models.CollectionStatus
    points: int
    indexed: int
    segments: int
    queued: int

    @classmethod
    def of(cls, info: models.CollectionInfo) -> OptimizerProgress:
        """Return the progress that a collection's info tells."""
        queued = info.update_queue.length if info.update_queue else 0
        return cls(info.status, info.points_count or 0, info.indexed_vectors_count or 0, info.segments_count, queued)

    def __str__(self) -> str:
        """Return it for a line of progress."""
        return f"{self.status}: {self.indexed:,} vectors of {self.points:,} points indexed, {self.segments} segments"


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
    """Wait until a collection is optimized; say how far it is.

    A grey collection has optimizations pending that a restart of the server left: an update of the configuration starts
    them.

    Parameters
    ----------
    patience : seconds that it may take without progress

    Raises
    ------
    ServiceError
        If it makes no progress for so long, or the optimizer failed.
    """
    watch = _Watch(collection, patience)
    pause = SHORTEST_PAUSE
    while True:
        with server_errors():
            info = client.get_collection(collection)
            if watch.is_settled(info):
                return
            if watch.wakes(info):
                client.update_collection(collection, optimizers_config=models.OptimizersConfigDiff())
        time.sleep(min(pause, SETTLED / 2) if info.status == models.CollectionStatus.GREEN else pause)
        pause = min(2 * pause, LONGEST_PAUSE)


class _Watch:
    """What has been seen of a collection that is optimized."""

    def __init__(self, collection: str, patience: float) -> None:
        self._collection = collection
        self._patience = patience
        self._seen: OptimizerProgress | None = None
        self._changed = self._reported = time.monotonic()
        self._green: float | None = None
        self._woken = False
        self._silence = FIRST_REPORT

    def is_settled(self, info: models.CollectionInfo) -> bool:
        """Return whether the collection has been green for long enough; raise as `wait_until_green` does."""
        now, progress = time.monotonic(), OptimizerProgress.of(info)
        if progress != self._seen:
            self._seen, self._changed = progress, now
        if info.status == models.CollectionStatus.RED or isinstance(
            info.optimizer_status, models.OptimizersStatusOneOf1
        ):
            raise ServiceError(
                f"the optimizer of collection {self._collection!r} failed ({_fault(info)}): look at the server's log, "
                "free memory or disk there, and give the same command again"
            )
        if info.status == models.CollectionStatus.GREEN:
            self._green = now if self._green is None else self._green
            return now - self._green >= SETTLED
        self._green = None
        if now - self._changed > self._patience:
            raise ServiceError(
                f"collection {self._collection!r} has made no progress for {self._patience:.0f} s ({progress}): all "
                "that was sent is kept; look at the server's log, and give the same command again to resume waiting"
            )
        self._report(now, progress)
        return False

    def wakes(self, info: models.CollectionInfo) -> bool:
        """Return whether the optimizer is to be started; once for each time that the collection is found grey."""
        was, self._woken = self._woken, info.status == models.CollectionStatus.GREY
        return self._woken and not was

    def _report(self, now: float, progress: OptimizerProgress) -> None:
        if now - self._reported >= self._silence:
            self._reported, self._silence = now, min(2 * self._silence, LONGEST_SILENCE)
            logger.info("collection %r is being optimized, %s", self._collection, progress)


def _fault(info: models.CollectionInfo) -> str:
    status = info.optimizer_status
    return status.error if isinstance(status, models.OptimizersStatusOneOf1) else str(info.status)
