"""A collection on a server: what it is made with, loaded and read by; every argument that reaches the server."""

from __future__ import annotations

import json
import socket
from contextlib import closing
from dataclasses import asdict, replace
from unittest.mock import ANY

import numpy as np
import pytest
from qdrant_client import models

from biorag.errors import MismatchError, ServiceError
from biorag.indexes import collection
from biorag.indexes.bm25 import Bm25Encoder
from biorag.indexes.collection import Collection
from biorag.indexes.connection import connect
from biorag.indexes.manifest import COMPACT, Bm25Parameters, Manifest, SourceRecord, TokenParameters
from biorag.indexes.points import PAYLOAD_INDEXES, payload, payload_filter, point_id
from biorag.indexes.server import DIALECT, ServerCollection
from biorag.retrieval.filters import parse_filter
from biorag.settings.section import BoundSecret
from biorag.settings.settings import Settings
from biorag.types import EncoderIdentity, FieldFilter, IndexQuery, Snippet
from biorag.utils.network import Server, origin_of
from tests.cli import invoke, succeeded
from tests.qdrant_standin import MemoryEngine, StandIn

NAME = "pubmed"
MANIFEST = Manifest(
    name=NAME,
    encoder=EncoderIdentity("random", "", "f" * 64, 4),
    similarity="dot",
    quantized=True,
    bm25=Bm25Parameters(0.9, 0.4, 6.0),
    store={"kind": "qdrant", "url": "http://qdrant.test:6333"},
    created="",
    updated="",
)
TOKENS = TokenParameters("encoder", "", "f" * 64, 4, 1, COMPACT)
SNIPPETS = [Snippet(f"s{n:03}", "", f"text {n}", n + 1) for n in range(300)]
VECTORS = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)

pytestmark = pytest.mark.filterwarnings("ignore:Local mode performs exact")


@pytest.fixture
def server():
    made = StandIn()
    yield made
    made.close()


def opened(server, writable=True, manifest=MANIFEST, **settings):
    return at(Server(server.url, 20, 3), writable, manifest, **settings)


def at(reached, writable=True, manifest=MANIFEST, **settings):
    return ServerCollection(reached, Settings.of(name=NAME, **settings)).open(manifest, writable, None)


def collection_at(client, **settings) -> Collection:
    return Collection(client, NAME, Settings.of(optimizing_timeout=60, **settings))


def bodies(server, method: str, path: str) -> list:
    return [body for verb, place, _, body in server.bodies if (verb, place) == (method, f"/collections/{NAME}{path}")]


def queries(server, method: str, path: str) -> list[dict[str, str]]:
    return [query for verb, place, query, _ in server.bodies if (verb, place) == (method, f"/collections/{NAME}{path}")]


# --- making


def test_a_collection_is_made_as_asked(server):
    manifest = replace(MANIFEST, tokens=TOKENS)
    with closing(opened(server, manifest=manifest, shards=6, replicas=3, on_disk=True)):
        (body,) = bodies(server, "PUT", "")
    assert body == {
        "vectors": {
            "dense": {
                "size": 4,
                "distance": "Dot",
                "on_disk": True,
                "quantization_config": {"scalar": {"type": "int8", "quantile": 0.99, "always_ram": True}},
            },
            "tokens": {
                "size": 4,
                "distance": "Dot",
                "hnsw_config": {"m": 0},
                "on_disk": True,
                "datatype": "turbo4",
                "multivector_config": {"comparator": "max_sim"},
            },
        },
        "sparse_vectors": {"bm25": {"index": {"on_disk": True}, "modifier": "idf"}},
        "shard_number": 6,
        "replication_factor": 3,
        "write_consistency_factor": 2,
        "on_disk_payload": True,
        "hnsw_config": {"m": 0},
        "metadata": {"biorag": json.loads(json.dumps(manifest.to_json()))},
    }


