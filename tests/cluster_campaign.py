"""Snippets on a simulated cluster, and campaigns of faults: what its index answers, held against what was written."""

from __future__ import annotations

import random
from contextlib import closing

import numpy as np

from biorag.errors import ServiceError
from biorag.indexes.collection import CollectionLayout
from biorag.indexes.connection import connect
from biorag.indexes.manifest import COMPARABLE, Bm25Parameters, Manifest
from biorag.indexes.server import ServerIndex, ServerOptions
from biorag.types import EncoderIdentity, FieldFilter, IndexQuery, Snippet
from biorag.utils.network import Server
from tests.simulated_cluster import SimulatedCluster

DIMENSION = 8
COUNT = 40
MANIFEST = Manifest(
    name="pubmed",
    encoder=EncoderIdentity("random", "", "f" * 64, DIMENSION),
    similarity="cosine",
    quantized=False,
    bm25=Bm25Parameters(0.9, 0.4, 6.0, text=COMPARABLE),
    store={"kind": "qdrant", "url": "http://qdrant.test:6333"},
    created="",
    updated="",
    complete=True,
)
WORDS = ["liver", "heart", "kidney", "fever", "aspirin", "statin", "insulin", "glucose", "malaria"]
RANDOM = np.random.default_rng(0)
VECTORS = RANDOM.normal(size=(COUNT, DIMENSION)).astype(np.float32)
SNIPPETS = [
    Snippet(f"s{n:02}", "", " ".join(RANDOM.choice(WORDS, 6)), n + 1, {"year": 1990 + n, "journal": "Lancet"})
    for n in range(COUNT)
]
IDS = [snippet.id for snippet in SNIPPETS]
PROBES = [
    *(IndexQuery(query, 7) for query in RANDOM.normal(size=(2, DIMENSION)).astype(np.float32)),
    IndexQuery(VECTORS[3], 50, where=(FieldFilter("year", ">=", 2010),)),
    IndexQuery(VECTORS[9], 5, among=frozenset(IDS[5:15])),
]


def opened(cluster, writable=False, shards=6, replicas=2, consistency: int | str = 1, retries=1, manifest=MANIFEST):
    layout = CollectionLayout(shards, replicas) if writable else CollectionLayout()
    options = ServerOptions(layout, consistency, patience=1.0)
    return ServerIndex(connect(Server(cluster.url, 20, retries)), manifest, writable, options=options)


def load(cluster, **options) -> None:
    with closing(opened(cluster, writable=True, **options)) as index:
        index.upsert(SNIPPETS, VECTORS)
        index.optimize()


class Campaign:
    """What happens to a cluster by chance, and what its index answers meanwhile.

    After a write that was not acknowledged nothing is read until it has been repeated: nodes may hold it or not.
    """

    def __init__(self, cluster: SimulatedCluster, seed: int) -> None:
        self.drawn = random.Random(seed)
        self.cluster = cluster
        self.current = dict(zip(IDS, SNIPPETS, strict=True))
        self.vectors = VECTORS.copy()
        self.acknowledged = True
        self.answers = self.errors = 0
        self.client = connect(Server(cluster.url, 20, 0))  # to make one takes longer than to read
        self.client.close = lambda: None  # which an index that cannot be opened does
        load(cluster, shards=self.drawn.choice([1, 3, 5]), replicas=self.drawn.choice([2, 3]))

    def step(self) -> None:
        self.disturb()
        self.cluster.order = self.drawn.sample([1, 2, 3], 3)
        try:
            if not self.acknowledged or self.drawn.random() < 0.3:
                self.write()
            self.read()
            self.answers += 1
        except ServiceError:
            self.errors += 1

    def disturb(self) -> None:
        node = self.drawn.choice([1, 2, 3])
        state = self.cluster.nodes[node]
        event = self.drawn.choice(["kill", "cut", "slow", "refuse", "start", "heal", "well", "recover", "calm"])
        if event == "kill":
            self.cluster.kill(node)
        elif event == "cut" and not any(other.cut_off for other in self.cluster.nodes.values()):
            self.cluster.cut(node)
        elif event in ("slow", "refuse"):
            state.latency, state.answers = (60.0, None) if event == "slow" else (0.001, 503)
        for other in self.cluster.nodes:
            if event in ("start", "calm"):
                self.cluster.start(other)
            if event in ("heal", "calm"):
                self.cluster.heal(other)
            if event in ("well", "calm"):
                self.cluster.nodes[other].latency, self.cluster.nodes[other].answers = 0.001, None
        if event in ("recover", "calm"):
            self.cluster.recover()

    def write(self) -> None:
        """Change a snippet, and write what is not stored as it is now."""
        self.acknowledged = False
        at = self.drawn.randrange(COUNT)
        self.current[IDS[at]] = Snippet(IDS[at], "", f"{self.drawn.choice(WORDS)} {self.drawn.random()}", at + 1)
        self.vectors[at] = [self.drawn.gauss(0, 1) for _ in range(DIMENSION)]
        writer = ServerIndex(self.client, MANIFEST, writable=True)
        stored = writer.digests(IDS)
        late = [n for n, id in enumerate(IDS) if stored.get(id) != self.current[id].digest]
        writer.upsert([self.current[IDS[n]] for n in late], self.vectors[late])
        self.acknowledged = True

    def read(self) -> None:
        """Hold what is read against the snippets and vectors as they were written last."""
        index = ServerIndex(self.client, MANIFEST)
        assert index.fetch(IDS) == self.current
        for probe, found in zip(PROBES[:2], index.search(PROBES[:2]), strict=True):
            query = probe.query / np.linalg.norm(probe.query)
            scores = self.vectors @ query / np.linalg.norm(self.vectors, axis=1)
            assert [hit.id for hit in found] == [IDS[n] for n in np.argsort(-scores)[: probe.limit]]
        assert (index.count(), sorted(index.ids())) == (COUNT, IDS)
