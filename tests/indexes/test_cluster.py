"""The store on a simulated cluster: every answer is the whole index's, or an error says what is missing.

The nodes are simulated (`tests/simulated_cluster.py`), the requests are those of the real client.
"""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from biorag.errors import MismatchError, ServiceError
from biorag.indexes.connection import connect
from biorag.indexes.server import ServerIndex
from biorag.indexes.store import Store
from biorag.types import IndexQuery, Snippet
from biorag.utils.network import Server
from tests.cluster_campaign import COUNT, IDS, MANIFEST, PROBES, SNIPPETS, VECTORS, Campaign, load, opened
from tests.memory_engine import MemoryEngine
from tests.simulated_cluster import SimulatedCluster

pytestmark = pytest.mark.filterwarnings("ignore:Local mode performs exact")


@pytest.fixture
def cluster():
    made = SimulatedCluster()
    yield made
    made.close()


@pytest.fixture(scope="module")
def whole():
    """The same snippets in one engine: what every answer is held against."""
    index = ServerIndex(MemoryEngine(), MANIFEST, writable=True)
    index.upsert(SNIPPETS, VECTORS)
    return index


def hits(index, probes=PROBES):
    """The hits of each probe, scores as far as two sums of float32 agree."""
    return [[(hit.id, round(hit.score, 5)) for hit in found] for found in index.search(probes)]


def assert_whole(index, whole) -> None:
    assert hits(index) == hits(whole)
    assert index.fetch([*IDS, "unknown"]) == {snippet.id: snippet for snippet in SNIPPETS}
    assert index.digests(IDS) == {snippet.id: snippet.digest for snippet in SNIPPETS}
    assert index.count() == COUNT
    assert sorted(index.ids()) == IDS
    assert np.allclose(index.dense_vectors([IDS[4]])[IDS[4]], whole.dense_vectors([IDS[4]])[IDS[4]])


def test_every_shard_and_every_replica_holds_its_points(cluster, whole):
    load(cluster)
    collection = cluster.collections["pubmed"]
    held = {shard: set() for shard in collection.states}
    for (shard, _), engine in collection.engines.items():
        ids = {record.payload["id"] for record in engine.scroll("pubmed", limit=100)[0]}
        assert held[shard] in (set(), ids), "the replicas of a shard are the same"
        held[shard] = ids
    assert sorted(id for ids in held.values() for id in ids) == IDS
    with closing(opened(cluster)) as index:
        assert_whole(index, whole)


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_the_loss_of_a_node_changes_no_answer(cluster, whole, lost):
    load(cluster)
    with closing(opened(cluster)) as index:
        words = hits(index, [IndexQuery("fever aspirin", 20)])
        cluster.kill(lost)
        assert_whole(index, whole)
        assert hits(index, [IndexQuery("fever aspirin", 20)]) == words
    with closing(opened(cluster)) as later:
        assert_whole(later, whole)


def test_a_slow_replica_changes_no_answer(cluster, whole):
    load(cluster)
    cluster.nodes[2].latency = 60.0
    with closing(opened(cluster)) as index:
        assert_whole(index, whole)


def test_a_node_that_answers_errors_changes_no_answer(cluster, whole):
    load(cluster)
    cluster.nodes[2].answers = 503
    with closing(opened(cluster)) as index:
        assert_whole(index, whole)


READS = [
    lambda index: index.search(PROBES),
    lambda index: index.fetch(IDS),
    lambda index: index.digests(IDS),
    lambda index: index.dense_vectors(IDS),
    lambda index: index.count(),
    lambda index: list(index.ids()),
]


def test_shards_whose_nodes_are_gone_are_named(cluster):
    load(cluster)
    gone = r"no replica of shards 1 \(node 2: unreachable, node 3: unreachable\), 4 \(node 2: un"
    with closing(opened(cluster, retries=0)) as index:
        cluster.kill(2, 3)
        for read in READS:
            with pytest.raises(ServiceError, match=gone):
                read(index)


@pytest.mark.parametrize("state", ["Dead", "Initializing"])
def test_a_shard_without_a_replica_that_can_be_read_is_named(cluster, state):
    """Of a shard whose one replica is being made, a server's answer is empty and no error: it is noticed here."""
    load(cluster)
    with closing(opened(cluster, retries=0)) as index:
        cluster.collections["pubmed"].states[4] = {2: state, 3: state}
        for read in READS:
            with pytest.raises(ServiceError, match=rf"no replica of shard 4 \(node 2: {state}, node 3: {state}\)"):
                read(index)
    with pytest.raises(ServiceError, match="biorag does not answer from the other shards"):
        opened(cluster, retries=0)


def test_the_server_itself_would_answer_without_a_shard_that_is_being_made(cluster):
    """What the look at the replicas is for."""
    load(cluster)
    cluster.collections["pubmed"].states[4] = {2: "Initializing", 3: "Initializing"}
    client = connect(Server(cluster.url, 20, 0))
    assert 0 < client.count("pubmed").count < COUNT