def test_payload_indexes_are_made_before_the_first_point(server):
    with closing(opened(server)) as index:
        index.upsert(SNIPPETS[:1], VECTORS[:1])
        index.optimize()
    changes = [(verb, path.removeprefix(f"/collections/{NAME}")) for verb, path in server.requests if verb != "GET"]
    assert changes == [("PUT", ""), *[("PUT", "/index")] * 9, ("PUT", "/points"), ("PATCH", "")]
    assert bodies(server, "PUT", "/index") == [
        {"field_name": "pmid", "field_schema": "integer"},
        {"field_name": "metadata.year", "field_schema": "float"},
        {"field_name": "metadata.retracted", "field_schema": "bool"},
        {"field_name": "keywords.type", "field_schema": "keyword"},
        {"field_name": "keywords.mesh", "field_schema": "keyword"},
        {"field_name": "keywords.journal", "field_schema": "keyword"},
        *({"field_name": key, "field_schema": TEXT} for key in ("title", "content", "metadata.journal")),
    ]
    assert queries(server, "PUT", "/index") == [{"wait": "true", "ordering": "weak"}] * 9


def test_what_is_indexed_is_what_filters_name_and_payloads_have():
    metadata = {"year": 2001, "retracted": False, "type": ["Review"], "mesh": ["Liver"], "journal": "Lancet"}
    asked = {"pmid": 7, "year": 2001, "retracted": False, "type": "Review", "mesh": "Liver", "journal": "Lancet"}
    where = tuple(FieldFilter(key, "=", value) for key, value in asked.items())
    where += tuple(FieldFilter(key, "~", "word") for key in ("title", "content", "journal"))
    assert {condition.key for condition in payload_filter(DIALECT, where).must} == set(PAYLOAD_INDEXES)
    values = payload(Snippet("a", "", "text", 7, metadata))
    for key in PAYLOAD_INDEXES:
        first, _, rest = key.partition(".")
        assert values[first][rest] if rest and rest != "retracted" else first in values


TEXT = {"type": "text", "tokenizer": "word", "lowercase": True, "phrase_matching": True, "on_disk": True}

# --- filters


METADATA = {
    "year": 2001,
    "mesh": ["Liver"],
    "journal": "The Lancet",
    "authors": ["Guo, Y"],
    "volume": "3",
    "open": True,
}
ABOUT = [
    Snippet("a", "Fever", "Aspirin lowers fever.", 1, {**METADATA, "open": True}),
    Snippet("b", "Pain", "It lowers pain.", 2, {"year": 1999, "score": 2.5}),
]
FIELDS = {"authors": "text", "journal": "text", "mesh": "text", "open": "bool", "score": "number", "volume": "text"}
FILTERS = {  # ids of the snippets that are found
    "a": ("title~fever", "authors~guo", "journal~lancet", "mesh=liver", "open", "year>=2000"),
    "b": ("score>=2", "id=b"),
    "": ("journal~Lan",),
}


@pytest.mark.parametrize("strict", [True, False])
def test_a_filter_means_the_same_in_strict_mode_and_without_indexes(server, strict):
    """A server compares words without an index otherwise, and in strict mode filters by indexed keys alone."""
    wheres = [(parse_filter(text), set(ids)) for ids, texts in FILTERS.items() for text in texts]
    wheres += [((FieldFilter(field, "exists", True),), {"a"}) for field in ("mesh", "volume")]
    with closing(opened(server, manifest=replace(MANIFEST, fields=FIELDS, quantized=False))) as index:
        index.upsert(ABOUT, VECTORS[:2])
        server.strict = strict
        for where, ids in wheres * 2:
            (hits,) = index.search([IndexQuery(np.ones(4, np.float32), 5, where)])
            assert {hit.id for hit in hits} == ids, where
    made = [body["field_name"] for body in bodies(server, "PUT", "/index")]
    assert len(made) == len(set(made)), "each index is made once"


def test_a_key_that_may_not_make_the_index_is_told_of_it(server):
    with closing(opened(server)) as index:
        index.upsert(ABOUT, VECTORS[:2])
        server.refuse = lambda method, path: (403, FORBIDDEN) if path.endswith("/index") else None
        with pytest.raises(
            ServiceError, match=r"needs an index of 'metadata.authors' for this filter, and the key may"
        ):
            index.search([IndexQuery(np.ones(4, np.float32), 5, (FieldFilter("authors", "~", "guo"),))])


