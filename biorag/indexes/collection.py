"""How the collection of an index is made on a Qdrant server: shards, replicas, vectors, payload indexes, manifest."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import UnexpectedResponse

from biorag.errors import MismatchError
from biorag.indexes.connection import server_errors
from biorag.indexes.manifest import COMPACT, FULL, Manifest
from biorag.indexes.points import DENSE, PAYLOAD_INDEXES, SPARSE, TOKENS
from biorag.settings.index import IndexSettings

logger = logging.getLogger(__name__)

DISTANCES = {"cosine": models.Distance.COSINE, "dot": models.Distance.DOT}
DATATYPES = {FULL: models.Datatype.FLOAT16, COMPACT: models.Datatype.TURBO4}
MANIFEST_KEY = "biorag"
# Points' ids are written by one writer, each once at a time, and it waits for the answer: nothing can be reordered, and
# a leader that all writes of a shard went through would only be one more node that must live.
ORDERING = models.WriteOrdering.WEAK


def acknowledgements(settings: IndexSettings) -> int | None:
    """Return how many replicas acknowledge a write: a majority of them, unless told; None leaves it to the server."""
    if settings.write_consistency is not None or settings.replicas is None:
        return settings.write_consistency
    return settings.replicas // 2 + 1


def read_remote_manifest(client: QdrantClient, collection: str) -> Manifest | None:
    """Return the manifest kept in the collection's metadata; None if there is no such collection.

    Raises `MismatchError` if the collection was not made by biorag, or by another format version.
    """
    with server_errors():
        if not client.collection_exists(collection):
            return None
        metadata = client.get_collection(collection).config.metadata or {}
    if MANIFEST_KEY not in metadata:
        raise MismatchError(f"collection {collection!r} on the server was not made by biorag: choose another --name")
    return Manifest.from_json(metadata[MANIFEST_KEY], f"the manifest of collection {collection!r}")


def write_remote_manifest(client: QdrantClient, collection: str, manifest: Manifest) -> None:
    """Keep the manifest in the collection's metadata."""
    with server_errors():
        client.update_collection(collection, metadata={MANIFEST_KEY: manifest.to_json()})


def create_collection(client: QdrantClient, manifest: Manifest, layout: IndexSettings) -> None:
    """Make a collection for a bulk load: without a graph, which `biorag.indexes.bulk_load` turns on afterwards."""
    try:
        client.create_collection(
            manifest.name,
            vectors_config=_vectors(manifest, layout),
            sparse_vectors_config={SPARSE: _sparse_vectors(layout)},
            shard_number=layout.shards,
            replication_factor=layout.replicas,
            write_consistency_factor=acknowledgements(layout),
            on_disk_payload=True if layout.on_disk else None,
            hnsw_config=models.HnswConfigDiff(m=0),
            metadata={MANIFEST_KEY: manifest.to_json()},
        )
    except UnexpectedResponse:
        # It says that there is one already if it made it, and its answer to the first try was lost.
        if read_remote_manifest(client, manifest.name) != manifest:
            raise


def _vectors(manifest: Manifest, layout: IndexSettings) -> dict[str, models.VectorParams]:
    scalar = models.ScalarQuantizationConfig(type=models.ScalarType.INT8, quantile=0.99, always_ram=True)
    dense = models.VectorParams(
        size=manifest.encoder.dimension,
        distance=DISTANCES[manifest.similarity],
        quantization_config=models.ScalarQuantization(scalar=scalar) if manifest.quantized else None,
        on_disk=manifest.quantized or layout.on_disk or None,
    )
    vectors = {DENSE: dense}
    if manifest.tokens:  # only ever compared with a few candidates, so without a graph, and read from disk
        vectors[TOKENS] = models.VectorParams(
            size=manifest.tokens.dimension,
            distance=models.Distance.DOT,
            multivector_config=models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM),
            datatype=DATATYPES[manifest.tokens.kept],
            hnsw_config=models.HnswConfigDiff(m=0),
            on_disk=True,
        )
    return vectors


def _sparse_vectors(layout: IndexSettings) -> models.SparseVectorParams:
    index = models.SparseIndexParams(on_disk=True) if layout.on_disk else None
    return models.SparseVectorParams(index=index, modifier=models.Modifier.IDF)


def index_payload(client: QdrantClient, collection: str, indexed: Mapping[str, object]) -> None:
    """Make the payload indexes that a collection lacks; before points are uploaded, so that the graph links by them."""
    for key, kind in PAYLOAD_INDEXES.items():
        if key not in indexed:
            schema = models.PayloadSchemaType(kind)
            client.create_payload_index(collection, key, field_schema=schema, wait=True, ordering=ORDERING)


def check_layout(params: models.CollectionParams, layout: IndexSettings, collection: str) -> None:
    """Check that a collection was made as it is asked for now; what is not named is not checked.

    Raises `MismatchError` naming the option.
    """
    dense = params.vectors.get(DENSE) if isinstance(params.vectors, dict) else None
    made = {
        "--shards": (params.shard_number, layout.shards),
        "--replicas": (params.replication_factor, layout.replicas),
        "--on-disk": (bool(dense and dense.on_disk), layout.on_disk or None),
    }
    for option, (held, asked) in made.items():
        if asked is not None and held != asked:
            raise MismatchError(
                f"collection {collection!r} was made {_made(option, held)}: leave {option} out, or index under another "
                "--name"
            )


def _made(option: str, held: object) -> str:
    return "without --on-disk" if option == "--on-disk" else f"with {option} {held}"
