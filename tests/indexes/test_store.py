"""Finding an index: its manifest, the store that holds it, and whether it fits the encoder and settings."""

from dataclasses import replace

import numpy as np
import pytest
from qdrant_client import QdrantClient

from biorag.errors import MismatchError, MissingError
from biorag.indexes import server
from biorag.indexes.collection import Collection
from biorag.indexes.manifest import Manifest
from biorag.indexes.store import Store, check_encoder, check_settings
from biorag.types import EncoderIdentity, IndexQuery, Snippet
from biorag.utils.files import write_json
from tests.qdrant_standin import MemoryEngine

URL, OTHER_URL = "http://qdrant.test:6333", "http://other.test:6333"
IDENTITY = EncoderIdentity("hash-encoder", "", "f" * 64, 16)
SNIPPETS = [Snippet("a", "", "liver"), Snippet("b", "", "heart")]
VECTORS = np.eye(2, 16, dtype=np.float32)

pytestmark = pytest.mark.filterwarnings("ignore:Local mode performs exact")


def kept(settings, name: str = "test", **changes) -> Manifest:
    """Save a manifest under the home as a finished run would."""
    manifest = replace(Store(settings.replace(name=name)).new_manifest(IDENTITY, 10.0), complete=True, **changes)
    write_json(settings.indexes / name / "manifest.json", manifest.to_json())
    return manifest


@pytest.fixture
def servers(monkeypatch) -> dict[str, QdrantClient]:
    """In-memory stand-ins for servers, by URL; nothing goes over a network."""
    clients: dict[str, QdrantClient] = {}

    def connect(reached):
        return clients.setdefault(reached.url, MemoryEngine())

    monkeypatch.setattr(server, "connect", connect)
    return clients


# --- the manifest


# --- does it fit


def test_other_weights_are_refused_naming_both(settings):
    manifest = kept(settings)
    check_encoder(manifest, "f" * 64, "hash-encoder by another name", {})
    with pytest.raises(MismatchError) as caught:
        check_encoder(manifest, "e" * 64, "other-encoder", {})
    message = str(caught.value)
    assert (
        "index 'test' was made with encoder 'hash-encoder' (ffffffffffff), not 'other-encoder' (eeeeeeeeee" in message
    )
    assert "--encoder" in message and "--name" in message
    assert caught.value.exit_code == 5


@pytest.mark.parametrize(("made", "asked"), [("cosine", "dot"), ("dot", "cosine")])
def test_another_similarity_is_refused(settings, made, asked):
    manifest = kept(settings, similarity=made)
    check_settings(manifest, settings)
    check_settings(manifest, settings.replace(similarity=made))
    with pytest.raises(MismatchError, match=rf"made for {made} similarity, not {asked}: leave --similarity") as caught:
        check_settings(manifest, settings.replace(similarity=asked))
    assert caught.value.exit_code == 5


# --- where it lies


def test_an_embedded_index_is_refused_at_a_server(settings):
    kept(settings)
    with pytest.raises(MismatchError, match=rf"'test' lies in the embedded store, not at {URL}") as caught:
        Store(settings.replace(qdrant=URL)).manifest()
    assert caught.value.exit_code == 5


def test_an_index_at_one_server_is_refused_at_another(settings, servers):
    kept(settings, store={"kind": "qdrant", "url": OTHER_URL})
    sentence = rf"'test' lies in {OTHER_URL}, not at {URL}, where there is no such index: choose another --name"
    with pytest.raises(MismatchError, match=sentence):
        Store(settings.replace(qdrant=URL)).manifest()
    elsewhere = Store(settings.replace(qdrant=URL, home=settings.home / "b"))
    elsewhere.open(replace(elsewhere.new_manifest(IDENTITY, 1.0), created="2001"), writable=True)
    with pytest.raises(MismatchError, match=f"not at {URL}, where there is another index"):
        Store(settings.replace(qdrant=URL)).manifest()


@pytest.mark.parametrize("url", [URL + "/", OTHER_URL])
def test_an_index_is_followed_to_where_it_lies_now(settings, servers, url):
    """Another node of a cluster, or a server that has moved: named once with its new address."""
    store = Store(settings.replace(qdrant=URL))
    manifest = replace(store.new_manifest(IDENTITY, 10.0), complete=True)
    store.open(manifest, writable=True)
    store.save(manifest)
    servers[OTHER_URL] = servers[URL]
    found = Store(settings.replace(qdrant=url)).require_manifest()
    assert (found.identity, found.store["url"]) == (manifest.identity, url.rstrip("/"))
    assert Store(settings).require_manifest().store["url"] == url.rstrip("/"), "found again without its URL"


def test_an_index_at_a_server_is_found_again_without_its_url(settings, servers):
    store = Store(settings.replace(qdrant=URL))
    assert store.manifest() is None
    manifest = store.new_manifest(IDENTITY, 10.0)
    index = store.open(manifest, writable=True)
    index.upsert(SNIPPETS, VECTORS)
    store.save(replace(manifest, snippets=2, complete=True))
    assert Collection(servers[URL], "test", settings).manifest() == replace(manifest, snippets=2, complete=True)
    again = Store(settings)  # no --qdrant: the local manifest tells where
    assert again.manifest() == replace(manifest, snippets=2, complete=True)
    found = again.open(again.require_manifest()).search([IndexQuery(VECTORS[1], 1)])
    assert [hit.id for hit in found[0]] == ["b"]


def test_a_collection_that_biorag_did_not_make_is_refused(settings, servers):
    store = Store(settings.replace(qdrant=URL))
    store.open(store.new_manifest(IDENTITY, 10.0), writable=True)
    servers[URL].delete_collection("test")
    servers[URL].create_collection("test", vectors_config={})
    with pytest.raises(MismatchError, match="collection 'test' on the server was not made by biorag") as caught:
        store.manifest()
    assert caught.value.exit_code == 5


def test_an_index_gone_from_its_server_is_missing(settings, servers):
    kept(settings, store={"kind": "qdrant", "url": URL})
    with pytest.raises(MissingError) as caught:
        Store(settings).require_manifest()
    assert "'test'" in str(caught.value)
    with pytest.raises(MissingError, match="collection 'test' is not on the server: run 'biorag index' first"):
        Store(settings).open(Store(settings.replace(qdrant=URL)).new_manifest(IDENTITY, 10.0))