FORBIDDEN = {"status": {"error": "Forbidden: Global manage access is required"}, "time": 1e-05}
UNREACHED = (
    "Service internal error: 1 of 2 read operations failed:\n  Service internal error: Tonic status error: code: 'The "
    'service is currently unavailable\', message: "Failed to connect to http://127.0.0.1:6345/, error: transport error"'
)


@pytest.mark.parametrize(
    ("status", "reply", "sentence"),
    [
        (
            401,
            "Must provide an API key or an Authorization bearer token",
            "asks for a key: set QDRANT_API_KEY, or BIORAG",
        ),
        (401, "Invalid API key or JWT", "asks for a key: check QDRANT_API_KEY, which it does not take"),
        (403, FORBIDDEN, r"may not do this \(Global manage access is required\): take one that may, to read"),
        (403, {"status": {"error": "Forbidden: yek terces"}}, "may not do this: take one that may"),
        (400, {"status": {"error": "Bad request: Wrong input: no"}}, "refused: Wrong input: no$"),
        (500, {"status": {"error": UNREACHED}}, "it does not reach its node at 127.0.0.1:6345, "),
        (502, "<html><h1>Bad Gateway</h1></html>", "answered 502: Bad Gateway, "),
    ],
)
def test_a_refusal_is_told_in_the_server_s_own_words(server, status, reply, sentence):
    with closing(opened(server)) as index:
        server.refuse = lambda method, path: (status, reply)
        with pytest.raises(ServiceError, match=sentence) as caught:
            index.count()
        assert "{" not in str(caught.value), "no JSON"


@pytest.mark.parametrize(
    ("status", "reply"),
    [
        (413, "<html>413 Payload Too Large</html>"),
        (400, {"status": {"error": "JSON payload (2000000 bytes) is larger than allowed (limit: 1048576 bytes)."}}),
        (
            429,
            {
                "status": {
                    "error": "Rate limiting exceeded: request larger than capacity, please try to split your request"
                }
            },
        ),
    ],
)
def test_a_request_that_is_too_large_is_sent_in_parts(server, status, reply):
    with closing(opened(server)) as index:
        server.refuse = lambda method, path: (status, reply) if too_large(server, method, path) else None
        index.upsert(SNIPPETS, VECTORS)
        assert index.count() == len(SNIPPETS)
        assert len(index.digests([snippet.id for snippet in SNIPPETS])) == len(SNIPPETS)


def too_large(server, method: str, path: str) -> bool:
    body = server.bodies[-1][3]
    return path.endswith("/points") and len(body.get("points") or body.get("ids") or ()) > 40


RATE = 30  # a minute