def test_a_node_that_is_cut_off_is_not_believed(cluster, whole):
    load(cluster, replicas=3)
    cluster.cut(3)
    changed = Snippet("s05", "", "changed meanwhile", 6)
    with closing(opened(cluster, writable=True, replicas=3)) as writer:
        writer.upsert([changed], VECTORS[5:6])
    cluster.order = [3]  # the address now leads to the node that missed the write
    with pytest.raises(ServiceError, match="node 3 of the Qdrant cluster is cut off from the others"):
        opened(cluster)
    cluster.heal(3)
    with closing(opened(cluster)) as index:
        assert index.fetch(["s05"]) == {"s05": changed}, "its own replicas are dead, and others answer for them"


def test_a_node_that_is_cut_off_while_it_is_read_is_noticed(cluster):
    load(cluster, replicas=3)
    cluster.order = [3]
    with closing(opened(cluster)) as index:
        index.search(PROBES)
        cluster.cut(3)
        with pytest.raises(ServiceError, match="cut off"):
            index.search(PROBES)


def test_the_first_node_refuses_and_the_sentence_says_so(cluster):
    load(cluster)
    with closing(opened(cluster)) as index:
        cluster.nodes[1].answers = 507
        with pytest.raises(ServiceError, match=r"answered 507: .*out of memory.*, 2 times"):
            index.search(PROBES)


@pytest.mark.parametrize("consistency", ["majority", 2])
def test_a_higher_read_consistency_needs_more_replicas(cluster, whole, consistency):
    """Of two replicas each of these asks both, so that one that is lost ends the searching; so 1 is the default."""
    load(cluster)
    with closing(opened(cluster, consistency=consistency, retries=0)) as index:
        assert hits(index) == hits(whole)
        cluster.kill(3)
        with pytest.raises(ServiceError, match="read operations failed"):
            index.search(PROBES)


def test_a_quorum_of_three_survives_the_loss_of_one(cluster, whole):
    load(cluster, replicas=3)
    cluster.kill(2)
    with closing(opened(cluster, consistency="quorum")) as index:
        assert hits(index) == hits(whole)


def test_a_write_that_too_few_replicas_took_fails_and_is_written_again(cluster, whole):
    """With two replicas both acknowledge; what one alone holds does not count as stored."""
    load(cluster)
    changed = [Snippet(snippet.id, "", "changed", snippet.pmid) for snippet in SNIPPETS]
    with closing(opened(cluster, writable=True, retries=0)) as writer:
        cluster.nodes[2].answers = 503
        with pytest.raises(ServiceError, match="write operations failed"):
            writer.upsert(changed, VECTORS)
        cluster.nodes[2].answers = None
        stored = writer.digests(IDS)
        missed = [n for n, snippet in enumerate(changed) if stored.get(snippet.id) != snippet.digest]
        torn = [shard for shard, states in cluster.collections["pubmed"].states.items() if 2 in states]
        on_torn = {id for shard, _, ids in cluster.writes if shard in torn for id in ids}
        assert 0 < len(missed) == len(on_torn) < COUNT
        writer.upsert([changed[n] for n in missed], VECTORS[missed])
    for order in ([1], [2], [3]):
        cluster.order = order
        with closing(opened(cluster)) as index:
            assert index.fetch(IDS) == {snippet.id: snippet for snippet in changed}


def test_three_replicas_take_writes_while_one_is_lost_and_the_lost_one_is_not_read(cluster):
    load(cluster, replicas=3)
    cluster.kill(3)
    changed = Snippet("s05", "", "changed meanwhile", 6)
    with closing(opened(cluster, writable=True, replicas=3)) as writer:
        writer.upsert([changed], VECTORS[5:6])
    cluster.start(3)
    cluster.order = [3, 1, 2]
    with closing(opened(cluster)) as index:
        assert index.fetch(["s05"]) == {"s05": changed}
    cluster.recover()
    assert all(set(states.values()) == {"Active"} for states in cluster.collections["pubmed"].states.values())
    cluster.kill(1, 2)
    with pytest.raises(ServiceError, match="node 3 of the Qdrant cluster is cut off"):
        opened(cluster)  # one node of three is no majority


def test_a_cluster_of_fewer_nodes_than_replicas_is_said(cluster, caplog):
    load(cluster, replicas=5)
    assert "has 3 of 5 replicas of a shard: the cluster has too few nodes" in caplog.text


def test_another_layout_of_a_collection_is_refused(cluster, settings):
    load(cluster)
    of_server = settings.replace(name="pubmed", qdrant=cluster.url)
    manifest = Store(of_server).require_manifest()
    for changes, says in [
        ({"shards": 3}, "was made with --shards 6: leave --shards out"),
        ({"replicas": 3}, "was made with --replicas 2"),
        ({"on_disk": True}, "was made without --on-disk"),
    ]:
        with pytest.raises(MismatchError, match=says):
            Store(of_server.replace(**changes)).check_layout(manifest)
    Store(of_server.replace(shards=6, replicas=2)).check_layout(manifest)


@pytest.mark.parametrize("seed", range(2))
def test_no_wrong_or_partial_answer_whatever_happens_to_the_nodes(cluster, seed):
    """Nodes are lost, cut off, slow, refuse, are healed and brought up to date, while snippets are written and read."""
    campaign = Campaign(cluster, seed)
    for _ in range(25):
        campaign.step()
    assert campaign.answers > 5 and campaign.errors > 5, (campaign.answers, campaign.errors)
