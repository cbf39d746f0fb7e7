"""The collection of an index on a Qdrant server: how it is made, loaded and built, and where its shards lie.

Points are uploaded into a collection without a graph, then the graph is built and waited for. Qdrant's guide to bulk
uploads advises `m=0` meanwhile: a graph would be built again each time segments are merged. Whether a collection is
being loaded is read from its own configuration, so that the next run completes one that was killed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import UnexpectedResponse

from biorag.errors import MismatchError, ServiceError
from biorag.indexes.connection import server_errors
from biorag.indexes.manifest import COMPACT, FULL, Manifest, SourceRecord
from biorag.indexes.points import DENSE, PAYLOAD_INDEXES, SPARSE, TOKENS, StoredError, point_id
from biorag.settings.settings import Settings

logger = logging.getLogger(__name__)

DISTANCES = {"cosine": models.Distance.COSINE, "dot": models.Distance.DOT}
DATATYPES = {FULL: models.Datatype.FLOAT16, COMPACT: models.Datatype.TURBO4}
MANIFEST_KEY = "biorag"
SOURCE_KEY = "biorag source "  # of each of its sources: a server merges metadata by key
PLACE = "place"  # of a source among them
STATES = models.ReplicaState
READABLE = {str(state.value) for state in (STATES.ACTIVE, STATES.ACTIVEREAD, STATES.RESHARDINGSCALEDOWN)}
# Points' ids are written by one writer, each once at a time, and it waits for the answer: nothing can be reordered, and
# a leader that all writes of a shard went through would only be one more node that must live.
ORDERING = models.WriteOrdering.WEAK
SCHEMAS = {
    "text": models.TextIndexParams(
        type=models.TextIndexType.TEXT,
        tokenizer=models.TokenizerType.WORD,
        lowercase=True,
        phrase_matching=True,
        on_disk=True,
    )
}
GRAPH_LINKS = 16  # `m` of the finished graph, Qdrant's default
# A change of the configuration restarts the optimizers in the background, and until then the old status is told.
PAUSE = 0.5  # seconds between two looks at a collection
GREEN_LOOKS = 3  # in a row, after which it counts as optimized
SILENCE = 60.0  # seconds between two lines of progress
ELECTION = 4.0  # seconds in which a cluster elects a leader
NEW_SHARDS = 30.0  # seconds in which the replicas of a new collection become active
FAN_OUT_DELAY = 200  # milliseconds after which a second replica is asked too, where the first is slow


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


class Sharding(NamedTuple):
    """The shards of a collection as one node knows them; `distributed` if other nodes hold replicas too."""

    shards: list[Shard]
    distributed: bool


class Collection:
    """A collection on a Qdrant server: its manifest, how it is laid out, and where its shards lie."""

    def __init__(self, client: QdrantClient, name: str, settings: Settings) -> None:
        self.client, self.name = client, name
        self.layout = settings.index
        self._patience = settings.services.optimizing_timeout

    def info(self) -> models.CollectionInfo:
        """Return what the server tells of the collection."""
        return self.client.get_collection(self.name)

    def manifest(self) -> Manifest | None:
        """Return the manifest kept in the collection's metadata; None if there is no such collection.

        Raises `MismatchError` if the collection was not made by biorag, or by another format version.
        """
        with server_errors():
            if not self.client.collection_exists(self.name):
                return None
            metadata = self.info().config.metadata or {}
        if MANIFEST_KEY not in metadata:
            raise MismatchError(f"collection {self.name!r} on the server was not made by biorag: choose another --name")
        values = metadata[MANIFEST_KEY]
        within = values.get("sources") if isinstance(values, dict) else None
        if isinstance(within, list) and all(isinstance(record, dict) for record in within):
            keyed = [{name: record[name] for name in record if name != PLACE} for record in _placed(metadata)]
            values = {**values, "sources": list(_by_key([*within, *keyed]).values())}
        return Manifest.from_json(values, f"the manifest of collection {self.name!r}")

    def save(self, manifest: Manifest, brought: Sequence[SourceRecord] = (), gone: Sequence[SourceRecord] = ()) -> None:
        """Keep a manifest in the collection's metadata; of its sources write those brought, and remove those gone.

        Each source has a key of its own, and the server merges keys: of two writers none drops what the other brought,
        or brings back what it removed. Sources that a version before 0.3 has put into the manifest get keys too.
        """
        with server_errors():
            held = self.info().config.metadata or {}
            stored = held.get(MANIFEST_KEY) or {}
            removed = _by_key(map(asdict, gone)).keys() - _by_key(map(asdict, brought)).keys()
            metadata: dict[str, Any] = {key: None for key in removed & held.keys()}
            place = 1 + max((record[PLACE] for record in _placed(held)), default=0)
            for key, record in _by_key([*stored.get("sources", ()), *map(asdict, brought)]).items():
                if key not in removed:
                    metadata[key] = {**record, PLACE: (held.get(key) or {}).get(PLACE, place)}
                    place += 1
            values = {**manifest.to_json(), "sources": []}
            if values["fields"] is not None:
                values["fields"] = {**(stored.get("fields") or {}), **values["fields"]}
            self.client.update_collection(self.name, metadata={MANIFEST_KEY: values, **metadata})

    def remove(self) -> None:
        """Remove the collection, if biorag made it; raises as `manifest` does."""
        if self.manifest() is not None:
            with server_errors():
                self.client.delete_collection(self.name)

    def prepare(self, manifest: Manifest) -> int:
        """Make the collection if there is none, and the payload indexes that one that is being loaded lacks.

        These come before points are uploaded, so that the graph links by them. Returns how many replicas acknowledge a
        write.
        """
        if not self.client.collection_exists(self.name):
            self._create(manifest)
            self._await_new_shards()
        info = self.info()
        if is_loading(info):
            for key, kind in PAYLOAD_INDEXES.items():
                if key not in info.payload_schema:
                    self.index_payload(key, kind)
        return info.config.params.write_consistency_factor or 1

    def _create(self, manifest: Manifest) -> None:
        """Make the collection for a bulk load: without a graph, which `build_graph` turns on afterwards."""
        layout = self.layout
        sparse = models.SparseIndexParams(on_disk=True) if layout.on_disk else None
        try:
            self.client.create_collection(
                self.name,
                vectors_config=self._vectors(manifest),
                sparse_vectors_config={SPARSE: models.SparseVectorParams(index=sparse, modifier=models.Modifier.IDF)},
                shard_number=layout.shards or 1,
                replication_factor=layout.replicas,
                write_consistency_factor=layout.replicas // 2 + 1 if layout.replicas else None,  # a majority
                on_disk_payload=True if layout.on_disk else None,
                hnsw_config=models.HnswConfigDiff(m=0),
                metadata={MANIFEST_KEY: manifest.to_json()},
            )
        except UnexpectedResponse:
            # It says that there is one already if it made it, and its answer to the first try was lost.
            if self.manifest() != manifest:
                raise

    def _vectors(self, manifest: Manifest) -> dict[str, models.VectorParams]:
        scalar = models.ScalarQuantizationConfig(type=models.ScalarType.INT8, quantile=0.99, always_ram=True)
        dense = models.VectorParams(
            size=manifest.encoder.dimension,
            distance=DISTANCES[manifest.similarity],
            quantization_config=models.ScalarQuantization(scalar=scalar) if manifest.quantized else None,
            on_disk=manifest.quantized or self.layout.on_disk or None,
        )
        if manifest.tokens is None:
            return {DENSE: dense}
        tokens = models.VectorParams(  # only ever compared with a few candidates, so without a graph, read from disk
            size=manifest.tokens.dimension,
            distance=models.Distance.DOT,
            multivector_config=models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM),
            datatype=DATATYPES[manifest.tokens.kept],
            hnsw_config=models.HnswConfigDiff(m=0),
            on_disk=True,
        )
        return {DENSE: dense, TOKENS: tokens}

    def index_payload(self, key: str, kind: str) -> None:
        """Make the index of one key of the payload, of a kind as Qdrant names it; that of texts finds phrases."""
        schema = SCHEMAS.get(kind) or models.PayloadSchemaType(kind)
        self.client.create_payload_index(self.name, key, schema, wait=True, ordering=ORDERING)

    def check_layout(self) -> None:
        """Check that the collection was made as it is asked for now; an option that is not given is not checked.

        Raises `MismatchError` naming the option.
        """
        with server_errors():
            params = self.info().config.params
        dense = params.vectors.get(DENSE) if isinstance(params.vectors, dict) else None
        made = {
            "shards": (params.shard_number, self.layout.shards),
            "replicas": (params.replication_factor, self.layout.replicas),
            "on-disk": (bool(dense and dense.on_disk), self.layout.on_disk or None),
        }
        for option, (held, asked) in made.items():
            if asked is not None and held != asked:
                how = f"with --{option} {held}" if held else f"without --{option}"
                raise MismatchError(
                    f"collection {self.name!r} was made {how}: leave --{option} out, or index under another --name"
                )

    def build_graph(self, is_complete: bool) -> None:
        """Turn the graph on if the collection was loaded without one, and wait until it is built.

        A server optimizes on its own what is changed in a collection that `is_complete`; that is not waited for.
        """
        with server_errors():
            if loading := is_loading(self.info()):
                replicated = any(len(shard.states) > 1 for shard in self.sharding().shards)
                delayed = models.CollectionParamsDiff(read_fan_out_delay_ms=FAN_OUT_DELAY) if replicated else None
                graph = models.HnswConfigDiff(m=GRAPH_LINKS)
                self.client.update_collection(self.name, hnsw_config=graph, collection_params=delayed)
        if loading or not is_complete:
            self.wait_until_green()

    def wait_until_green(self) -> None:
        """Wait until the collection is optimized; log how far it is.

        An update of the configuration wakes a grey collection, whose optimizations a restart of the server left
        pending. Raises `ServiceError` if it makes no progress for as long as the settings say, or the optimizer failed.
        """
        changed = reported = time.monotonic()
        progress, greens = "", 0
        while greens < GREEN_LOOKS:
            with server_errors():
                info = self.info()
                if info.status == models.CollectionStatus.GREY:
                    self.client.update_collection(self.name, optimizers_config=models.OptimizersConfigDiff())
            self._check_optimizer(info)
            now, before, progress = time.monotonic(), progress, _progress(info)
            greens = greens + 1 if info.status == models.CollectionStatus.GREEN else 0
            if progress != before:
                changed = now
            elif now - changed > self._patience:
                raise ServiceError(
                    f"collection {self.name!r} has made no progress for {self._patience:.0f} s ({progress}): all that "
                    "was sent is kept; look at the server's log, and give the same command again to resume waiting"
                )
            if now - reported >= SILENCE:
                reported = now
                logger.info("collection %r is being optimized, %s", self.name, progress)
            time.sleep(PAUSE)

    def _check_optimizer(self, info: models.CollectionInfo) -> None:
        optimizer = info.optimizer_status
        fault = optimizer.error if isinstance(optimizer, models.OptimizersStatusOneOf1) else ""
        if fault or info.status == models.CollectionStatus.RED:
            raise ServiceError(
                f"the optimizer of collection {self.name!r} failed ({fault or info.status}): look at the server's log, "
                "free memory or disk there, and give the same command again"
            )

    def sharding(self) -> Sharding:
        """Return where the shards lie; a shard that the node does not list has no replica.

        Raises `StoredError` if a shard is listed that there cannot be.
        """
        info = self.client.collection_cluster_info(self.name)
        states: dict[int, dict[int, str]] = {shard: {} for shard in range(info.shard_count)}
        points = {shard.shard_id: shard.points_count for shard in info.local_shards}
        replicas: list[models.LocalShardInfo | models.RemoteShardInfo] = [*info.local_shards, *info.remote_shards]
        for replica in replicas:
            if replica.shard_id not in states:
                raise StoredError(f"a shard {replica.shard_id} of {info.shard_count}")
            node = info.peer_id if isinstance(replica, models.LocalShardInfo) else replica.peer_id
            states[replica.shard_id][node] = replica.state.value
        shards = [Shard(shard, states[shard], points.get(shard)) for shard in sorted(states)]
        return Sharding(shards, distributed=bool(info.remote_shards))

    def require_whole(self) -> Sharding:
        """Return where the shards lie if a read can rest on all of them.

        Raises `ServiceError` naming the shards of which no replica can be read; or the node, if it was cut off from the
        majority of its cluster for longer than an election takes: it may hold replicas that miss later writes, and take
        them for active.
        """
        with server_errors():
            sharding = self.sharding()
            if missing := [str(shard) for shard in sharding.shards if not shard.readable]:
                raise ServiceError(
                    f"collection {self.name!r} is not whole: no replica of shard{'s' if len(missing) > 1 else ''} "
                    f"{', '.join(missing)} can be read. Start the nodes that hold them; biorag does not answer from "
                    "the other shards"
                )
            deadline = time.monotonic() + ELECTION
            while sharding.distributed and (node := _without_leader(self.client)):
                if time.monotonic() > deadline:
                    raise ServiceError(
                        f"node {node} of the Qdrant cluster is cut off from the others (it knows no leader), and may "
                        "hold old data: reconnect it, or name another node with --qdrant"
                    )
                time.sleep(PAUSE)
        return sharding

    def _await_new_shards(self) -> None:
        """Wait until the shards of a collection that was just made can be read.

        A cluster of fewer nodes than replicas were asked for makes as many as it has nodes, and does not say so.
        """
        deadline, replicas = time.monotonic() + NEW_SHARDS, self.layout.replicas
        while not all(shard.readable for shard in self.sharding().shards) and time.monotonic() < deadline:
            time.sleep(PAUSE)
        fewest = min(len(shard.states) for shard in self.require_whole().shards)
        if replicas is not None and fewest < replicas:
            logger.warning(
                "collection %r has %d of %d replicas of a shard: the cluster has too few nodes for more",
                *(self.name, fewest, replicas),
            )

    def facts(self) -> dict[str, Any]:
        """Return the state of the collection as JSON values, a shard that cannot be read included.

        `shards` has the state of each replica by its node, and the shard's points where the asked node holds it.
        """
        with server_errors():
            info, sharding = self.info(), self.sharding()
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


def is_loading(info: models.CollectionInfo) -> bool:
    """Return whether a collection has no graph yet."""
    return info.config.hnsw_config.m == 0


def _placed(metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the records of sources that have keys in a collection's metadata, each with its place, in their order."""
    values = (metadata[key] for key in sorted(metadata) if key.startswith(SOURCE_KEY))
    return sorted(
        (one for one in values if isinstance(one, dict) and isinstance(one.get(PLACE), int)), key=itemgetter(PLACE)
    )


def _by_key(records: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return records by their keys, of one source the last, in the place of the first."""
    named = ((f"{record.get('name')} {record.get('sha256')}", record) for record in records)
    return {f"{SOURCE_KEY}{point_id(name).hex}": record for name, record in named}


def _progress(info: models.CollectionInfo) -> str:
    """Return the figures of a collection that change while it is optimized."""
    queued = f", {info.update_queue.length:,} updates queued" if info.update_queue and info.update_queue.length else ""
    indexed = f"{info.indexed_vectors_count or 0:,} vectors of {info.points_count or 0:,} points indexed"
    return f"{info.status}: {indexed}, {info.segments_count} segments{queued}"


def _without_leader(client: QdrantClient) -> int | None:
    """Return the id of the asked node if it knows no leader of its cluster; 1 to 2 seconds long it elects one."""
    status = client.cluster_status()
    if isinstance(status, models.ClusterStatusOneOf1) and not status.raft_info.leader:
        return status.peer_id
    return None