def test_a_load_within_a_managed_server_s_limits_ends_complete(server, monkeypatch):
    """1 MB a request, 50 points an upsert and 30 reads a minute, with token vectors; it says how long to wait."""
    now, left = [0.0], [float(RATE), 0.0]  # seconds; reads left, and when that was
    monkeypatch.setattr("biorag.utils.http.time.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))

    def limited(method, path):
        body = server.bodies[-1][3] or {}
        if len(json.dumps(body)) > 1 << 20:
            return 413, "<html>413 Payload Too Large</html>"
        if method == "GET" or not path.endswith(("/points", "/count", "/batch")) or "points" in body:
            return None
        cost = len(body.get("ids", ())) or 1
        left[:] = min(RATE, left[0] + (now[0] - left[1]) * RATE / 60), now[0]
        if cost > RATE:
            fault = (
                "Read rate limit exceeded, request larger than rate limiter capacity, please try to split your request"
            )
        elif cost > left[0]:
            server.retry_after = (cost - left[0]) * 60 / RATE
            fault = "Read rate limit exceeded, retry later"
        else:
            left[0] -= cost
            return None
        return 429, {"status": {"error": f"Rate limiting exceeded: {fault}"}, "time": 1e-05}

    server.most, server.refuse = 50, limited
    snippets = [Snippet(f"s{n:03}", "", "text " * 40) for n in range(300)]
    rng = np.random.default_rng(0)
    tokens = [rng.normal(size=(40, 64)).astype(np.float32) for _ in snippets]
    manifest = replace(MANIFEST, quantized=False, tokens=replace(TOKENS, dimension=64))
    with closing(opened(server, manifest=manifest)) as index:
        for first in range(0, len(snippets), 128):
            part = slice(first, first + 128)
            assert index.digests([snippet.id for snippet in snippets[part]]) == {}
            index.upsert(
                snippets[part], rng.normal(size=(128, 4)).astype(np.float32)[: len(snippets[part])], tokens[part]
            )
        assert index.count() == len(snippets)
    sizes = [len(body["points"]) for body in bodies(server, "PUT", "/points")]
    assert max(sizes[-5:]) <= 50 and now[0] > 300, "300 ids at 30 a minute are 10 minutes"


def test_a_writer_s_sources_have_keys_of_their_own(server):
    """Of a collection of before 0.3 too, whose manifest has them within; what another removed stays removed."""
    first, second, third, changed = (SourceRecord(name, hash * 64, 1, 1) for name, hash in ("a1", "b2", "c3", "a4"))
    client = connect(Server(server.url, 20, 3))
    made = collection_at(client)
    made.prepare(replace(MANIFEST, sources=(first, second)))

    def write(brought=(), gone=()):
        made.save(MANIFEST, brought, gone)
        return made.manifest().sources

    assert made.manifest().sources == (first, second)
    assert write() == (first, second)
    assert write([changed], [first]) == (second, changed)
    assert write([third]) == (second, changed, third), "of a writer that began before the last"
    assert write([third]) == (second, changed, third), "two writers brought it"
    assert write([replace(changed, snippets=9)], [changed]) == (second, replace(changed, snippets=9), third)
    held = server.engine.get_collection(NAME).config.metadata
    assert held["biorag"]["sources"] == [] and len(held) == 4
    old = {**held["biorag"], "sources": [asdict(first), asdict(third)]}  # a version before 0.3 has written meanwhile
    client.update_collection(NAME, metadata={"biorag": old})
    assert set(made.manifest().sources) == {first, second, third, replace(changed, snippets=9)}
    assert set(write(gone=[second])) == {first, third, replace(changed, snippets=9)}
    client.update_collection(NAME, metadata={"biorag source": 1, "biorag source x": [], "biorag source y": {"a": 1}})
    assert len(write()) == 3, "what biorag does not write is left alone"
    for junk in (5, None, "ab", [1], {"a": 1}):
        client.update_collection(NAME, metadata={"biorag": {**held["biorag"], "sources": junk}})
        with pytest.raises(MismatchError, match="is damaged"):
            made.manifest()


# --- loading


def test_the_graph_is_off_while_points_come_in_and_on_afterwards(server):
    with closing(opened(server)) as index:
        index.upsert(SNIPPETS[:5], VECTORS[:5])
        assert server.engine.get_collection(NAME).config.hnsw_config.m == 0
        index.optimize()
    assert bodies(server, "PATCH", "") == [{"hnsw_config": {"m": 16}}]


def test_a_load_that_was_killed_ends_with_the_graph_and_all_payload_indexes(server):
    opened(server).close()  # and killed before the rest
    del server.engine._schema[NAME]["keywords.mesh"]
    server.bodies.clear()
    with closing(opened(server)) as index:
        assert bodies(server, "PUT", "") == []
        assert bodies(server, "PUT", "/index") == [{"field_name": "keywords.mesh", "field_schema": "keyword"}]
        index.upsert(SNIPPETS[:5], VECTORS[:5])
        index.optimize()
    assert server.engine.get_collection(NAME).config.hnsw_config.m == 16


# --- waiting


class Clock:
    """Time that passes only while one sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(collection, "time", made)
    monkeypatch.setattr(collection, "PAUSE", 0.5)
    return made


def engine(*statuses: str) -> MemoryEngine:
    made = MemoryEngine()
    made.create_collection(NAME, vectors_config={})
    made.statuses = [models.CollectionStatus(status) for status in statuses]
    return made


def test_green_must_last(clock):
    """The status is the old one until the server has read the change of its configuration."""
    client = engine("green", "yellow", "yellow", "green")
    collection_at(client).wait_until_green()
    assert (client.statuses, client.updates) == ([], [])
    assert clock.now >= 1.0


def test_a_grey_collection_is_woken(clock):
    client = engine("grey", "yellow", "grey", "yellow", "green")
    collection_at(client).wait_until_green()
    assert client.updates == [{"optimizers_config": models.OptimizersConfigDiff()}] * 2


def test_waiting_without_progress_ends(clock, status="yellow"):
    with pytest.raises(ServiceError, match=f"no progress for 60 s \\({status}: 0 vectors of 0 points") as caught:
        collection_at(engine(*[status] * 1000)).wait_until_green()
    assert 60 < clock.now < 70 and "give the same command again" in str(caught.value)


def test_a_failed_optimizer_is_an_error_at_once(clock):
    with pytest.raises(ServiceError, match="optimizer of collection 'pubmed' failed"):
        collection_at(engine("yellow", "red")).wait_until_green()


# --- reading


def test_what_a_search_sends(server):
    with closing(opened(server)) as index:
        index.upsert(SNIPPETS[:3], VECTORS[:3])
        recent = (FieldFilter("year", ">=", 2015),)
        index.search(
            [
                IndexQuery(VECTORS[0], 2),
                IndexQuery(VECTORS[0], 40, recent),
                IndexQuery(VECTORS[0], 2, exact=True),
                IndexQuery(VECTORS[0], 2, among=frozenset({"s001"})),
                IndexQuery("text", 2),
            ]
        )
    ((*dense, by_words),) = [body["searches"] for body in bodies(server, "POST", "/points/query/batch")]
    quantization = {"rescore": True, "oversampling": 2.0}
    common = {"query": {"nearest": VECTORS[0].tolist()}, "using": "dense", "with_payload": ["id"]}
    graph = {"exact": False, "quantization": quantization}
    beyond = {"acorn": {"enable": True, "max_selectivity": 1.0}}
    year = {"must": [{"key": "metadata.year", "range": {"gte": 2015.0}}], "must_not": []}
    ids = {"must": [{"has_id": [str(point_id("s001"))]}], "must_not": []}
    assert dense == [
        {**common, "limit": 2, "params": {"hnsw_ef": 128, **graph}},
        {**common, "limit": 40, "params": {"hnsw_ef": 200, **graph, **beyond}, "filter": year},
        {**common, "limit": 2, "params": {"hnsw_ef": 128, **graph, "exact": True}},
        {**common, "limit": 2, "params": {"hnsw_ef": 128, **graph, "exact": True}, "filter": ids},
    ]
    indices, values = Bm25Encoder.of(MANIFEST).query("text")
    words = {"nearest": {"indices": indices, "values": values}}
    assert by_words == {"query": words, "using": "bm25", "limit": 2, "params": ANY, "with_payload": ["id"]}


# --- shards without a replica


READS = [
    lambda index: index.search([IndexQuery(VECTORS[0], 2)]),
    lambda index: index.fetch(["s001"]),
    lambda index: index.digests(["s001"]),
    lambda index: index.dense_vectors(["s001"]),
    lambda index: index.count(),
    lambda index: list(index.ids()),
]


@pytest.fixture
def spread(server, monkeypatch):
    """A collection of three shards on two nodes, open to be read; each read is followed by a look."""
    monkeypatch.setattr("biorag.indexes.server.LOOK", -1.0)
    monkeypatch.setattr(collection, "ELECTION", 0.01)
    opened(server, shards=3).close()
    server.engine.replicas = {shard: {1: "Active", 2: "Active"} for shard in range(3)}
    index = opened(server, writable=False)
    yield index
    index.close()


@pytest.mark.parametrize("states", [{1: "Dead", 2: "Initializing"}, {}])
def test_no_read_is_answered_without_a_shard(server, spread, states):
    """Of a shard whose one replica is being made, a server's answer is empty and no error: it is noticed here."""
    server.engine.replicas[1] = states
    listed = r" \(node 1: Dead, node 2: Initializing\)" if states else ""
    for read in READS:
        with pytest.raises(ServiceError, match=f"no replica of shard 1{listed} can be read"):
            read(spread)
    with pytest.raises(ServiceError, match="biorag does not answer from the other shards"):
        opened(server, writable=False)


def test_a_shard_with_one_active_replica_is_read(server, spread):
    server.engine.replicas[1] = {1: "Dead", 2: "Active"}
    assert [read(spread) for read in READS] == [[[]], {}, {}, {}, 0, []]


def test_a_node_that_is_cut_off_is_not_believed(server, spread):
    server.engine.leader = 0
    for read in READS:
        with pytest.raises(ServiceError, match="node 1 of the Qdrant cluster is cut off from the others"):
            read(spread)


def test_a_writer_counts_as_stored_what_enough_replicas_hold(server):
    with closing(opened(server, replicas=3)) as index:
        index.digests(["s001"])
        index.fetch(["s001"])
    assert queries(server, "POST", "/points") == [{"consistency": "2"}, {}]


def test_a_cluster_of_fewer_nodes_than_replicas_is_said(server, caplog):
    with closing(opened(server, replicas=5)):
        assert "has 1 of 5 replicas of a shard: the cluster has too few nodes" in caplog.text


def test_another_layout_of_a_collection_is_refused(server, settings):
    opened(server, shards=3).close()
    collection_at(server.engine, shards=3, replicas=1).check_layout()
    with pytest.raises(MismatchError, match="was made with --shards 3: leave --shards out"):
        collection_at(server.engine, shards=2).check_layout()


# --- the command line


def test_the_options_reach_the_server_and_info_shows_what_came_of_them(server, corpus_file, tiny_encoder, tmp_path):
    options = ("--shards", 3, "--replicas", 1, "--on-disk", "--quantize", "--encoder", tiny_encoder)
    home = tmp_path / "home"
    succeeded(invoke("index", corpus_file, "--qdrant", server.url, "--name", NAME, *options, home=home))
    (body,) = bodies(server, "PUT", "")
    assert (body["shard_number"], body["replication_factor"], body["on_disk_payload"]) == (3, 1, True)
    assert body["vectors"]["dense"]["quantization_config"]["scalar"]["always_ram"] is True
    shown = json.loads(invoke("info", NAME, "--qdrant", server.url, "--json", home=home).stdout)["server"]
    assert (shown["status"], shown["optimizer"], shown["replicas"], shown["points"]) == ("green", "ok", 1, 12)
    assert shown["shards"][1] == {"shard": 1, "points": 0, "replicas": {"1": "Active"}}
    table = invoke("info", "--qdrant", server.url, home=home).stdout
    assert "# Collection pubmed" in table and "0\t12\t1: Active" in table and "# Sources" in table


@pytest.mark.parametrize("option", [("--shards", 3), ("--on-disk",)])
def test_the_options_of_a_server_are_refused_where_none_is_named(corpus_file, tmp_path, option):
    result = invoke("index", corpus_file, "--name", "mine", *option, home=tmp_path / "home")
    assert result.exit_code == 2
    assert f"{option[0]} is for an index on a Qdrant server, and 'mine' is embedded" in result.stderr


# --- nodes


@pytest.fixture
def dead():
    """The URL of a port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    return f"http://127.0.0.1:{port}"


def test_another_address_is_asked_where_one_is_dead(server, dead):
    for order in ((dead, server.url), (server.url, dead)):
        with closing(at(Server(",".join(order), 20, 0))) as index:
            index.upsert(SNIPPETS[:5], VECTORS[:5])
            assert index.count() == 5
    with pytest.raises(ServiceError, match=rf"at {dead} and {dead}/b failed: .*refused, once"):
        at(Server(f"{dead},{dead}/b", 20, 0), False)


def test_a_node_that_hangs_is_left_at_the_next_try(server):
    with closing(opened(server)) as index:
        index.upsert(SNIPPETS[:5], VECTORS[:5])
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        urls = f"http://127.0.0.1:{hangs.getsockname()[1]},{server.url}"
        with closing(at(Server(urls, 0.5, 1), False)) as index:
            assert index.count() == 5


def test_a_key_set_for_one_address_goes_to_no_other():
    urls = "http://a:6333,http://b:6333"
    for origins, key in (("http://a:6333", None), ("http://b:6333,http://a:6333", "key")):
        bound = Settings.of(qdrant=urls, qdrant_api_key=BoundSecret("key", origin_of(origins)))
        assert bound.services.server(urls, "qdrant").api_key == key
